// What an epoch of a prepared set reads, counted before anything is trained. Training cuts samples into pieces of at most
// sequence_length targets; a piece is a row of its own, or shares one where rows are packed.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "data/epoch_order.h"
#include "data/packing.h"
#include "data/prepared_set.h"

namespace distsetup {

// What decides how a sample is cut, whatever the length.
struct SampleShape {
  uint32_t targets = 0;        // its tokens but one: the first is nobody's target
  uint32_t first_trained = 0;  // target; 0: none is
  TooLong too_long = TooLong::kContinues;
  uint32_t source = 0;
};
struct SetLengths {
  std::vector<SampleShape> samples;
  std::vector<SetPart> mixture;
};
Result<SetLengths> read_set_lengths(const std::string& folder);  // of the training split

// A sample that is cut has one piece, where something of it is trained; one that goes on as many as it fills.
template <class Use>
void each_piece(TooLong too_long, int64_t targets, int64_t sequence_length, Use use) {  // use(begin, length)
  for (int64_t begin = 0; begin < targets; begin += sequence_length) {
    use(begin, std::min(sequence_length, targets - begin));
    if (too_long == TooLong::kIsCut) return;
  }
}

// Lengths and sources of the training pieces, in the order of samples.
struct Pieces {
  std::vector<uint32_t> lengths, sources;
  int64_t size() const { return static_cast<int64_t>(lengths.size()); }
};
Pieces pieces_of(const SetLengths& set, int64_t sequence_length);
// Which pieces each part of a mixture has. A part with none is left in, empty.
std::vector<MixturePart> parts_of(const std::vector<SetPart>& mixture, std::span<const uint32_t> sources);

enum class Packing { kOff, kOn };
// Rows of one epoch: with packing as they are packed, else one for each piece.
PackedRows rows_of_epoch(std::span<const uint32_t> lengths, const std::vector<MixturePart>& mixture, int64_t sequence_length,
                         Packing packing, int64_t seed, int64_t epoch, PieceOrder order = PieceOrder::kShuffled);
// Rows of so many epochs, the last one in part. With packing epochs differ: beyond the first thousand, or fifty million pieces, they
// are taken to have as many rows as those before.
int64_t num_rows(const SetLengths& set, int64_t sequence_length, Packing packing, int64_t seed, double epochs,
                 PieceOrder order = PieceOrder::kShuffled);

// What a sequence length leaves of a split that is trained on. Samples that go on in the next sequence lose nothing; a pair is one
// sample.
struct CutSamples {
  int64_t samples = 0, without_trained = 0, cut = 0;  // cut: something trained of them stays, not all
  int64_t trained = 0, kept = 0;                      // tokens
};
// "of 6 samples: 3 with nothing to train on, 2 cut; 132 of 654 trained tokens are read"
std::string words_of(const CutSamples& found, bool holds_pairs);
CutSamples cut_samples(const PreparedSplit& split, bool holds_pairs, int64_t sequence_length);

// What packing makes of a set, for people to see.
struct PackingGain {
  int64_t tokens = 0;  // positions that hold a token, in one epoch
  int64_t rows_padded = 0, rows_packed = 0;
  double mean_square = 0;  // of the pieces' lengths, weighted by length: E[len²] / E[len]
};
PackingGain packing_gain(const SetLengths& set, int64_t sequence_length, int64_t seed);

}  // namespace distsetup
