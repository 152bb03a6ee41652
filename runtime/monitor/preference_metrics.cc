#include "runtime/monitor/preference_metrics.h"

#include <fmt/format.h>

#include "base/json.h"

namespace distsetup {
namespace {

double margin_of(const PreferenceNumbers& n) { return n[kRewardsChosen] - n[kRewardsRejected]; }

}  // namespace

void add_preference_metrics(const PreferenceNumbers& n, Json& line) {
  line["rewards/chosen"] = n[kRewardsChosen];
  line["rewards/rejected"] = n[kRewardsRejected];
  line["rewards/margins"] = margin_of(n);
  line["rewards/accuracies"] = n[kRewardAccuracies];
  line["logps/chosen"] = n[kLogpsChosen];
  line["logps/rejected"] = n[kLogpsRejected];
}

std::string preference_text(const PreferenceNumbers& n) {
  return fmt::format("  margin {:.4f}  accuracy {:.0f} %", margin_of(n), 100 * n[kRewardAccuracies]);
}

}  // namespace distsetup
