// The order in which an epoch reads what there is to train on, as a function of (what there is, seed, epoch) alone: the same on every
// machine and every mesh. What is ordered are pieces: samples as training cuts them (pieces.h).
//
// Without a mixture every piece comes once, shuffled or as it is stored. In a mixture each part has a weight, and the next piece comes
// from the part with the largest deficit w · n − taken, n pieces having come before (as Megatron-LM's build_blending_indices; the
// first of equal ones). An epoch of a mixture has as many pieces as the parts have together. A part goes through its own pieces again
// and again, shuffled anew each time or not at all, over the ends of epochs: where its weight is above its share some come twice,
// below it some wait for later epochs.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace distsetup {

// kAsStored: every epoch goes through the samples as the set has them; the seed is not looked at.
enum class PieceOrder { kShuffled, kAsStored };

// Fisher-Yates with splitmix64 seeded from (seed, epoch): the same on every platform.
std::vector<uint32_t> epoch_permutation(int64_t num_pieces, int64_t seed, int64_t epoch);

struct MixturePart {
  double weight = 0;
  std::vector<uint32_t> pieces;  // not empty
};
// For each of `count` draws the part it comes from. Weights add up to anything above 0.
std::vector<uint32_t> blend(std::span<const double> weights, int64_t count);

// Numbers of pieces 0 .. num_pieces - 1; of a mixture those of its parts.
std::vector<uint32_t> epoch_order(int64_t num_pieces, const std::vector<MixturePart>& mixture, int64_t seed, int64_t epoch,
                                  PieceOrder order = PieceOrder::kShuffled);

}  // namespace distsetup
