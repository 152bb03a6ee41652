// Whole training steps on the one GPU of this host, for tests with the tag [.gpu].
#pragma once
#include <memory>

#include "runtime/device/plugin.h"
#include "runtime/tiny.h"

namespace distsetup::tiny {

inline Device& gpu() {
  static const std::unique_ptr<Device> device = load_cuda_device(0);  // one a process
  return *device;
}

inline TinyOptions sized(int64_t hidden, int64_t head_size) {
  TinyOptions o;
  o.geometry.hidden = hidden;
  o.geometry.num_heads = hidden / head_size;
  o.geometry.num_kv_heads = 2;
  o.geometry.head_size = head_size;
  o.geometry.feed_forward = 3 * hidden - 8;
  o.geometry.vocabulary = 264;
  o.sequence_length = 40;
  o.global_batch = 4;
  return o;
}

inline Plan on_gpu(Plan plan) {
  plan.hardware.accelerator = Accelerator::kCuda;
  return plan;
}

// Steps so small that rounding does not send two runs different ways.
inline Plan gentle_plan(const TinyOptions& o) {
  Plan plan = tiny_plan(o);
  plan.train.learning_rate = 1e-3;
  plan.train.min_learning_rate = 1e-4;
  return plan;
}

inline RunResult train_on_gpu(const Plan& plan, int64_t steps, bool poison = false) {
  RunResult result;
  const auto self = make_self_communicator(plan.mesh);
  EngineOptions options;
  options.poison = poison;
  train_rank(on_gpu(plan), steps, options, *self, gpu(), result);
  return result;
}

}  // namespace distsetup::tiny
