// What a run of a template may cost. Every expression, every item walked and every 32 bytes of text that are made is a step, so that
// neither a loop nor an expression that doubles a text runs away; time and memory are both bounded by it.
#pragma once
#include <cstdint>

namespace distsetup::jinja {

// The budget of this thread while it lives; budgets nest.
class StepBudget {
 public:
  explicit StepBudget(uint64_t steps);
  ~StepBudget();
  StepBudget(const StepBudget&) = delete;
  StepBudget& operator=(const StepBudget&) = delete;

 private:
  uint64_t outer_;
};

// Fails when the budget is used up.
void count_steps(uint64_t steps);
// Before a text or list of so many bytes is made.
void count_bytes(uint64_t bytes);

}  // namespace distsetup::jinja
