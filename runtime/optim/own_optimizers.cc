#include "runtime/optim/own_optimizers.h"

#include <algorithm>
#include <cmath>

#include "plan/optimizer.h"
#include "runtime/engine/ops.h"
#include "runtime/engine/threads.h"
#include "runtime/optim/block_codes.h"

namespace distsetup {
namespace {

float kept_part(const TrainPlan& train, bool decays, double learning_rate) {
  return static_cast<float>(decays ? 1 - learning_rate * train.weight_decay : 1.0);
}

template <class Update>
void set_betas(const TrainPlan& train, Update& u) {
  u.beta1 = static_cast<float>(train.beta1), u.rest1 = static_cast<float>(1 - train.beta1);
  u.beta2 = static_cast<float>(train.beta2), u.rest2 = static_cast<float>(1 - train.beta2);
}

class OwnAdamW final : public Optimizer {
 public:
  OwnAdamW(const TrainPlan& train, const std::vector<DecayRange>& ranges, const OptimizerMemory& memory, const Kernels& kernels)
      : train_(train),
        ranges_(ranges),
        memory_(memory),
        first_(static_cast<float*>(memory.state("exp_avg"))),
        second_(static_cast<float*>(memory.state("exp_avg_sq"))),
        kernels_(kernels) {}

  void step(int64_t step, double learning_rate, double clip) override {
    const double correction1 = 1 - std::pow(train_.beta1, double(step)), correction2 = 1 - std::pow(train_.beta2, double(step));
    for (const DecayRange& range : ranges_) {
      AdamWUpdate u;
      u.parameters = memory_.master + range.begin;
      u.gradients = memory_.gradient + range.begin;
      u.first = first_ + range.begin, u.second = second_ + range.begin;
      u.n = range.end - range.begin;
      u.clip = static_cast<float>(clip);
      u.keep = kept_part(train_, range.decay, learning_rate);
      u.rate = static_cast<float>(learning_rate / correction1);
      u.correction2 = static_cast<float>(std::sqrt(correction2));
      u.epsilon = static_cast<float>(train_.epsilon);
      u.rest1 = static_cast<float>(1 - train_.beta1), u.rest2 = static_cast<float>(1 - train_.beta2);
      kernels_.adamw(u);
    }
  }

 private:
  const TrainPlan train_;
  const std::vector<DecayRange> ranges_;
  const OptimizerMemory memory_;
  float *const first_, *const second_;
  const Kernels& kernels_;
};

class Lion final : public Optimizer {
 public:
  Lion(const TrainPlan& train, const std::vector<DecayRange>& ranges, const OptimizerMemory& memory, const Kernels& kernels)
      : train_(train), ranges_(ranges), memory_(memory), moments_(static_cast<float*>(memory.state("exp_avg"))), kernels_(kernels) {}

  void step(int64_t, double learning_rate, double clip) override {
    for (const DecayRange& range : ranges_) {
      LionUpdate u;
      u.parameters = memory_.master + range.begin;
      u.gradients = memory_.gradient + range.begin;
      u.moments = moments_ + range.begin;
      u.n = range.end - range.begin;
      u.clip = static_cast<float>(clip);
      u.keep = kept_part(train_, range.decay, learning_rate);
      u.rate = static_cast<float>(learning_rate);
      set_betas(train_, u);
      kernels_.lion(u);
    }
  }

 private:
  const TrainPlan train_;
  const std::vector<DecayRange> ranges_;
  const OptimizerMemory memory_;
  float* const moments_;
  const Kernels& kernels_;
};

ScaledCodes scaled_codes(const OptimizerState& state, const OptimizerMemory& memory) {
  return {static_cast<uint8_t*>(memory.state(std::string(state.name))), static_cast<float*>(memory.state(scale_buffer(state))),
          code_values(state.is_signed).data()};
}

class AdamW8bit final : public Optimizer {
 public:
  AdamW8bit(const TrainPlan& train, const std::vector<DecayRange>& ranges, const OptimizerMemory& memory, const Kernels& kernels)
      : train_(train), kernels_(kernels) {
    for (const DecayRange& range : ranges) ranges_.push_back({range.begin, range.end, range.decay});
    const std::vector<OptimizerState> states = distsetup::optimizer_states(train);
    update_.parameters = memory.master;
    update_.gradients = memory.gradient;
    update_.first = scaled_codes(states[0], memory);
    update_.second = scaled_codes(states[1], memory);
    update_.n = memory.numel;
    update_.ranges = ranges_.data();
    update_.num_ranges = static_cast<int64_t>(ranges_.size());
    update_.epsilon = static_cast<float>(train.epsilon);
    set_betas(train, update_);
  }

  void step(int64_t step, double learning_rate, double clip) override {
    const auto count = static_cast<double>(step);
    update_.clip = static_cast<float>(clip);
    update_.keep = kept_part(train_, true, learning_rate);
    update_.rate = static_cast<float>(learning_rate / (1 - std::pow(train_.beta1, count)));
    update_.correction2 = static_cast<float>(std::sqrt(1 - std::pow(train_.beta2, count)));
    kernels_.adamw_8bit(update_);
  }

 private:
  const TrainPlan train_;
  std::vector<UpdateRange> ranges_;
  AdamW8bitUpdate update_;
  const Kernels& kernels_;
};

// --- on the host

void read_codes(const ScaledCodes& of, int64_t begin, int64_t n, float* values) {
  for (int64_t i = 0; i < n; ++i) values[i] = of.values[of.codes[begin + i]] * of.scales[begin / kScaleBlock];
}
void write_codes(const ScaledCodes& of, int64_t begin, int64_t n, bool is_signed, const float* values) {
  of.scales[begin / kScaleBlock] = quantize_block(values, n, is_signed, of.codes + begin);
}

// Elements `begin` to `end`, whose moments are m and v.
void update_part(const AdamW8bitUpdate& u, int64_t begin, int64_t end, float keep, float* m, float* v) {
  for (int64_t i = begin, k = 0; i < end; ++i, ++k) {
    const float g = u.gradients[i] * u.clip;
    m[k] = m[k] * u.beta1 + g * u.rest1;
    v[k] = v[k] * u.beta2 + u.rest2 * (g * g);
    const float denominator = std::sqrt(v[k]) / u.correction2 + u.epsilon;
    u.parameters[i] = u.parameters[i] * keep - u.rate * (m[k] / denominator);
  }
}

void update_block(const AdamW8bitUpdate& u, int64_t begin) {
  const int64_t end = std::min(begin + kScaleBlock, u.n);
  float m[kScaleBlock], v[kScaleBlock];
  read_codes(u.first, begin, end - begin, m);
  read_codes(u.second, begin, end - begin, v);
  const UpdateRange* const last = u.ranges + u.num_ranges;
  const UpdateRange* r = std::upper_bound(u.ranges, last, begin, [](int64_t at, const UpdateRange& range) { return at < range.end; });
  for (; r != last && r->begin < end; ++r) {
    const int64_t from = std::max(begin, r->begin), to = std::min(end, r->end);
    update_part(u, from, to, r->decay ? u.keep : 1.0f, m + (from - begin), v + (from - begin));
  }
  write_codes(u.first, begin, end - begin, true, m);
  write_codes(u.second, begin, end - begin, false, v);
}

}  // namespace

void update_adamw_on_host(const AdamWUpdate& u) {
  constexpr int64_t kBytesOfWork = 28;
  parallel_ranges(u.n, kBytesOfWork, [&u](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float g = u.gradients[i] * u.clip;
      const float m = u.first[i] + u.rest1 * (g - u.first[i]), v = u.second[i] + u.rest2 * (g * g - u.second[i]);
      u.first[i] = m, u.second[i] = v;
      u.parameters[i] = u.parameters[i] * u.keep - u.rate * m / (std::sqrt(v) / u.correction2 + u.epsilon);
    }
  });
}

void update_lion_on_host(const LionUpdate& u) {
  constexpr int64_t kBytesOfWork = 20;
  parallel_ranges(u.n, kBytesOfWork, [&u](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float gradient = u.gradients[i] * u.clip, direction = u.moments[i] * u.beta1 + gradient * u.rest1;
      const float sign = static_cast<float>(direction > 0) - static_cast<float>(direction < 0);
      u.parameters[i] = u.parameters[i] * u.keep - u.rate * sign;
      u.moments[i] = u.moments[i] * u.beta2 + gradient * u.rest2;
    }
  });
}

void update_adamw_8bit_on_host(const AdamW8bitUpdate& u) {
  constexpr int64_t kBytesOfWork = 64 * kScaleBlock;  // to find codes takes as long as so much memory traffic
  parallel_ranges((u.n + kScaleBlock - 1) / kScaleBlock, kBytesOfWork, [&u](int64_t from, int64_t to) {
    for (int64_t block = from; block < to; ++block) update_block(u, block * kScaleBlock);
  });
}

std::unique_ptr<Optimizer> make_own_adamw(const TrainPlan& train, const std::vector<DecayRange>& ranges, const OptimizerMemory& memory,
                                          const Kernels& kernels) {
  return std::make_unique<OwnAdamW>(train, ranges, memory, kernels);
}

std::unique_ptr<Optimizer> make_lion(const TrainPlan& train, const std::vector<DecayRange>& ranges, const OptimizerMemory& memory,
                                     const Kernels& kernels) {
  return std::make_unique<Lion>(train, ranges, memory, kernels);
}

std::unique_ptr<Optimizer> make_adamw_8bit(const TrainPlan& train, const std::vector<DecayRange>& ranges,
                                           const OptimizerMemory& memory, const Kernels& kernels) {
  return std::make_unique<AdamW8bit>(train, ranges, memory, kernels);
}

}  // namespace distsetup
