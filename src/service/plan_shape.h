// plan.json as the service shows it (README.md of this folder), and the seed's rule of thumb beside it.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "service/service_settings.h"

namespace distsetup {

// Of a plan that was made, whatever its verdict.
Json plan_shape(const Json& plan);
// What the rule by parameter count says: under 1B inline; 1B to 7B either; 7B to 30B remote on 2 to 8 GPUs; from 30B remote on 8 or
// more, with offload. `words`: the hardware to try that on, as flags of `distsetup plan`.
struct ProviderRule {
  std::string rule, recommended;  // "inline", "either", "remote"
  std::vector<std::string> words;
};
ProviderRule provider_rule(int64_t parameters);

}  // namespace distsetup
