// Choice: a value for everything that search decides, on a given number of nodes. The same for every trainer; an axis that a trainer
// does not have stands at 1.
#pragma once
#include <cstdint>
#include <string>

#include "planner/resolve/problem.h"

namespace distsetup {

struct Choice {
  Sharding sharding = Sharding::kZero3;
  bool reshard_after_forward = true;
  int dp_replicate = 1, dp_shard = 1;
  int64_t micro_batch = 1, gradient_accumulation = 1;
  Recompute recompute = Recompute::kNone;
  int tp = 1, pp = 1, virtual_stages = 1, cp = 1, ep = 1;
  CpMethod cp_method = CpMethod::kRing;
  int hpz = 1;
  bool operator==(const Choice&) const = default;
};

// Copies of what is sharded: one more pair of groups.
inline bool is_hybrid(const Choice& c) { return c.sharding != Sharding::kDdp && c.dp_replicate > 1; }

// The plan of a choice, memory and time not filled in yet.
Plan plan_of(const Problem& problem, int nodes, const Choice& choice);
void apply(const Problem& problem, const Choice& choice, Plan& plan);  // to a plan of the same problem
Choice choice_of(const Plan& plan);

// "zero3 in 2 × 8 · tp 4 · micro-batch 2 · recompute selective": how a plan is called in one line. every_k: of recompute every_k.
std::string summary(const Choice& choice, int every_k);
std::string summary(const Plan& plan);
// Its first words: "zero3 in 2 × 8".
std::string sharding_summary(const Choice& choice);

}  // namespace distsetup
