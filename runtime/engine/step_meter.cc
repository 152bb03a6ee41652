#include "runtime/engine/step_meter.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/device/meter.h"

namespace distsetup {

int64_t StepMeter::run(const Schedule& schedule, const Instruction& instruction, int step, const std::function<void()>& op,
                       std::vector<StepAllocation>& allocations) {
  const MeterReading before = read_meter();
  peak_bytes = std::max(peak_bytes, before.peak_bytes);
  reset_meter_peak();
  op();
  const MeterReading after = read_meter();
  const int64_t own = after.peak_bytes - before.live_bytes;
  if (after.num_allocations != before.num_allocations)
    allocations.push_back({step, own, after.num_allocations - before.num_allocations});
  workspace_bytes = std::max(workspace_bytes, own);
  const int64_t bytes = run_bytes(schedule) + schedule.live_bytes[static_cast<size_t>(step)] + own;
  this->bytes.resize(schedule.steps.size(), -1);
  this->bytes[static_cast<size_t>(step)] = bytes;
  if (bytes > most_bytes) {
    most_bytes = bytes;
    most_at = fmt::format("{} {}/{} micro-batch {}", name(instruction.op), instruction.unit,
                          schedule.steps[static_cast<size_t>(step)].op, instruction.micro_batch);
  }
  return bytes;
}

}  // namespace distsetup
