// The questions before a run, answered by planning several times: why this value (explain DECISION), which strategy, what if (sweep).
#pragma once
#include <string>
#include <vector>

#include "cli/settings/session.h"
#include "planner/planner.h"

namespace distsetup {

// One plan of a table: a value of the setting that is varied, and what came of it.
struct Trial {
  std::string value;
  std::optional<Plan> plan;  // nothing when no plan is legal
  std::string refused;       // then: why
};
Trial try_value(const Arguments& arguments, const Session& session, Spec spec,
                const std::vector<std::pair<std::string, std::string>>& settings, std::string label);

// A table of trials for a terminal, and as JSON.
std::string trials_text(const std::string& heading, const std::vector<Trial>& trials, const std::string& chosen,
                        const TextStream& stream);
Json trials_json(const std::vector<Trial>& trials);

// `distsetup explain DECISION` with settings of a run: strategy, sharding, recompute, micro_batch, tp, pp, cp, ep, nodes.
bool is_decision(std::string_view word);
std::vector<std::string> decision_names();
int explain_decision(const Arguments& arguments, const Session& session, const Terminal& terminal, std::string_view decision);

}  // namespace distsetup
