// How nanotron trains, whatever the model and the ranks: bf16 parameters, gradients summed in fp32, masters and moments sharded
// (ZeRO-1), sequence parallelism, a loss over the ranks of a vocabulary. Source: nanotron of 2024-07, under bench_cluster's template.
#pragma once
#include "planner/frameworks/setup.h"

namespace distsetup {

// Reads s.tp.
inline void set_nanotron(Setup& s) {
  s.framework = Framework::kMegatron;
  s.program = "nanotron";
  s.sharding = Sharding::kZero1;
  s.parameter_dtype = Dtype::kBf16;
  s.gradient_dtype = s.reduce_dtype = s.state_dtype = Dtype::kF32;
  s.master_copy = true;
  s.overlap_grad_reduce = s.overlap_param_gather = false;  // its gradients wait in fp32 sums until the last backward
  s.sequence_parallel = s.tp > 1;
  s.loss = s.tp > 1 ? LossHead::kVocabularyParallel : LossHead::kEager;
}

}  // namespace distsetup
