// What a run is planned for, and what starts it. The bundled trainer is started by targets of its own: native by way of slurm is
// slurm. This is the one place that says so.
#pragma once
#include <string>

#include "planner/spec/spec.h"

namespace distsetup {

// The two names as they count; `via` is "" where the target's own script is started by hand, or is the job.
void settle_via(std::string& target, std::string& via);
// The same of settings: launch.target and launch.via.
Spec with_settled_via(const Spec& spec);

}  // namespace distsetup
