#include "planner/search/preference.h"

namespace distsetup {
namespace {

auto tie_key(const Candidate& c, const SelectionRules& rules) {
  const bool copies = is_hybrid(c.choice) && !rules.hybrid_is_an_axis;
  return std::tuple(num_axes(c.choice, rules), c.choice.sharding, copies, c.choice.reshard_after_forward,
                    recompute_order(c.choice.recompute), c.tie_bytes, c.choice.micro_batch, c.choice.dp_shard);
}

}  // namespace

bool is_likelier(const Candidate& a, const Candidate& b) { return a.fit_probability > b.fit_probability + 0.01; }

bool simpler(const Candidate& a, const Candidate& b, const SelectionRules& rules) { return tie_key(a, rules) < tie_key(b, rules); }

Kind kind_of(const Choice& c) { return {c.sharding, is_hybrid(c), static_cast<int>(c.recompute)}; }

int num_axes(const Choice& c, const SelectionRules& rules) {
  return (c.tp > 1) + (c.pp > 1) + (c.cp > 1) + (c.ep > 1) + (c.virtual_stages > 1) + (c.hpz > 1) +
         (rules.hybrid_is_an_axis && is_hybrid(c));
}

int recompute_order(Recompute r) {
  switch (r) {
    case Recompute::kNone: return 0;
    case Recompute::kSelective: return 1;
    case Recompute::kEveryK: return 2;
    case Recompute::kKeepAttention: return 3;
    case Recompute::kFull: return 4;
  }
  return 0;
}

}  // namespace distsetup
