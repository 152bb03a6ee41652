#include "weights/mxfp4.h"

#include <array>
#include <cmath>
#include <limits>

namespace distsetup {
namespace {

constexpr std::array<float, 16> kE2M1 = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                         -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
constexpr int kBias = 127, kNotANumber = 255;  // of E8M0

}  // namespace

void widen_mxfp4(const uint8_t* blocks, const uint8_t* scales, int64_t count, float* values) {
  for (int64_t block = 0; block < count; ++block, blocks += kMxBlockBytes, values += kMxBlock) {
    const int exponent = scales[block];
    const float scale = exponent == kNotANumber ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, exponent - kBias);
    for (int64_t i = 0; i < kMxBlockBytes; ++i) {
      values[2 * i] = kE2M1[blocks[i] & 15u] * scale;
      values[2 * i + 1] = kE2M1[blocks[i] >> 4u] * scale;
    }
  }
}

}  // namespace distsetup
