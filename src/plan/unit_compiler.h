// What a list does around one unit: gathers its parameters, computes, reduces its gradients; and what it does outside of
// micro-batches. In which order units compute (step, evaluate_held_out) is compile_schedule.cc's, and compile_pipeline.cc's for a
// stage of a pipeline.
#pragma once
#include <array>
#include <deque>
#include <vector>

#include "plan/host_writer.h"
#include "plan/reduction_writer.h"
#include "plan/run_buffers.h"
#include "plan/schedule_writer.h"

namespace distsetup {

enum class ParameterSource { kMaster, kReplica, kGather, kFrozen };
enum class Reader { kForward, kBackward, kReference };  // of a unit's parameters
inline constexpr size_t kNumReaders = 3;
enum class GradientPath {
  kDirect,       // into the rank's fp32 gradient, or the unit's
  kStaged,       // unit buffer in the compute dtype, added to the rank's fp32 gradient
  kReduce,       // unit buffer, reduce-scattered every micro-batch, added to the gradient shard
  kAccumulated,  // fp32 unit accumulators over all micro-batches, reduce-scattered with the last one (zero1)
};

class UnitCompiler : protected ScheduleWriter {
 public:
  Schedule run();  // once

 protected:
  UnitCompiler(const Plan& plan, Phase phase, int stage, LayoutDetail detail);
  ~UnitCompiler() = default;

  virtual void step() = 0;
  virtual void evaluate_held_out() = 0;

  int num_buckets() const { return static_cast<int>(s_.layout->units.size()); }  // units that have parameters
  bool is_shared(int u) const { return s_.layout->is_shared(u); }
  bool is_expert(int u) const { return unit(u).kind == UnitKind::kExperts; }
  bool is_frozen(int u) const { return unit(u).is_frozen; }
  bool is_empty(int u) const { return unit(u).numel == 0; }  // a tied head, where norms are shared

  // --- forward and backward of one unit

  // The parameters that unit u reads are on their way from here on; nothing for a unit that there is not.
  void ensure_gathered(int u, Reader reader);
  // Reads the parameters of unit u, and waits for their gathers.
  Instruction& emit_program(InstructionOp op, int u, std::string_view model = kPolicy);
  void release(Instruction& i, int bucket);
  // Units whose parameters unit u reads; units that its backward writes gradients of. Itself first.
  const std::vector<int>& needs(int u, Reader reader) const { return needs_[static_cast<size_t>(reader)][static_cast<size_t>(u)]; }
  const std::vector<int>& gradient_buckets(int u) const { return gradient_buckets_[static_cast<size_t>(u)]; }
  // With the buffers that its gradients go to. Parameters are not released.
  Instruction& emit_backward(int u);

  // --- gradients. `last`: of the last micro-batch.

  void after_backward(int u, bool last);
  // Of a unit that has a program: its own gradients, and those of its experts where they lie apart.
  void after_program_backward(int u, bool last) {
    after_backward(u, last);
    if (const int experts = s_.layout->expert_unit(u); experts >= 0) after_backward(experts, last);
  }
  void finish_reductions(bool last) {  // all that are under way
    while (!pending_.empty()) finish_reduce(last);
    finish_across_nodes(last);
  }
  void finish_gradients(bool last);  // of a micro-batch

  // --- outside of micro-batches

  // Sums over ranks, the gradient norm, the optimizer, fresh replicas. Closes no segment.
  void update();
  void reduce_scalar(int buffer, Group group);
  void start_loss() { emit(InstructionOp::kZero, -1).uses = {run_.loss}; }
  void reduce_loss() { reduce_scalar(run_.loss, loss_group(plan_.mesh)); }
  // In a pipeline the first and the last stage have a tied embedding: the sum of their gradients.
  void reduce_tied();

 private:
  Dtype gathered_dtype(int u) const { return unit(u).is_quantized ? Dtype::kInt8 : s_.compute; }
  int shards(int u) const { return unit(u).shard_ranks; }
  ParameterSource source(int u) const {
    if (is_frozen(u)) return shards(u) > 1 || from_host_ ? ParameterSource::kGather : ParameterSource::kFrozen;
    if (is_shared(u)) return ParameterSource::kReplica;
    const bool is_whole = shards(u) == 1 && s_.compute == Dtype::kF32 && !on_host_;
    return is_whole && source_ == ParameterSource::kGather ? ParameterSource::kMaster : source_;
  }
  GradientPath path(int u) const {
    if (is_shared(u)) return GradientPath::kReduce;
    if (shards(u) > 1) return split_path_;
    return s_.compute == Dtype::kF32 ? GradientPath::kDirect : GradientPath::kStaged;
  }
  int replica(int u) const { return is_shared(u) ? run_.shared_replicas.at(u) : run_.replica; }
  int64_t gathered_bytes(int u) const { return unit(u).shard_numel * shards(u) * size_bytes(gathered_dtype(u)); }
  int frozen_shard(int u) const { return unit(u).is_quantized ? run_.quantized : run_.frozen; }

  bool splits_experts() const;
  bool is_summed_over_stages(int u) const { return u == 0 && s_.layout->sums_tied_over_stages(); }
  // Where the optimizer is the host's: a gradient of several micro-batches stays on the device until others have added theirs.
  bool keeps_sum(int u) const { return group_size(plan_.mesh, unit(u).replica_group) > 1 || is_summed_over_stages(u); }
  void load();
  void save();
  void emit_gather(int u, int buffer, bool fresh);
  void start_gather(int u, int buffer);
  void gather_from_host(int u, int buffer);
  int shard_source(int u) const;  // what a rank's own elements are gathered of
  int new_unit_gradient(int u);   // a rank's own elements, in fp32
  // A unit's gradient is there, of the last micro-batch or, where the host adds, of each. adds: on the host.
  void gradient_is_summed(int u, bool adds);
  void refresh_from_host(bool steps);
  void use_parameters(Instruction& i, Reader reader);
  int new_accumulator(int u);
  void accumulate_local(int u, int target, bool fresh = false);
  void start_reduce(int u, int full, Dtype dtype, bool last);
  void finish_reduce(bool last);  // of the one that has been under way for longest
  int reduce_replicas(int u);     // its event; -1: nobody has a copy
  void refresh_replica();

  void finish_across_nodes(bool last);
  void add_reduced(const PendingReduction& arrived, bool last);

  ParameterSource source_ = ParameterSource::kMaster;
  GradientPath split_path_ = GradientPath::kReduce;  // of units that ranks split
  RunBuffers run_;
  const bool on_host_;    // the optimizer is
  const bool from_host_;  // parameters are, too; without the optimizer, those that are frozen
  HostWriter host_{*this};
  std::vector<int> staged_;                    // per unit: then the buffer of its gradient; -1: there is none now
  std::vector<int> gathered_, gather_event_;   // per unit: live gathered buffer; event not yet waited for
  std::vector<int> gradient_, accumulator_;    // per unit: live gradient buffers
  std::deque<PendingReduction> pending_;       // under way, the oldest first
  std::deque<PendingReduction> across_nodes_;  // the same, of second hops
  std::vector<int> replica_events_;
  std::array<std::vector<std::vector<int>>, kNumReaders> needs_;  // per reader and unit
  std::vector<std::vector<int>> gradient_buckets_;                // per unit
};

}  // namespace distsetup
