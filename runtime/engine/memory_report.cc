#include "runtime/engine/memory_report.h"

#include <algorithm>

#include "runtime/device/meter.h"

namespace distsetup {

MemoryReport memory_report(const Schedule& step, const RankMemory& memory, const StepMeter& meter) {
  MemoryReport report;
  for (const Buffer& b : step.buffers) {
    if (b.lifetime == BufferLifetime::kRun && is_on_device(b))
      report.run_bytes[size_t(b.buffer_class)] += memory.run_num_bytes(b.name);
  }
  report.arena_peak_bytes = arena_peak_by_class(step);
  report.arena_bytes = memory.arena_bytes();
  report.host_bytes = memory.host_bytes();
  if (!meter_installed()) return report;
  const MeterReading now = read_meter();
  report.metered_bytes = now.live_by_tag;
  // What a CPU rank has on its host is the same memory, and lives as long as the run.
  report.metered_peak_bytes = std::max(meter.peak_bytes, now.peak_bytes) - now.live_by_tag[Device::kHostTag];
  report.metered_workspace_bytes = meter.workspace_bytes;
  report.peak_instruction = meter.most_at;
  report.peak_instruction_bytes = meter.most_bytes;
  return report;
}

}  // namespace distsetup
