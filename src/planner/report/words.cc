#include "planner/report/words.h"

namespace distsetup {

std::string_view verdict_words(Verdict verdict) {
  return verdict == Verdict::kFits ? "fits" : verdict == Verdict::kTight ? "tight" : "does not fit";
}

std::string_view rank_word(const HardwarePlan& hardware) { return hardware.accelerator == Accelerator::kCpu ? "rank" : "GPU"; }

}  // namespace distsetup
