#include "runtime/optim/block_codes.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "plan/optimizer.h"
#include "runtime/engine/threads.h"

namespace distsetup {
namespace {

constexpr float kSmallestScale = 1e-38f;  // what a block of zeros is divided by

// Seven decades, the largest with the most codes: each is cut into equal parts, and the middles of the parts are codes. Zero and one
// are codes too. Computed as the original is, by the same library, so that bits agree.
CodeValues make_values(bool is_signed) {
  constexpr int kDecades = 7;
  std::vector<float> values = {0.0f, 1.0f};
  for (int decade = 0; decade < kDecades; ++decade) {
    const int64_t parts = int64_t{1} << (is_signed ? decade : decade + 1);
    const at::Tensor bounds = at::linspace(0.1, 1, parts + 1, at::kFloat);
    const at::Tensor middles = (bounds.slice(0, 0, parts) + bounds.slice(0, 1, parts + 1)) / 2.0;
    const at::Tensor scaled = middles * std::pow(10.0, decade - (kDecades - 1));
    for (int64_t i = 0; i < parts; ++i) {
      values.push_back(scaled[i].item<float>());
      if (is_signed) values.push_back(-values.back());
    }
  }
  CodeValues out;
  CHECK(values.size() == out.size(), "{}", values.size());
  std::sort(values.begin(), values.end());
  std::copy(values.begin(), values.end(), out.begin());
  return out;
}

// Behind code i and before code i + 1.
using CodeBounds = std::array<float, 255>;
const CodeBounds& code_bounds(bool is_signed) {
  static const auto make = [](const CodeValues& values) {
    CodeBounds bounds;
    for (size_t i = 0; i < bounds.size(); ++i) bounds[i] = (values[i] + values[i + 1]) / 2;
    return bounds;
  };
  static const CodeBounds kSigned = make(code_values(true)), kUnsigned = make(code_values(false));
  return is_signed ? kSigned : kUnsigned;
}

// How many bounds lie below `value`: eight halvings without a branch.
uint8_t code_of(const CodeBounds& bounds, float value) {
  uint32_t code = 0;
  for (uint32_t half = 128; half > 0; half /= 2) code += bounds[code + half - 1] < value ? half : 0;
  return static_cast<uint8_t>(code);
}

void quantize_with(float scale, const float* values, int64_t n, bool is_signed, uint8_t* codes) {
  const CodeBounds& bounds = code_bounds(is_signed);
  const float factor = 1.0f / std::max(scale, kSmallestScale);
  for (int64_t i = 0; i < n; ++i) codes[i] = code_of(bounds, std::clamp(values[i] * factor, -1.0f, 1.0f));
}

bool stands_for(const uint8_t* codes, float scale, const float* values, int64_t n, const CodeValues& of) {
  for (int64_t i = 0; i < n; ++i)
    if (of[codes[i]] * scale != values[i]) return false;
  return true;
}

// The scale of a block is its largest value, or that value is negative and has the lowest code, which is not -1.
float requantize_block(const float* values, int64_t n, bool is_signed, uint8_t* codes) {
  const CodeValues& of = code_values(is_signed);
  const float largest = quantize_block(values, n, is_signed, codes);
  if (stands_for(codes, largest, values, n, of)) return largest;
  float scale = is_signed ? largest / -of.front() : largest;
  constexpr int kRoundings = 2;  // that a product and a quotient may be off by
  for (int i = 0; i < kRoundings; ++i) scale = std::nextafter(scale, 0.0f);
  for (int i = 0; i <= 2 * kRoundings; ++i, scale = std::nextafter(scale, INFINITY)) {
    quantize_with(scale, values, n, is_signed, codes);
    if (stands_for(codes, scale, values, n, of)) return scale;
  }
  return quantize_block(values, n, is_signed, codes);
}

template <class Body>
void for_each_block(int64_t n, const Body& body) {
  constexpr int64_t kBytesOfWork = 8 * kScaleBlock;
  parallel_ranges((n + kScaleBlock - 1) / kScaleBlock, kBytesOfWork, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) body(b, b * kScaleBlock, std::min(kScaleBlock, n - b * kScaleBlock));
  });
}

}  // namespace

const CodeValues& code_values(bool is_signed) {
  static const CodeValues kSigned = make_values(true), kUnsigned = make_values(false);
  return is_signed ? kSigned : kUnsigned;
}

float quantize_block(const float* values, int64_t n, bool is_signed, uint8_t* codes) {
  float scale = 0;
  for (int64_t i = 0; i < n; ++i) scale = std::max(scale, std::fabs(values[i]));
  quantize_with(scale, values, n, is_signed, codes);
  return scale;
}

void dequantize_blocks(const uint8_t* codes, const float* scales, int64_t n, bool is_signed, float* values) {
  const CodeValues& of = code_values(is_signed);
  for_each_block(n, [&](int64_t block, int64_t begin, int64_t size) {
    for (int64_t i = begin; i < begin + size; ++i) values[i] = of[codes[i]] * scales[block];
  });
}

void requantize_blocks(const float* values, int64_t n, bool is_signed, uint8_t* codes, float* scales) {
  for_each_block(n, [&](int64_t block, int64_t begin, int64_t size) {
    scales[block] = requantize_block(values + begin, size, is_signed, codes + begin);
  });
}

}  // namespace distsetup
