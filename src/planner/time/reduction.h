// Gradients that every rank has whole before they are reduced, and which part of a reduction nothing runs beside.
#pragma once
#include "planner/time/layer_time.h"

namespace distsetup {

double wire_bytes(Dtype dtype);

// Of `trained` gradients, those that wait in the last bucket until backward is over. DeepSpeed reduces when a bucket is full, 5e8
// elements unless reduce_bucket_size says else: a model that is smaller reduces nothing beside its backward.
double in_last_bucket(const Setup& setup, double trained);

// FSDP1: of a unit's gather and reduction in backward, what the GPU waits for because the gather is not issued ahead. NCCL runs them
// in order. A gather behind the gradients comes before their reduction, which then runs beside the unit below; without prefetch it
// comes after the reduction (torch/distributed/fsdp/api.py, BackwardPrefetch).
double waited_in_backward_s(const Setup& setup, double gather_s, double reduce_s);

// What a backward and a forward of the slowest stage have room to hide.
struct Windows {
  double backward_s = 0, forward_s = 0;
};

// Exposed seconds of a step: one reduction a step (ZeRO-2 outside FSDP, and sync_each_batch: one a micro-batch), and the gather of
// updated parameters.
double unsharded_reduction_s(const LayerModel& rank, double parameters, Windows windows);

}  // namespace distsetup
