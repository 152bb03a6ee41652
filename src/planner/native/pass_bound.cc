#include "planner/native/pass_bound.h"

#include <algorithm>
#include <cmath>

#include "plan/layout.h"
#include "planner/native/step_time.h"

namespace distsetup {

PassBound::PassBound(const Plan& plan, const RowCosts& row) : plan_(plan), row_(row) {
  shards_ = group_size(plan.mesh, shard_group(plan.mesh, plan.strategy.sharding));
  gathers_ = plan.strategy.sharding == Sharding::kZero3 && shards_ > 1;
  adds_up_ = plan.strategy.sharding == Sharding::kZero1 && plan.gradient_accumulation > 1;
  if (row.is_all && plan.hardware.accelerator == Accelerator::kCuda) contention_ = std::min(plan.hardware.rates.contention, 1.0);
  for (const RowCosts::Kind& kind : row.kinds) moves_.push_back(moves_of(kind.numel));
  const auto least = [&](auto field) {
    double s = moves_.front().*field;
    for (const Moves& m : moves_) s = std::min(s, m.*field);
    return s;
  };
  least_add_s_ = least(&Moves::add_s);
  least_replicas_s_ = least(&Moves::replicas_s);
  for (const RowCosts::Pair& pair : row.pairs) terms_.push_back(terms_of(pair));
}

PassBound::Moves PassBound::moves_of(double numel) const {
  Moves m;
  if (numel == 0 || !row_.is_all) return m;
  const Sharding sharding = plan_.strategy.sharding;
  const Group shards = shard_group(plan_.mesh, sharding), replicas = replica_group(plan_.mesh, sharding);
  const auto element = static_cast<double>(size_bytes(plan_.precision.compute));
  const double own = kShardAlignment * std::ceil(numel / (kShardAlignment * shards_)), whole = own * shards_;
  const auto collective = [&](InstructionOp op, Group group, double bytes) {
    return collective_s(plan_, op, group, static_cast<int64_t>(bytes));
  };
  const bool is_f32 = plan_.precision.compute == Dtype::kF32;
  const double fresh_s = stream_s(plan_.hardware, own * (4 + element)) +
                         (shards_ > 1 ? collective(InstructionOp::kAllGather, shards, whole * element) : 0);
  if (gathers_) m.gather_s = fresh_s;
  if (!gathers_ && !(is_f32 && shards_ == 1) && sharding != Sharding::kZero3) m.refresh_s = fresh_s;
  if (shards_ > 1 && !adds_up_) m.reduce_s = m.last_reduce_s = collective(InstructionOp::kReduceScatter, shards, whole * element);
  if (shards_ > 1 && adds_up_) m.last_reduce_s = collective(InstructionOp::kReduceScatter, shards, whole * 4);
  if (!is_f32 || (shards_ > 1 && !adds_up_)) m.add_s = stream_s(plan_.hardware, own * (shards_ * element + 8));
  m.replicas_s = collective(InstructionOp::kAllReduce, replicas, own * 4);
  m.all_reduced_s = m.last_reduce_s + m.replicas_s;
  return m;
}

// Together they take this long.
PassBound::PairTerms PassBound::terms_of(const RowCosts::Pair& pair) const {
  const auto lower = static_cast<size_t>(pair.lower), upper = static_cast<size_t>(pair.upper);
  const RowCosts::Kind &below = row_.kinds[lower], &above = row_.kinds[upper];
  const auto beside = [&](double compute_s, double transfer_s) {
    return std::max(compute_s + contention_ * std::min(compute_s, transfer_s), transfer_s);
  };
  const StrategyPlan& s = plan_.strategy;
  const double gather_s = s.prefetch <= 1 ? moves_[upper].gather_s : 0;
  // The embedding's backward reads no parameters; without stages, the last block's stay from its forward on.
  const bool stays =
      pair.lower == row_.kind_of.front() || (plan_.mesh.pp == 1 && pair.upper == row_.kind_of.back()) || !s.reshard_after_forward;
  const double again_s = s.prefetch <= 1 && !stays ? moves_[lower].gather_s : 0;
  const bool waits = s.reductions_in_flight == 1;
  const double reduce_s = waits ? moves_[upper].reduce_s : 0;
  const double last_reduce_s = waits && shards_ > 1 ? moves_[upper].last_reduce_s + least_replicas_s_ : 0;
  PairTerms t;
  t.forward_s = beside(below.forward_s, gather_s);
  t.gathered_s = std::max(beside(above.backward_s, again_s) + least_add_s_, again_s);
  t.reduced_s = beside(below.backward_s, reduce_s) + moves_[upper].add_s;
  // Nobody waits for replicas' sums until the norm.
  const double last_s = shards_ == 1 ? below.backward_s + contention_ * std::min(below.backward_s, moves_[upper].replicas_s)
                                     : beside(below.backward_s, last_reduce_s);
  t.last_reduced_s = last_s + moves_[upper].add_s;
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
  return of(first).gather_s + over_pairs(first, last, &PairTerms::forward_s) + row_.kind(last).forward_s;
}

double PassBound::forward_after_wait_s(int first, int last) const {
  const double last_s = row_.kind(last).forward_s;
  return first == last ? last_s : row_.kind(first).forward_s + over_pairs(first + 1, last, &PairTerms::forward_s) + last_s;
}

double PassBound::backward_s(int first, int last, bool is_last, bool after_wait) const {
  const Moves& lowest = of(first);
  const double end_s = (is_last ? lowest.last_reduce_s : lowest.reduce_s) + lowest.add_s;
  if (first == last) return row_.kind(first).backward_s + end_s;
  // The second unit from the top has no gradient of another to add before it.
  const double gathered_s = (after_wait ? row_.kind(last).backward_s + over_pairs(first, last - 1, &PairTerms::gathered_s)
                                        : over_pairs(first, last, &PairTerms::gathered_s) - least_add_s_) +
                            row_.kind(first).backward_s;
  const double reduced_s =
      row_.kind(last).backward_s + over_pairs(first, last, is_last ? &PairTerms::last_reduced_s : &PairTerms::reduced_s);
  return std::max(gathered_s, reduced_s) + end_s;
}

double PassBound::summed_s(int first, int last, bool after_wait) const {
  // Reductions go one after the other, the first one after the first backward.
  return std::max(backward_s(first, last, true, after_wait) + of(first).replicas_s,
                  row_.kind(last).backward_s + over_kinds(first, last, &Moves::all_reduced_s));
}

double PassBound::until_sent_s(int first, int last, bool is_last) const {
  const double lowest_s = row_.kind(first).backward_s;
  if (first == last) return lowest_s;
  // Before the first reduction there is no sum over replicas yet.
  const double none_s = is_last && shards_ > 1 && first + 1 < last ? least_replicas_s_ : 0;
  return row_.kind(last).backward_s - none_s +
         over_pairs(first + 1, last, is_last ? &PairTerms::last_reduced_s : &PairTerms::reduced_s) + lowest_s;
}

double PassBound::update_s(int first, int last, double update_bytes) const {
  if (!row_.is_all) return 0;
  const auto f = static_cast<size_t>(first), l = static_cast<size_t>(last) + 1;
  return stream_s(plan_.hardware, static_cast<double>(row_.numel[l] - row_.numel[f]) / shards_ * update_bytes) +
         over_kinds(first, last, &Moves::refresh_s);
}

}  // namespace distsetup
