// Search for trainers other than the bundled one: the whole legal space of axes, sharding, micro-batch and recomputation. Exact: every
// combination is bounded by its states, what may fit is timed, and the best are simulated, and replayed where they may fit, in order
// of the goal until enough do. Combinations that differ in nothing that memory depends on are simulated and replayed once. What is
// left out of the space, and why: tensor parallelism across nodes (its collectives wait for the network in every layer); context
// parallelism that leaves a rank fewer than kFewestContextTokens (unless pinned).
#pragma once
#include <array>
#include <optional>
#include <tuple>
#include <vector>

#include "planner/frameworks/memory.h"
#include "planner/resolve/trainer_problem.h"
#include "planner/search/search.h"
#include "planner/time/step.h"

namespace distsetup {

inline constexpr int64_t kFewestContextTokens = 2048;
// A plan with fewer axes is preferred unless one with more is this much faster: what is predicted for other axes errs differently, by
// about as much (median error of tokens/s on the scoreboard).
inline constexpr double kStructureTie = 0.1;

struct TrainerChoice {
  int tp = 1, pp = 1, virtual_stages = 1, cp = 1, ep = 1;
  int hpz = 1;
  CpMethod cp_method = CpMethod::kRing;
  Choice rest;  // sharding, mesh, batch, recompute
  bool operator==(const TrainerChoice&) const = default;
};

struct TrainerCandidate {
  TrainerChoice choice;
  TimeEstimate time;
  MemoryEstimate memory;
  int64_t device_bytes = 0;  // a lower bound until simulated
  Verdict verdict = Verdict::kDoesNotFit;
  bool simulated = false, replayed = false;
};

// What a choice costs the reader: fewer axes first, then less sharding, less recomputation, less memory, a smaller micro-batch.
std::tuple<int, int, int, int64_t, int64_t> simplicity(const TrainerCandidate& candidate);

struct SearchCounts {
  int64_t legal = 0, bounded_out = 0, timed = 0, simulated = 0, replayed = 0;
};

enum class SearchDepth { kSimulate, kReplay };  // what the candidates returned are checked with
struct SearchWish {
  int wanted = 1;
  SearchDepth depth = SearchDepth::kReplay;
  Verdict worst = Verdict::kTight;  // kFits: what is no more than tight is no answer
  double least_speed = 0;           // tokens/s per GPU: slower ones are no answer
  bool nearest = true;              // where there is none, what misses by least
};

struct TrainerSearchResult {
  std::vector<TrainerCandidate> best;        // that fit (or are tight, when none fits), best first by the goal; at most `wanted`
  std::vector<TrainerCandidate> faster;      // better by the goal than best[0], and do not fit; at most three
  std::optional<TrainerCandidate> smallest;  // when nothing fits: the least shortfall
  SearchCounts counts;
  bool too_slow = false;  // nothing that may fit reaches the least speed
  Diagnostics why;        // when nothing is legal
};
TrainerSearchResult search_trainer(const Problem& problem, int nodes, const SearchWish& wish);

// All that no other plan beats in both memory and tokens per second, fastest first.
std::vector<TrainerCandidate> pareto_front(const Problem& problem, int nodes);

// Choices of one problem with the same key need the same memory.
using MemoryKey = std::array<int64_t, 14>;
MemoryKey memory_key(const Problem& problem, const TrainerChoice& choice);

// A run that fits allocates no more than this: what the intervals of its class leave of the GPU, also where it is replayed on a
// smaller one (uncertainty.h).
int64_t most_that_fits(const Setup& setup);

std::vector<TrainerChoice> legal_trainer_choices(const Problem& problem, int nodes, Diagnostics* why = nullptr);
Setup setup_of(const Problem& problem, int nodes, const TrainerChoice& choice);
// The same in two steps: what all choices share is copied once.
Setup base_setup(const Problem& problem, int nodes);
void apply(const Problem& problem, const TrainerChoice& choice, Setup& setup);
Plan plan_of(const Problem& problem, int nodes, const TrainerCandidate& candidate);
std::string summary(const TrainerChoice& choice, int every_k);

}  // namespace distsetup
