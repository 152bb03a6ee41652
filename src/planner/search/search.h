// search: every legal combination of sharding, mesh, micro-batch, recompute and resharding on a given number of nodes. Exact, and
// cheap because closed bounds of bytes and seconds rule most of it out before anything is simulated.
#pragma once
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/native/simulate.h"
#include "planner/planner.h"

namespace distsetup {

// Largest micro_batch × sequence_length²: query-key pairs of one forward.
inline constexpr double kMostPairs = 1e14;

struct Choice {
  Sharding sharding = Sharding::kZero3;
  bool reshard_after_forward = true;
  int dp_replicate = 1, dp_shard = 1;
  int64_t micro_batch = 1, gradient_accumulation = 1;
  Recompute recompute = Recompute::kNone;
  bool operator==(const Choice&) const = default;
};

// Ascending.
std::vector<int64_t> divisors(int64_t n);
// Sequences per step on `ranks` data-parallel ranks; 0: the batch that is asked for does not divide.
int64_t sequences_per_step(const Problem& problem, int64_t ranks);

// All combinations that multiply out, in a fixed order. Empty: `why` says which rule leaves none.
std::vector<Choice> legal_choices(const Problem& problem, int nodes, Diagnostics* why = nullptr);

// The plan of a choice, memory and time not filled in yet. With kLight the list of data files is left out (search makes many).
enum class Weight { kLight, kFull };
Plan plan_of(const Problem& problem, int nodes, const Choice& choice, Weight weight);
void apply(const Problem& problem, const Choice& choice, Plan& plan);  // to a plan of the same problem

// A choice with what was found out about it: states alone, then simulated, then finished.
struct Candidate {
  Choice choice;
  int64_t device_bytes = 0;      // a lower bound until `finished`
  double least_s_per_token = 0;  // on one GPU; a lower bound
  int64_t live_bytes = 0;        // of the arena and the run buffers, simulated
  TimePlan time;
  Verdict verdict = Verdict::kDoesNotFit;  // an upper bound until `finished`
  bool simulated = false, finished = false;
  std::shared_ptr<const MemoryPlan> memory;  // when finished
};

// The rule of choice, in this order: most tokens per second and GPU; within kTimeTie of the fastest, less sharding, then less
// recomputation, then less memory. Less sharding: ddp, zero1, zero2, zero3 that stays gathered, zero3; one mesh before a hybrid one.
// 2 %: candidates share model, machine and simulator, so their errors largely cancel in the difference.
inline constexpr double kTimeTie = 0.02;
bool preferred_among_ties(const Candidate& a, const Candidate& b);

struct SearchResult {
  std::vector<Candidate> candidates;  // in legal_choices' order
  int best = -1;                      // that fits, else that is tight, else (kAll) with the smallest shortfall; -1: none
  Diagnostics why;                    // when nothing is legal
};
// kAll: whatever may fit is simulated, for the runners-up, and where nothing fits the best is what misses by least. The other two find
// the same best plan and simulate only what may be it; kEstimate does not finish it where it fits with ample room.
enum class SearchEffort { kEstimate, kAnswer, kAll };
inline constexpr double kAnySpeed = std::numeric_limits<double>::infinity();
// most_s_per_token: on one GPU; when the fastest takes more, there is no best plan (not with kAll).
SearchResult search(const Problem& problem, int nodes, SimulationCache& cache, SearchEffort effort = SearchEffort::kAll,
                    double most_s_per_token = kAnySpeed);
// No plan that may fit takes less, on one GPU; infinite when none may fit.
double least_s_per_token(const Problem& problem, int nodes, SimulationCache& cache);
enum class Shortfall { kSkip, kFind };

// Nodes from problem.node_counts in turn until the best plan fits; then finished, with reasons and runners-up. No fixes.
// nullopt: no legal combination on any number of nodes (`why`), or, with kSkip, none that fits or is tight.
std::optional<Plan> solve(const Problem& problem, Diagnostics& why, Shortfall shortfall);
bool more_ranks_than_sequences(const Problem& problem, int nodes);
// Of a node's memory; the rest is the operating system's, data loaders' and page cache's.
inline constexpr double kUsableHostShare = 0.9;

// What counts as an answer: fits; for dpo, whose bound proves no fit, tight.
bool is_answer(const Plan& plan);

// The runners-up of the winner: the best of each other sharding, mesh kind and recompute policy, with the clause that decided.
std::vector<Alternative> runners_up(const Problem& problem, int nodes, const SearchResult& result);

std::string_view rank_word(const HardwarePlan& hardware);  // "GPU", or "rank" on CPU

// For a plan that does not fit: what would, cheapest first in step time, each as flags to paste.
struct Fix {
  std::string flags;   // "--recompute full"
  std::string effect;  // "62.1 GiB, 1.31 × the time per token"
  double seconds_per_token = 0;
};
std::vector<Fix> find_fixes(const Problem& problem, const Plan& plan);

}  // namespace distsetup
