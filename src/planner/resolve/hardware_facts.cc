#include "planner/resolve/hardware_facts.h"

#include <algorithm>

#include "base/quantity.h"
#include "plan/communicators.h"
#include "planner/native/plan_rates.h"
#include "planner/time/constants.h"
#include "planner/time/embedded_calibration.h"

namespace distsetup {
namespace {

// Share of the nominal link rate that NCCL's all-gather and reduce-scatter reach at large messages, inside a node: 230 of 300 GB/s on
// NVLink 3, 360 of 450 on NVLink 4, 0.67 of 900 on NVLink 5 (published nccl-tests runs of DGX A100, H100, B200).
double link_efficiency(const Gpu& gpu) {
  if (gpu.link.kind == "nvlink5") return 0.67;
  if (gpu.link.kind.starts_with("nvlink") || gpu.link.kind == "xgmi") return 0.80;
  return gpu.p2p ? 0.90 : 0.50;  // PCIe; without peer access every byte crosses the host's memory twice
}

// Seconds per hop of a ring with the Simple protocol: NCCL's tuning tables (src/graph/tuning.cc).
double link_latency_s(const Gpu& gpu) {
  if (gpu.vendor == "cpu") return 50e-6;  // a futex or loopback socket round, Gloo
  return gpu.link.kind.starts_with("pcie") ? 5.7e-6 : 3.4e-6;
}
constexpr double kNetworkLatency = 14e-6, kCpuNetworkLatency = 60e-6;

// Of the rate of a node's network, what large collectives reach where no machine's own share is known.
double network_efficiency(std::string_view kind) { return kind == "ethernet" ? 0.5 : kind == "infiniband" ? 0.85 : 0.75; }

// A node that no machine preset describes. Both rates are guesses at the low end of what is sold, and said wherever they count.
GivenNetwork assumed_network(const Gpu& gpu) {
  if (gpu.vendor == "cpu") return {1, "ethernet"};
  return gpu.p2p ? GivenNetwork{100, "roce"} : GivenNetwork{25, "ethernet"};
}

}  // namespace

HardwarePlan make_hardware_plan(const Gpu& gpu, const Machine* machine, int gpus_per_node, Dtype compute, bool deterministic) {
  HardwarePlan h;
  const bool cpu = gpu.vendor == "cpu";
  h.gpu = gpu.name;
  h.gpu_name = gpu.label;
  h.accelerator = cpu ? Accelerator::kCpu : Accelerator::kCuda;
  h.gpus_per_node = gpus_per_node;
  h.memory_bytes = gpu.usable_memory_bytes;
  h.context_bytes = cpu ? 0 : gpu.context_bytes;
  h.host_memory_bytes = machine != nullptr ? machine->host_memory_bytes : 0;
  h.peak_flops_per_s = compute == Dtype::kF32   ? gpu.peak_fp32_flops_per_s
                       : compute == Dtype::kF16 ? gpu.peak_fp16_flops_per_s
                       : compute == Dtype::kF8  ? gpu.peak_fp8_flops_per_s
                                                : gpu.peak_bf16_flops_per_s;
  h.gemm_efficiency = gpu.gemm_efficiency;
  // Backward of attention is 2.5 times forward's FLOPs: one figure for both, weighted by time.
  h.attention_efficiency = 3.5 / (1 / gpu.attention_forward_efficiency + 2.5 / gpu.attention_backward_efficiency);
  const bool trains = compute == Dtype::kF32 || compute == Dtype::kBf16 || compute == Dtype::kF16;
  if (!cpu && trains)
    h.rates = native_rates(gpu, compute == Dtype::kF32 ? Dtype::kF32 : Dtype::kBf16, deterministic, embedded_calibration());
  h.memory_bytes_per_s = gpu.memory_bytes_per_s;
  h.link_bytes_per_s = gpu.link.bytes_per_s * link_efficiency(gpu);
  h.link_latency_s = link_latency_s(gpu);
  if (machine == nullptr) set_network(h, nullptr, assumed_network(gpu));
  h.network_latency_s = cpu ? kCpuNetworkLatency : kNetworkLatency;
  if (machine != nullptr) {
    h.nic_kind = machine->nic_kind;
    h.nic_bytes_per_s = machine->nic_bytes_per_s;
    h.network_bytes_per_s = machine->nic_bytes_per_s * machine->nic_efficiency / std::max(gpus_per_node, 1);
  }
  if (machine != nullptr && machine->price_usd_per_hour > 0 && machine->gpus_per_node > 0 && machine->gpu == gpu.name) {
    h.price_usd_per_gpu_hour = machine->price_usd_per_hour / static_cast<double>(machine->gpus_per_node);
    h.price_source = machine->label + ", " + machine->price_date;
  }
  return h;
}

void set_network(HardwarePlan& h, const Machine* machine, const GivenNetwork& given) {
  constexpr double kFastestSockets = 100;  // Gb/s
  const bool has_own = machine != nullptr && machine->nic_efficiency > 0;
  if (given.gbit_per_s > 0) h.nic_bytes_per_s = given.gbit_per_s * 1e9 / 8;
  if (!given.kind.empty())
    h.nic_kind = given.kind;
  else if (given.gbit_per_s <= kFastestSockets)
    h.nic_kind = "ethernet";
  else
    h.nic_kind = has_own ? machine->nic_kind : "roce";
  const double efficiency = has_own && h.nic_kind == machine->nic_kind ? machine->nic_efficiency : network_efficiency(h.nic_kind);
  h.network_bytes_per_s = h.nic_bytes_per_s * efficiency / std::max(h.gpus_per_node, 1);
}

int64_t communicator_bytes(const Plan& plan) {
  if (plan.hardware.accelerator == Accelerator::kCpu) return 0;
  constexpr int64_t kFirst = 6 * kGiB / 10, kFurther = 35 * kGiB / 100;
  const int pp = plan.mesh.pp;
  // Two ranks each: activations and gradients, to and from a neighbour; both ends of a tied embedding.
  const int stages = pp == 1 ? 0 : (pp > 2 || plan.strategy.virtual_stages > 1 ? 4 : 2) + (plan.model.tied_embeddings ? 1 : 0);
  const int n = num_communicators(plan.mesh, plan.strategy.sharding) + stages;
  return n == 0 ? 0 : kFirst + (n - 1) * kFurther;
}

void SegmentSizes::add(int64_t bytes) {
  const int64_t rounded = (bytes + 511) / 512 * 512;
  if (rounded <= kMiB)
    small_ += rounded;
  else if (rounded < 10 * kMiB)
    medium_ += rounded;
  else
    large_ += (rounded + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);
}

int64_t SegmentSizes::reserved_bytes() const {
  const auto segments = [](int64_t bytes, int64_t size) { return (bytes + size - 1) / size * size; };
  return segments(small_, 2 * kMiB) + segments(medium_, 20 * kMiB) + large_;
}

}  // namespace distsetup
