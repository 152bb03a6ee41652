// Seconds of matrix multiplications on a GPU.
#pragma once
#include "planner/time/constants.h"

namespace distsetup {

// m x k times k x n; element_bytes: of the operands, output_bytes: of the result. The longer of the wave-quantised arithmetic and of
// the traffic.
double gemm_s(const GemmRate& rate, double m, double n, double k, double element_bytes, double output_bytes);

// One GEMM per expert over `rows` in total, shared evenly.
double grouped_gemm_s(const GemmRate& rate, double experts, double rows, double n, double k, double element_bytes, double share);

}  // namespace distsetup
