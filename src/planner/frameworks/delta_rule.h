// Gated DeltaNet (arXiv 2412.06464) as Transformers runs it without flash-linear-attention: torch_chunk_gated_delta_rule of
// models/qwen3_next/modeling_qwen3_next.py and its descendants, 4.57 to 5.16. All of it is fp32. In chunks of 64 tokens a row of the
// 64 × 64 system is solved after the other, each from a copy of all rows above it, which autograd keeps; then the state goes from
// chunk to chunk. 5.20 solves the system by one operation (torch.linalg.solve_triangular), so that the rows' part is gone there.
#pragma once
#include "planner/frameworks/setup.h"

namespace distsetup {

// Of one layer and one micro-batch on a rank, forward unless said otherwise.
struct DeltaRuleWork {
  double kept_bytes = 0;                             // for backward
  double forward_bytes = 0, backward_bytes = 0;      // read and written
  double flops = 0;                                  // of fp32 products; backward has twice as many
  double forward_kernels = 0, backward_kernels = 0;  // launched one by one
};
DeltaRuleWork delta_rule_work(const Setup& setup);  // zeros unless setup.torch_delta_rule

double delta_layers_share(const Setup& setup);  // of the model's layers

}  // namespace distsetup
