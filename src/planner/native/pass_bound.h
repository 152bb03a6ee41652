// Seconds that no list of a stage goes below, for one micro-batch: compute, what it waits for, and what transfers beside it cost it.
//   forward   a unit's parameters are gathered while the unit before computes; the first unit's come first.
//   backward  the same upside down; and a unit's gradients are reduced while the next one computes, and waited for before its own go;
//             the last unit's are waited for at once.
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
  struct Moves {
    double gather_s = 0, reduce_s = 0, last_reduce_s = 0;                // where gathers and reductions are the sharding's
    double add_s = 0, replicas_s = 0, all_reduced_s = 0, refresh_s = 0;  // all_reduced: by the last micro-batch's reductions
  };
  struct PairTerms {
    double forward_s = 0, gathered_s = 0;      // forward; backward beside gathers
    double reduced_s = 0, last_reduced_s = 0;  // backward beside reductions
  };
  const Moves& of(int unit) const { return moves_[static_cast<size_t>(row_.kind_of[static_cast<size_t>(unit)])]; }
  double over_pairs(int first, int last, double PairTerms::*term) const;
  double over_kinds(int first, int last, double Moves::*field) const;
  Moves moves_of(double numel) const;
  PairTerms terms_of(const RowCosts::Pair& pair) const;

  const Plan& plan_;
  const RowCosts& row_;
  int shards_ = 1;
  bool gathers_ = false, adds_up_ = false;  // zero3; zero1 that sums micro-batches first
  double contention_ = 0, least_add_s_ = 0, least_replicas_s_ = 0;
  std::vector<Moves> moves_;      // per kind
  std::vector<PairTerms> terms_;  // per pair
};

}  // namespace distsetup
