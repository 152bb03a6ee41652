#include "runtime/monitor/live_numbers.h"

#include <cmath>

#include "base/clock.h"

namespace distsetup {

LiveNumbers::LiveNumbers() : begin_s_(now_s()) {}

Diagnostics LiveNumbers::serve(const std::string& address, const Plan& plan) {
  if (address.empty()) return {};
  numbers_.model = plan.model.name;
  numbers_.steps = plan.train.steps;
  numbers_.predicted_step_s = plan.time.step_s;
  numbers_.predicted_peak_bytes = plan.memory.peak_allocated_bytes;
  const Diagnostics said = server_.start(address);
  server_.set(numbers_);
  return said;
}

void LiveNumbers::step(const StepFacts& facts, const StepStats& stats, int64_t skipped_steps, int64_t peak_bytes) {
  if (stats.is_updated) counted_s_ += facts.step_s;
  numbers_.step = facts.step;
  numbers_.skipped_steps = skipped_steps;
  numbers_.tokens = facts.tokens;
  numbers_.loss = stats.loss;
  numbers_.gradient_norm = stats.gradient_norm;
  numbers_.learning_rate = facts.learning_rate;
  if (stats.loss_scale > 0) numbers_.loss_scale = stats.loss_scale;
  numbers_.step_s = facts.step_s;
  numbers_.tokens_per_s = facts.tokens_per_s();
  numbers_.wait_s = stats.wait_s;
  numbers_.peak_bytes = peak_bytes;
  numbers_.goodput = goodput();
  server_.set(numbers_);
}

void LiveNumbers::evaluation(double held_out_loss) {
  numbers_.held_out_loss = std::isfinite(held_out_loss) ? std::optional<double>(held_out_loss) : std::nullopt;
  numbers_.goodput = goodput();
  server_.set(numbers_);
}

double LiveNumbers::goodput() const { return counted_s_ / (now_s() - begin_s_); }

}  // namespace distsetup
