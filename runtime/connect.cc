#include "runtime/connect.h"

#include <fmt/format.h>

#include "runtime/comm/gloo.h"
#include "runtime/comm/nccl.h"
#include "runtime/comm/tracing.h"
#include "runtime/device/plugin.h"
#include "runtime/monitor/failure.h"

namespace distsetup {

std::unique_ptr<Device> open_gpu(const Plan& plan, const RankEnvironment& environment) {
  if (plan.hardware.accelerator != Accelerator::kCuda) return nullptr;
  try {
    return load_cuda_device(environment.local_rank);
  } catch (const DeviceError& error) {
    throw Failure(kExitBadEnvironment, fmt::format("the plan is for '{}': {}", plan.hardware.gpu, error.what()), error.help());
  }
}

std::unique_ptr<Communicator> connect_ranks(const Plan& plan, const std::string& plan_digest, const RankEnvironment& environment,
                                            Device* gpu) {
  Rendezvous rendezvous = environment.rendezvous;
  rendezvous.plan_digest = plan_digest;
  rendezvous.init_timeout_s = plan.launch.init_timeout_s;
  rendezvous.collective_timeout_s = plan.launch.collective_timeout_s;
  if (plan.mesh.world() == 1) return make_self_communicator(plan.mesh);
  std::unique_ptr<Communicator> hosts = make_gloo_communicator(plan.mesh, rendezvous);
  return gpu == nullptr ? std::move(hosts) : make_nccl_communicator(plan.mesh, *gpu, std::move(hosts), nccl_options(plan));
}

}  // namespace distsetup
