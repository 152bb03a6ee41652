#include "planner/frameworks/fsdp_lengths.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace distsetup::replay {
namespace {

double normal_below(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

// The length at probability u of what lies between `shortest` and `longest`, or, cut, above `shortest`.
int64_t length_at(double u, const SampleLengths& lengths, int64_t longest) {
  const double spread = std::sqrt(std::log1p(std::pow(lengths.deviation / lengths.mean, 2)));
  const double center = std::log(lengths.mean) - spread * spread / 2;
  double low = std::log(static_cast<double>(lengths.shortest)), high = std::log(static_cast<double>(longest));
  const auto share = [&](double log_length) { return normal_below((log_length - center) / spread); };
  const double wanted = share(low) + u * ((lengths.longer_are_cut ? 1.0 : share(high)) - share(low));
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (share(middle) < wanted ? low : high) = middle;
  }
  return std::clamp<int64_t>(std::llround(std::exp(low)), lengths.shortest, longest);
}

}  // namespace

int64_t usual_longest(const SampleLengths& lengths, int64_t samples, int64_t sequence_length) {
  return length_at(std::pow(0.5, 1.0 / static_cast<double>(std::max<int64_t>(1, samples))), lengths, sequence_length);
}

double LengthDraw::uniform() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

int64_t LengthDraw::longest_of_micro_batch() {
  int64_t longest = 1;
  for (int64_t sample = 0; sample < s_.micro_batch; ++sample)
    longest = std::max(longest, length_at(uniform(), s_.sample_lengths, s_.sequence_length));
  return longest;
}

}  // namespace distsetup::replay
