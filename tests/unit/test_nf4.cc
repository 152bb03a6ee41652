// Matrices as nf4 have the bytes that bitsandbytes 0.50.2 gives them (functional.quantize_4bit with compress_statistics, plain
// PyTorch). tests/integration/qlora.py asks bitsandbytes itself.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <string>

#include "support/random_plan.h"
#include "weights/frozen_source.h"
#include "weights/nf4.h"

namespace distsetup {
namespace {

// 5 rows of 31: two full blocks and a short one, an odd number of weights.
std::vector<float> some_weights() {
  std::vector<float> weights;
  for (int i = 0; i < 155; ++i) weights.push_back(static_cast<float>((i * 37) % 101 - 50) / 64.0F * static_cast<float>(1 + i / 64));
  return weights;
}

std::vector<uint8_t> record_of(std::span<const float> weights, size_t piece) {
  Nf4Writer writer(static_cast<int64_t>(weights.size()));
  for (size_t at = 0; at < weights.size(); at += piece) writer.add(weights.subspan(at, std::min(piece, weights.size() - at)));
  return writer.finish();
}

float number_at(const std::vector<uint8_t>& record, int64_t at) {
  float value = 0;
  std::memcpy(&value, record.data() + at, sizeof(value));
  return value;
}

TEST_CASE("a record has 4.127 bits a weight and whole cache lines") {
  const Nf4Record of = nf4_record(155);
  CHECK(of.scales_at == 78);
  CHECK(of.num_scales == 3);
  CHECK(of.ranges_at == 84);
  CHECK(of.mean_at == 88);
  CHECK(of.num_bytes == 128);
  const Nf4Record large = nf4_record(4096 * 14336);
  CHECK(static_cast<double>(large.num_bytes) * 8 / static_cast<double>(large.numel) == Approx(4.127).epsilon(1e-4));
}

TEST_CASE("quantised weights have bitsandbytes' bytes, whatever the pieces they come in") {
  const std::vector<uint8_t> record = record_of(some_weights(), 155);
  std::string nibbles;
  for (int i = 0; i < 78; ++i) nibbles += fmt::format("{:02x}", record[static_cast<size_t>(i)]);
  CHECK(nibbles ==
        "04c16e29f3b05d17e29f3c05d18e2af4c16e18e3b05d17e29f3b05d18e2af4c16d18e3b04c17e29f3b05d17e2af4c06d18e2a04c16e29f3b05d17e29f3c0"
        "5d18e2af4c16e18e3b05d17e29f3b057");
  CHECK(record[78] == 0);
  CHECK(record[79] == 127);
  CHECK(record[80] == 255);
  CHECK(number_at(record, 84) == 0x1.9p-1F);
  CHECK(number_at(record, 88) == 0x1.9p+0F);
  for (const size_t piece : {size_t{1}, size_t{31}, size_t{64}, size_t{100}}) CHECK(record_of(some_weights(), piece) == record);
}

TEST_CASE("weights come back as bitsandbytes gives them back, any blocks of them") {
  const std::vector<uint8_t> record = record_of(some_weights(), 31);
  const Nf4Record of = nf4_record(155);
  std::vector<float> all(155);
  read_nf4_blocks(record.data(), of, 0, of.num_scales, all.data());
  const std::pair<size_t, float> expected[] = {{0, -0x1.92d00p-1F},   {1, -0x1.ca4e62p-3F},  {63, -0x1.186f66p-1F},
                                               {64, -0x1.235c3p-3F},  {100, 0x1.89c79ap-2F}, {128, 0x1.b1c62cp+0F},
                                               {154, -0x1.bb74ccp-2F}};
  for (const auto& [i, value] : expected) CHECK(all[i] == value);
  std::vector<float> last(91);
  read_nf4_blocks(record.data(), of, 1, 3, last.data());
  CHECK(std::vector<float>(all.begin() + 64, all.end()) == last);
}

TEST_CASE("the numbers of scales are bitsandbytes' dynamic map") {
  const std::pair<size_t, float> expected[] = {
      {0, -0x1.fc6666p-1F},   {1, -0x1.f53334p-1F},   {64, -0x1.93d70ap-4F}, {126, -0x1.27476ep-21F}, {127, 0.0F},
      {128, 0x1.27476ep-21F}, {129, 0x1.b43528p-19F}, {200, 0x1.de6666p-3F}, {254, 0x1.fc6666p-1F},   {255, 1.0F}};
  for (const auto& [i, value] : expected) CHECK(kNf4Scales[i] == value);
}

TEST_CASE("a part of a matrix reads back as the whole's weights") {
  constexpr int64_t kRows = 24, kWidth = 1024;  // 16 blocks a row, more than one range
  std::vector<float> weights(kRows * kWidth);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(std::sin(0.37 * static_cast<double>(i)) * (1 + i % 7));
  const std::vector<uint8_t> whole = record_of(weights, weights.size());
  const Nf4Record of_whole = nf4_record(kRows * kWidth), of_part = nf4_record(kRows * kWidth / 4, 4);
  REQUIRE(of_whole.num_ranges == 2);
  REQUIRE(of_part.num_ranges == 2);
  std::vector<float> all(weights.size());
  read_nf4_blocks(whole.data(), of_whole, 0, of_whole.num_scales, all.data());
  for (const int rank : {0, 1, 3}) {
    std::vector<float> part(weights.size() / 4), expected;
    const std::vector<uint8_t> rows = nf4_part(whole, of_whole, of_part, {rank * 6 * 16, 1, 1});
    read_nf4_blocks(rows.data(), of_part, 0, of_part.num_scales, part.data());
    CHECK(part == std::vector<float>(all.begin() + rank * 6 * kWidth, all.begin() + (rank + 1) * 6 * kWidth));
    for (int64_t r = 0; r < kRows; ++r)
      expected.insert(expected.end(), all.begin() + r * kWidth + rank * 256, all.begin() + r * kWidth + (rank + 1) * 256);
    const std::vector<uint8_t> columns = nf4_part(whole, of_whole, of_part, {rank * 4, 4, 16});
    read_nf4_blocks(columns.data(), of_part, 0, of_part.num_scales, part.data());
    CHECK(part == expected);
  }
}

// Of all frozen matrices of a tiny model on all its ranks; their values by `phase`.
uint64_t digest_of(int tp, int shard, double phase) {
  Geometry g = tiny_geometry(1);
  g.hidden = 128, g.head_size = 32, g.num_heads = 4, g.num_kv_heads = 2, g.feed_forward = 256;
  Plan plan = make_test_plan(g, {.dp_shard = shard});
  plan.mesh.tp = tp;
  plan.strategy.sequence_parallel = tp > 1;
  plan.train.finetune = "qlora", plan.train.lora_rank = 2, plan.train.lora_targets = {"q_proj", "down_proj"};
  const Layout layout = make_layout(plan, 0);
  REQUIRE(layout.quantized_bytes > 0);
  uint64_t sum = 0;
  for (int rank = 0; rank < plan.mesh.world(); ++rank) {
    const Coordinates at = coordinates(plan.mesh, rank);
    FrozenDigest digest(layout, at);
    const auto rows_of = [&](const Parameter& p) -> FillRows {
      return [width = p.full_shape[1], phase](int64_t first, int64_t rows, float* to) {
        for (int64_t i = 0; i < rows * width; ++i)
          to[i] = static_cast<float>(std::sin(0.37 * static_cast<double>(first * width + i) + phase));
        return Diagnostics{};
      };
    };
    const auto add = [&](int64_t offset, std::span<const uint8_t> bytes) { digest.add_bytes(offset, bytes); };
    REQUIRE(store_records(layout, at, rows_of, {nullptr, add}).empty());
    sum += digest.sum();
  }
  return sum;
}

TEST_CASE("nf4 has the same digest on any mesh") {
  const uint64_t expected = digest_of(1, 1, 0);
  CHECK(digest_of(1, 1, 0.001) != expected);
  for (const auto& [tp, shard] : {std::pair{1, 2}, std::pair{2, 1}, std::pair{2, 3}}) CHECK(digest_of(tp, shard, 0) == expected);
}

TEST_CASE("zeros stay zeros") {
  const std::vector<float> zeros(200, 0.0F);
  const std::vector<uint8_t> record = record_of(zeros, 200);
  std::vector<float> back(200, 1.0F);
  read_nf4_blocks(record.data(), nf4_record(200), 0, 4, back.data());
  CHECK(back == zeros);
}

}  // namespace
}  // namespace distsetup
