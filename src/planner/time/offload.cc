#include "planner/time/offload.h"

#include <algorithm>

#include "planner/frameworks/state_bytes.h"

namespace distsetup {

// Its input; or what torchtitan's list keeps (input, two of q, k, v, attention, one of gate and up, down); or all of it. Megatron
// offloads as many layers as the transfers hide behind, half at most.
double activation_copy_s(const Setup& s, const TimeConstants& c, double tokens, double hidden) {
  const Geometry& g = s.model;
  const double width = g.gated_mlp ? 3 : 2, f = static_cast<double>(g.feed_forward) / s.tp;
  double saved = 12 * hidden + 2 * width * f;
  if (s.traits().offloads_residual_alone) return tokens * 2 * hidden / c.pcie_bytes_per_s;
  if (s.recompute == ActivationRecompute::kFull) saved = 2 * hidden;
  if (s.recompute == ActivationRecompute::kOpSelective) saved = 8 * hidden + 2 * f;
  return tokens * saved / c.pcie_bytes_per_s * s.traits().offloaded_layers;
}

// Adam on the host reads and writes master and moments, reads the gradient clipped in place, and makes the 16-bit copy. NVMe: states
// read and written.
double parameters_bytes_per_s(const Setup& s, const TimeConstants& c) {
  const bool from_drives = s.offload.parameters == OffloadPlace::kNvme;
  return from_drives ? std::min(c.pcie_bytes_per_s, c.nvme_bytes_per_s / s.gpus_per_node) : c.pcie_bytes_per_s;
}

double host_update_s(const Setup& s, const TimeConstants& c, double moved) {
  const StateBytes bytes = state_bytes(s);
  const double on_node = moved * s.gpus_per_node;
  const double gradient = s.master_copy ? 4 : bytes.gradient, written = s.master_copy ? 4 + 2 : 2 * bytes.parameter;  // 2: the cast
  double host = on_node * (2 * bytes.optimizer + 3 * gradient + written) / c.cpu_adam_bytes_per_s;
  if (s.offload.optimizer == OffloadPlace::kNvme) host = std::max(host, 2 * on_node * bytes.optimizer / c.nvme_bytes_per_s);
  return host + moved * (bytes_of(s.gradient_dtype) + 2) / c.pcie_bytes_per_s;
}

// DeepSpeed: with each further micro-batch a 16-bit sum comes up, has a gradient added and goes down again (stage3.py:
// partition_grads, stage_1_and_2.py: async_accumulate_grad_in_cpu_via_gpu), beside backward. Stage 3 waited for these copies until
// 2026-08 (pull request 8207).
double host_sums_s(const Setup& s, const TimeConstants& c, double moved, double backward_s) {
  if (!s.traits().sums_gradients_on_host) return 0;
  const double copies_s = moved * 2 * bytes_of(s.compute == Dtype::kF32 ? Dtype::kF32 : Dtype::kBf16) / c.pcie_bytes_per_s;
  const bool waits = s.sharding == Sharding::kZero3 && !runs_since(s, 202608);
  return static_cast<double>(s.gradient_accumulation - 1) * (waits ? copies_s : exposed_copy_s(s, copies_s, backward_s));
}

double exposed_copy_s(const Setup& s, double copy_s, double compute_s) {
  return s.offload.pin_memory ? std::max(0.0, copy_s - compute_s) : copy_s;  // everyone waits for copies of pageable memory
}

}  // namespace distsetup
