#include "planner/native/pass_bound.h"

#include <algorithm>
#include <cmath>

#include "plan/layout.h"
#include "plan/node_reduction.h"
#include "planner/native/step_time.h"

namespace distsetup {

PassBound::PassBound(const Plan& plan, const RowCosts& row) : plan_(plan), row_(row) {
  const Sharding sharding = plan.strategy.sharding;
  shards_ = group_size(plan.mesh, shard_group(plan.mesh, sharding));
  expert_shards_ = group_size(plan.mesh, expert_group(plan.mesh, sharding));
  adds_up_ = sharding == Sharding::kZero1 && plan.gradient_accumulation > 1;
  has_experts_ = row.expert_numel.back() > 0;
  waits_ = plan.strategy.reductions_in_flight == 1;
  if (row.is_all && plan.hardware.accelerator == Accelerator::kCuda) contention_ = std::min(plan.hardware.rates.contention, 1.0);
  for (const RowCosts::Kind& kind : row.kinds) moves_.push_back(moves_of(kind));
  // Beside experts it depends on the units which sums lie between two backwards, and before which reductions.
  if (!has_experts_ && waits_) {
    least_add_s_ = moves_.front().each.add_s, least_replicas_s_ = moves_.front().last.replicas_s;
    // Of two hops the sum over replicas comes after the second, a unit later: not between all.
    if (node_ranks(plan, shard_group(plan.mesh, sharding)) > 0) least_replicas_s_ = 0;
    for (const Moves& m : moves_) {
      least_add_s_ = std::min(least_add_s_, m.each.add_s);
      least_replicas_s_ = std::min(least_replicas_s_, m.last.replicas_s);
    }
  }
  for (const Moves& m : moves_) casts_s_ += m.cast_s;
  for (const RowCosts::Pair& pair : row.pairs) terms_.push_back(terms_of(pair));
}

PassBound::Part PassBound::part_of(double numel, Group shards, Group replicas) const {
  Part p;
  if (numel == 0) return p;
  const int ranks = group_size(plan_.mesh, shards);
  const auto element = static_cast<double>(size_bytes(plan_.precision.compute));
  const double own = kShardAlignment * std::ceil(numel / (kShardAlignment * ranks)), whole = own * ranks;
  const auto collective = [&](InstructionOp op, Group group, double bytes) {
    return collective_s(plan_, op, group, static_cast<int64_t>(bytes));
  };
  const bool is_f32 = plan_.precision.compute == Dtype::kF32, gathers = plan_.strategy.sharding == Sharding::kZero3;
  const double cast_s = is_f32 && ranks == 1 ? 0 : stream_s(plan_.hardware, own * (4 + element));
  const double add_s = sums_s(plan_, Hop::kOnly, own, ranks, 0, element);
  if (ranks == 1) {
    (gathers ? p.cast_s : p.refresh_here_s) = cast_s;
    p.local_add_s = is_f32 ? 0 : add_s;
  } else {
    (gathers ? p.gather_s : p.refresh_s) = cast_s + collective(InstructionOp::kAllGather, shards, whole * element);
    if (adds_up_ && !is_f32) p.local_add_s = add_s;
    p.last_reduce_s = reduction_s(plan_, shards, own, adds_up_ ? 4 : element);
    p.last_first_hop_s = first_hop_s(plan_, shards, own, adds_up_ ? 4 : element);
    if (!adds_up_) p.reduce_s = p.last_reduce_s, p.first_hop_s = p.last_first_hop_s;
    // Of two hops the first sum, which every list has between two reductions.
    const int together = node_ranks(plan_, shards);
    p.add_s = together == 0 ? add_s : sums_s(plan_, Hop::kWithinNode, own, ranks, together, element);
  }
  p.replicas_s = collective(InstructionOp::kAllReduce, replicas, own * 4);
  return p;
}

PassBound::Reduction PassBound::reduction_of(const Part& own, const Part& experts, bool is_last) const {
  const auto reduce_s = [&](const Part& p) { return is_last ? p.last_reduce_s : p.reduce_s; };
  const auto first_hop_s = [&](const Part& p) { return is_last ? p.last_first_hop_s : p.first_hop_s; };
  const auto replicas_s = [&](const Part& p) { return is_last ? p.replicas_s : 0; };
  const bool own_goes = reduce_s(own) > 0, experts_go = reduce_s(experts) > 0;
  Reduction r;
  r.starts = own_goes || experts_go;
  const Part& beside = experts_go ? experts : own;
  r.beside_s = reduce_s(beside);
  r.begun_s = first_hop_s(beside);
  r.add_s = r.starts ? beside.add_s : own.local_add_s + experts.local_add_s;
  r.replicas_s = replicas_s(beside);
  if (own_goes && experts_go) {
    r.once_s = waits_ ? first_hop_s(own) + own.add_s : 0;  // its second hop is beside the experts' first
    // The sum over replicas is in front of the experts' reduction, but where a second hop comes before it.
    const bool is_one_hop = first_hop_s(own) == reduce_s(own);
    if (waits_ && is_one_hop) r.beside_s += replicas_s(own), r.begun_s += replicas_s(own);
  }
  if (r.starts)
    r.before_s = own.local_add_s;
  else
    r.replicas_s = std::max(r.replicas_s - experts.local_add_s, 0.0);  // beside that sum
  if (own_goes && !experts_go) r.after_s = experts.local_add_s;
  return r;
}

PassBound::Moves PassBound::moves_of(const RowCosts::Kind& kind) const {
  Moves m;
  if (!row_.is_all) return m;
  const Sharding sharding = plan_.strategy.sharding;
  const Part own = part_of(kind.numel, shard_group(plan_.mesh, sharding), replica_group(plan_.mesh, sharding));
  const Part experts = part_of(kind.expert_numel, expert_group(plan_.mesh, sharding), Group::kDpReplicate);
  m.gather_s = own.gather_s + experts.gather_s;
  m.cast_s = own.cast_s + experts.cast_s;
  m.each = reduction_of(own, experts, false);
  m.last = reduction_of(own, experts, true);
  m.sums_s = m.each.before_s + m.each.once_s + m.each.after_s + m.each.add_s;
  m.all_reduced_s = own.last_reduce_s + own.replicas_s + experts.last_reduce_s + experts.replicas_s;
  m.refresh_s = own.refresh_s + own.refresh_here_s + experts.refresh_s;
  if (shards_ == 1) m.refresh_s += experts.refresh_here_s;  // else beside what others gather
  return m;
}

// From when the upper unit's reduction has begun until the lower one's has.
double PassBound::reduced_s(const RowCosts::Pair& pair, bool is_last) const {
  const Moves &low = moves_[static_cast<size_t>(pair.lower)], &up = moves_[static_cast<size_t>(pair.upper)];
  const Reduction &lower = is_last ? low.last : low.each, &upper = is_last ? up.last : up.each;
  const double compute_s = row_.kinds[static_cast<size_t>(pair.lower)].backward_s;
  const double beside_s = waits_ ? upper.begun_s + (is_last && upper.starts ? least_replicas_s_ : 0) : 0;
  // Nobody waits for replicas' sums until the norm.
  const double transfer_s = upper.starts ? std::max(beside_s - upper.after_s, 0.0) : is_last ? upper.replicas_s : 0;
  const double computed_s = upper.after_s + compute_s + contention_ * std::min(compute_s, transfer_s) + lower.before_s;
  const double once_s = lower.once_s + (is_last && waits_ && lower.once_s > 0 && upper.starts ? upper.replicas_s : 0);
  return std::max(computed_s, upper.starts && lower.starts ? beside_s : 0) + upper.add_s + once_s;
}

// Together they take this long.
PassBound::PairTerms PassBound::terms_of(const RowCosts::Pair& pair) const {
  const auto lower = static_cast<size_t>(pair.lower), upper = static_cast<size_t>(pair.upper);
  const RowCosts::Kind &below = row_.kinds[lower], &above = row_.kinds[upper];
  const auto slowed = [&](double compute_s, double transfer_s) { return compute_s + contention_ * std::min(compute_s, transfer_s); };
  const StrategyPlan& s = plan_.strategy;
  const double gather_s = s.prefetch <= 1 ? moves_[upper].gather_s : 0;
  // The embedding's backward reads no parameters; without stages, the last block's stay from its forward on.
  const bool stays =
      pair.lower == row_.kind_of.front() || (plan_.mesh.pp == 1 && pair.upper == row_.kind_of.back()) || !s.reshard_after_forward;
  const double again_s = s.prefetch <= 1 && !stays ? moves_[lower].gather_s : 0;
  const Reduction& each = moves_[upper].each;  // between the two backwards: its sums, and what is waited for
  const double between_s = has_experts_ ? each.before_s + each.once_s + each.after_s + (each.starts ? 0 : each.add_s) : least_add_s_;
  PairTerms t;
  t.forward_s = std::max(slowed(below.forward_s, gather_s), gather_s);
  // The lower unit's parameters come beside both: they wait for no sum, and no sum for them.
  t.gathered_s = std::max(slowed(above.backward_s, again_s) + between_s, again_s);
  t.reduced_s = reduced_s(pair, false);
  t.last_reduced_s = reduced_s(pair, true);
  if (!stays) t.cast_s = moves_[lower].cast_s;
  return t;
}

double PassBound::over_pairs(int first, int last, double PairTerms::*term) const {
  double sum = 0;
  for (size_t p = 0; p < terms_.size(); ++p) {
    const std::vector<int>& before = row_.pairs[p].before;
    sum += (before[static_cast<size_t>(last)] - before[static_cast<size_t>(first)]) * (terms_[p].*term);
  }
  return sum;
}

double PassBound::over_kinds(int first, int last, double Moves::*field) const {
  double sum = 0;
  for (size_t k = 0; k < moves_.size(); ++k) {
    const std::vector<int>& before = row_.kinds[k].before;
    sum += (before[static_cast<size_t>(last) + 1] - before[static_cast<size_t>(first)]) * (moves_[k].*field);
  }
  return sum;
}

double PassBound::forward_s(int first, int last) const {
  const double gathered_s = of(first).gather_s + over_pairs(first, last, &PairTerms::forward_s) + row_.kind(last).forward_s;
  if (casts_s_ == 0) return gathered_s;
  return std::max(gathered_s, sum(row_.forward_s, first, last) + over_kinds(first, last, &Moves::cast_s));
}

double PassBound::forward_after_wait_s(int first, int last) const {
  const double last_s = row_.kind(last).forward_s;
  const double gathered_s =
      first == last ? last_s : row_.kind(first).forward_s + over_pairs(first + 1, last, &PairTerms::forward_s) + last_s;
  const int next = first + plan_.strategy.prefetch + 1;  // whose parameters are not asked for yet
  if (casts_s_ == 0 || next > last) return gathered_s;
  return std::max(gathered_s, sum(row_.forward_s, first, last) + over_kinds(next, last, &Moves::cast_s));
}

double PassBound::backward_s(int first, int last, bool is_last, bool after_wait) const {
  const Reduction& lowest = is_last ? of(first).last : of(first).each;
  const double turn_s = lowest.before_s + lowest.once_s;
  const double compute_s = row_.kind(last).backward_s;
  if (first == last) return compute_s + turn_s + lowest.beside_s + lowest.add_s;
  // The second unit from the top has no gradient of another to add before it.
  const double gathered_s = (after_wait ? compute_s + over_pairs(first, last - 1, &PairTerms::gathered_s)
                                        : over_pairs(first, last, &PairTerms::gathered_s) - least_add_s_) +
                            row_.kind(first).backward_s + turn_s;
  const Reduction& top = is_last ? of(last).last : of(last).each;
  const double top_s = compute_s + top.before_s + top.once_s;
  // Of several in flight, those before the last are added while it is under way.
  const double reduced_s =
      top_s + over_pairs(first, last, is_last ? &PairTerms::last_reduced_s : &PairTerms::reduced_s) + (waits_ ? lowest.beside_s : 0);
  const double most_s = std::max(gathered_s + lowest.beside_s, reduced_s) + lowest.add_s;
  if (casts_s_ == 0 || after_wait) return most_s;
  // Of a stage, the first casts run beside the top's gather, which comes before all this.
  const double before_s = plan_.mesh.pp == 1 ? 0 : of(last).cast_s - of(last).gather_s;
  return std::max(most_s, before_s + sum(row_.backward_s, first, last) + over_pairs(first, last, &PairTerms::cast_s) +
                              over_kinds(first, last, &Moves::sums_s));
}

double PassBound::summed_s(int first, int last, bool after_wait) const {
  // Reductions go one after the other, the first one after the first backward.
  return std::max(backward_s(first, last, true, after_wait) + of(first).last.replicas_s,
                  row_.kind(last).backward_s + over_kinds(first, last, &Moves::all_reduced_s));
}

// Where no unit between them reduces anything, nobody has waited yet for the last reduction above: its gradients are added when the
// lowest unit has sent. Pairs count that sum between the two units.
double PassBound::added_later_s(int first, int last, bool is_last) const {
  const auto reduction = [&](int unit) -> const Reduction& { return is_last ? of(unit).last : of(unit).each; };
  int unit = first + 1;
  while (unit <= last && !reduction(unit).starts) ++unit;
  return unit == first + 1 || unit > last ? 0 : reduction(unit).add_s;
}

double PassBound::until_sent_s(int first, int last, bool is_last) const {
  if (!waits_) return sum(row_.backward_s, first, last);
  const double lowest_s = row_.kind(first).backward_s;
  if (first == last) return lowest_s;
  const Reduction& top = is_last ? of(last).last : of(last).each;
  // Before the first reduction there is no sum over replicas yet.
  const double none_s = is_last && shards_ > 1 && first + 1 < last ? least_replicas_s_ : 0;
  return row_.kind(last).backward_s + top.before_s + top.once_s - none_s - added_later_s(first, last, is_last) +
         over_pairs(first + 1, last, is_last ? &PairTerms::last_reduced_s : &PairTerms::reduced_s) + lowest_s;
}

double PassBound::update_s(int first, int last, double update_bytes) const {
  if (!row_.is_all) return 0;
  const auto f = static_cast<size_t>(first), l = static_cast<size_t>(last) + 1;
  const double own = static_cast<double>(row_.numel[l] - row_.numel[f]) / shards_;
  const double experts = static_cast<double>(row_.expert_numel[l] - row_.expert_numel[f]) / expert_shards_;
  return stream_s(plan_.hardware, (own + experts) * update_bytes) + over_kinds(first, last, &Moves::refresh_s);
}

}  // namespace distsetup
