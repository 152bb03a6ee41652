// Collectives on GPU memory by NCCL, which is loaded at run time. Gathers and exchanges of a shard group have a communicator each, so
// that NCCL, which runs one communicator's operations in the order they were issued, cannot hold gathers up behind reductions; sums
// over replicas have one, and scalar sums on the compute stream one per group they go over.
#pragma once
#include <memory>
#include <string>

#include "plan/plan.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/device.h"

namespace distsetup {

struct NcclOptions {
  std::string library;  // see nccl::load
  int64_t init_timeout_s = 300;
  int64_t collective_timeout_s = 600;
  Sharding sharding = Sharding::kZero3;  // of the plan: which ranks share states (layout.h)
  bool interleaves_stages = false;       // of a pipeline: the last stage sends to the first
};
NcclOptions nccl_options(const Plan& plan);

// `control` carries what is on the host: unique ids, agreement, checkpoints, failures. Blocks until all ranks of all groups of this
// rank are connected. Streams are the device's: gathers on kGather, exchanges and sums of floats on kReduce, sums of doubles on
// kCompute.
std::unique_ptr<Communicator> make_nccl_communicator(const Mesh& mesh, Device& device, std::unique_ptr<Communicator> control,
                                                     const NcclOptions& options);

}  // namespace distsetup
