// Steps over samples of different lengths (Setup::sample_lengths). Each length asks the caching allocator for sizes it has not seen,
// cuts up blocks that an earlier length left, and makes it reserve more than the longest sample alone needs; how much depends on the
// order. The order of a run is not known: lengths are drawn by a fixed sequence, so that the same setup gives the same answer.
// Leaves out: sorting or bucketing by length, and packing (packed samples are all of one length).
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "planner/frameworks/fsdp_walk.h"

namespace distsetup::replay {
namespace {

constexpr int kMicroBatches = 64;  // what is reserved hardly grows after that

// splitmix64 (Steele, Lea, Flood 2014): uniform in [0, 1).
class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed) {}
  double operator()() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }

 private:
  uint64_t state_;
};

double below(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

// The length at probability u of what lies between `shortest` and `longest`, or, cut, above `shortest`.
int64_t length_at(double u, const SampleLengths& lengths, int64_t longest) {
  const double spread = std::sqrt(std::log1p(std::pow(lengths.deviation / lengths.mean, 2)));
  const double center = std::log(lengths.mean) - spread * spread / 2;
  double low = std::log(static_cast<double>(lengths.shortest)), high = std::log(static_cast<double>(longest));
  const auto share = [&](double log_length) { return below((log_length - center) / spread); };
  const double wanted = share(low) + u * ((lengths.longer_are_cut ? 1.0 : share(high)) - share(low));
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (share(middle) < wanted ? low : high) = middle;
  }
  return std::clamp<int64_t>(std::llround(std::exp(low)), lengths.shortest, longest);
}

}  // namespace

void FsdpWalk::run_lengths(int order) {
  load();
  Draw draw(static_cast<uint64_t>(order));
  const int64_t accumulated = std::clamp<int64_t>(s_.gradient_accumulation, 1, kMicroBatches / 2);
  for (int64_t i = 0; i < kMicroBatches && !ledger_.ran_out(); ++i) {
    int64_t longest = 1;
    for (int64_t sample = 0; sample < s_.micro_batch; ++sample)
      longest = std::max(longest, length_at(draw(), s_.sample_lengths, s_.sequence_length));
    num_tokens_ = s_.micro_batch * longest / s_.cp;
    m_.symbols[static_cast<size_t>(Symbol::kTokens)] = num_tokens_;
    m_.symbols[static_cast<size_t>(Symbol::kSequence)] = longest / s_.cp;
    trace();
    engine_->set_reduces(!s_.software.accumulates_whole || i % accumulated == accumulated - 1);
    forward();
    backward();
    if (i % accumulated != accumulated - 1) continue;
    optimizer_step();
    engine_->zero_gradients();
  }
}

}  // namespace distsetup::replay
