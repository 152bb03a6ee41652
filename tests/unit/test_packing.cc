// Orders of epochs, mixtures and packed rows: functions of their arguments alone, with every piece where it belongs.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <set>

#include "data/pieces.h"

using namespace distsetup;

namespace {

std::vector<uint32_t> some_lengths(uint32_t count, uint32_t most) {
  std::vector<uint32_t> lengths;
  for (uint32_t i = 0; i < count; ++i) lengths.push_back(1 + (i * 7919 + i * i % 31) % most);
  return lengths;
}

int64_t length_of(const PackedRows& rows, const std::vector<uint32_t>& lengths, int64_t r) {
  int64_t sum = 0;
  for (const uint32_t piece : rows.row(r)) sum += lengths[piece];
  return sum;
}

// "texts" of 100, 3 and 41 targets, conversations of 6 and 20 whose answers begin at 2 and 18.
SetLengths small_set() {
  SetLengths set;
  set.samples = {{100, 1, TooLong::kContinues, 0}, {3, 1, TooLong::kContinues, 0}, {41, 1, TooLong::kContinues, 1},
                 {6, 2, TooLong::kIsCut, 1},       {20, 18, TooLong::kIsCut, 1},   {0, 0, TooLong::kContinues, 0}};
  return set;
}

}  // namespace

TEST_CASE("packing: every piece has its place in one row, no row is too long, and little is left empty") {
  for (const int64_t sequence_length : {64, 100, 1024}) {
    const std::vector<uint32_t> lengths = some_lengths(20000, 64), order = epoch_permutation(20000, 3, 1);
    const PackedRows rows = pack(order, lengths, sequence_length, 3, 1);
    std::multiset<uint32_t> all(rows.pieces.begin(), rows.pieces.end());
    CHECK(all == std::multiset<uint32_t>(order.begin(), order.end()));
    int64_t sum = 0;
    for (int64_t r = 0; r < rows.size(); ++r) {
      CHECK(rows.row(r).size() > 0);
      CHECK(length_of(rows, lengths, r) <= sequence_length);
      sum += length_of(rows, lengths, r);
    }
    CHECK(static_cast<double>(sum) > 0.98 * static_cast<double>(rows.size() * sequence_length));
    CHECK(pack(order, lengths, sequence_length, 3, 1).pieces == rows.pieces);
    CHECK(pack(order, lengths, sequence_length, 4, 1).pieces != rows.pieces);
    // Rows stay within their window of the order.
    std::set<uint32_t> first_window(order.begin(), order.begin() + kPackingWindow);
    CHECK(std::all_of(rows.pieces.begin(), rows.pieces.begin() + kPackingWindow,
                      [&](uint32_t piece) { return first_window.contains(piece); }));
  }
}

TEST_CASE("packing: pieces that fill a row stand alone, and one that fits exactly joins") {
  const std::vector<uint32_t> lengths = {8, 5, 3, 8, 4, 4}, order = {0, 1, 2, 3, 4, 5};
  const PackedRows rows = pack(order, lengths, 8, 0, 0);
  CHECK(rows.size() == 4);
  for (int64_t r = 0; r < rows.size(); ++r) CHECK(length_of(rows, lengths, r) == 8);
}

TEST_CASE("mixtures: the next sample comes from the part that is furthest behind") {
  // Worked by hand from the rule: the deficits w · max(n, 1) − taken of 0.5, 0.3, 0.2 before each draw.
  const std::vector<double> weights = {0.5, 0.3, 0.2};
  CHECK(blend(weights, 10) == std::vector<uint32_t>{0, 1, 2, 0, 1, 0, 2, 0, 1, 0});
  // What megatron-core 0.16.1's build_blending_indices gives for these weights.
  CHECK(blend(std::vector<double>{0.61, 0.28, 0.11}, 30) ==
        std::vector<uint32_t>{0, 1, 2, 0, 0, 1, 0, 0, 1, 0, 2, 0, 1, 0, 0, 1, 0, 0, 1, 0, 2, 0, 0, 1, 0, 0, 1, 0, 2, 0});
  CHECK(blend(std::vector<double>{5, 3, 2}, 1000) == blend(weights, 1000));
  const std::vector<uint32_t> many = blend(weights, 10000);
  for (size_t p = 0; p < weights.size(); ++p)
    CHECK(std::abs(static_cast<double>(std::count(many.begin(), many.end(), p)) - weights[p] * 10000) <= 1);
}

TEST_CASE("mixtures: an epoch is as long as the parts together, and a part goes through its pieces before any comes again") {
  std::vector<MixturePart> parts = {{3, {0, 1, 2, 3}}, {1, {4, 5, 6, 7, 8, 9, 10, 11}}};
  std::vector<uint32_t> streams[2];
  for (int64_t epoch = 0; epoch < 8; ++epoch) {
    const std::vector<uint32_t> order = epoch_order(12, parts, 5, epoch);
    CHECK(order == epoch_order(12, parts, 5, epoch));
    REQUIRE(order.size() == 12);
    for (const uint32_t piece : order) streams[piece < 4 ? 0 : 1].push_back(piece);
    CHECK(streams[0].size() == static_cast<size_t>(9 * (epoch + 1)));
  }
  for (int p = 0; p < 2; ++p) {
    const size_t size = parts[static_cast<size_t>(p)].pieces.size();
    for (size_t at = 0; at + size <= streams[p].size(); at += size)
      CHECK(std::set<uint32_t>(streams[p].begin() + static_cast<ptrdiff_t>(at), streams[p].begin() + static_cast<ptrdiff_t>(at + size))
                .size() == size);
  }
  CHECK(epoch_order(12, {}, 5, 1) == epoch_permutation(12, 5, 1));
}

TEST_CASE("orders: as stored, every epoch goes through the samples as the set has them, whatever the seed") {
  const std::vector<uint32_t> stored = {0, 1, 2, 3, 4, 5, 6, 7};
  for (int64_t epoch = 0; epoch < 3; ++epoch) CHECK(epoch_order(8, {}, 5 + epoch, epoch, PieceOrder::kAsStored) == stored);
  // Of a mixture the parts take turns as their weights say, each from its first piece on, over the ends of epochs.
  const std::vector<MixturePart> parts = {{1, {0, 1, 2}}, {1, {3, 4, 5, 6, 7}}};
  std::vector<uint32_t> streams[2];
  for (int64_t epoch = 0; epoch < 4; ++epoch)
    for (const uint32_t piece : epoch_order(8, parts, 5, epoch, PieceOrder::kAsStored)) streams[piece < 3 ? 0 : 1].push_back(piece);
  for (size_t p = 0; p < 2; ++p) {
    REQUIRE(streams[p].size() == 16);
    for (size_t i = 0; i < 16; ++i) CHECK(streams[p][i] == parts[p].pieces[i % parts[p].pieces.size()]);
  }
}

TEST_CASE("orders: as stored, packed rows come in the order of their first samples, and all samples come once") {
  const std::vector<uint32_t> lengths = some_lengths(20000, 64), order = epoch_order(20000, {}, 3, 1, PieceOrder::kAsStored);
  const PackedRows rows = pack(order, lengths, 64, 3, 1, PieceOrder::kAsStored);
  std::set<uint32_t> seen;
  for (int64_t r = 0; r < rows.size(); ++r) {
    if (r > 0 && rows.row(r)[0] / kPackingWindow == rows.row(r - 1)[0] / kPackingWindow) CHECK(rows.row(r)[0] > rows.row(r - 1)[0]);
    for (const uint32_t piece : rows.row(r)) CHECK(seen.insert(piece).second);
  }
  CHECK(seen.size() == 20000);
  CHECK(pack(order, lengths, 64, 4, 2, PieceOrder::kAsStored).pieces == rows.pieces);
}

TEST_CASE("pieces: texts go on, conversations are cut, and what nothing is trained of is left out") {
  const SetLengths set = small_set();
  CHECK(pieces_of(set, 40).lengths == std::vector<uint32_t>{40, 40, 20, 3, 40, 1, 6, 20});
  CHECK(pieces_of(set, 17).sources == std::vector<uint32_t>{0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1});  // the second answer is beyond
  const std::vector<SetPart> mixture = {{"a", 1, 1}, {"b", 2, 1}};
  const std::vector<MixturePart> parts = parts_of(mixture, pieces_of(set, 40).sources);
  REQUIRE(parts.size() == 2);
  CHECK(parts[0].pieces == std::vector<uint32_t>{0, 1, 2, 3});
  CHECK(parts[1].pieces == std::vector<uint32_t>{4, 5, 6, 7});
}

TEST_CASE("pieces: rows of epochs are counted as they are trained") {
  SetLengths set = small_set();
  CHECK(num_rows(set, 40, Packing::kOff, 0, 1) == 8);
  CHECK(num_rows(set, 40, Packing::kOff, 0, 2.5) == 20);
  CHECK(num_rows(set, 40, Packing::kOn, 0, 1) == 5);  // 170 targets: four rows hold 160
  CHECK(num_rows(set, 40, Packing::kOn, 0, 3) == 15);
  CHECK(num_rows(set, 40, Packing::kOn, 0, 100000) == 500000);
  const PackingGain gain = packing_gain(set, 40, 0);
  CHECK(gain.tokens == 170);
  CHECK(gain.rows_padded == 8);
  CHECK(gain.rows_packed == 5);
  set.samples.clear();
  CHECK(num_rows(set, 40, Packing::kOn, 0, 1) == 0);
}
