// A GPU and its machine as the constants a Plan carries: the rates that collectives and GEMMs really reach, and what the driver and
// the communication library take from memory.
#pragma once
#include <string>

#include "model/hardware.h"
#include "plan/layout.h"
#include "plan/plan.h"

namespace distsetup {

// machine == nullptr: a node of unknown make, with what is assumed of its network (hardware_facts.cc). nodes is left at 1.
HardwarePlan make_hardware_plan(const Gpu& gpu, const Machine* machine, int gpus_per_node, Dtype compute, bool deterministic = false);

// What is stated of a node's network, in place of its machine's.
struct GivenNetwork {
  double gbit_per_s = 0;  // 0: not stated
  std::string kind;       // empty: not stated
};
// `machine`: what else holds of the network; nullptr: not known. A rate alone is Ethernet through sockets up to 100 Gb/s, and of the
// machine's kind, or RoCE, above.
void set_network(HardwarePlan& hardware, const Machine* machine, const GivenNetwork& given);

// GPU memory that communicators take beside the tensors. NCCL: 0.6 GiB for the first, 0.35 GiB for each further one (channel buffers;
// NCCL's NCCL_BUFFSIZE and channel defaults). 0 on CPU.
int64_t communicator_bytes(const Plan& plan);

// Of a node's memory; the rest is the operating system's, data loaders' and page cache's.
inline constexpr double kUsableHostShare = 0.9;
inline int64_t usable_host_bytes(const HardwarePlan& hardware) {
  return static_cast<int64_t>(kUsableHostShare * static_cast<double>(hardware.host_memory_bytes));
}

// What PyTorch's caching allocator asks of the driver for one allocation of its own: requests up to 1 MiB share 2 MiB segments, up to
// 10 MiB share 20 MiB segments, larger ones round up to 2 MiB. Source: c10/cuda/CUDACachingAllocator.cpp (kSmallBuffer, kLargeBuffer,
// kRoundLarge).
class SegmentSizes {
 public:
  void add(int64_t bytes);
  int64_t reserved_bytes() const;

 private:
  int64_t small_ = 0, medium_ = 0, large_ = 0;
};

}  // namespace distsetup
