// Seconds that no list of a stage goes below, for one micro-batch: compute, what it waits for, and what transfers beside it cost it.
//   forward   a unit's parameters are gathered while the unit before computes; the first unit's come first.
//   backward  the same upside down; and a unit's gradients are reduced while the next one computes, and waited for before its own go;
//             the last unit's are waited for at once. Where a unit's experts lie apart, they are what is reduced beside the next one:
//             the rest is reduced before them, and waited for at once.
// Compute and a transfer that run together for t take `contention` · t more (step_clock.h).
#pragma once
#include <vector>

#include "plan/plan.h"
#include "planner/native/row_costs.h"

namespace distsetup {

class PassBound {
 public:
  PassBound(const Plan& plan, const RowCosts& row);

  // Of the units first to last, both inclusive.
  double forward_s(int first, int last) const;
  // From when the first has what another stage sends: by then its gather may be done, and the next one, which would slow it.
  double forward_after_wait_s(int first, int last) const;
  // From the top's backward on. is_last: of the last micro-batch, when replicas are summed as well. after_wait: as above.
  double backward_s(int first, int last, bool is_last, bool after_wait = false) const;
  // The last pass of a step, until the norm can be taken: it waits for all sums.
  double summed_s(int first, int last, bool after_wait = false) const;
  // The same, until what the stage below waits for is there.
  double until_sent_s(int first, int last, bool is_last) const;
  double gather_s(int unit) const { return of(unit).gather_s; }
  // What follows the last backward: the optimizer, and fresh parameters.
  double update_s(int first, int last, double update_bytes) const;

 private:
  // Of a unit's parameters, or of its experts where these lie apart: what they cost one by one.
  struct Part {
    double gather_s = 0, cast_s = 0;               // zero3: over ranks; by a rank alone, which compute waits for
    double reduce_s = 0, last_reduce_s = 0;        // over the sharding's ranks; of the last micro-batch
    double first_hop_s = 0, last_first_hop_s = 0;  // of these, where they go in two hops; else all
    double add_s = 0, local_add_s = 0;             // to the sum, once they are reduced; by a rank alone
    double replicas_s = 0;                         // of the last micro-batch
    double refresh_s = 0, refresh_here_s = 0;
  };
  // What a backward is followed by.
  struct Reduction {
    bool starts = false;               // any, which those before it are waited for
    double before_s = 0, once_s = 0;   // compute before it; what is reduced and waited for at once
    double beside_s = 0, after_s = 0;  // beside the next backward; compute between the two
    double begun_s = 0;                // of beside_s what the next reduction waits for: of two hops the first
    double add_s = 0, replicas_s = 0;  // when it is done
  };
  struct Moves {
    double gather_s = 0, cast_s = 0;
    Reduction each, last;                                 // micro-batch
    double sums_s = 0, all_reduced_s = 0, refresh_s = 0;  // compute after a backward; the last micro-batch's reductions
  };
  struct PairTerms {
    double forward_s = 0, gathered_s = 0;      // forward; backward beside gathers
    double reduced_s = 0, last_reduced_s = 0;  // backward beside reductions
    double cast_s = 0;                         // what a backward gathers again by itself
  };
  const Moves& of(int unit) const { return moves_[static_cast<size_t>(row_.kind_of[static_cast<size_t>(unit)])]; }
  double added_later_s(int first, int last, bool is_last) const;
  double over_pairs(int first, int last, double PairTerms::*term) const;
  double over_kinds(int first, int last, double Moves::*field) const;
  double sum(const std::vector<double>& of, int first, int last) const {
    return of[static_cast<size_t>(last) + 1] - of[static_cast<size_t>(first)];
  }
  Part part_of(double numel, Group shards, Group replicas) const;
  Reduction reduction_of(const Part& own, const Part& experts, bool is_last) const;
  Moves moves_of(const RowCosts::Kind& kind) const;
  double reduced_s(const RowCosts::Pair& pair, bool is_last) const;
  PairTerms terms_of(const RowCosts::Pair& pair) const;

  const Plan& plan_;
  const RowCosts& row_;
  int shards_ = 1, expert_shards_ = 1;
  bool adds_up_ = false;      // zero1 that sums micro-batches first
  bool has_experts_ = false;  // that lie apart
  bool waits_ = true;         // one reduction for another
  double contention_ = 0, least_add_s_ = 0, least_replicas_s_ = 0;
  double casts_s_ = 0;            // of any kind
  std::vector<Moves> moves_;      // per kind
  std::vector<PairTerms> terms_;  // per pair
};

}  // namespace distsetup
