// Which of two plans is preferred where their seconds do not decide.
#pragma once
#include <tuple>

#include "planner/search/predictor.h"

namespace distsetup {

// Fewer axes; then less sharding (ddp, zero1, zero2, zero3 that stays gathered, zero3), one mesh before copies, less recomputation,
// less memory, a smaller micro-batch.
bool simpler(const Candidate& a, const Candidate& b, const SelectionRules& rules);
// How many kinds of parallelism a reader has to understand beyond sharding.
int num_axes(const Choice& choice, const SelectionRules& rules);
int recompute_order(Recompute recompute);  // none, selective, every_k, keep_attention, full

// By more than a point: probabilities are no better known.
bool is_likelier(const Candidate& a, const Candidate& b);

// Sharding, whether it is hybrid, and recompute: what a reader calls another plan.
using Kind = std::tuple<Sharding, bool, int>;
Kind kind_of(const Choice& choice);

}  // namespace distsetup
