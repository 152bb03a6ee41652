// Seconds of matrix multiplications on a GPU.
#pragma once
#include "planner/time/constants.h"

namespace distsetup {

// What is summed over. Features stand side by side in memory; rows (tokens, in the gradient of a weight) do not, so that any number of
// them is as good as another. Uneven rows: of experts in turn, each of which has another number; that runs as slowly as what is
// misaligned (measured: tests/unit/test_expert_loops.cc).
enum class SummedOver { kFeatures, kRows, kUnevenRows };

// m x k times k x n; element_bytes: of the operands, output_bytes: of the result. The longer of the wave-quantised arithmetic and of
// the traffic.
double gemm_s(const GemmRate& rate, double m, double n, double k, double element_bytes, double output_bytes,
              SummedOver over = SummedOver::kFeatures);

// One GEMM per expert over `rows` in total, shared evenly.
double grouped_gemm_s(const GemmRate& rate, double experts, double rows, double n, double k, double element_bytes, double share);
// Their weight gradients.
double grouped_gradient_s(const GemmRate& rate, double experts, double rows, double n, double k, double element_bytes,
                          double output_bytes, double share);

}  // namespace distsetup
