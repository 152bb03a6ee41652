// Seconds that no simulation of a plan goes below, from what each of its stages does (pass_bound.h). Without stages it is one.
#pragma once
#include <vector>

#include "plan/pipeline.h"
#include "plan/plan.h"
#include "planner/native/pass_bound.h"
#include "planner/native/row_costs.h"

namespace distsetup {

// Of all stages: chunk c of stage s is the part c · pp + s.
std::vector<UnitSpan> parts_of(const Plan& plan);

class StagesBound {
 public:
  StagesBound(const Plan& plan, const RowCosts& row, const std::vector<UnitSpan>& parts, double update_bytes);

  // Each stage computes all micro-batches; before its first they have come through the stages below it, and after its last they go
  // back.
  double seconds() const;
  // The passes of all stages in their order, each waiting for what the others send. 0: not known.
  double in_order_s() const;

 private:
  double whole_s() const;
  const UnitSpan& part(int stage, int chunk) const { return parts_[static_cast<size_t>(chunk * plan_.mesh.pp + stage)]; }
  double sum(const std::vector<double>& of, const UnitSpan& span) const {
    return of[static_cast<size_t>(span.last) + 1] - of[static_cast<size_t>(span.first)];
  }
  // Of one part and micro-batch: the first gather, which may come while it waits for another stage, and what follows.
  double forward_s(const UnitSpan& c) const { return passes_.forward_s(c.first, has_head(c) ? c.last - 1 : c.last); }
  double forward_after_wait_s(const UnitSpan& c) const {
    return passes_.forward_after_wait_s(c.first, has_head(c) ? c.last - 1 : c.last);
  }
  double top_s(const UnitSpan& c) const { return passes_.gather_s(c.last) + (has_head(c) ? row_.kind(c.last).forward_s : 0); }
  bool has_head(const UnitSpan& c) const { return c.last == row_.head(); }
  double updates_s(int stage) const;
  double by_round_trips_s(double round_trip_s) const;
  int64_t written() const;        // micro-batches that a simulation writes out
  double further_s() const;       // of those that it does not, each
  double one_s(int stage) const;  // of a micro-batch: both passes of all chunks
  double round_trip_s() const;    // of the first micro-batch, from the first stage and back
  struct Work {
    double seconds = 0;       // of all actions
    double until_last_s = 0;  // of all but the last, which is a backward of the first chunk
  };
  Work work_of(int stage) const;

  const Plan& plan_;
  const RowCosts& row_;
  const std::vector<UnitSpan>& parts_;
  const PassBound passes_;
  const double update_bytes_;
  double hop_s_ = 0, hop_back_s_ = 0;
};

}  // namespace distsetup
