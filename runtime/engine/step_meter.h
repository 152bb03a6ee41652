// What ops allocate beyond their buffers, by the meter read around each of them, in the first training steps: the list is the same in
// every step. Needs install_meter() before the engine is made.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plan/schedule.h"

namespace distsetup {

// What one step of the list allocated by itself beyond its buffers.
struct StepAllocation {
  int step = 0;
  int64_t peak_bytes = 0;  // above what was live when it started
  int64_t num_allocations = 0;
};

struct StepMeter {
  int64_t steps_left = 0;       // training steps that are metered
  int64_t peak_bytes = 0;       // that the allocator had out at once, of what was metered
  int64_t workspace_bytes = 0;  // largest undeclared need of an op
  int64_t most_bytes = 0;       // run buffers, live part of the arena and workspace where they are largest together
  std::string most_at;          // "Backward 41/down_dw micro-batch 0"
  std::vector<int64_t> bytes;   // by step of the list, as run() has found it last; -1: not metered

  // Runs the op of step `step`. Returns the bytes of run buffers, live part of the arena and the op's own need.
  int64_t run(const Schedule& schedule, const Instruction& instruction, int step, const std::function<void()>& op,
              std::vector<StepAllocation>& allocations);
};

}  // namespace distsetup
