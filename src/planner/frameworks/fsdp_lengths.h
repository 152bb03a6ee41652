// Steps over samples of different lengths (Setup::sample_lengths). Each length asks the caching allocator for sizes it has not seen,
// cuts up blocks that an earlier length left, and makes it reserve more than the longest sample alone needs; how much depends on the
// order. The order of a run is not known: lengths are drawn by a fixed sequence, so that the same setup gives the same answer.
// Leaves out: sorting or bucketing by length, and packing (packed samples are all of one length).
#pragma once
#include <cstdint>

#include "planner/frameworks/setup.h"

namespace distsetup::replay {

// What a micro-batch of `samples` is usually padded to: the median of its longest.
int64_t usual_longest(const SampleLengths& lengths, int64_t samples, int64_t sequence_length);
// As computed: every sample padded to that. The length of a row of activations decides how a matrix is aligned, not how many there
// are, so that lengths are taken as multiples of 16.
Setup padded(const Setup& setup);
// Of the padded tokens, those that throughput counts.
double counted_share(const Setup& setup, int64_t padded_length);

class LengthDraw {
 public:
  LengthDraw(const Setup& setup, int order) : s_(setup), state_(static_cast<uint64_t>(order)) {}
  // Of the next micro-batch, which is padded to it.
  int64_t longest_of_micro_batch();

 private:
  double uniform();  // in [0, 1), splitmix64 (Steele, Lea, Flood 2014)

  const Setup& s_;
  uint64_t state_;
};

}  // namespace distsetup::replay
