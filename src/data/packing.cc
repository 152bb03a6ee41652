#include "data/packing.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "base/check.h"

namespace distsetup {
namespace {

// Rows of one window, each as places in `window`, ascending.
std::vector<std::vector<uint32_t>> best_fit(std::span<const uint32_t> window, std::span<const uint32_t> lengths,
                                            int64_t sequence_length) {
  std::vector<uint32_t> places(window.size());
  std::iota(places.begin(), places.end(), 0u);
  std::stable_sort(places.begin(), places.end(), [&](uint32_t a, uint32_t b) { return lengths[window[a]] > lengths[window[b]]; });
  std::vector<std::vector<uint32_t>> rows;
  std::set<std::pair<int64_t, size_t>> free;  // positions left, row
  for (const uint32_t place : places) {
    const int64_t length = lengths[window[place]];
    CHECK(length > 0 && length <= sequence_length, "a piece of {} positions, rows have {}", length, sequence_length);
    const auto found = free.lower_bound({length, 0});
    size_t row = rows.size();
    int64_t left = sequence_length;
    if (found == free.end()) {
      rows.emplace_back();
    } else {
      std::tie(left, row) = *found;
      free.erase(found);
    }
    rows[row].push_back(place);
    if (left > length) free.insert({left - length, row});
  }
  for (std::vector<uint32_t>& row : rows) std::sort(row.begin(), row.end());
  return rows;
}

}  // namespace

PackedRows pack(std::span<const uint32_t> order, std::span<const uint32_t> lengths, int64_t sequence_length, int64_t seed,
                int64_t epoch, PieceOrder rows_come) {
  PackedRows packed;
  packed.pieces.reserve(order.size());
  for (size_t begin = 0; begin < order.size(); begin += kPackingWindow) {
    const auto window = order.subspan(begin, std::min<size_t>(kPackingWindow, order.size() - begin));
    std::vector<std::vector<uint32_t>> rows = best_fit(window, lengths, sequence_length);
    if (rows_come == PieceOrder::kAsStored) std::sort(rows.begin(), rows.end());  // by their first places, which differ
    for (const uint32_t r : epoch_order(static_cast<int64_t>(rows.size()), {}, seed, epoch, rows_come)) {
      for (const uint32_t place : rows[r]) packed.pieces.push_back(window[place]);
      packed.first.push_back(static_cast<uint32_t>(packed.pieces.size()));
    }
  }
  return packed;
}

}  // namespace distsetup
