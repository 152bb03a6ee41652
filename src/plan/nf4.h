// How a matrix lies in memory as nf4 with double quantisation (QLoRA, arXiv 2305.14314), byte for byte as bitsandbytes keeps it: 4
// bits a weight, an 8-bit scale for 64 weights, an fp32 number for 256 scales, and one for all; 4.127 bits a weight. A matrix is one
// record:
//   nibbles    ceil(n / 2) bytes, row by row; of two weights the first is in the high half
//   scales     ceil(n / 64) bytes, each the number of one of kNf4Scales
//   ranges     ceil(n / 64 / 256) fp32 numbers, what 256 scales are multiplied by
//   mean       one fp32 number, which is added to each scale
// Numbers begin at multiples of 4 bytes and a record takes whole 64 bytes; what lies between is 0. A weight is kNf4Weights[nibble]
// times (kNf4Scales[scale] times its range, + mean).
//
// Where ranks of tensor parallelism have a part of a matrix each, in whole blocks of 64 weights, a rank's record has nibbles and
// scales of its part, and of the whole matrix all ranges and the mean. Behind them
//   part       3 int32: its first block among the whole's, and how many blocks of a row the rank has, and the whole: block b is the
//              whole's first + b / rank's * whole's + b % rank's
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

namespace distsetup {

inline constexpr int64_t kNf4Block = 64, kNf4Range = 256;  // weights of a scale, scales of a range
inline constexpr int64_t kNf4Alignment = 64;               // bytes

struct Nf4Record {
  int64_t numel = 0, num_scales = 0, num_ranges = 0;
  int64_t scales_at = 0, ranges_at = 0, mean_at = 0, num_bytes = 0;
  int64_t part_at = -1;  // -1: of a whole matrix
};
// `tensor_ranks`: that have a part of the matrix each.
constexpr Nf4Record nf4_record(int64_t numel, int64_t tensor_ranks = 1) {
  Nf4Record r;
  r.numel = numel;
  r.num_scales = (numel + kNf4Block - 1) / kNf4Block;
  r.num_ranges = (r.num_scales * tensor_ranks + kNf4Range - 1) / kNf4Range;
  r.scales_at = (numel + 1) / 2;
  r.ranges_at = (r.scales_at + r.num_scales + 3) / 4 * 4;
  r.mean_at = r.ranges_at + 4 * r.num_ranges;
  if (tensor_ranks > 1) r.part_at = r.mean_at + 4;
  const int64_t end = r.mean_at + 4 + (tensor_ranks > 1 ? 12 : 0);
  r.num_bytes = (end + kNf4Alignment - 1) / kNf4Alignment * kNf4Alignment;
  return r;
}

// Of a block of a part, its number among the whole's. part: as in a record.
constexpr int64_t nf4_whole_block(const int32_t part[3], int64_t block) {
  return part[0] + block / part[1] * part[2] + block % part[1];
}

// Quantiles of the normal distribution: QLoRA, appendix E.
inline constexpr std::array<float, 16> kNf4Weights = {-1.0F,
                                                      -0.6961928009986877F,
                                                      -0.5250730514526367F,
                                                      -0.39491748809814453F,
                                                      -0.28444138169288635F,
                                                      -0.18477343022823334F,
                                                      -0.09105003625154495F,
                                                      0.0F,
                                                      0.07958029955625534F,
                                                      0.16093020141124725F,
                                                      0.24611230194568634F,
                                                      0.33791524171829224F,
                                                      0.44070982933044434F,
                                                      0.5626170039176941F,
                                                      0.7229568362236023F,
                                                      1.0F};

// The dynamic type of 8 bits (Dettmers 2016, arXiv 1511.04561): with each further decade below 1 there are half as many steps in it.
// In each decade the means of neighbours among equally spaced numbers from 0.1 to 1, scaled; and their negatives, 0 and 1.
constexpr std::array<float, 256> nf4_scales() {
  constexpr std::array<double, 7> kDecades = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
  std::array<float, 256> out{};
  size_t n = 0;
  for (size_t i = 0; i < kDecades.size(); ++i) {
    const int num_steps = 1 << i;
    const float step = (1.0F - 0.1F) / static_cast<float>(num_steps);
    const auto at = [&](int k) {  // counted from the nearer end, so that both ends are exact; rounded once
      const bool is_near_begin = k < (num_steps + 1) / 2;
      const double from = is_near_begin ? static_cast<double>(0.1F) : 1.0, steps = is_near_begin ? k : k - num_steps;
      return static_cast<float>(from + static_cast<double>(step) * steps);
    };
    for (int k = 0; k < num_steps; ++k) {
      const float mean = static_cast<float>(kDecades[i]) * ((at(k) + at(k + 1)) / 2.0F);
      out[n++] = mean;
      out[n++] = -mean;
    }
  }
  out[n++] = 0.0F;
  out[n++] = 1.0F;
  std::sort(out.begin(), out.end());
  return out;
}
inline constexpr std::array<float, 256> kNf4Scales = nf4_scales();

}  // namespace distsetup
