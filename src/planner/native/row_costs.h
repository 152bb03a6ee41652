// What the units of a model cost one micro-batch, in the order of the model: sums over any stretch of it at once, so that a bound of a
// stage takes as long as one of the whole.
#pragma once
#include <cstdint>
#include <vector>

#include "plan/program.h"
#include "planner/native/step_time.h"

namespace distsetup {

struct UnitCost {
  ProgramTime time;
  VariantProfile live;
};

// A step's list without stages, which has all programs.
struct WholeList {
  Dtype compute = Dtype::kF32;
  std::vector<UnitProgram> programs;
  std::vector<int> unit_program;           // per unit
  std::vector<int64_t> unit_numel;         // a tensor-parallel rank's parameters that are trained, without those of its expert unit
  std::vector<int64_t> unit_expert_numel;  // these: its own experts', where they lie apart (plan/layout.h)
};

struct RowCosts {
  // Nothing is frozen, waits on the host or is read by a reference: what transfers take follows from these numbers.
  bool is_all = true;
  // Units alike in time and size. Neighbours, lower and upper, are what transfers run beside: `before`, per unit, how many pairs of
  // this kind begin at lower units.
  struct Kind {
    double forward_s = 0, backward_s = 0;
    double numel = 0, expert_numel = 0;
    // The most that is live in a backward of a stage without what the stage's own buffers hold; late: beside the unit's gradient,
    // which is born in it (PassProfile).
    int64_t stage_peak = 0, stage_late_peak = 0;
    std::vector<int> before;  // how many units of this kind there are below
  };
  struct Pair {
    int lower = 0, upper = 0;  // kinds
    std::vector<int> before;
  };
  std::vector<int> kind_of;  // per unit
  std::vector<Kind> kinds;
  std::vector<Pair> pairs;
  // Of all units below, one entry more than there are units.
  std::vector<double> forward_s, backward_s;
  std::vector<int64_t> numel, expert_numel;
  std::vector<int64_t> kept_bytes;  // what a stage keeps of a micro-batch from forward to backward
  std::vector<int64_t> x_bytes;     // per unit: of them its input, which a stage's first unit has from another stage
  int64_t message_bytes = 0;        // between units

  double seconds = 0;      // of all, the reference's among them
  int64_t kept_whole = 0;  // without stages: by a forward, until the head has run
  // The most that is live around the head, where all is kept: at its forward, at its backward, at the last block's and at that of the
  // block below it, without parameters and gradients.
  int64_t head_forward_peak = 0, head_backward_peak = 0, head_late_peak = 0, block_backward_peak = 0, block_late_peak = 0;
  int64_t next_backward_peak = 0, next_late_peak = 0;  // 0: there is one block

  int head() const { return static_cast<int>(kind_of.size()) - 1; }
  const Kind& kind(int unit) const { return kinds[static_cast<size_t>(kind_of[static_cast<size_t>(unit)])]; }
};

// `costs`: per program of the list.
RowCosts row_costs(const WholeList& whole, const std::vector<UnitCost>& costs, const Symbols& symbols);

}  // namespace distsetup
