#include "planner/resolve/resolve_parallel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "model/parallel_rules.h"
#include "plan/chunked_loss.h"
#include "plan/expert_parallel.h"
#include "plan/host_writer.h"
#include "plan/native_program.h"
#include "plan/pipeline_rules.h"
#include "planner/native/plan_rates.h"
#include "planner/time/embedded_calibration.h"

namespace distsetup {
namespace {

int pinned(Resolving& r, std::string_view path) { return static_cast<int>(r.spec.integer(path).value_or(0)); }

void pin_sharding(Resolving& r) {
  const std::string given = r.spec.text("parallel.sharding").value_or("auto");
  if (given == "auto") r.problem.shardings = {Sharding::kDdp, Sharding::kZero1, Sharding::kZero2, Sharding::kZero3};
  if (given == "ddp") r.problem.shardings = {Sharding::kDdp};
  if (given == "zero1") r.problem.shardings = {Sharding::kZero1};
  if (given == "zero2" || given == "hybrid_shard_zero2") r.problem.shardings = {Sharding::kZero2};
  if (given == "zero3" || given == "hybrid_shard") r.problem.shardings = {Sharding::kZero3};
  r.problem.hybrid = given.starts_with("hybrid_shard");
  r.problem.reshard_after_forward = {1, 0};
  const auto reshard = r.spec.boolean("parallel.reshard_after_forward");
  if (!reshard.has_value()) return;
  r.problem.reshard_after_forward = {*reshard ? 1 : 0};
  if (given == "auto") r.problem.shardings = {Sharding::kZero3};
  if (r.problem.shardings == std::vector{Sharding::kZero3}) return;
  r.fail(code::kConflict, "parallel.reshard_after_forward",
         fmt::format("reshard_after_forward is a choice of zero3, sharding is {}", name(r.problem.shardings.front())),
         "--sharding zero3");
}

void pin_recompute(Resolving& r) {
  const std::string given = r.spec.text("parallel.recompute").value_or("auto");
  r.problem.recomputes = searched_recomputes();
  for (const Recompute policy : searched_recomputes())
    if (given == name(policy)) r.problem.recomputes = {policy};
  if (!given.starts_with("every_k:")) return;
  r.problem.recomputes = {Recompute::kEveryK};
  r.problem.recompute_every_k = std::stoi(given.substr(8));
}

void take_in_flight(Resolving& r) {
  StrategyPlan& s = r.plan().strategy;
  for (const auto& [path, field] : {std::pair{"parallel.prefetch", &StrategyPlan::prefetch},
                                    std::pair{"parallel.reductions_in_flight", &StrategyPlan::reductions_in_flight}})
    if (const auto given = r.spec.integer(path); given.has_value() && !r.refuse_elsewhere(path)) s.*field = static_cast<int>(*given);
  constexpr std::string_view kHops = "parallel.hierarchical_reduction";
  if (const auto given = r.spec.boolean(kHops); given.has_value() && !r.refuse_elsewhere(kHops))
    r.problem.hierarchical_reduction = given;
}

void check_mesh(Resolving& r) {
  r.problem.parallel_at = r.spec.at(r.spec.find("parallel.dp_shard") != nullptr ? "parallel.dp_shard" : "parallel.dp_replicate");
  if (r.problem.hybrid) {
    if (r.problem.parallel_at.file.empty()) r.problem.parallel_at = r.spec.at("parallel.sharding");
    if (r.problem.dp_shard > 0 && r.per_node > 0 && r.problem.dp_shard != r.per_node)
      r.fail(code::kConflict, "parallel.dp_shard",
             fmt::format("'{}' shards over the {} GPUs of a node, dp_shard says {}", r.spec.find("parallel.sharding")->text,
                         r.per_node, r.problem.dp_shard),
             fmt::format("--sharding {} --dp-shard {}", name(r.problem.shardings.front()), r.problem.dp_shard));
    r.problem.dp_shard = r.per_node;
  }
  if (r.problem.shardings == std::vector{Sharding::kDdp} && r.problem.dp_shard > 1)
    r.fail(code::kConflict, "parallel.dp_shard", fmt::format("ddp shards nothing, dp_shard is {}", r.problem.dp_shard),
           "--sharding zero3");
  if (r.problem.node_counts.size() != 1 || r.per_node <= 0 || has_error(r.said)) return;
  if (!r.native()) return;  // further axes divide the ranks first
  const int64_t world = int64_t{r.problem.node_counts.front()} * r.per_node;
  const int64_t tp = std::max(r.problem.tp, 1), pp = std::max(r.problem.pp, 1), cp = std::max(r.problem.cp, 1);
  if (world % (tp * pp * cp) != 0) return;  // the search says that no mesh has it
  const int64_t ranks = world / (tp * pp * cp), shard = r.problem.dp_shard, replicate = r.problem.dp_replicate;
  const std::string product =
      fmt::format("{} node{} × {} GPUs{}{}{} = {}", r.problem.node_counts.front(), r.problem.node_counts.front() == 1 ? "" : "s",
                  r.per_node, tp > 1 ? fmt::format(" / tp {}", tp) : "", pp > 1 ? fmt::format(" / pp {}", pp) : "",
                  cp > 1 ? fmt::format(" / cp {}", cp) : "", ranks);
  if (shard > 0 && replicate > 0 && shard * replicate != ranks)
    r.fail(code::kMeshInvalid, "parallel.dp_shard",
           fmt::format("dp_replicate {} × dp_shard {} = {}, not {}", replicate, shard, replicate * shard, product),
           ranks % shard == 0 ? fmt::format("--dp-replicate {}", ranks / shard) : "leave one of them out");
  else if (shard > 0 && ranks % shard != 0)
    r.fail(code::kMeshInvalid, "parallel.dp_shard", fmt::format("dp_shard {} does not divide {}", shard, product),
           fmt::format("--dp-shard {}", ranks));
  else if (replicate > 0 && ranks % replicate != 0)
    r.fail(code::kMeshInvalid, "parallel.dp_replicate", fmt::format("dp_replicate {} does not divide {}", replicate, product),
           "--dp-replicate 1");
}

// What the trainer has to have for an axis above 1.
void refuse_axis(Resolving& r, std::string_view path, std::string_view feature, std::string_view what, int size) {
  if (!r.native()) {
    r.require(feature, path, what);
  } else if (path != "parallel.hpz") {  // refuse_not_native() says that
    r.fail(code::kUnsupportedFeature, path,
           fmt::format("{} {}: the bundled trainer does not run {} yet, expected 1", path, size, what),
           fmt::format("--{} 1", path.substr(std::string_view("parallel.").size())));
  }
}

void pin_axis(Resolving& r, std::string_view path, std::string_view feature, std::string_view what, int& out) {
  out = pinned(r, path);
  if (r.problem.trainer.has(feature)) return;
  if (out > 1) refuse_axis(r, path, feature, what, out);
  out = 1;
}

// A flag that acts where an axis is above 1, beside one that says 1. In a file it may be left over from another run.
void warn_of_idle_axis(Resolving& r, std::string_view path, std::string_view what, std::string_view axis, int size) {
  const Location at = r.spec.at(path);
  if (size != 1 || r.spec.find(fmt::format("parallel.{}", axis)) == nullptr || at.line != 0) return;
  r.said.push_back(warning(code::kConflict, at, fmt::format("{}, and {} is 1: it does nothing", what, axis),
                           fmt::format("leave it out, or --{} 2", axis)));
}

void pin_sequence_parallel(Resolving& r) {
  const std::optional<bool> given = r.spec.boolean("parallel.sequence_parallel");
  const bool has = r.problem.trainer.has("sequence_parallel");
  r.problem.sequence_parallel = given.value_or(has);
  r.problem.sequence_parallel_said = given.has_value();
  if (given.value_or(false) && !has) r.require("sequence_parallel", "parallel.sequence_parallel", "sequence parallelism");
  if (given.value_or(false))
    warn_of_idle_axis(r, "parallel.sequence_parallel", "sequence parallelism goes along tensor parallelism", "tp", r.problem.tp);
  if (!r.native() || given.value_or(true)) return;
  // Otherwise each rank would count the gradients of norms, which are not split, once more.
  if (r.problem.tp > 1)
    r.fail(code::kUnsupportedFeature, "parallel.sequence_parallel",
           fmt::format("the bundled trainer splits norms and residuals over the sequence wherever tp is above 1, and tp is {}",
                       r.problem.tp),
           "leave sequence_parallel out");
  r.problem.tp = 1;
}

void refuse_cp_method(Resolving& r, std::string_view given) {
  const std::vector<std::string>& known = r.problem.trainer.cp_methods;
  const bool is_cp_refused = known.empty() && pinned(r, "parallel.cp") > 1;
  if (!is_cp_refused)
    r.fail(code::kUnsupportedFeature, "parallel.cp_method",
           known.empty() ? fmt::format("{} has no context parallelism, so no '{}'", r.problem.trainer.label, given)
                         : fmt::format("{} has no '{}', expected one of: {}", r.problem.trainer.label, given, fmt::join(known, ", ")),
           known.empty() ? "leave cp_method out" : fmt::format("--cp-method {}", known.front()));
}

void pin_cp_method(Resolving& r) {
  const std::vector<std::string>& known = r.problem.trainer.cp_methods;
  const std::optional<std::string> given = r.spec.text("parallel.cp_method");
  const auto has = [&](std::string_view text) { return std::find(known.begin(), known.end(), text) != known.end(); };
  if (given.has_value() && !has(*given)) refuse_cp_method(r, *given);
  if (given.has_value())
    warn_of_idle_axis(r, "parallel.cp_method", fmt::format("'{}' is a way to split a sequence", *given), "cp", r.problem.cp);
  for (const auto& [text, method] :
       {std::pair{"ring", CpMethod::kRing}, std::pair{"allgather", CpMethod::kAllGather}, std::pair{"ulysses", CpMethod::kUlysses}})
    if (has(text) && given.value_or(text) == text) r.problem.cp_methods.push_back(method);
  // On GPUs the bundled trainer's ring was run for its results, not for its time: it is for whoever asks for it.
  if (r.native() && !given.has_value() && r.plan().hardware.accelerator == Accelerator::kCuda)
    std::erase(r.problem.cp_methods, CpMethod::kRing);
}

// What the bundled trainer has not beside the experts that ranks share.
void refuse_shared_experts(Resolving& r, const Tuning& tuning) {
  const int ep = r.problem.ep, tp = std::max(r.problem.tp, 1);
  if (ep <= 1 || r.problem.base.model.num_experts % ep != 0) return;  // check_parallel() says that
  const auto say = [&r](const Diagnostics& found) {
    for (const Diagnostic& d : found)
      if (d.severity == Severity::kError) r.fail(code::kUnsupportedFeature, "parallel.ep", d.message, d.help);
  };
  Plan plan;  // for this alone
  plan.mesh.dp_shard = plan.mesh.ep = ep;
  plan.strategy.sharding = Sharding::kZero1;
  plan.train.optimizer = r.plan().train.optimizer;
  ProgramSplit split{.tp = tp, .ep = ep};
  if (learns_preferences(r.plan().train)) split.preference = r.plan().train.preference;
  say(check_native(r.problem.base.model, split, tuning));
  say(check_expert_parallel(plan));
}

// Sizes that ranks do not divide are every trainer's; check_parallel() says those.
void refuse_what_cannot_be_split(Resolving& r) {
  const Tuning tuning = tuning_of(r.plan().train);
  if (has_error(check_native(r.problem.base.model, {}, tuning))) return;  // it cannot be run on one rank either: that has been said
  const int stages = r.problem.pp, chunks = std::max(r.problem.virtual_stages, 1);
  if (stages > 1 && stages <= r.problem.base.model.num_layers) {  // else check_parallel() says it
    Plan plan;
    plan.model = r.problem.base.model;
    plan.mesh.pp = stages;
    plan.mesh.tp = std::max(r.problem.tp, 1);
    plan.strategy.virtual_stages = chunks;
    plan.gradient_accumulation = r.problem.gradient_accumulation > 0 ? r.problem.gradient_accumulation : stages;
    for (const Diagnostic& d : check_pipeline(plan))
      r.fail(code::kUnsupportedFeature, chunks > 1 ? "parallel.virtual_stages" : "parallel.pp", d.message, d.help);
  }
  refuse_shared_experts(r, tuning);
  const int tp = r.problem.tp;
  if (tp <= 1 || !uneven_over_tensor_ranks(r.problem.base.model, tp, KvHeads::kSplit).empty()) return;
  for (const Diagnostic& d : check_native(r.problem.base.model, {.tp = tp}, tuning))
    if (d.severity == Severity::kError) r.fail(code::kUnsupportedFeature, "parallel.tp", d.message, "--tp 1, or --trainer fsdp2");
}

}  // namespace

void resolve_parallel(Resolving& r) {
  if (r.native()) resolve_axes(r);
  if (r.native()) refuse_what_cannot_be_split(r);
  r.problem.dp_shard = pinned(r, "parallel.dp_shard");
  r.problem.dp_replicate = pinned(r, "parallel.dp_replicate");
  pin_sharding(r);
  pin_recompute(r);
  take_in_flight(r);
  check_mesh(r);
}

void resolve_native_loss(Resolving& r) {
  StrategyPlan& strategy = r.plan().strategy;
  const auto asked = r.spec.text("trainer.loss_head");
  Plan chunked;  // for this alone
  chunked.model = r.plan().model;
  chunked.train = r.plan().train;
  chunked.mesh.cp = std::max(r.problem.cp, 1);
  chunked.micro_batch = std::max<int64_t>(r.problem.micro_batch, 1);
  chunked.strategy.loss_head = kChunkedLoss;
  const std::string problem = chunked_loss_problem(chunked);
  r.problem.may_chunk_loss = !asked.has_value() && problem.empty();
  strategy.loss_head = asked.value_or(std::string(kWholeLoss));
  if (strategy.loss_head == kChunkedLoss && !problem.empty())
    r.fail(code::kUnsupportedFeature, "trainer.loss_head", problem, "--loss-head eager");
}

// Transformers splits by the model's own plan (base_model_tp_plan). Planned is that of Llama's kind: q, k, v, gate, up and head by
// columns, o and down by rows, all else whole on each rank. OLMo 2's norms keep q and k whole; stacks of experts, latent attention,
// models of GPT-2's kind and PEFT's adapters are split otherwise or not at all; a loss that makes its own logits finds a part of the
// head.
void check_transformers_plan(Resolving& r) {
  if (r.problem.tp <= 1 || !r.problem.setup.is_transformers_fsdp2()) return;
  const Geometry& g = r.problem.base.model;
  const LossHead loss = r.problem.setup.loss;
  const bool own_logits = loss == LossHead::kLiger || loss == LossHead::kCutCrossEntropy || loss == LossHead::kChunkedHead;
  const char* why = g.num_experts > 0                   ? "for models with experts"
                    : g.attention == Attention::kLatent ? "for latent attention"
                    : g.qk_norm_wide                    ? "where norms of q and k go over all heads"
                    : !g.gated_mlp                      ? "for an MLP of two matrices"
                    : r.plan().train.finetune != "full" ? "beside adapters"
                    : own_logits                        ? "beside a loss that makes its own logits"
                                                        : nullptr;
  if (why == nullptr) return;
  r.fail(code::kUnsupportedFeature, "parallel.tp", fmt::format("tensor parallelism of Transformers is not planned {}", why),
         "--tp 1, or --code-base torchtitan");
}

void resolve_axes(Resolving& r) {
  pin_axis(r, "parallel.tp", "tensor_parallel", "tensor parallelism", r.problem.tp);
  pin_axis(r, "parallel.pp", "pipeline_parallel", "pipeline parallelism", r.problem.pp);
  pin_axis(r, "parallel.cp", "context_parallel", "context parallelism", r.problem.cp);
  pin_axis(r, "parallel.ep", "expert_parallel", "expert parallelism", r.problem.ep);
  pin_axis(r, "parallel.hpz", "hpz", "a second copy of the parameters (hpZ)", r.problem.hpz);
  pin_axis(r, "parallel.virtual_stages", "virtual_stages", "interleaved pipeline stages", r.problem.virtual_stages);
  if (r.problem.base.model.num_experts == 0) {
    if (r.problem.ep > 1)
      r.fail(code::kMeshInvalid, "parallel.ep", fmt::format("ep {}, but '{}' has no experts", r.problem.ep, r.problem.base.model.name),
             "--ep 1");
    r.problem.ep = 1;
  }
  pin_sequence_parallel(r);
  pin_cp_method(r);
}

// What the trainer has no form for leaves the search; a pinned value is refused.
void narrow_to_trainer(Resolving& r) {
  const TrainerFacts& facts = r.problem.trainer;
  if (r.problem.hybrid && !r.require("hybrid", "parallel.sharding", "copies of a shard group (hybrid sharding)")) return;
  const bool pinned = r.problem.shardings.size() == 1;
  const Sharding asked = r.problem.shardings.front();
  std::erase_if(r.problem.shardings,
                [&](Sharding s) { return std::find(facts.shardings.begin(), facts.shardings.end(), s) == facts.shardings.end(); });
  if (r.problem.shardings.empty()) {
    std::vector<std::string_view> known;
    for (const Sharding s : facts.shardings) known.push_back(name(s));
    // Of those that split less the one that splits most, of others the one that splits least.
    const auto distance = [asked](Sharding s) {
      const int steps = static_cast<int>(s) - static_cast<int>(asked);
      return steps < 0 ? -steps : 10 * steps;
    };
    const Sharding near = *std::min_element(facts.shardings.begin(), facts.shardings.end(),
                                            [&](Sharding a, Sharding b) { return distance(a) < distance(b); });
    const std::string given = pinned && r.spec.find("parallel.sharding") ? r.spec.find("parallel.sharding")->text : "";
    r.fail(code::kUnsupportedFeature, "parallel.sharding",
           fmt::format("{} has no '{}', expected one of: {}", facts.label, given, fmt::join(known, ", ")),
           facts.name == "unknown" && given == "ddp" ? "--trainer ddp --program unknown: the same script under DDP"
                                                     : fmt::format("--sharding {}", name(near)));
  }
  const std::vector<Recompute> wanted = r.problem.recomputes;
  std::erase_if(r.problem.recomputes, [&](Recompute policy) { return !facts.recomputes.contains(policy); });
  if (r.problem.recomputes.empty()) {
    std::vector<std::string_view> known;
    for (const auto& [policy, unused] : facts.recomputes) known.push_back(name(policy));
    r.fail(code::kUnsupportedFeature, "parallel.recompute",
           fmt::format("{} has no recompute '{}', expected one of: {}", facts.label, name(wanted.front()), fmt::join(known, ", ")),
           fmt::format("--recompute {}", known.back()));
  }
  if (facts.has("hybrid")) return;
  if (r.problem.dp_replicate > 1 && r.problem.dp_shard > 1) r.require("hybrid", "parallel.dp_replicate", "copies of the shard group");
}

}  // namespace distsetup
