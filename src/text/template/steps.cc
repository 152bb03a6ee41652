#include "text/template/steps.h"

#include "text/template/python_value.h"

namespace distsetup::jinja {
namespace {

constexpr uint64_t kBytesPerStep = 32;
thread_local uint64_t steps_left = 0;

}  // namespace

StepBudget::StepBudget(uint64_t steps) : outer_(steps_left) { steps_left = steps; }
StepBudget::~StepBudget() { steps_left = outer_; }

void count_steps(uint64_t steps) {
  if (steps > steps_left) {
    steps_left = 0;
    fail("the template takes too many steps", "look for a loop or a macro that never ends; the limit is RenderLimits::steps");
  }
  steps_left -= steps;
}

void count_bytes(uint64_t bytes) { count_steps(bytes / kBytesPerStep); }

}  // namespace distsetup::jinja
