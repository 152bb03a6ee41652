#include "planner/native/step_bound.h"

#include <algorithm>
#include <vector>

#include "model/count.h"
#include "plan/activation_writer.h"
#include "plan/host_writer.h"
#include "plan/layout_cache.h"
#include "plan/optimizer.h"
#include "plan/pipeline.h"
#include "plan/pipeline_rules.h"
#include "planner/native/stages_bound.h"

namespace distsetup {
namespace {

// Of a parameter; the norm reads the gradients.
double least_update_bytes(const Plan& plan) { return update_bytes_per_parameter(plan.train) + 4; }

// That split the states of a tensor-parallel rank.
int64_t state_shards(const Plan& plan) { return group_size(plan.mesh, shard_group(plan.mesh, plan.strategy.sharding)); }

struct LeastTransfers {
  double gather_s = 0, reduce_s = 0;  // how long these streams are busy at least
};

// Every parameter gathered, and its gradient reduced, as often as the sharding asks, in one message instead of one for each unit.
// Leaves out what a backward gathers again, frozen parameters, pipelines, and experts of which ranks have parts of their own
// (`trained` are the others).
LeastTransfers least_transfers(const Plan& plan, int64_t trained) {
  LeastTransfers out;
  if (plan.mesh.pp > 1) return out;
  const Sharding sharding = plan.strategy.sharding;
  const Group shards = shard_group(plan.mesh, sharding), replicas = replica_group(plan.mesh, sharding);
  const double whole = static_cast<double>(trained) / plan.mesh.tp, element = static_cast<double>(size_bytes(plan.precision.compute));
  const auto seconds = [&](InstructionOp op, Group group, double bytes_each) {
    return collective_s(plan, op, group, static_cast<int64_t>(whole * bytes_each));
  };
  const int n = group_size(plan.mesh, shards);
  if (n > 1) {
    const auto micro_batches = static_cast<double>(plan.gradient_accumulation);
    const bool regathers = sharding == Sharding::kZero3 && plan.strategy.reshard_after_forward;
    out.gather_s = (regathers ? micro_batches : 1) * seconds(InstructionOp::kAllGather, shards, element);
    out.reduce_s = (sharding == Sharding::kZero1 ? 1 : micro_batches) * seconds(InstructionOp::kReduceScatter, shards, element);
  }
  out.reduce_s += seconds(InstructionOp::kAllReduce, replicas, 4.0 / n);
  return out;
}

// Of the parameters of a tensor-parallel rank's, without experts that ranks share.
class KeptBound {
 public:
  KeptBound(const Plan& plan, const RowCosts& row, const std::vector<UnitSpan>& parts, SimulationCache& cache)
      : plan_(plan),
        row_(row),
        parts_(parts),
        cache_(cache),
        shards_(state_shards(plan)),
        element_(size_bytes(plan.precision.compute)) {
    gathers_ = plan.strategy.sharding == Sharding::kZero3 && shards_ > 1;
    adds_up_ = plan.strategy.sharding == Sharding::kZero1 && plan.gradient_accumulation > 1 && shards_ > 1;
  }

  // Beside the states, without stages: what is live around the head.
  int64_t whole_bytes() const {
    const int head = row_.head();
    const auto numel = [&](int u) { return row_.numel[static_cast<size_t>(u) + 1] - row_.numel[static_cast<size_t>(u)]; };
    const bool keeps_all = gathers_ && !plan_.strategy.reshard_after_forward;  // but the embedding
    const int64_t blocks = element_ * (row_.numel[static_cast<size_t>(head)] - numel(0));
    const int64_t gathered = keeps_all ? blocks + element_ * numel(head) : gathers_ ? element_ * (numel(head) + numel(head - 1)) : 0;
    // A unit's gradient, where it does not go straight into a sum.
    const auto born = [&](int u) { return element_ == 4 && (shards_ == 1 || adds_up_) ? 0 : element_ * numel(u); };
    const auto with_born = [&](int64_t late, int u) { return late > 0 ? late + born(u) : 0; };
    const int64_t at_head =
        std::max({row_.head_forward_peak, row_.head_backward_peak, with_born(row_.head_late_peak, head)}) + gathered;
    const int64_t at_block =
        std::max(row_.block_backward_peak, with_born(row_.block_late_peak, head - 1)) + (keeps_all  ? blocks
                                                                                         : gathers_ ? element_ * numel(head - 1)
                                                                                                    : 0);
    return std::max(at_head, at_block) + sums(0, head);
  }

  // States and all, of the stage that has most.
  int64_t staged_bytes() const {
    const int last = plan_.mesh.pp - 1;
    int64_t most = std::max(stage_bytes(0), stage_bytes(last));
    for (int s = 1; s < last && plan_.strategy.virtual_stages == 1; ++s) most = std::max(most, stage_bytes(s));
    return most;
  }

 private:
  // zero1's, of several micro-batches. Of several chunks the first reduced may be gone before the last one's begin.
  int64_t sums(int first, int last) const {
    return adds_up_ && plan_.strategy.virtual_stages == 1
               ? 4 * (row_.numel[static_cast<size_t>(last) + 1] - row_.numel[static_cast<size_t>(first)])
               : 0;
  }

  std::vector<int> in_flight(int stage) const {
    const int stages = plan_.mesh.pp, chunks = plan_.strategy.virtual_stages;
    const int64_t m = plan_.gradient_accumulation;
    if (chunks == 1) return {static_cast<int>(std::min<int64_t>(m, stages - stage))};
    const int64_t rounds = pipeline_rounds(stages, m), few = rounds <= 3 ? m : m / rounds * 3;
    std::vector<int>& known = cache_.in_flight[{stages, chunks, stage, few}];
    if (known.empty()) known = most_in_flight(pipeline_order(stages, chunks, few, stage), chunks);
    return known;
  }

  int64_t stage_bytes(int stage) const {
    const int stages = plan_.mesh.pp, chunks = plan_.strategy.virtual_stages;
    const std::vector<int> count = in_flight(stage);
    int64_t bytes = 0, numel = 0, largest = 0;
    for (int c = 0; c < chunks; ++c) {
      const UnitSpan& part = parts_[static_cast<size_t>(c * stages + stage)];
      const auto first = static_cast<size_t>(part.first), end = static_cast<size_t>(part.last) + 1;
      const int64_t slots = count[static_cast<size_t>(c)];
      bytes += slots * (row_.kept_bytes[end] - row_.kept_bytes[first] - row_.x_bytes[first]);
      if (first > 0) bytes += (slots + 1) * row_.message_bytes;
      numel += row_.numel[end] - row_.numel[first];
      bytes += sums(part.first, part.last);
      for (const size_t u : {first, first + 1, end - 1}) largest = std::max(largest, row_.numel[u + 1] - row_.numel[u]);
    }
    // What is sent and received takes turns in two buffers.
    if (stage < stages - 1 || chunks > 1) bytes += 4 * row_.message_bytes;
    if (stage > 0 || chunks > 1) bytes += 2 * row_.message_bytes;
    if (gathers_) bytes += element_ * largest;
    return bytes + states(numel);
  }

  int64_t states(int64_t numel) const {
    const auto split = [&](int64_t bytes) { return (bytes + shards_ - 1) / shards_; };
    const bool uses_master = shards_ == 1 && element_ == 4;
    const bool has_copy = plan_.strategy.sharding != Sharding::kZero3 && !uses_master;
    return split(8 * numel + optimizer_bytes(plan_.train, numel)) + (has_copy ? element_ * numel : 0);
  }

  const Plan& plan_;
  const RowCosts& row_;
  const std::vector<UnitSpan>& parts_;
  SimulationCache& cache_;
  const int64_t shards_, element_;
  bool gathers_ = false, adds_up_ = false;
};

}  // namespace

int64_t least_bytes(const Plan& plan, SimulationCache& cache) {
  const RowCosts& row = cached_row(plan, cache);
  const int64_t states = states_bound_bytes(plan);
  if (has_host_activations(plan)) return states;  // nearly all that is kept waits on the host
  if (!row.is_all) return states + (plan.mesh.pp == 1 ? row.kept_whole : 0);
  const std::vector<UnitSpan> parts = parts_of(plan);
  const KeptBound kept(plan, row, parts, cache);
  return plan.mesh.pp == 1 ? states + std::max(row.kept_whole, kept.whole_bytes()) : std::max(states, kept.staged_bytes());
}

double least_step_s(const Plan& plan, SimulationCache& cache) {
  const RowCosts& row = cached_row(plan, cache);
  const std::vector<UnitSpan> parts = parts_of(plan);
  const bool shards_nothing = plan.strategy.sharding == Sharding::kDdp;  // but experts, perhaps
  const ParameterNumbers all = parameter_numbers(plan);
  const auto parameters =
      static_cast<double>(shards_nothing ? numel_of_rank(all.trained, all.trained_experts, plan.mesh.ep) : all.trained);
  const double shard = parameters / static_cast<double>(state_shards(plan) * plan.mesh.tp * plan.mesh.pp);
  const double update_bytes = least_update_bytes(plan);
  const double compute = static_cast<double>(plan.gradient_accumulation) * row.seconds / plan.mesh.pp +
                         (has_host_optimizer(plan) ? 0 : stream_s(plan.hardware, shard * update_bytes));
  const LeastTransfers transfers = least_transfers(plan, all.trained - all.trained_experts);
  double busy_s = std::max({compute, transfers.gather_s, transfers.reduce_s});
  // Parameters that every rank holds are gathered when all of them have been updated.
  if (plan.strategy.sharding != Sharding::kZero3 && keeps_elements(plan.train.optimizer) && !has_host_optimizer(plan))
    busy_s = std::max(compute, transfers.reduce_s) + transfers.gather_s;
  busy_s = std::max(busy_s, StagesBound(plan, row, parts, update_bytes).seconds());
  // Sums in another order than the simulation's: what rounding may add is taken off.
  return busy_s * straggling(plan) * (1 - 1e-9);
}

double nearer_bound_s(const Plan& plan, SimulationCache& cache) {
  const RowCosts& row = cached_row(plan, cache);
  const std::vector<UnitSpan> parts = parts_of(plan);
  return StagesBound(plan, row, parts, least_update_bytes(plan)).in_order_s() * straggling(plan) * (1 - 1e-9);
}

int64_t states_bound_bytes(const Plan& plan) {
  const int64_t parts = int64_t{plan.mesh.tp} * plan.mesh.pp;  // the largest stage has the mean at least
  const ParameterNumbers all = parameter_numbers(plan);
  const bool shards_nothing = plan.strategy.sharding == Sharding::kDdp;  // but experts, perhaps
  const int64_t held = numel_of_rank(all.trained, all.trained_experts, plan.mesh.ep);
  const bool gathers = plan.strategy.sharding == Sharding::kZero3;
  const int64_t held_frozen = gathers ? all.frozen : numel_of_rank(all.frozen, all.frozen_experts, plan.mesh.ep);
  const int64_t whole = (held + parts - 1) / parts, frozen = (held_frozen - all.quantized) / parts;
  const int64_t parameters = shards_nothing ? whole : (all.trained + parts - 1) / parts;
  const auto records = static_cast<int64_t>(bytes_of(Dtype::kNf4Double) * static_cast<double>(all.quantized)) / parts;
  const int64_t shards = state_shards(plan);
  const int64_t element = size_bytes(plan.precision.compute);
  const auto split = [&](int64_t bytes) { return (bytes + shards - 1) / shards; };
  const bool is_on_host = has_host_optimizer(plan), uses_master = shards == 1 && element == 4 && !is_on_host;
  const bool come_from_host = has_host_parameters(plan);
  int64_t bytes = is_on_host ? split(gathers && !come_from_host ? element * parameters : 0)
                             : split(8 * parameters + optimizer_bytes(plan.train, parameters));
  if (come_from_host) return bytes;
  if (!gathers && !uses_master) bytes += element * whole;
  const int64_t frozen_bytes = element * (frozen + all.reference / parts) + records;
  bytes += gathers ? frozen_bytes / shards : frozen_bytes;
  return bytes;
}

}  // namespace distsetup
