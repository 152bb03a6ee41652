// The reduction runs beside backward, all but its last bucket, and the gather of updated parameters after the step or beside the next
// forward. Megatron without --overlap-grad-reduce has one bucket, which it reduces when the last backward is over
// (megatron/core/distributed/distributed_data_parallel.py: bucket_size = None), and without --overlap-param-gather the optimizer's
// step waits for the gather (optimizer/distrib_optimizer.py, step_with_ready_grads). Leaves out: DDP's buckets, which are small (25
// MB).
#include "planner/time/reduction.h"

#include <algorithm>

#include "planner/frameworks/deepspeed.h"
#include "planner/time/collective.h"
#include "planner/time/constants.h"

namespace distsetup {
namespace {

constexpr double kLeastExposed = 0.02;
constexpr int kWholeBucketsReduced = 202401;  // DeepSpeed's PR 4946 finds that nothing else is run any more

// Gradients of 16 or 32 bits over the ranks that share the optimizer, then over the replicas. DeepSpeed sums a bucket of several
// ranks' parts whole on every rank and keeps its own part of it (stage_1_and_2.py, allreduce_and_scatter).
double reduce_s(const LayerModel& rank, double bytes) {
  const Setup& s = rank.s;
  const Fabric& fabric = rank.c.fabric;
  const bool whole = rank.traits.python_hooks && runs_since(s, kWholeBucketsReduced);
  const double among = whole ? all_reduce_s(fabric, rank.shard_group, bytes) : reduce_scatter_s(fabric, rank.shard_group, bytes);
  return among + all_reduce_s(fabric, rank.replicate_group, bytes / rank.shards);
}

}  // namespace

double wire_bytes(Dtype dtype) { return dtype == Dtype::kF32 ? 4 : 2; }

double in_last_bucket(const Setup& setup, double trained) {
  if (!setup.traits().python_hooks) return 0;
  const auto asked = static_cast<double>(setup.reduce_bucket_elements);
  return std::min(trained, asked > 0 ? asked : kReduceBucket);
}

double waited_in_backward_s(const Setup& setup, double gather_s, double reduce_s) {
  if (gather_s <= 0 || setup.backward_prefetch == BackwardPrefetch::kPre) return 0;
  return gather_s + (setup.backward_prefetch == BackwardPrefetch::kNone ? reduce_s : 0);
}

double unsharded_reduction_s(const LayerModel& rank, double parameters, Windows windows) {
  const Setup& s = rank.s;
  const Fabric& fabric = rank.c.fabric;
  const double bytes = parameters * wire_bytes(s.reduce_dtype);
  const double share = parameters > 0 ? std::max(kLeastExposed, in_last_bucket(s, parameters) / parameters) : 1;
  const auto exposed = [&](double reduce, double window) {
    return s.overlap_grad_reduce ? std::max(reduce - window, reduce * share) : reduce;
  };
  if (s.sharding == Sharding::kDdp) {
    const double of_ddp = s.sync_each_batch ? static_cast<double>(s.gradient_accumulation) : 1;
    return of_ddp * exposed(all_reduce_s(fabric, group_span(fabric, rank.shards * s.dp_replicate, s.tp), bytes), windows.backward_s);
  }
  const double times = s.sharding == Sharding::kZero2 ? static_cast<double>(s.gradient_accumulation) : 1;
  const double gather = all_gather_s(fabric, rank.shard_group, parameters * 2);
  return times * exposed(reduce_s(rank, bytes), windows.backward_s) +
         std::max(gather - (rank.traits.gathers_beside_forward && s.overlap_param_gather ? windows.forward_s : 0),
                  gather * kLeastExposed);
}

}  // namespace distsetup
