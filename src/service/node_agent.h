// The agent of a node beside the first: asks the service of the first for work, and starts this node's ranks of the job that runs.
// Both see the same data folder: a job's plan and token ids are read from there, and its checkpoints written.
#pragma once
#include <atomic>

#include "service/event_log.h"
#include "service/service_settings.h"

namespace distsetup {

// Until `is_stopping`; then the ranks are stopped as by a cancel. False: the first node refuses this one, which was said.
bool run_node_agent(const ServiceSettings& settings, EventLog& log, const std::atomic<bool>& is_stopping);

}  // namespace distsetup
