#include "runtime/engine/memory_report.h"

#include <algorithm>

#include "runtime/device/meter.h"

namespace distsetup {

int64_t metered_peak_bytes(const StepMeter& meter) {
  if (!meter_installed()) return 0;
  const MeterReading now = read_meter();
  // What a CPU rank has on its host is the same memory, and lives as long as the run.
  return std::max(meter.peak_bytes, now.peak_bytes) - now.live_by_tag[Device::kHostTag];
}

MemoryReport memory_report(const Schedule& step, const RankMemory& memory, const StepMeter& meter) {
  MemoryReport report;
  for (const Buffer& b : step.buffers) {
    if (b.lifetime == BufferLifetime::kRun && is_on_device(b))
      report.run_bytes[size_t(b.buffer_class)] += memory.run_num_bytes(b.name);
  }
  report.arena_peak_bytes = arena_peak_by_class(step);
  report.arena_bytes = memory.arena_bytes();
  report.host_bytes = memory.host_bytes();
  report.disk_bytes = memory.disk_bytes();
  if (!meter_installed()) return report;
  const MeterReading now = read_meter();
  report.metered_bytes = now.live_by_tag;
  report.metered_peak_bytes = metered_peak_bytes(meter);
  report.metered_workspace_bytes = meter.workspace_bytes;
  report.peak_instruction = meter.most_at;
  report.peak_instruction_bytes = meter.most_bytes;
  for (size_t n = 0; n < meter.bytes.size(); ++n) {
    if (meter.bytes[n] < 0) continue;
    int64_t& most = report.phase_bytes[step.instructions[static_cast<size_t>(step.steps[n].instruction)].phase];
    most = std::max(most, meter.bytes[n]);
  }
  return report;
}

}  // namespace distsetup
