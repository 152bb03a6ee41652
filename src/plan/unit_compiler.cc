// What each sharding means is three choices, made once at the top:
//   parameters: read from the fp32 master itself (fp32, unsharded) | from a whole replica refreshed after the optimizer (ddp bf16,
//               zero1, zero2) | gathered unit by unit around each use (zero3)
//               | what is frozen: as it is held, whole (all but zero3), or gathered; what is held as nf4 in bytes
//   gradients:  written straight into the fp32 gradient (fp32, unsharded) | into a unit buffer, then added to a local fp32 accumulator
//               | into a unit buffer, reduced to the own shard after every backward
// Tensor parallelism adds shared units (layout.h), whose vectors are small: they are read from a replica and reduced after every
// micro-batch, whatever the sharding. Experts are split over other ranks than the rest, and each unit goes by its own.
// Sources: ZeRO (arXiv 1910.02054) for the stages, PyTorch FSDP (arXiv 2304.11277) for gather, prefetch and hybrid sharding.
#include "plan/unit_compiler.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "plan/update_writer.h"

namespace distsetup {

namespace {

std::vector<int> itself_first(int u, const std::set<int>& touched) {
  std::vector<int> buckets;
  if (touched.contains(u)) buckets.push_back(u);
  for (const int bucket : touched)
    if (bucket != u) buckets.push_back(bucket);
  return buckets;
}

}  // namespace

UnitCompiler::UnitCompiler(const Plan& plan, Phase phase, int stage, LayoutDetail detail)
    : ScheduleWriter(plan, phase, stage, detail), on_host_(has_host_optimizer(plan)), from_host_(has_host_parameters(plan)) {
  const bool whole = group_size(plan.mesh, s_.layout->shard_group) == 1 && !splits_experts();
  if (whole && s_.compute == Dtype::kF32 && !on_host_)
    source_ = ParameterSource::kMaster;
  else if (on_host_ && from_host_)
    source_ = ParameterSource::kGather;
  else
    source_ = plan.strategy.sharding == Sharding::kZero3 ? ParameterSource::kGather : ParameterSource::kReplica;
  if (plan.strategy.sharding == Sharding::kZero1 && plan.gradient_accumulation > 1) split_path_ = GradientPath::kAccumulated;
  run_ = make_run_buffers(*this, {source_ == ParameterSource::kReplica, on_host_ && source_ == ParameterSource::kGather, from_host_});
  if (on_host_) host_.begin({run_.master, run_.gradient, run_.sumsq, run_.states});
  gathered_.assign(num_buckets(), -1);
  gather_event_.assign(num_buckets(), -1);
  for (std::vector<int>* of : {&gradient_, &accumulator_, &staged_}) of->assign(num_buckets(), -1);
  for (const Reader reader : {Reader::kForward, Reader::kBackward, Reader::kReference}) {
    const bool is_backward = reader == Reader::kBackward;
    const std::vector<TouchedUnits> touched = touched_by_units(s_, is_backward ? InstructionOp::kBackward : InstructionOp::kForward,
                                                               reader == Reader::kReference ? kReference : kPolicy);
    needs_[static_cast<size_t>(reader)].reserve(touched.size());
    for (int u = 0; u < static_cast<int>(touched.size()); ++u) {
      needs_[static_cast<size_t>(reader)].push_back(itself_first(u, touched[u].parameters));
      if (is_backward) gradient_buckets_.push_back(itself_first(u, touched[u].gradients));
    }
  }
}

bool UnitCompiler::splits_experts() const {
  return std::any_of(s_.layout->units.begin(), s_.layout->units.end(),
                     [](const UnitLayout& unit) { return unit.kind == UnitKind::kExperts && unit.shard_ranks > 1; });
}

Schedule UnitCompiler::run() {
  switch (s_.phase) {
    case Phase::kLoad: load(); break;
    case Phase::kStep: step(); break;
    case Phase::kEvaluate: evaluate_held_out(); break;
    case Phase::kSave: save(); break;
  }
  return std::move(s_);
}

// --- parameters

void UnitCompiler::emit_gather(int u, int buffer, bool fresh) {
  if (!is_on_device(s_.buffers[shard_source(u)])) return gather_from_host(u, buffer);
  Instruction& cast = emit(InstructionOp::kCast, u);
  cast.bucket = u;
  cast.stream = shards(u) > 1 ? Stream::kGather : Stream::kCompute;
  cast.uses = {shard_source(u), buffer};
  cast.dtype = gathered_dtype(u);
  if (fresh) cast.allocates = {buffer};
  start_gather(u, buffer);
}

// Into a buffer that is new.
void UnitCompiler::gather_from_host(int u, int buffer) {
  const Dtype dtype = gathered_dtype(u);
  Instruction& up = emit_copy(u, shard_source(u), buffer, unit(u).shard_numel * size_bytes(dtype), dtype);
  up.bucket = u;
  up.allocates = {buffer};
  const int copied = up.signals;
  start_gather(u, buffer);
  if (shards(u) == 1)
    gather_event_[u] = copied;
  else
    s_.instructions.back().waits = {copied};
}

int UnitCompiler::shard_source(int u) const {
  if (is_frozen(u)) return frozen_shard(u);
  return run_.device_shard >= 0 ? run_.device_shard : run_.master;
}

void UnitCompiler::start_gather(int u, int buffer) {
  gather_event_[u] = -1;
  if (shards(u) == 1) return;
  Instruction& gather = emit(InstructionOp::kAllGather, u);
  gather.bucket = u;
  gather.group = unit(u).shard_group;
  gather.bytes = gathered_bytes(u);
  gather.dtype = gathered_dtype(u);
  gather.stream = Stream::kGather;
  gather.uses = {buffer};
  gather.signals = gather_event_[u] = new_event();
}

void UnitCompiler::ensure_gathered(int u, Reader reader) {
  if (u < 0 || u >= num_units()) return;
  for (const int bucket : needs(u, reader)) {
    if (source(bucket) != ParameterSource::kGather || gathered_[bucket] >= 0) continue;
    gathered_[bucket] = add_buffer("P" + std::to_string(bucket), BufferClass::kGatheredParameter, gathered_bytes(bucket),
                                   gathered_dtype(bucket), BufferLifetime::kSpan, bucket);
    emit_gather(bucket, gathered_[bucket], true);
  }
}

void UnitCompiler::use_parameters(Instruction& i, Reader reader) {
  constexpr size_t kUsuallyFurther = 6;  // gradients, and what a stage receives, keeps and sends
  i.uses.reserve(needs(i.unit, reader).size() + kUsuallyFurther);
  for (const int bucket : needs(i.unit, reader)) {
    if (source(bucket) == ParameterSource::kMaster) i.uses.push_back(run_.master);
    if (source(bucket) == ParameterSource::kReplica) i.uses.push_back(replica(bucket));
    if (source(bucket) == ParameterSource::kFrozen) i.uses.push_back(frozen_shard(bucket));
    if (source(bucket) != ParameterSource::kGather) continue;
    i.uses.push_back(gathered_[bucket]);
    if (gather_event_[bucket] >= 0) i.waits.push_back(gather_event_[bucket]);
    gather_event_[bucket] = -1;
  }
}

void UnitCompiler::release(Instruction& i, int bucket) {
  if (gathered_[bucket] < 0) return;
  i.frees.push_back(gathered_[bucket]);
  gathered_[bucket] = -1;
}

Instruction& UnitCompiler::emit_program(InstructionOp op, int u, std::string_view model) {
  Instruction& i = emit(op, u);
  i.model = model;
  i.program_variant = variant_of(s_, i).name;
  use_parameters(i, is_reference(i) ? Reader::kReference : op == InstructionOp::kBackward ? Reader::kBackward : Reader::kForward);
  return i;
}

Instruction& UnitCompiler::emit_backward(int u) {
  std::vector<int> born;
  for (const int bucket : gradient_buckets(u)) {
    if (path(bucket) == GradientPath::kDirect) {
      if (on_host_ && staged_[bucket] < 0) born.push_back(staged_[bucket] = new_unit_gradient(bucket));
      gradient_[bucket] = on_host_ ? staged_[bucket] : run_.gradient;
      continue;
    }
    if (path(bucket) == GradientPath::kAccumulated && s_.compute == Dtype::kF32) {
      if (accumulator_[bucket] < 0) born.push_back(accumulator_[bucket] = new_accumulator(bucket));
      gradient_[bucket] = accumulator_[bucket];
      continue;
    }
    if (gradient_[bucket] < 0)
      born.push_back(gradient_[bucket] = add_buffer("G" + std::to_string(bucket), BufferClass::kGradient, gathered_bytes(bucket),
                                                    s_.compute, BufferLifetime::kSpan, bucket));
  }
  Instruction& i = emit_program(InstructionOp::kBackward, u);
  i.allocates = std::move(born);
  for (const int bucket : gradient_buckets(u)) i.uses.push_back(gradient_[bucket]);
  return i;
}

int UnitCompiler::new_unit_gradient(int u) {
  return add_buffer("D" + std::to_string(u), BufferClass::kGradient, unit(u).shard_numel * 4, Dtype::kF32, BufferLifetime::kSpan, u);
}

int UnitCompiler::new_accumulator(int u) {
  return add_buffer("A" + std::to_string(u), BufferClass::kGradient, unit(u).shard_numel * shards(u) * 4, Dtype::kF32,
                    BufferLifetime::kSpan, u);
}

// --- gradients after the backward of a unit

void UnitCompiler::after_backward(int u, bool last) {
  if (is_empty(u)) return;
  switch (path(u)) {
    case GradientPath::kDirect:
      if (last) gradient_is_summed(u, false);
      break;
    case GradientPath::kStaged:
      if (on_host_ && !keeps_sum(u)) {
        host_.gradient(u, std::exchange(gradient_[u], -1), -1, micro_batch_ > 0);
        break;
      }
      if (on_host_ && staged_[u] < 0)
        accumulate_local(u, staged_[u] = new_unit_gradient(u), true);
      else
        accumulate_local(u, on_host_ ? staged_[u] : run_.gradient);
      if (last) gradient_is_summed(u, false);
      break;
    case GradientPath::kReduce: start_reduce(u, gradient_[u], s_.compute, last); break;
    case GradientPath::kAccumulated:
      if (s_.compute != Dtype::kF32) {
        const bool fresh = accumulator_[u] < 0;
        if (fresh) accumulator_[u] = new_accumulator(u);
        accumulate_local(u, accumulator_[u], fresh);
      }
      if (last) start_reduce(u, accumulator_[u], Dtype::kF32, last);
      break;
  }
  if (path(u) == GradientPath::kDirect || s_.compute == Dtype::kF32) gradient_[u] = -1;
}

void UnitCompiler::accumulate_local(int u, int target, bool fresh) {
  Instruction& i = emit(InstructionOp::kAccumulate, u);
  i.bucket = u;
  i.uses = {gradient_[u], target};
  if (fresh) i.allocates = {target};
  i.frees = {gradient_[u]};
  i.accumulate = micro_batch_ > 0;
  gradient_[u] = -1;
}

void UnitCompiler::start_reduce(int u, int full, Dtype dtype, bool last) {
  while (static_cast<int>(pending_.size()) >= plan_.strategy.reductions_in_flight) finish_reduce(last);
  pending_.push_back(write_reduction(*this, u, full, dtype));
  gradient_[u] = -1;
  if (path(u) == GradientPath::kAccumulated) accumulator_[u] = -1;
}

// Of two hops the first: the sums of this node set out for the others. What set out before has arrived by now.
void UnitCompiler::finish_reduce(bool last) {
  const PendingReduction oldest = pending_.front();
  pending_.pop_front();
  if (oldest.hop == Hop::kOnly) return add_reduced(oldest, last);
  finish_across_nodes(last);
  across_nodes_.push_back(write_second_hop(*this, oldest));
}

void UnitCompiler::finish_across_nodes(bool last) {
  for (; !across_nodes_.empty(); across_nodes_.pop_front()) add_reduced(across_nodes_.front(), last);
}

// Into the gradient of this rank's shard.
void UnitCompiler::add_reduced(const PendingReduction& arrived, bool last) {
  const int u = arrived.unit;
  Instruction& i = emit(InstructionOp::kAccumulate, u);
  i.bucket = u;
  i.hop = arrived.hop, i.node_ranks = arrived.node_ranks;
  i.waits = {arrived.event};
  const bool adds = micro_batch_ > 0 && path(u) == GradientPath::kReduce;
  if (on_host_ && staged_[u] < 0) i.allocates = {staged_[u] = new_unit_gradient(u)};
  i.uses = {arrived.full, arrived.received, on_host_ ? staged_[u] : run_.gradient};
  i.frees = {arrived.full, arrived.received};
  i.accumulate = adds && (!on_host_ || keeps_sum(u));
  if (last || (on_host_ && !keeps_sum(u))) gradient_is_summed(u, adds && !keeps_sum(u));
}

void UnitCompiler::finish_gradients(bool last) {
  finish_reductions(last);
  host_.finish_gradient();
}

void UnitCompiler::gradient_is_summed(int u, bool adds) {
  const int event = reduce_replicas(u);
  if (on_host_ && is_summed_over_stages(u))
    replica_events_.assign(event >= 0 ? 1 : 0, event);  // it goes down after that sum
  else if (on_host_)
    host_.gradient(u, std::exchange(staged_[u], -1), event, adds);
  else if (event >= 0)
    replica_events_.push_back(event);
}

int UnitCompiler::reduce_replicas(int u) {
  if (group_size(plan_.mesh, unit(u).replica_group) == 1) return -1;
  Instruction& i = emit(InstructionOp::kAllReduce, u);
  i.bucket = u;
  i.group = unit(u).replica_group;
  i.bytes = unit(u).shard_numel * 4;
  i.dtype = Dtype::kF32;
  i.stream = Stream::kReduce;
  i.uses = {on_host_ ? staged_[u] : run_.gradient};
  return i.signals = new_event();
}

void UnitCompiler::reduce_tied() {
  if (!s_.layout->sums_tied_over_stages()) return;
  Instruction& i = emit(InstructionOp::kAllReduce, 0);
  i.bucket = 0;
  i.group = Group::kTied;
  i.bytes = unit(0).shard_numel * 4;
  i.dtype = Dtype::kF32;
  i.stream = Stream::kReduce;
  i.uses = {on_host_ ? staged_[0] : run_.gradient};
  i.waits = std::exchange(replica_events_, {});
  const int event = i.signals = new_event();
  if (!on_host_) return replica_events_.push_back(event);
  host_.gradient(0, std::exchange(staged_[0], -1), event, false);
  host_.finish_gradient();
}

// --- outside of micro-batches

void UnitCompiler::reduce_scalar(int buffer, Group group) {
  if (group_size(plan_.mesh, group) == 1) return;
  Instruction& i = emit(InstructionOp::kAllReduce, -1);
  i.group = group;
  i.bytes = s_.buffers[buffer].bytes;
  i.dtype = Dtype::kF64;
  i.uses = {buffer};
}

void UnitCompiler::refresh_replica() {
  std::vector<int> events;
  for (int u = 0; u < num_buckets(); ++u) {
    if (source(u) != ParameterSource::kReplica || is_empty(u)) continue;
    emit_gather(u, replica(u), false);
    if (gather_event_[u] >= 0) events.push_back(gather_event_[u]);
  }
  if (events.empty()) return;
  emit(InstructionOp::kWait, -1).waits = events;
}

void UnitCompiler::refresh_from_host(bool steps) {
  std::vector<int> events;
  if (steps && !s_.layout->is_trained()) host_.step(-1);
  for (int u = 0; u < num_buckets(); ++u) {
    if (is_frozen(u) || is_empty(u)) continue;
    if (steps) host_.step(u);
    const bool is_replica = source(u) == ParameterSource::kReplica;
    if (!is_replica && from_host_) {
      host_.round(u, run_.device_shard);
      continue;
    }
    const int copied = host_.parameters(u, is_replica ? replica(u) : run_.device_shard);
    events.push_back(copied);
    if (!is_replica || shards(u) == 1) continue;
    start_gather(u, replica(u));
    s_.instructions.back().waits = {copied};
    events.back() = std::exchange(gather_event_[u], -1);
  }
  if (events.empty()) return;
  emit(InstructionOp::kWait, -1).waits = events;
  host_.finish_parameters();
}

void UnitCompiler::load() {
  phase_ = "load";
  std::vector<int> all;
  for (int b = 0; b < static_cast<int>(s_.buffers.size()); ++b) all.push_back(b);
  Instruction& zero = emit(InstructionOp::kZero, -1);
  zero.allocates = all;
  zero.uses = all;
  if (on_host_ && s_.layout->is_trained()) host_.follow_compute();
  on_host_ ? refresh_from_host(false) : refresh_replica();
  close_segment(1);
}

void UnitCompiler::update() {
  micro_batch_ = -1;
  phase_ = "optimizer";
  reduce_loss();
  if (on_host_) return host_.norm(s_.layout->state_group), host_.prepare_step(), refresh_from_host(true);
  Instruction& norm = emit(InstructionOp::kGradNorm, -1);
  norm.uses = {run_.gradient, run_.sumsq};
  norm.waits = replica_events_;
  norm.dtype = Dtype::kF32;
  reduce_scalar(run_.sumsq, s_.layout->state_group);
  const std::vector<int> parts = write_update(*this, {run_.master, run_.gradient, run_.sumsq, run_.states});
  Instruction& optimizer = emit(InstructionOp::kOptimizerStep, -1);
  optimizer.uses = {run_.master, run_.gradient};
  optimizer.uses.insert(optimizer.uses.end(), run_.states.begin(), run_.states.end());
  optimizer.uses.insert(optimizer.uses.end(), parts.begin(), parts.end());
  optimizer.frees = parts;
  optimizer.uses.push_back(run_.sumsq);
  optimizer.dtype = Dtype::kF32;
  refresh_replica();
}

void UnitCompiler::save() {
  phase_ = "save";
  std::vector<int> saved = {run_.master};
  saved.insert(saved.end(), run_.states.begin(), run_.states.end());
  copy_to_host(saved);
  close_segment(1);
}

}  // namespace distsetup
