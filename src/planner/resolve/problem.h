// Problem: what is to be solved. Nothing optional, checked, not changed afterwards. It is the same for every trainer: what is settled
// (base), what may be chosen (the pins), and what the trainer that runs it has (trainer).
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "model/hardware.h"
#include "plan/plan.h"
#include "planner/frameworks/setup.h"
#include "planner/resolve/run_length.h"
#include "planner/resolve/trainers.h"

namespace distsetup {

// What is best among the plans that fit. kMinGpus, kMaxContext and kMinCost are loops around the search (search/goal.h).
enum class Goal { kThroughput, kMinGpus, kMaxContext, kMinCost, kMinMemory };

// Largest micro_batch × sequence_length²: query-key pairs of one forward. Attention's FLOPs stay far inside 64 bits.
inline constexpr double kMostPairs = 1e14;

// What is tried where nothing is said of recomputation, least of it first; of these what the trainer has.
inline std::vector<Recompute> searched_recomputes() {
  return {Recompute::kNone, Recompute::kSelective, Recompute::kKeepAttention, Recompute::kFull};
}

inline constexpr int kMaxNodes = 512;  // where a number of nodes is looked for
// To try: each, from 16 on each fourth, from 64 on each sixteenth.
inline std::vector<int> node_counts_from(int fewest) {
  std::vector<int> counts;
  for (int n = fewest; n <= kMaxNodes; n += n < 16 ? 1 : n < 64 ? 4 : 16) counts.push_back(n);
  return counts;
}

struct Problem {
  Plan base;               // all that is settled; mesh, strategy, micro_batch, recompute are the search's
  TrainerFacts trainer;    // what the trainer of base.strategy.trainer has
  std::string chosen_for;  // the target whose trainer it is; empty: the user named the trainer
  std::string stands_in;   // nobody was named and the bundled trainer cannot run this: why it is this one. Empty: not so
  // For trainers other than the bundled one: all that is settled, as the models of their memory and time take it.
  Setup setup;
  std::map<std::string, Gpu> gpus;  // by preset id: smallest-that-fits tries others

  // What may be chosen. Of a number 0 means that it is searched.
  std::vector<int> node_counts;  // to try, ascending; one when given
  std::vector<Sharding> shardings;
  std::vector<int> reshard_after_forward;  // of zero3: {1}, {0} or {1, 0}
  std::vector<Recompute> recomputes;
  int recompute_every_k = 0;
  bool may_chunk_loss = false;  // where nothing fits with all logits at once (chunked_loss.h)
  int dp_shard = 0, dp_replicate = 0;
  std::optional<bool> hierarchical_reduction;  // of the bundled trainer; none: where two hops send less
  bool hybrid = false;                         // HYBRID_SHARD: dp_shard = GPUs per node, dp_replicate = nodes
  int tp = 0, pp = 0, cp = 0, ep = 0, virtual_stages = 0, hpz = 0;
  std::vector<CpMethod> cp_methods;  // to try where cp > 1
  bool sequence_parallel = true;     // with tp
  bool sequence_parallel_said = false;
  int64_t micro_batch = 0, gradient_accumulation = 0;
  int64_t global_batch = 0;         // sequences; 0 = from global_batch_tokens
  int64_t global_batch_tokens = 0;  // rounded to sequences and data-parallel ranks, which is said
  bool has_usual_batch = false;     // nobody asked for it: with an accumulation alone a step may have fewer tokens
  RunLength length;                 // settled with the batch
  Location batch_at, parallel_at;   // where to point when no combination is legal
  Goal goal = Goal::kThroughput;

  std::vector<HardwarePlan> other_hardware;     // for "smallest that fits"; empty when hardware was given
  std::vector<HardwarePlan> larger_hardware;    // GPUs with more memory, smallest first: what a fix may name
  std::vector<HardwarePlan> compared_hardware;  // other GPUs than the plan's, for a table over all of them
  bool hardware_assumed = false;
  bool gpus_per_node_given = false, nodes_given = false;
  int64_t save_time_s = 0;           // of one checkpoint; 0 = not known
  double gpu_hours_per_failure = 0;  // 0: the default (time/economics.h)
};

}  // namespace distsetup
