// What a program exchanges with the ranks that share its tensors (tensor parallelism), its sequences (context parallelism) or its
// experts (expert parallelism), and stages of a pipeline with each other.
#pragma once
#include <map>
#include <memory>
#include <span>

#include "plan/program.h"
#include "runtime/comm/communicator.h"
#include "runtime/engine/ops.h"

namespace distsetup {

// Shifts that are under way, by where they arrive.
using Shifts = std::map<const void*, std::unique_ptr<Work>>;

// An op that gathers rows of all ranks of its group, adds the parts that each has of every row and keeps this rank's rows, or gives
// each rank its part of the rows. Complete when it returns: on the host, or in the order of the compute stream. A kShift alone is
// complete after its kWait. Returns the seconds that the host was blocked.
double exchange(const Op& op, const Call& call, Communicator& communicator, const Kernels& kernels, Shifts& shifts);

// A kDispatchRows or kCollectRows (src/plan/expert_parallel.h). starts: the op's second operand, as the host can read it. Complete
// when it returns, as exchange().
bool exchanges_rows(const Op& op);
double exchange_rows(const Op& op, const Call& call, std::span<const int64_t> starts, Communicator& communicator,
                     const Kernels& kernels);

// A kSend or kRecv of the list, under way.
std::unique_ptr<Work> transfer(const Schedule& schedule, const Instruction& instruction, const Call& call, Communicator& communicator);

}  // namespace distsetup
