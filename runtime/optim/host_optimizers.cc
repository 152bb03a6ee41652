#include "runtime/optim/host_optimizers.h"

#include <algorithm>
#include <cmath>

#include "plan/optimizer.h"
#include "runtime/engine/threads.h"
#include "runtime/optim/block_codes.h"

namespace distsetup {
namespace {

float kept_part(const TrainPlan& train, bool decays, double learning_rate) {
  return static_cast<float>(decays ? 1 - learning_rate * train.weight_decay : 1.0);
}

class Lion final : public Optimizer {
 public:
  Lion(const TrainPlan& train, const std::vector<DecayRange>& ranges, const OptimizerMemory& memory)
      : train_(train), ranges_(ranges), memory_(memory), momentum_(static_cast<float*>(memory.state("exp_avg"))) {}

  void step(int64_t, double learning_rate, double clip) override {
    constexpr int64_t kBytesOfWork = 20;
    for (const DecayRange& range : ranges_) {
      const float keep = kept_part(train_, range.decay, learning_rate);
      parallel_ranges(range.end - range.begin, kBytesOfWork, [&](int64_t from, int64_t to) {
        update(range.begin + from, range.begin + to, keep, static_cast<float>(learning_rate), static_cast<float>(clip));
      });
    }
  }

 private:
  void update(int64_t begin, int64_t end, float keep, float rate, float clip) const {
    const auto beta1 = static_cast<float>(train_.beta1), beta2 = static_cast<float>(train_.beta2);
    const auto rest1 = static_cast<float>(1 - train_.beta1), rest2 = static_cast<float>(1 - train_.beta2);
    float *const p = memory_.master, *const m = momentum_;
    const float* const g = memory_.gradient;
    for (int64_t i = begin; i < end; ++i) {
      const float gradient = g[i] * clip, direction = m[i] * beta1 + gradient * rest1;
      const float sign = static_cast<float>(direction > 0) - static_cast<float>(direction < 0);
      p[i] = p[i] * keep - rate * sign;
      m[i] = m[i] * beta2 + gradient * rest2;
    }
  }

  const TrainPlan train_;
  const std::vector<DecayRange> ranges_;
  const OptimizerMemory memory_;
  float* const momentum_;
};

struct Moment {
  uint8_t* codes = nullptr;
  float* scales = nullptr;
  bool is_signed = true;
  Moment(const OptimizerState& state, const OptimizerMemory& memory)
      : codes(static_cast<uint8_t*>(memory.state(std::string(state.name)))),
        scales(static_cast<float*>(memory.state(scale_buffer(state)))),
        is_signed(state.is_signed) {}
  void read(int64_t begin, int64_t n, float* values) const {
    const CodeValues& of = code_values(is_signed);
    for (int64_t i = 0; i < n; ++i) values[i] = of[codes[begin + i]] * scales[begin / kScaleBlock];
  }
  void write(int64_t begin, int64_t n, const float* values) const {
    scales[begin / kScaleBlock] = quantize_block(values, n, is_signed, codes + begin);
  }
};

class AdamW8bit final : public Optimizer {
 public:
  AdamW8bit(const TrainPlan& train, const std::vector<DecayRange>& ranges, const OptimizerMemory& memory)
      : train_(train),
        ranges_(ranges),
        memory_(memory),
        first_(distsetup::optimizer_states(train)[0], memory),
        second_(distsetup::optimizer_states(train)[1], memory) {}

  void step(int64_t step, double learning_rate, double clip) override {
    constexpr int64_t kBytesOfWork = 64 * kScaleBlock;  // to find codes takes as long as so much memory traffic
    const Rates rates = rates_of(step, learning_rate, clip);
    parallel_ranges((memory_.numel + kScaleBlock - 1) / kScaleBlock, kBytesOfWork, [&](int64_t from, int64_t to) {
      for (int64_t block = from; block < to; ++block) update_block(block * kScaleBlock, rates);
    });
  }

 private:
  struct Rates {
    float clip = 1, step_size = 0, correction2 = 1, keep_decayed = 1;
  };
  Rates rates_of(int64_t step, double learning_rate, double clip) const {
    const auto count = static_cast<double>(step);
    return {static_cast<float>(clip), static_cast<float>(learning_rate / (1 - std::pow(train_.beta1, count))),
            static_cast<float>(std::sqrt(1 - std::pow(train_.beta2, count))), kept_part(train_, true, learning_rate)};
  }

  void update_block(int64_t begin, const Rates& rates) const {
    const int64_t end = std::min(begin + kScaleBlock, memory_.numel);
    float m[kScaleBlock], v[kScaleBlock];
    first_.read(begin, end - begin, m);
    second_.read(begin, end - begin, v);
    auto range = std::upper_bound(ranges_.begin(), ranges_.end(), begin, [](int64_t at, const DecayRange& r) { return at < r.end; });
    for (; range != ranges_.end() && range->begin < end; ++range) {
      const int64_t from = std::max(begin, range->begin), to = std::min(end, range->end);
      update(from, to, range->decay ? rates.keep_decayed : 1.0f, rates, m + (from - begin), v + (from - begin));
    }
    first_.write(begin, end - begin, m);
    second_.write(begin, end - begin, v);
  }

  void update(int64_t begin, int64_t end, float keep, const Rates& rates, float* m, float* v) const {
    const auto beta1 = static_cast<float>(train_.beta1), beta2 = static_cast<float>(train_.beta2);
    const auto rest1 = static_cast<float>(1 - train_.beta1), rest2 = static_cast<float>(1 - train_.beta2);
    const auto epsilon = static_cast<float>(train_.epsilon);
    for (int64_t i = begin, k = 0; i < end; ++i, ++k) {
      const float g = memory_.gradient[i] * rates.clip;
      m[k] = m[k] * beta1 + g * rest1;
      v[k] = v[k] * beta2 + rest2 * (g * g);
      const float denominator = std::sqrt(v[k]) / rates.correction2 + epsilon;
      memory_.master[i] = memory_.master[i] * keep - rates.step_size * (m[k] / denominator);
    }
  }

  const TrainPlan train_;
  const std::vector<DecayRange> ranges_;
  const OptimizerMemory memory_;
  const Moment first_, second_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lion(const TrainPlan& train, const std::vector<DecayRange>& ranges, const OptimizerMemory& memory) {
  return std::make_unique<Lion>(train, ranges, memory);
}

std::unique_ptr<Optimizer> make_adamw_8bit(const TrainPlan& train, const std::vector<DecayRange>& ranges,
                                           const OptimizerMemory& memory) {
  return std::make_unique<AdamW8bit>(train, ranges, memory);
}

}  // namespace distsetup
