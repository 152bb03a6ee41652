// The rules of what stands between the gradient norm and the optimizer's step (update_writer.h), of one list. Part of
// check_invariants; check_job sees that all ranks have had their part.
#pragma once
#include <string>
#include <vector>

#include "plan/schedule.h"

namespace distsetup {

// adafactor: sums, their reduction over the group that shards parameters, means, theirs, each once and in this order, then the step.
// muon: each unit with matrices has momentum, gather, orthogonalisation, reduction and Accumulate once and in this order, each
// transfer waited for, all of it after the norm and before the step. Other optimizers: nothing of it.
std::vector<std::string> check_update(const Plan& plan, const Schedule& schedule);

}  // namespace distsetup
