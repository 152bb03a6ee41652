#include "runtime/optim/adamw.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

namespace distsetup {

double clip_factor(double norm, double max_norm) {
  if (!std::isfinite(norm)) throw std::domain_error(fmt::format("the gradient norm is {}", norm));
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

struct AdamW::State {
  struct Class {
    double weight_decay = 0;
    std::vector<at::Tensor> parameters, gradients, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps;
  };
  TrainPlan train;
  float step_value = 0, scale_value = 1;  // the tensors below see these: the optimizer allocates nothing
  at::Tensor step, scale;
  Class decay, no_decay;
};

AdamW::AdamW(const TrainPlan& train, const std::vector<DecayRange>& ranges, float* master, float* gradient, float* exp_avg,
             float* exp_avg_sq)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.train = train;
  s.decay.weight_decay = train.weight_decay;
  s.step = at::from_blob(&s.step_value, {}, at::TensorOptions().dtype(at::kFloat));
  s.scale = at::from_blob(&s.scale_value, {}, at::TensorOptions().dtype(at::kFloat));
  for (const DecayRange& r : ranges) {
    State::Class& c = r.decay ? s.decay : s.no_decay;
    const auto view = [&](float* base) { return at::from_blob(base + r.begin, {r.end - r.begin}, at::TensorOptions().dtype(at::kFloat)); };
    c.parameters.push_back(view(master));
    c.gradients.push_back(view(gradient));
    c.exp_avgs.push_back(view(exp_avg));
    c.exp_avg_sqs.push_back(view(exp_avg_sq));
    c.steps.push_back(s.step);
  }
}
AdamW::~AdamW() = default;

void AdamW::step(int64_t step, double learning_rate, double clip) {
  State& s = *state_;
  s.step_value = float(step);
  s.scale_value = float(1.0 / clip);  // the fused kernel divides by it
  for (State::Class* c : {&s.decay, &s.no_decay}) {
    if (c->parameters.empty()) continue;
    at::_fused_adamw_(c->parameters, c->gradients, c->exp_avgs, c->exp_avg_sqs, c->max_exp_avg_sqs, c->steps, learning_rate, s.train.beta1,
                      s.train.beta2, c->weight_decay, s.train.epsilon, /*amsgrad=*/false, /*maximize=*/false, s.scale, std::nullopt);
  }
}

}  // namespace distsetup
