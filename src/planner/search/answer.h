// solve: the fewest nodes whose best plan fits, with who lost and why. One for all trainers.
#pragma once
#include <optional>
#include <vector>

#include "planner/search/selection.h"

namespace distsetup {

enum class Shortfall { kSkip, kFind };

// Nodes from problem.node_counts in turn until the best plan fits; with kFind, where none does, the first number on which something is
// likely to (80 %), else that of the likeliest, else what misses by least on the largest; and reasons and runners-up. No fixes. nullopt: no legal combination on any number
// of nodes (`why`), or, with kSkip, none that is an answer. Where none is, and the problem says so, head and loss are tried in chunks.
std::optional<Plan> solve(const Problem& problem, Diagnostics& why, Shortfall shortfall);

// What counts as an answer: fits; where a bound is all that is known, tight.
bool is_answer(const Plan& plan);

// The runners-up of the answer, and the clause that decided against each.
std::vector<Alternative> runners_up(const Problem& problem, const SearchResult& result, const SelectionRules& rules);

// The clause that decided between two plans of one problem.
std::string why_lost(const Problem& problem, const Plan& other, const Plan& best);

}  // namespace distsetup
