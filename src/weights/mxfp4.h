// Microscaling FP4 as GPT-OSS publishes its experts: 32 weights in a row share a scale. A tensor NAME of experts × rows × columns is
// stored as NAME_blocks, U8 [experts, rows, columns / 32, 16], two weights a byte, the first in the low half; and NAME_scales, U8
// [experts, rows, columns / 32]. Exact in bf16 and fp32.
// Source: OCP Microscaling Formats (MX) Specification 1.0, sections 5.3.3 (E2M1) and 5.4.1 (E8M0).
#pragma once
#include <cstdint>
#include <string_view>

namespace distsetup {

inline constexpr int64_t kMxBlock = 32, kMxBlockBytes = 16;  // weights, and bytes of them
inline constexpr std::string_view kMxBlocks = "_blocks", kMxScales = "_scales";

// The weights of `count` blocks: count · kMxBlockBytes bytes and a scale each -> count · kMxBlock values.
void widen_mxfp4(const uint8_t* blocks, const uint8_t* scales, int64_t count, float* values);

}  // namespace distsetup
