// Predictor: what a search asks about its candidates, cheapest first: a bound, seconds, simulated bytes, the bytes that decide. One
// implementation takes Plans of the bundled trainer (native_predictor.h), the other Setups of all others (framework_predictor.h).
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "planner/search/choice.h"

namespace distsetup {

// A choice with what is known of it.
struct Candidate {
  Choice choice;
  int64_t device_bytes = 0;                     // a lower bound until `finished`
  int64_t missing_host_bytes = 0;               // what the host of a node lacks; known when `simulated`
  int64_t host_run_bytes = 0;                   // of the bundled trainer, when simulated: what a rank keeps on its host, at least
  int64_t tie_bytes = 0;                        // what plans that tie are compared by: predicted in the same way for all of them
  double s_per_token = 0;                       // on one GPU; a lower bound until `timed`
  double step_s = 0, tokens_per_s_per_gpu = 0;  // when timed
  double fit_probability = 0;                   // an upper bound until `finished`
  Verdict verdict = Verdict::kDoesNotFit;       // what follows from it
  bool neared = false;                          // by Predictor::near()
  bool timed = false, simulated = false, finished = false;
};

// Where the search for one trainer's plan differs from another's, and why.
struct SelectionRules {
  // A plan with fewer axes is preferred unless one with more is this much faster: what is predicted for other axes errs differently,
  // by about as much (median error of tokens/s on the scoreboard). 0: all candidates are predicted by the schedule that will run.
  double structure_tie = 0;
  bool hybrid_is_an_axis = false;  // as one of those; else a mesh of copies comes after its sharding among plans that tie
  // Finishing takes milliseconds: plans that tie are finished in the order of preference until one fits, not all.
  bool finish_in_turn = false;
  bool best_of_each_kind = false;  // runners-up are those, not the next best
};

// All fields of a choice, or what stands for them: choices of one problem with the same key need the same memory.
using MemoryKey = std::array<int64_t, 14>;
MemoryKey memory_key(const Choice& choice);

struct SearchCounts {
  int64_t legal = 0, bounded_out = 0, timed = 0, simulated = 0, finished = 0;
};

struct TooFewNodes {
  int nodes = 0;             // the largest number on which nothing fits
  int64_t device_bytes = 0;  // what misses by least there; 0: not looked for
};

class Predictor {
 public:
  virtual ~Predictor() = default;
  const SelectionRules& rules() const { return rules_; }
  // Candidates are of this many nodes from now on.
  virtual void start(int nodes) = 0;

  virtual void bound(Candidate& c) = 0;  // device_bytes, verdict, and s_per_token where that is as cheap
  virtual void time(Candidate& c) = 0;   // seconds, where they come without simulation
  // A nearer bound of s_per_token that is dearer than bound()'s and cheaper than simulate()'s, once. False: there is none.
  virtual bool near(Candidate&) { return false; }
  virtual void simulate(Candidate& c) = 0;
  virtual void finish(Candidate& c) = 0;
  // Judges from now on as if the host of a node had so much more; what a candidate was judged before stands.
  virtual void lend_host(int64_t) {}
  // Of what does not fit nobody asks more than that from now on: it need not be packed.
  virtual void seek_answers_alone(bool) {}
  // Enough is left that finish() is not needed to know that it fits.
  virtual bool fits_amply(const Candidate& c) const = 0;
  // Whether a larger micro-batch needs no less memory, all else being the same.
  virtual bool grows_with_micro_batch(const Choice& c) const = 0;
  virtual MemoryKey key(const Choice& c) const { return memory_key(c); }
  virtual SearchCounts counts(const std::vector<Candidate>& candidates) const = 0;

  // The plan of a candidate that was finished, or whose simulation does not fit; complete but for what explain() adds.
  virtual Plan plan(const Candidate& c) = 0;
  // Adds its reasons: what the states take, what was looked at.
  virtual void explain(const Candidate& c, const SearchCounts& counts, const std::optional<TooFewNodes>& too_few, Plan& plan) = 0;

 protected:
  SelectionRules rules_;
};

std::unique_ptr<Predictor> make_predictor(const Problem& problem);  // `problem` outlives it

// "2 nodes are too few".
std::string too_few_words(int nodes);
inline constexpr std::string_view kMissesByLeast = "nothing fits: of all of them this one misses by least";
inline constexpr std::string_view kHostMissesByLeast =
    "nothing fits: all of them need more host memory than there is; of those that need least of it this one is the best";

}  // namespace distsetup
