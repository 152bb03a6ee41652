// search: the best of all legal choices on a given number of nodes, by the goal of the problem. Exact, and cheap because what cannot
// win is ruled out by what is cheaper to know: every choice is bounded, what may fit is timed, and the best are simulated, and
// finished where they may fit, in the order of the goal, until enough do. The rule of choice: most tokens per second and GPU; within
// kTimeTie of the fastest the simplest (simpler()). When nothing fits for sure, what is likeliest to fit comes before speed.
#pragma once
#include <limits>
#include <optional>
#include <tuple>
#include <vector>

#include "planner/search/preference.h"

namespace distsetup {

// 2 %: candidates share model, machine and simulator, so their errors largely cancel in the difference.
inline constexpr double kTimeTie = 0.02;
inline constexpr double kAnySpeed = std::numeric_limits<double>::infinity();

struct SearchWish {
  int wanted = 1;
  Verdict worst = Verdict::kTight;      // kFits: what is no more than tight is no answer
  double most_s_per_token = kAnySpeed;  // on one GPU: slower ones are no answer
  bool nearest = true;                  // where there is none, what misses by least
  bool every_kind = false;              // simulates what may be the best of its kind: for runners-up
  bool estimate = false;                // what fits amply is not finished
};

struct SearchResult {
  std::vector<Candidate> candidates;  // in the order of legal_choices, with what was found out about each
  std::vector<Candidate> best;        // that fit (or are tight, when none fits), best first by the goal; at most `wanted`
  std::vector<Candidate> faster;      // better by the goal than best[0], and do not fit; at most three
  std::optional<Candidate> smallest;  // when nothing fits: the least shortfall
  bool too_slow = false;              // what may fit takes longer than most_s_per_token
  SearchCounts counts;
  Diagnostics why;  // when nothing is legal

  bool has_answer() const { return !best.empty() || smallest.has_value(); }
  const Candidate& answer() const { return best.empty() ? *smallest : best.front(); }
};
SearchResult search(const Problem& problem, int nodes, Predictor& predictor, const SearchWish& wish = {});

// All that no other plan beats in both memory and tokens per second, fastest first.
std::vector<Candidate> pareto_front(const Problem& problem, int nodes, Predictor& predictor);

}  // namespace distsetup
