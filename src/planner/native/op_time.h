// Seconds of the ops of one unit, forward and backward, on a plan's hardware.
#pragma once
#include <memory>
#include <vector>

#include "plan/schedule.h"

namespace distsetup {

// Seconds of one unit's passes on given hardware.
struct ProgramTime {
  double forward_s = 0, backward_s = 0;
};

// A unit's program and the elements of each of its slots; the same for all units of its kind, and for every micro-batch.
struct UnitProgram {
  std::shared_ptr<const NativePrograms> programs;  // owns what `variant` points to
  std::shared_ptr<const ProgramVariant> variant;
  std::vector<double> slot_elements;
  int64_t num_units = 0;  // that run it
};
// Per variant of the schedule.
std::vector<UnitProgram> unit_programs(const Schedule& schedule);

// The sum of its ops. CHECKs that a plan for GPUs has their rates.
ProgramTime program_time(const Plan& plan, const UnitProgram& unit, const Symbols& symbols, Dtype compute);

// Of each of its ops, forward or backward: when it is done, from the beginning of the pass.
std::vector<double> op_ends(const Plan& plan, const UnitProgram& unit, const Symbols& symbols, Dtype compute, bool backward);

// Of a pass over a flat buffer of this many bytes.
double stream_s(const HardwarePlan& hardware, double bytes);

}  // namespace distsetup
