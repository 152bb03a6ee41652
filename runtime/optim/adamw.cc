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
  float step_value = 0, scale_value = 1;  // on the CPU the tensors below see these: the optimizer allocates nothing
  at::Tensor step, scale;                 // one number each, on the device
  Class decay, no_decay;
};

AdamW::AdamW(const TrainPlan& train, const std::vector<DecayRange>& ranges, float* master, float* gradient, float* exp_avg,
             float* exp_avg_sq, Accelerator accelerator, int device_index)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.train = train;
  s.decay.weight_decay = train.weight_decay;
  const c10::Device device =
      accelerator == Accelerator::kCuda ? c10::Device(c10::kCUDA, c10::DeviceIndex(device_index)) : c10::Device(c10::kCPU);
  const at::TensorOptions options = at::TensorOptions().dtype(at::kFloat).device(device);
  if (accelerator == Accelerator::kCuda) {
    s.step = at::empty({}, options);
    s.scale = at::empty({}, options);
  } else {
    s.step = at::from_blob(&s.step_value, {}, options);
    s.scale = at::from_blob(&s.scale_value, {}, options);
  }
  for (const DecayRange& r : ranges) {
    State::Class& c = r.decay ? s.decay : s.no_decay;
    const auto view = [&](float* base) {  // the target device said: libtorch need not ask the driver whose memory it is
      return at::for_blob(base + r.begin, {r.end - r.begin}).options(options).target_device(device).make_tensor();
    };
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
  if (s.step.is_cuda()) {
    s.step.fill_(s.step_value);
    s.scale.fill_(s.scale_value);
  }
  for (State::Class* c : {&s.decay, &s.no_decay}) {
    if (c->parameters.empty()) continue;
    at::_fused_adamw_(c->parameters, c->gradients, c->exp_avgs, c->exp_avg_sqs, c->max_exp_avg_sqs, c->steps, learning_rate,
                      s.train.beta1, s.train.beta2, c->weight_decay, s.train.epsilon, /*amsgrad=*/false, /*maximize=*/false, s.scale,
                      std::nullopt);
  }
}

}  // namespace distsetup
