// Seconds of the attention core: scores, softmax, weighted sum.
#pragma once
#include "planner/time/constants.h"

namespace distsetup {

struct AttentionShape {
  double tokens = 0;     // queries on this rank
  double positions = 0;  // keys a query sees, averaged (model/flops.h, mean_attended)
  double sequence = 0;   // keys there are
  double heads = 0;      // on this rank
  double qk_size = 0, v_size = 0;
};

double attention_flops(const AttentionShape& shape);  // forward, only what causality needs
double attention_forward_s(const TimeConstants& c, const AttentionShape& shape);
double attention_backward_s(const TimeConstants& c, const AttentionShape& shape);

}  // namespace distsetup
