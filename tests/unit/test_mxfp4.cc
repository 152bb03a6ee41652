#include "weights/mxfp4.h"

#include <array>
#include <cmath>
#include <vector>

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

TEST_CASE("mxfp4: codes, the low half of a byte first, times a power of two for each 32") {
  std::array<uint8_t, 2 * kMxBlockBytes> blocks{};
  for (uint8_t i = 0; i < 8; ++i) blocks[i] = static_cast<uint8_t>(2 * i | (2 * i + 1) << 4);  // all sixteen codes in order
  blocks[kMxBlockBytes] = 0x7f;                                                                // -6, then 6
  const std::array<uint8_t, 2> scales = {128, 125};
  std::vector<float> values(2 * kMxBlock, 9.0f);
  widen_mxfp4(blocks.data(), scales.data(), 2, values.data());
  const std::vector<float> codes = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (size_t i = 0; i < 8; ++i) {
    CHECK(values[i] == 2 * codes[i]);
    CHECK(values[i + 8] == -2 * codes[i]);
  }
  CHECK(std::signbit(values[8]));
  for (size_t i = 16; i < 32; ++i) CHECK(values[i] == 0);
  CHECK(values[32] == -1.5f);
  CHECK(values[33] == 1.5f);
  const uint8_t none = 255;
  widen_mxfp4(blocks.data(), &none, 1, values.data());
  CHECK(std::isnan(values[5]));
}

}  // namespace
}  // namespace distsetup
