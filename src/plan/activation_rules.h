// Whether activations that wait on the host (activation_writer.h) are where a list reads them. Liveness, events and races are looked
// at by invariants.h and ordering.h; that each is of the right micro-batch by check_job.h.
#pragma once
#include <string>
#include <vector>

#include "plan/schedule.h"

namespace distsetup {

// What is wrong, as messages.
std::vector<std::string> check_activations(const Schedule& schedule);

}  // namespace distsetup
