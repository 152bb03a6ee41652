// A schedule as text: to read, and to digest.
#pragma once
#include <string>

#include "plan/schedule.h"

namespace distsetup {

// One line per instruction: index, stream, op, unit, micro-batch, group, bytes, waits/signals, live bytes.
std::string format_schedule(const Schedule& schedule);
std::string format_instruction(const Schedule& schedule, int index);
// Digest over every instruction, step, buffer and offset of the lists of all phases that train: load, step, evaluate, save.
std::string schedule_digest(const Plan& plan);
std::string canonical_text(const Schedule& schedule);

}  // namespace distsetup
