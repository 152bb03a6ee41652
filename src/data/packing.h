// Packing: several pieces in one row of sequence_length positions, so that little of a row is padding. Best fit: the longest piece
// first, each into the row that it fills up most, within windows of the epoch's order (a window at a time, so that what a row holds
// stays close to that order); the rows of a window then come in another shuffled order, or in that of their first pieces. A function
// of its arguments alone.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "data/epoch_order.h"

namespace distsetup {

inline constexpr int64_t kPackingWindow = 8192;  // pieces

// Row r holds pieces[first[r] .. first[r + 1]), in the epoch's order.
struct PackedRows {
  std::vector<uint32_t> pieces;
  std::vector<uint32_t> first = {0};
  int64_t size() const { return static_cast<int64_t>(first.size()) - 1; }
  std::span<const uint32_t> row(int64_t r) const {
    const size_t i = static_cast<size_t>(r);
    return std::span(pieces).subspan(first[i], first[i + 1] - first[i]);
  }
};

// `order`: pieces in the epoch's order (epoch_order.h); `lengths`: positions of each piece, by its number, at most sequence_length.
PackedRows pack(std::span<const uint32_t> order, std::span<const uint32_t> lengths, int64_t sequence_length, int64_t seed,
                int64_t epoch, PieceOrder rows_come = PieceOrder::kShuffled);

}  // namespace distsetup
