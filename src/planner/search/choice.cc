#include "planner/search/choice.h"

#include <fmt/format.h>

#include "plan/native_program.h"
#include "plan/node_reduction.h"

namespace distsetup {

Plan plan_of(const Problem& problem, int nodes, const Choice& c) {
  Plan plan = problem.base;
  if (plan.offload == OffloadPlan{}) plan.host = {};
  plan.hardware.nodes = nodes;
  apply(problem, c, plan);
  return plan;
}

void apply(const Problem& problem, const Choice& c, Plan& plan) {
  plan.mesh = {.pp = c.pp, .dp_replicate = c.dp_replicate, .dp_shard = c.dp_shard, .cp = c.cp, .tp = c.tp, .ep = c.ep};
  StrategyPlan& s = plan.strategy;
  s.sharding = c.sharding;
  s.reshard_after_forward = c.sharding != Sharding::kZero3 || c.reshard_after_forward;
  if (is_native(plan)) s.hierarchical_reduction = problem.hierarchical_reduction.value_or(two_hops_send_less(plan));
  s.virtual_stages = c.virtual_stages;
  s.hpz = c.hpz;
  s.sequence_parallel = c.tp > 1 && problem.sequence_parallel;
  s.cp_method = name(c.cp_method);
  plan.micro_batch = c.micro_batch;
  plan.gradient_accumulation = c.gradient_accumulation;
  plan.train.global_batch = c.micro_batch * c.gradient_accumulation * c.dp_replicate * c.dp_shard;
  if (is_native(problem.base) && plan.recompute.policy != c.recompute)  // others have tensors of their own
    plan.recompute.dropped = dropped_tensors(plan.model, c.recompute, tuning_of(plan.train));
  plan.recompute.policy = c.recompute;
  plan.recompute.every_k = c.recompute == Recompute::kEveryK ? problem.recompute_every_k : 0;
}

Choice choice_of(const Plan& plan) {
  Choice c;
  c.sharding = plan.strategy.sharding;
  c.reshard_after_forward = plan.strategy.reshard_after_forward;
  c.dp_replicate = plan.mesh.dp_replicate, c.dp_shard = plan.mesh.dp_shard;
  c.micro_batch = plan.micro_batch;
  c.gradient_accumulation = plan.gradient_accumulation;
  c.recompute = plan.recompute.policy;
  c.tp = plan.mesh.tp, c.pp = plan.mesh.pp, c.cp = plan.mesh.cp, c.ep = plan.mesh.ep;
  c.virtual_stages = plan.strategy.virtual_stages;
  c.cp_method = cp_method_of(plan.strategy.cp_method).value_or(CpMethod::kAllGather);
  c.hpz = plan.strategy.hpz;
  return c;
}

std::string sharding_summary(const Choice& c) {
  std::string text(name(c.sharding));
  if (c.sharding == Sharding::kZero3 && !c.reshard_after_forward) text += " gathered";
  if (is_hybrid(c)) text += fmt::format(" in {} × {}", c.dp_replicate, c.dp_shard);
  return text;
}

std::string summary(const Choice& c, int every_k) {
  std::string text = sharding_summary(c);
  if (c.tp > 1) text += fmt::format(" · tp {}", c.tp);
  if (c.pp > 1) text += c.virtual_stages > 1 ? fmt::format(" · pp {} × {}", c.pp, c.virtual_stages) : fmt::format(" · pp {}", c.pp);
  if (c.cp > 1) text += fmt::format(" · cp {} {}", c.cp, name(c.cp_method));
  if (c.ep > 1) text += fmt::format(" · ep {}", c.ep);
  if (c.hpz > 1) text += fmt::format(" · hpZ {}", c.hpz);
  text += fmt::format(" · micro-batch {} · recompute {}", c.micro_batch, name(c.recompute));
  if (c.recompute == Recompute::kEveryK) text += fmt::format(":{}", every_k);
  return text;
}

std::string summary(const Plan& plan) { return summary(choice_of(plan), plan.recompute.every_k); }

}  // namespace distsetup
