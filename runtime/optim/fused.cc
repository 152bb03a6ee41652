#include "runtime/optim/fused.h"

#include <ATen/ATen.h>

#include <utility>

namespace distsetup {
namespace {

// Views of a shard, by decay class, and the scale that a fused kernel divides gradients by.
class FusedOptimizer : public Optimizer {
 protected:
  struct DecayClass {
    double weight_decay = 0;
    std::vector<DecayRange> ranges;
    std::vector<int64_t> second_begins;  // of AdamW's second moments
    std::vector<at::Tensor> parameters, gradients;
  };

  FusedOptimizer(const TrainPlan& train, const std::vector<DecayRange>& ranges, const std::vector<int64_t>& second_begins,
                 const OptimizerMemory& memory, Accelerator accelerator, int device_index)
      : train_(train),
        device_(accelerator == Accelerator::kCuda ? c10::Device(c10::kCUDA, c10::DeviceIndex(device_index)) : c10::Device(c10::kCPU)),
        scale_(number(&scale_value_)) {
    decay_.weight_decay = train.weight_decay;
    for (size_t i = 0; i < ranges.size(); ++i) {
      DecayClass& of = ranges[i].decay ? decay_ : no_decay_;
      of.ranges.push_back(ranges[i]);
      of.second_begins.push_back(second_begins.empty() ? ranges[i].begin : second_begins[i]);
    }
    for (DecayClass* c : {&decay_, &no_decay_}) {
      c->parameters = views(*c, memory.master);
      c->gradients = views(*c, memory.gradient);
    }
  }

  at::TensorOptions options() const { return at::TensorOptions().dtype(at::kFloat).device(device_); }
  // One number on the device; on the CPU it sees `value`: a step allocates nothing.
  at::Tensor number(float* value) const { return device_.is_cuda() ? at::empty({}, options()) : at::from_blob(value, {}, options()); }
  void set(at::Tensor& tensor, float& value, double to) const {
    value = float(to);
    if (device_.is_cuda()) tensor.fill_(value);
  }
  std::vector<at::Tensor> views(const DecayClass& of, void* base) const {
    std::vector<at::Tensor> out;
    for (const DecayRange& r : of.ranges) out.push_back(view(base, r.begin, r.end - r.begin));
    return out;
  }
  // Of second moments, which may lie elsewhere.
  std::vector<at::Tensor> second_views(const DecayClass& of, void* base) const {
    std::vector<at::Tensor> out;
    for (size_t i = 0; i < of.ranges.size(); ++i)
      out.push_back(view(base, of.second_begins[i], of.ranges[i].end - of.ranges[i].begin));
    return out;
  }
  at::Tensor view(void* base, int64_t begin,
                  int64_t n) const {  // the target device said: libtorch need not ask the driver whose memory it is
    return at::for_blob(static_cast<float*>(base) + begin, {n}).options(options()).target_device(device_).make_tensor();
  }
  void set_clip(double clip) { set(scale_, scale_value_, 1.0 / clip); }

  const TrainPlan train_;
  const c10::Device device_;
  float scale_value_ = 1;
  at::Tensor scale_;
  DecayClass decay_, no_decay_;
};

class AdamW final : public FusedOptimizer {
 public:
  AdamW(const TrainPlan& train, const std::vector<DecayRange>& ranges, const std::vector<int64_t>& second_begins,
        const OptimizerMemory& memory, Accelerator accelerator, int device_index)
      : FusedOptimizer(train, ranges, second_begins, memory, accelerator, device_index), step_(number(&step_value_)) {
    for (DecayClass* c : {&decay_, &no_decay_}) {
      moments_.push_back({c, views(*c, memory.state("exp_avg")), second_views(*c, memory.state("exp_avg_sq")), {}, {}});
      moments_.back().steps.assign(c->parameters.size(), step_);
    }
  }

  void step(int64_t step, double learning_rate, double clip) override {
    set(step_, step_value_, double(step));
    set_clip(clip);
    for (Moments& m : moments_) {
      if (m.of->parameters.empty()) continue;
      at::_fused_adamw_(m.of->parameters, m.of->gradients, m.exp_avgs, m.exp_avg_sqs, m.max_exp_avg_sqs, m.steps, learning_rate,
                        train_.beta1, train_.beta2, m.of->weight_decay, train_.epsilon, /*amsgrad=*/false, /*maximize=*/false, scale_,
                        std::nullopt);
    }
  }

 private:
  struct Moments {
    DecayClass* of;
    std::vector<at::Tensor> exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps;
  };
  float step_value_ = 0;
  at::Tensor step_;
  std::vector<Moments> moments_;
};

class Sgd final : public FusedOptimizer {
 public:
  Sgd(const TrainPlan& train, const std::vector<DecayRange>& ranges, const OptimizerMemory& memory, Accelerator accelerator,
      int device_index)
      : FusedOptimizer(train, ranges, {}, memory, accelerator, device_index) {
    for (DecayClass* c : {&decay_, &no_decay_})
      momentum_.emplace_back(c, train.momentum == 0 ? std::vector<at::Tensor>{} : views(*c, memory.state("momentum_buffer")));
  }

  void step(int64_t, double learning_rate, double clip) override {
    set_clip(clip);
    for (auto& [c, buffers] : momentum_) {
      if (c->parameters.empty()) continue;
      // A buffer of zeros makes the first step what it is in torch: the gradient.
      at::_fused_sgd_(c->parameters, c->gradients, buffers, c->weight_decay, train_.momentum, learning_rate, /*dampening=*/0,
                      /*nesterov=*/false, /*maximize=*/false, /*is_first_step=*/false, scale_, std::nullopt);
    }
  }

 private:
  std::vector<std::pair<DecayClass*, std::vector<at::Tensor>>> momentum_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const TrainPlan& train, const std::vector<DecayRange>& ranges, const OptimizerMemory& memory,
                                      Accelerator accelerator, int device_index) {
  return std::make_unique<AdamW>(train, ranges, std::vector<int64_t>{}, memory, accelerator, device_index);
}

std::unique_ptr<Optimizer> make_adamw_beside(const TrainPlan& train, const std::vector<DecayRange>& ranges,
                                             const std::vector<int64_t>& second_begins, const OptimizerMemory& memory,
                                             Accelerator accelerator, int device_index) {
  return std::make_unique<AdamW>(train, ranges, second_begins, memory, accelerator, device_index);
}

std::unique_ptr<Optimizer> make_sgd(const TrainPlan& train, const std::vector<DecayRange>& ranges, const OptimizerMemory& memory,
                                    Accelerator accelerator, int device_index) {
  return std::make_unique<Sgd>(train, ranges, memory, accelerator, device_index);
}

}  // namespace distsetup
