// Attention whose sequence PyTorch's context parallelism splits between ranks, beside the products themselves.
#pragma once
#include "planner/time/collective.h"

namespace distsetup {

// A rank's part. Keys and values are as wide as the queries: torchtitan, and scaled_dot_product_attention, repeat their heads before.
struct ContextShape {
  double tokens = 0, heads = 0, qk_size = 0, v_size = 0;
  bool gathers_keys = false;  // all keys and values at once; else they go around, a rank's share at a time
  bool traced = false;        // by torch.compile
  double attention_s = 0;     // of all steps
};

struct ContextTime {
  double exposed_s = 0;      // on the wire, not beside attention
  double elementwise_s = 0;  // partial results merged, gradients added up
};

ContextTime context_forward_s(const TimeConstants& c, GroupSpan group, const ContextShape& shape);
ContextTime context_backward_s(const TimeConstants& c, GroupSpan group, const ContextShape& shape);

}  // namespace distsetup
