// Why this value: `distsetup explain DECISION` with settings of a run plans it once per value.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "cli/settings/session.h"

namespace distsetup {

bool is_decision(std::string_view word);
std::vector<std::string> decision_names();  // strategy, sharding, recompute, micro_batch, tp, pp, cp, ep, nodes
int explain_decision(const Arguments& arguments, const Session& session, const Terminal& terminal, std::string_view decision);

}  // namespace distsetup
