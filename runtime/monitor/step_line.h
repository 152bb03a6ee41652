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
  double tokens_per_s() const { return static_cast<double>(valid_tokens) / step_s; }
};

// The line of metrics.jsonl (metrics.h).
Json step_line(const StepFacts& facts, const StepStats& stats, const StepGuard::Judgement& judgement);

// The line on the terminal; `left_s`: what is left of the run, 0: nothing to say.
std::string step_text(const StepFacts& facts, const StepStats& stats, const Plan& plan, double left_s);

}  // namespace distsetup
