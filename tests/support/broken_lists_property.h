// A property of every list: with an instruction dropped or doubled it breaks a rule of its own.
#pragma once
#include "plan/check_job.h"
#include "support/broken_lists.h"
#include "support/property.h"
#include "support/schedule_rules.h"

namespace distsetup {

// A list of one rank obeys its rules, and those of all ranks together theirs.
inline void assert_obeys_rules(const Plan& plan) {
  RC_ASSERT(broken_rule(plan) == "");
  RC_ASSERT(fmt::format("{}", fmt::join(check_job(plan), "\n")) == "");
}

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
