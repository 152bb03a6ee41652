#include "plan/schedule.h"

#include <array>

namespace distsetup {

std::string_view name(Phase v) {
  static constexpr std::string_view kNames[] = {"load", "step", "evaluate", "save"};
  return kNames[static_cast<int>(v)];
}
std::string_view name(InstructionOp v) {
  static constexpr std::string_view kNames[] = {
      "AllGather", "ReduceScatter", "AllReduce", "Broadcast", "Wait", "Forward", "Loss", "Recompute",  "Backward",    "Accumulate",
      "GradNorm",  "OptimizerStep", "Cast",      "Zero",      "Free", "Send",    "Recv", "CopyToHost", "CopyToDevice"};
  return kNames[static_cast<int>(v)];
}
std::string_view name(Stream v) {
  static constexpr std::string_view kNames[] = {"compute", "gather", "reduce"};
  return kNames[static_cast<int>(v)];
}
std::string_view name(BufferClass v) {
  static constexpr std::string_view kNames[] = {"parameter shard", "gathered parameter", "gradient", "optimizer state", "activation",
                                                "logits",          "communication",      "workspace"};
  return kNames[static_cast<int>(v)];
}

int64_t num_bytes(const View& view) {
  int64_t bytes = size_bytes(view.dtype);
  for (const int64_t size : view.shape) bytes *= size;
  return bytes;
}

int root_buffer(const std::vector<Buffer>& buffers, int buffer) {
  while (buffers[buffer].overlay_of >= 0) buffer = buffers[buffer].overlay_of;
  return buffer;
}

int64_t run_bytes(const Schedule& schedule) {
  int64_t sum = 0;
  for (const Buffer& b : schedule.buffers)
    if (b.lifetime == BufferLifetime::kRun) sum += b.bytes;
  return sum;
}

int64_t run_bytes(const Schedule& schedule, BufferClass which) {
  int64_t sum = 0;
  for (const Buffer& b : schedule.buffers)
    if (b.lifetime == BufferLifetime::kRun && b.buffer_class == which) sum += b.bytes;
  return sum;
}

}  // namespace distsetup
