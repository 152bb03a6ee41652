// Planning the same run several times with one setting varied: what `explain DECISION` and `sweep` print.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json_fwd.h"
#include "cli/settings/session.h"
#include "plan/plan.h"

namespace distsetup {

// One plan of a table: a value of the setting that is varied, and what came of it.
struct Trial {
  std::string value;
  std::optional<Plan> plan;  // nothing when no plan is legal
  std::string refused;       // then: why
};
Trial try_value(const Arguments& arguments, const Session& session, Spec spec,
                const std::vector<std::pair<std::string, std::string>>& settings, std::string label);

// A table of trials for a terminal, the `chosen` one marked, and as JSON.
std::string trials_text(const std::string& heading, const std::vector<Trial>& trials, const std::string& chosen,
                        const TextStream& stream);
Json trials_json(const std::vector<Trial>& trials);

}  // namespace distsetup
