// A job before it runs: the lists of all its ranks executed against each other, without torch. What a rank's own list must obey is in
// invariants.h and ordering.h, which this calls; here is what only several ranks together show:
//
//   meeting     all members of a group issue the same collectives in the same order on a communicator, and no two ranks wait for each
//               other across communicators. Ranks are run as if every collective blocked where it is issued: that is harder than any
//               backend, so what passes cannot hang. Ranks that run a program together exchange the same data in it in the same order.
//   provenance  every gradient that the optimizer reads holds each contribution (of a rank, a micro-batch and a unit that writes it)
//               exactly once; the norm holds each shard once, the loss each micro-batch once; programs compute with the parameters of
//               the last optimizer step, on all ranks. Contributions are random 64-bit numbers, sums are sums modulo 2^64: a missing
//               or doubled one goes unseen with probability 2^-64.
//
// Left out: which elements of a buffer a chunk covers (layout.h has its own tests), and values.
#pragma once
#include <string>
#include <vector>

#include "plan/schedule.h"

namespace distsetup {

// by_rank: the expanded list of one phase for each rank of the plan's mesh; ranks may share one. Broken rules as messages, at most
// 20; empty: all hold. 512 ranks of a 70B model take well under a second.
std::vector<std::string> check_job(const Plan& plan, const std::vector<const Schedule*>& by_rank);

// Compiles and checks every phase of the plan. Above 512 ranks a smaller mesh stands for the whole: all stages of the pipeline, every
// other axis cut to at most 4 ranks (2 in a pipeline). Ranks of a stage run the same list, so more of them add nothing new.
std::vector<std::string> check_job(const Plan& plan);

}  // namespace distsetup
