#include "plan/run_buffers.h"

#include <fmt/format.h>

#include "plan/kernel_table.h"
#include "plan/optimizer.h"
#include "plan/update_layout.h"

namespace distsetup {

RunBuffers make_run_buffers(ScheduleWriter& w, const RunBufferOptions& options) {
  const Layout& layout = *w.s_.layout;
  const Dtype compute = w.s_.compute;
  const int64_t n = layout.shard_numel;
  RunBuffers run;
  run.master = w.run_buffer("master", BufferClass::kParameterShard, n, Dtype::kF32);
  run.gradient = w.run_buffer("gradient", BufferClass::kGradient, n, Dtype::kF32);
  for (const OptimizerBuffer& b : optimizer_buffers(w.plan_.train, state_sizes(layout)))
    run.states.push_back(w.run_buffer(b.name, BufferClass::kOptimizerState, b.numel, b.dtype));
  if (layout.frozen_numel > 0)
    run.frozen = w.run_buffer(std::string(kFrozenBuffer), BufferClass::kParameterShard, layout.frozen_numel, compute);
  if (layout.quantized_bytes > 0)
    run.quantized = w.run_buffer(std::string(kQuantizedBuffer), BufferClass::kParameterShard, layout.quantized_bytes, Dtype::kInt8);
  if (options.has_device_shard) run.device_shard = w.run_buffer(std::string(kDeviceShard), BufferClass::kParameterShard, n, compute);
  if (options.has_replica) run.replica = w.run_buffer("parameters", BufferClass::kGatheredParameter, layout.gathered_numel, compute);
  for (const int b : {run.frozen, run.quantized, run.device_shard})
    if (b >= 0 && options.parameters_on_host) w.s_.buffers[static_cast<size_t>(b)].place = Place::kHostPinned;
  for (int u = w.num_units(); u < static_cast<int>(layout.units.size()) && layout.is_shared(u); ++u) {
    const std::string name = u == w.num_units() ? "shared_parameters" : fmt::format("shared_parameters.{}", u - w.num_units());
    const int64_t numel = w.unit(u).shard_numel * w.unit(u).shard_ranks;
    const int b = run.shared_replicas[u] = w.run_buffer(name, BufferClass::kGatheredParameter, numel, compute);
    w.s_.buffers[static_cast<size_t>(b)].unit = u;
  }
  for (const std::string_view input : program_inputs()) {
    if (!uses_input(*w.s_.programs, input)) continue;
    const ProgramInput of = program_input(input, w.s_.symbols);
    const int b = w.run_buffer(std::string(input), BufferClass::kActivation, of.numel(), of.dtype);
    if (input == "loss") run.loss = b;
  }
  if (w.plan_.checkpoint.async && w.plan_.hardware.accelerator == Accelerator::kCpu)  // on GPUs the copy is the host's
    w.run_buffer(std::string(kCheckpointCopy), BufferClass::kCheckpoint, stored_bytes(w.plan_.train, state_sizes(layout)) / 4,
                 Dtype::kF32);
  run.sumsq = w.run_buffer("sumsq", BufferClass::kGradient, 1, Dtype::kF64);
  return run;
}

}  // namespace distsetup
