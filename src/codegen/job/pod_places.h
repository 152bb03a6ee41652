// Which nodes of Kubernetes a pod may run on: labels that they have to have, taints that it tolerates.
#pragma once
#include "codegen/job/job_check.h"
#include "codegen/job/options.h"

namespace distsetup {

void put_pod_places(JobCheck& check, const JobValues& settings);  // job.node_selector, job.tolerations

}  // namespace distsetup
