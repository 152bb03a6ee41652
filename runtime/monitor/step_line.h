// A step as metrics.jsonl has it, and as the terminal shows it.
#pragma once
#include <string>

#include "base/json_fwd.h"
#include "plan/plan.h"
#include "runtime/engine/engine.h"
#include "runtime/monitor/step_guard.h"

namespace distsetup {

struct StepFacts {
  int64_t step = 0;  // the first is 1
  double learning_rate = 0;
  int64_t tokens = 0, valid_tokens = 0;  // trained since the start of the run; in this step, over all ranks
  double step_s = 0;
  int64_t peak_bytes = 0;  // of rank 0, as of RunSoFar
  double tokens_per_s() const { return static_cast<double>(valid_tokens) / step_s; }
};

// The line of metrics.jsonl (metrics.h). memory: of a metered step (report.h), else null.
Json step_line(const StepFacts& facts, const StepStats& stats, const StepGuard::Judgement& judgement, const Json& memory);

// Is a step among those that have a line on the terminal? metrics.jsonl has every step. every: 0, so that a run has a hundred lines.
bool has_line(int64_t step, int64_t steps, int64_t every);

// What a person at a terminal wants to know besides.
struct RunSoFar {
  double left_s = 0;       // of the run; 0: nothing to say
  int64_t peak_bytes = 0;  // allocated at once so far, as metered; 0: not metered
  double goodput = 0;      // share of the time that was steps which changed the parameters
};

// Of the terminal that our lines end up on; 0: it is none. `distsetup launch` passes on what is left of its own in DISTSETUP_COLUMNS.
int terminal_columns();

// The line of a step, with its end. Without a terminal, columns 0, all that there is about it. On one at most `columns` characters:
// step and loss, then speed, what is left, memory and its prediction, goodput, and the rest as far as each still has room.
std::string step_text(const StepFacts& facts, const StepStats& stats, const Plan& plan, const RunSoFar& run, int columns);

}  // namespace distsetup
