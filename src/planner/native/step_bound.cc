#include "planner/native/step_bound.h"

#include <algorithm>
#include <vector>

#include "model/count.h"
#include "plan/activation_writer.h"
#include "plan/host_writer.h"
#include "plan/layout_cache.h"
#include "plan/node_reduction.h"
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
// Leaves out what a backward gathers again, frozen parameters, and pipelines.
LeastTransfers least_transfers(const Plan& plan, const ParameterNumbers& all) {
  LeastTransfers out;
  if (plan.mesh.pp > 1) return out;
  const Sharding sharding = plan.strategy.sharding;
  const auto element = static_cast<double>(size_bytes(plan.precision.compute));
  const auto add = [&](int64_t whole, Group shards, Group replicas) {
    if (whole == 0) return;
    const auto seconds = [&](InstructionOp op, Group group, double bytes_each) {
      return collective_s(plan, op, group, static_cast<int64_t>(static_cast<double>(whole) * bytes_each));
    };
    const int n = group_size(plan.mesh, shards);
    if (n > 1) {
      const auto micro_batches = static_cast<double>(plan.gradient_accumulation);
      const bool regathers = sharding == Sharding::kZero3 && plan.strategy.reshard_after_forward;
      out.gather_s += (regathers ? micro_batches : 1) * seconds(InstructionOp::kAllGather, shards, element);
      out.reduce_s +=
          (sharding == Sharding::kZero1 ? 1 : micro_batches) * reduction_s(plan, shards, static_cast<double>(whole) / n, element);
    }
    out.reduce_s += seconds(InstructionOp::kAllReduce, replicas, 4.0 / n);
  };
  add((all.trained - all.trained_experts) / plan.mesh.tp, shard_group(plan.mesh, sharding), replica_group(plan.mesh, sharding));
  add(all.trained_experts / plan.mesh.ep, expert_group(plan.mesh, sharding), Group::kDpReplicate);
  return out;
}

// Of a unit's parameters, or of its experts where these lie apart: how a sharding holds them.
struct PartHolding {
  int64_t shards = 1, chunks_received = 0;  // of a reduction, of two hops of the first
  bool has_copy = false, gathers = false;   // whole in the compute type: always; around each use
  bool has_gradient = false;                // of its own in a backward: else it goes straight into a sum
  bool adds_up = false;                     // zero1's sums of several micro-batches
};

PartHolding holding_of(const Plan& plan, Group group) {
  PartHolding h;
  h.shards = group_size(plan.mesh, group);
  const int64_t together = node_ranks(plan, group);
  h.chunks_received = h.shards - (together > 0 ? h.shards / together : 1);
  const bool is_f32 = plan.precision.compute == Dtype::kF32, uses_master = is_f32 && h.shards == 1;
  h.gathers = plan.strategy.sharding == Sharding::kZero3 && !uses_master;
  h.has_copy = plan.strategy.sharding != Sharding::kZero3 && !uses_master;
  h.adds_up = plan.strategy.sharding == Sharding::kZero1 && plan.gradient_accumulation > 1 && h.shards > 1;
  h.has_gradient = !(is_f32 && (h.shards == 1 || h.adds_up));
  return h;
}

// Of the parameters that a rank holds.
class KeptBound {
 public:
  KeptBound(const Plan& plan, const RowCosts& row, const std::vector<UnitSpan>& parts, SimulationCache& cache)
      : plan_(plan),
        row_(row),
        parts_(parts),
        cache_(cache),
        own_(holding_of(plan, shard_group(plan.mesh, plan.strategy.sharding))),
        experts_(holding_of(plan, expert_group(plan.mesh, plan.strategy.sharding))),
        element_(size_bytes(plan.precision.compute)) {}

  // States and all, without stages: what is live around the head.
  int64_t whole_bytes() const {
    const int head = row_.head();
    const bool keeps_all = !plan_.strategy.reshard_after_forward;  // but the embedding
    const int64_t blocks = keeps_all ? gathered(1, head - 1) : 0;
    const auto with_born = [&](int64_t late, int u) { return late > 0 ? late + born(u) : 0; };
    const int64_t at_head = std::max({row_.head_forward_peak, row_.head_backward_peak, with_born(row_.head_late_peak, head)}) +
                            gathered(head, head) + (keeps_all ? blocks : gathered(head - 1, head - 1));
    const int64_t at_block = std::max(row_.block_backward_peak, with_born(row_.block_late_peak, head - 1)) + expert_born(head - 1) +
                             (keeps_all ? blocks : gathered(head - 1, head - 1) + gathered_next(head - 2, 1));
    int64_t at_next = 0;
    if (row_.next_backward_peak > 0)
      at_next = std::max(row_.next_backward_peak, with_born(row_.next_late_peak, head - 2)) + expert_born(head - 2) +
                under_way(head - 1) + (keeps_all ? gathered(1, head - 2) : gathered(head - 2, head - 2) + gathered_next(head - 3, 1));
    // Of two micro-batches the second is the last, whose sums go as they are reduced.
    const int64_t all = sums(0, head), rest = plan_.gradient_accumulation > 2 ? all : sums(0, head - 2);
    return states(0, head) + std::max(std::max(at_head, at_block) + all, at_next + rest);
  }

  // Of the stage that has most.
  int64_t staged_bytes() const {
    const int last = plan_.mesh.pp - 1;
    int64_t most = std::max(stage_bytes(0), stage_bytes(last));
    for (int s = 1; s < last && plan_.strategy.virtual_stages == 1; ++s) most = std::max(most, stage_bytes(s));
    return most;
  }

 private:
  static int64_t over(const std::vector<int64_t>& of, int first, int last) {
    return of[static_cast<size_t>(last) + 1] - of[static_cast<size_t>(first)];
  }
  int64_t own(int first, int last) const { return over(row_.numel, first, last); }
  int64_t experts(int first, int last) const { return over(row_.expert_numel, first, last); }

  int64_t gathered(int first, int last) const {
    return element_ * ((own_.gathers ? own(first, last) : 0) + (experts_.gathers ? experts(first, last) : 0));
  }
  // Asked for beside the backward of the unit above, which `lowest` ends.
  int64_t gathered_next(int u, int lowest) const {
    return u >= lowest && plan_.strategy.prefetch > 0 && plan_.strategy.reshard_after_forward ? gathered(u, u) : 0;
  }
  // A unit's gradients: in its backward, and of its experts before that.
  int64_t born(int u) const { return own_.has_gradient ? element_ * own(u, u) : 0; }
  int64_t expert_born(int u) const { return experts_.has_gradient ? element_ * experts(u, u) : 0; }
  // The gradient that is reduced beside the next backward, and what has come of others'.
  int64_t under_way(int u) const {
    const auto bytes = [&](int64_t numel, const PartHolding& h) { return element_ * (numel + numel / h.shards * h.chunks_received); };
    const bool own_goes = own_.shards > 1 && !own_.adds_up, experts_go = experts_.shards > 1 && !experts_.adds_up;
    if (experts_go && experts(u, u) > 0) return bytes(experts(u, u), experts_);
    return own_goes ? bytes(own(u, u), own_) : 0;
  }

  // zero1's, of several micro-batches.
  int64_t sums(int first, int last) const {
    return 4 * ((own_.adds_up ? own(first, last) : 0) + (experts_.adds_up ? experts(first, last) : 0));
  }
  // Of them those that are there in a backward of unit u in a stage's chunk c. Of two micro-batches the second is the last, whose sums
  // go as they are reduced; of interleaved chunks all are there when the last one begins its second round.
  int64_t sums_beside(int stage, int c, const UnitSpan& part, int u) const {
    const int chunks = plan_.strategy.virtual_stages;
    if (!own_.adds_up && !experts_.adds_up) return 0;
    if (chunks == 1) return sums(part.first, plan_.gradient_accumulation > 2 ? part.last : u);
    if (c + 1 < chunks || pipeline_rounds(plan_.mesh.pp, plan_.gradient_accumulation) == 1) return 0;
    int64_t all = 0;
    for (int n = 0; n < chunks; ++n) {
      const UnitSpan& other = parts_[static_cast<size_t>(n * plan_.mesh.pp + stage)];
      all += sums(other.first, other.last);
    }
    return all;
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
    int64_t bytes = 0, most = 0;
    for (int c = 0; c < chunks; ++c) {
      const UnitSpan& part = parts_[static_cast<size_t>(c * stages + stage)];
      const auto first = static_cast<size_t>(part.first), end = static_cast<size_t>(part.last) + 1;
      const int64_t slots = count[static_cast<size_t>(c)];
      bytes += slots * (row_.kept_bytes[end] - row_.kept_bytes[first] - row_.x_bytes[first]);
      if (first > 0) bytes += (slots + 1) * row_.message_bytes;
      bytes += states(part.first, part.last);
      const int second = std::min(part.first + 1, part.last);
      for (const int u : {part.first, second, part.last, std::max(part.last - 1, part.first)})
        most = std::max(most, beside_kept(part, u) + sums_beside(stage, c, part, u));
    }
    // What is sent and received takes turns in two buffers.
    if (stage < stages - 1 || chunks > 1) bytes += 4 * row_.message_bytes;
    if (stage > 0 || chunks > 1) bytes += 2 * row_.message_bytes;
    return bytes + most;
  }

  // In a stage's backward of a unit, beside what the stage keeps.
  int64_t beside_kept(const UnitSpan& part, int u) const {
    if (u == 0) return gathered(0, 0);
    const RowCosts::Kind& kind = row_.kind(u);
    const int64_t peak = std::max(kind.stage_peak, kind.stage_late_peak > 0 ? kind.stage_late_peak + born(u) : 0);
    return peak + expert_born(u) + gathered(u, u) + gathered_next(u - 1, std::max(part.first, 1)) +
           (u < part.last ? under_way(u + 1) : 0);
  }

  int64_t states(int first, int last) const {
    const auto of = [&](int64_t numel, const PartHolding& h) -> int64_t {
      if (numel == 0) return 0;
      return (8 * numel + optimizer_bytes(plan_.train, numel) + h.shards - 1) / h.shards + (h.has_copy ? element_ * numel : 0);
    };
    return of(own(first, last), own_) + of(experts(first, last), experts_);
  }

  const Plan& plan_;
  const RowCosts& row_;
  const std::vector<UnitSpan>& parts_;
  SimulationCache& cache_;
  const PartHolding own_, experts_;
  const int64_t element_;
};

}  // namespace

int64_t least_bytes(const Plan& plan, SimulationCache& cache) {
  const RowCosts& row = cached_row(plan, cache);
  const int64_t states = states_bound_bytes(plan);
  if (has_host_activations(plan)) return states;  // nearly all that is kept waits on the host
  if (!row.is_all) return states + (plan.mesh.pp == 1 ? row.kept_whole : 0);
  const std::vector<UnitSpan>& parts = cached_parts(plan, cache);
  const KeptBound kept(plan, row, parts, cache);
  return plan.mesh.pp == 1 ? std::max(states + row.kept_whole, kept.whole_bytes()) : std::max(states, kept.staged_bytes());
}

double least_step_s(const Plan& plan, SimulationCache& cache) {
  const RowCosts& row = cached_row(plan, cache);
  const std::vector<UnitSpan>& parts = cached_parts(plan, cache);
  const bool shards_nothing = plan.strategy.sharding == Sharding::kDdp;  // but experts, perhaps
  const ParameterNumbers all = parameter_numbers(plan);
  const auto parameters =
      static_cast<double>(shards_nothing ? numel_of_rank(all.trained, all.trained_experts, plan.mesh.ep) : all.trained);
  const double shard = parameters / static_cast<double>(state_shards(plan) * plan.mesh.tp * plan.mesh.pp);
  const double update_bytes = least_update_bytes(plan);
  const double compute = static_cast<double>(plan.gradient_accumulation) * row.seconds / plan.mesh.pp +
                         (has_host_optimizer(plan) ? 0 : stream_s(plan.hardware, shard * update_bytes));
  const LeastTransfers transfers = least_transfers(plan, all);
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
  const std::vector<UnitSpan>& parts = cached_parts(plan, cache);
  return StagesBound(plan, row, parts, least_update_bytes(plan)).in_order_s() * straggling(plan) * (1 - 1e-9);
}

int64_t host_states_bound_bytes(const Plan& plan) {
  if (plan.offload.optimizer != OffloadPlace::kHost) return 0;
  const ParameterNumbers all = parameter_numbers(plan);
  const int64_t shards = state_shards(plan), parts = int64_t{plan.mesh.tp} * plan.mesh.pp;
  const bool shards_nothing = plan.strategy.sharding == Sharding::kDdp;
  const int64_t held = shards_nothing ? numel_of_rank(all.trained, all.trained_experts, plan.mesh.ep) : all.trained;
  const int64_t parameters = held / parts;
  return (8 * parameters + optimizer_bytes(plan.train, parameters)) / shards;
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
