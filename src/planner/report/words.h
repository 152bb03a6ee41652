// Words that a plan's texts share.
#pragma once
#include <string_view>

#include "plan/plan.h"

namespace distsetup {

std::string_view verdict_words(Verdict verdict);           // "fits", "tight", "does not fit"
std::string_view rank_word(const HardwarePlan& hardware);  // "GPU", or "rank" on CPU

}  // namespace distsetup
