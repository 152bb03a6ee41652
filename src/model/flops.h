// FLOPs of one token, forward and backward, at a sequence length S.
#pragma once
#include <cstdint>

#include "model/geometry.h"

namespace distsetup {

// Keys that a query sees, averaged over `length` positions: half of them, in an encoder all; of a window w: w (1 - w / 2S), of one to
// both sides w (1 - w / 4S).
double mean_attended(double length, double window, bool bidirectional);

// 6 per matmul parameter plus causal attention (half of S); kFlopsConvention says so where a number is shown.
// Source: PaLM appendix B (arXiv 2204.02311), with causal halving.
struct TokenFlops {
  double forward = 0;
  double train = 0;  // 3 × forward
};
TokenFlops token_flops(const Geometry& geometry, int64_t sequence_length);
inline constexpr char kFlopsConvention[] = "6 per matmul parameter and causal attention (half of the sequence), no recomputation";

}  // namespace distsetup
