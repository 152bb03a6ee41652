// A property of every list: with an instruction dropped or doubled it breaks a rule of its own.
#pragma once
#include "support/broken_lists.h"
#include "support/property.h"
#include "support/schedule_rules.h"

namespace distsetup {

// Of one instruction, drawn; zeroing and waiting may be done twice or not at all.
inline void assert_breaking_is_caught(const Plan& plan, Schedule list, Draw& random) {
  const int at = static_cast<int>(random() % list.instructions.size());
  const InstructionOp op = list.instructions[at].op;
  RC_PRE(op != InstructionOp::kZero && op != InstructionOp::kWait);
  const bool drops = random() % 2 == 0;
  RC_LOG() << (drops ? "drop" : "double") << " of " << format_instruction(list, at) << " in " << describe(plan);
  bool is_caught = false;
  try {
    drop_or_double(list, at, drops);
    is_caught = !check_invariants(plan, list).empty();
  } catch (...) {
    is_caught = true;
  }
  RC_ASSERT(is_caught);
}

}  // namespace distsetup
