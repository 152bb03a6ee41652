// What a rank computes on, and the other ranks.
#pragma once
#include <memory>
#include <string>

#include "plan/plan.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/device.h"
#include "runtime/monitor/environment.h"

namespace distsetup {

// The GPU of a plan for GPUs; nullptr: the plan is for CPUs. Throws Failure where it cannot be used.
std::unique_ptr<Device> open_gpu(const Plan& plan, const RankEnvironment& environment);
// All ranks of the plan, met. `gpu`: nullptr for CPUs; it outlives the communicator.
std::unique_ptr<Communicator> connect_ranks(const Plan& plan, const std::string& plan_digest, const RankEnvironment& environment,
                                            Device* gpu);

}  // namespace distsetup
