#include "planner/frameworks/fsdp_lengths.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/splitmix.h"

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
  if (lengths.padded_to_whole) return sequence_length;
  return length_at(std::pow(0.5, 1.0 / static_cast<double>(std::max<int64_t>(1, samples))), lengths, sequence_length);
}

Setup padded(const Setup& setup) {
  Setup whole = setup;
  whole.sequence_length = (usual_longest(setup.sample_lengths, setup.micro_batch, setup.sequence_length) + 15) / 16 * 16;
  return whole;
}

double counted_share(const Setup& setup, int64_t padded_length) {
  if (setup.padding_counted) return 1;
  constexpr int kPoints = 64;  // lengths at evenly spaced probabilities
  double sum = 0;
  for (int i = 0; i < kPoints; ++i)
    sum += static_cast<double>(length_at((i + 0.5) / kPoints, setup.sample_lengths, setup.sequence_length));
  return sum / kPoints / static_cast<double>(padded_length);
}

double LengthDraw::uniform() { return static_cast<double>(splitmix(state_ += kSplitMixStep) >> 11) * 0x1p-53; }

int64_t LengthDraw::longest_of_micro_batch() {
  if (s_.sample_lengths.padded_to_whole) return s_.sequence_length;
  int64_t longest = 1;
  for (int64_t sample = 0; sample < s_.micro_batch; ++sample)
    longest = std::max(longest, length_at(uniform(), s_.sample_lengths, s_.sequence_length));
  return longest;
}

}  // namespace distsetup::replay
