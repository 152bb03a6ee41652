// Values in 8 bits: each block of kScaleBlock has the largest of its absolute values as its scale, and each value the nearest of 256
// codes, which lie densest around zero. Codes and arithmetic are bitsandbytes' (create_dynamic_map, its CUDA kernels and portable
// backend): Dettmers et al., arXiv 2110.02861; the codes arXiv 1511.04561.
#pragma once
#include <array>
#include <cstdint>

namespace distsetup {

// What the codes stand for, ascending, in parts of the scale: -0.993 to 1 with signs, 0 to 1 without.
using CodeValues = std::array<float, 256>;
const CodeValues& code_values(bool is_signed);

// The nearest code of values of one block, at most kScaleBlock. Returns the scale.
float quantize_block(const float* values, int64_t n, bool is_signed, uint8_t* codes);
// Of n values, in parallel; the last block may be shorter.
void dequantize_blocks(const uint8_t* codes, const float* scales, int64_t n, bool is_signed, float* values);
// Back from values that dequantize_blocks made: codes and scales that stand for exactly these, unless a scale is near the smallest
// float. Other values get the nearest codes.
void requantize_blocks(const float* values, int64_t n, bool is_signed, uint8_t* codes, float* scales);

}  // namespace distsetup
