#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "base/diagnostic_codes.h"
#include "plan/chunked_loss.h"
#include "plan/context_parallel.h"
#include "plan/expert_parallel.h"
#include "plan/host_writer.h"
#include "plan/native_program.h"
#include "plan/optimizer.h"
#include "plan/packed_rows.h"
#include "plan/pipeline_rules.h"
#include "plan/plan_fields.h"
#include "plan/preference_loss.h"
#include "plan/recorded_step.h"

namespace distsetup {

Plan::Plan() = default;
Plan::Plan(const Plan&) = default;
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(const Plan&) = default;
Plan& Plan::operator=(Plan&&) noexcept = default;
Plan::~Plan() = default;

std::string_view name(Verdict v) { return spelling_of(v); }
std::string_view name(Sharding v) { return spelling_of(v); }
std::string_view name(Recompute v) { return spelling_of(v); }
std::string_view name(Dtype v) { return spelling_of(v); }
std::string_view name(OffloadPlace v) { return spelling_of(v); }
std::string_view name(LearningRateSchedule v) { return spelling_of(v); }
std::string_view name(CheckpointMetric v) { return spelling_of(v); }
std::string_view name(Accelerator v) { return spelling_of(v); }

int64_t warmup_steps_of(double ratio, int64_t steps) {
  constexpr double kRounding = 1e-9;  // 0.1 × 30 is a little more than 3
  const double part = ratio * static_cast<double>(steps);
  return static_cast<int64_t>(std::ceil(part * (1 - kRounding)));
}

namespace {

auto requires_in(Diagnostics& out) {
  return [&out](bool holds, std::string_view code, std::string message, std::string help = "") {
    if (!holds) out.push_back(error(code, {}, std::move(message), std::move(help)));
  };
}

// Sizes that have to agree, whoever trains.
Diagnostics check_sizes(const Plan& p) {
  Diagnostics out;
  const auto require = requires_in(out);
  const Mesh& m = p.mesh;
  for (const int size : {m.pp, m.dp_replicate, m.dp_shard, m.cp, m.tp, m.ep})
    require(size >= 1, code::kMeshInvalid, fmt::format("a mesh axis has size {}, expected at least 1", size));
  if (!out.empty()) return out;
  const int64_t gpus = int64_t{p.hardware.nodes} * p.hardware.gpus_per_node;
  require(m.world() == gpus, code::kMeshInvalid,
          fmt::format("the mesh has {} ranks, {} nodes × {} GPUs = {}", m.world(), p.hardware.nodes, p.hardware.gpus_per_node, gpus));
  require(p.micro_batch >= 1 && p.gradient_accumulation >= 1 && p.train.sequence_length >= 1, code::kOutOfRange,
          "micro-batch, accumulation and sequence length are at least 1");
  require(p.train.global_batch == p.micro_batch * p.gradient_accumulation * m.data_parallel(), code::kBatchIndivisible,
          fmt::format("global batch {} is not micro-batch {} × accumulation {} × {} data-parallel ranks", p.train.global_batch,
                      p.micro_batch, p.gradient_accumulation, m.data_parallel()));
  const bool shares_experts = is_native(p) && m.ep > 1;  // then check_expert_parallel() says it
  require(p.strategy.sharding != Sharding::kDdp || m.dp_shard == 1 || shares_experts, code::kMeshInvalid,
          fmt::format("ddp shards nothing, the mesh has dp_shard {}", m.dp_shard));
  require(p.strategy.reshard_after_forward || p.strategy.sharding == Sharding::kZero3, code::kConflict,
          fmt::format("reshard_after_forward: false is legal with zero3 only, sharding is {}", name(p.strategy.sharding)));
  require(p.strategy.prefetch >= 0 && p.strategy.prefetch <= kMostInFlight, code::kOutOfRange,
          fmt::format("prefetch {} is not in 0..{}", p.strategy.prefetch, kMostInFlight));
  require(p.strategy.reductions_in_flight >= 1 && p.strategy.reductions_in_flight <= kMostInFlight, code::kOutOfRange,
          fmt::format("{} reductions in flight are not in 1..{}", p.strategy.reductions_in_flight, kMostInFlight));
  const double dropout = p.train.lora_dropout;
  require(dropout >= 0 && dropout < 1, code::kOutOfRange,
          fmt::format("dropout of adapters is {}, expected 0 to less than 1", dropout));
  require(dropout == 0 || p.train.finetune != "full", code::kConflict,
          fmt::format("dropout {} of adapters, and finetune is full: there are none", dropout));
  require(p.recompute.policy != Recompute::kEveryK || p.recompute.every_k >= 1, code::kOutOfRange,
          fmt::format("every_k:{} is not at least 1", p.recompute.every_k));
  return out;
}

// What is trained: all parameters, some, or adapters.
Diagnostics check_tuning(const Plan& p) {
  Diagnostics out;
  const auto require = requires_in(out);
  const TrainPlan& t = p.train;
  require(
      t.finetune == "full" || t.finetune == "lora" || t.finetune == "qlora", code::kUnsupportedFeature,
      fmt::format("the native trainer trains all parameters, some of them, or lora or qlora adapters, the plan says {}", t.finetune));
  require(t.finetune == "full" || t.trainable.empty(), code::kConflict,
          fmt::format("train.trainable beside adapters of kind {}: either some parameters are trained, or adapters", t.finetune),
          "leave one of them out");
  require(t.finetune == "full" || (t.lora_rank >= 1 && t.lora_alpha > 0 && !t.lora_targets.empty()), code::kOutOfRange,
          fmt::format("adapters of rank {} and alpha {} on {} targets, expected numbers above 0 and at least one target", t.lora_rank,
                      t.lora_alpha, t.lora_targets.size()));
  require(t.lora_dropout == 0, code::kUnsupportedFeature,
          fmt::format("the native trainer trains adapters without dropout, the plan says {}", t.lora_dropout), "--lora-dropout 0");
  for (const std::string& pattern : t.trainable) {
    const std::string problem = pattern_problem(pattern);
    require(problem.empty(), code::kUnknownValue, fmt::format("train.trainable '{}' {}", pattern, problem));
  }
  return out;
}

// What the bundled trainer runs, of a model that it can.
Diagnostics check_bundled(const Plan& p) {
  Diagnostics out;
  const auto require = requires_in(out);
  const Mesh& m = p.mesh;
  require(p.train.init == kRandomInit || p.train.init == kWeightsInit, code::kUnknownValue,
          fmt::format("train.init is '{}', expected {} or {}", p.train.init, kRandomInit, kWeightsInit));
  append(out, check_native_kernels(p.model, p.hardware.accelerator));
  const LongestSequence longest = longest_sequence(p.model, split_of(p), tuning_of(p.train));
  require(longest.tokens == 0 || p.train.sequence_length <= longest.tokens, code::kOutOfRange,
          fmt::format("the sequence length is {}, too long for model '{}': {}", p.train.sequence_length, p.model.name, longest.why),
          fmt::format("--sequence-length {}", longest.tokens));
  const std::string not_recorded = p.train.cuda_graphs ? recording_problem(p) : "";
  require(not_recorded.empty(), code::kUnsupportedFeature, fmt::format("CUDA graphs cannot hold this plan's steps: {}", not_recorded),
          "leave --cuda-graphs out");
  const std::string not_chunked = chunked_loss_problem(p);
  require(not_chunked.empty(), code::kUnsupportedFeature, not_chunked, "--loss-head eager");
  append(out, check_expert_parallel(p));
  append(out, check_pipeline(p));
  const std::string uncut = cut_problem(p.train.sequence_length, m.cp);
  require(uncut.empty(), code::kMeshInvalid, uncut,
          fmt::format("--sequence-length {}, or --cp 1", (p.train.sequence_length / (2 * m.cp) + 1) * (2 * m.cp)));
  require(m.cp == 1 || cp_method_of(p.strategy.cp_method).has_value(), code::kUnknownValue,
          fmt::format("cp_method is '{}', expected allgather, ring or ulysses", p.strategy.cp_method));
  require(m.tp == 1 || p.strategy.sequence_parallel, code::kUnsupportedFeature,
          fmt::format("the native trainer splits norms and residuals over the sequence, tp is {} and sequence_parallel false", m.tp),
          "leave sequence_parallel out");
  const std::string no_kernel = shared_kernel_problem(p, m.cp, split_of(p).cp_method);
  require(no_kernel.empty(), code::kUnsupportedFeature, no_kernel, "--precision bf16, or --cp-method ulysses");
  const int64_t tokens = p.micro_batch * sequences_per_sample(p) * p.train.sequence_length / m.cp;
  require(tokens % m.tp == 0, code::kMeshInvalid,
          fmt::format("tp {} does not divide the {} tokens of a micro-batch{}", m.tp, tokens, m.cp > 1 ? " on a rank" : ""));
  const Dtype compute = p.precision.compute;
  require(compute == Dtype::kF32 || compute == Dtype::kBf16 || compute == Dtype::kF16, code::kUnsupportedFeature,
          fmt::format("the native trainer computes in fp32, bf16 or fp16, not {}", name(compute)));
  const LossScalePlan& scale = p.precision.loss_scale;
  require(
      compute != Dtype::kF16 || (scale.fixed >= 0 && scale.initial_power >= 0 && scale.initial_power <= 60 && scale.window >= 1 &&
                                 scale.hysteresis >= 1 && scale.minimum >= 1),
      code::kOutOfRange,
      fmt::format("loss scale {}, initial power {}, window {}, hysteresis {}, minimum {}: expected 0 or more, 0 to 60, and 1 or more",
                  scale.fixed, scale.initial_power, scale.window, scale.hysteresis, scale.minimum));
  require(compute != Dtype::kF16 || scale.fixed > 0 || scale.minimum <= int64_t{1} << scale.initial_power, code::kConflict,
          fmt::format("the loss scale begins at 2^{} and is never below {}", scale.initial_power, scale.minimum),
          "a larger initial_scale_power, or a smaller min_loss_scale");
  require(p.recompute.dropped == dropped_tensors(p.model, p.recompute.policy, tuning_of(p.train)), code::kConflict,
          fmt::format("the dropped tensors are not those of recompute {}", name(p.recompute.policy)));
  const OffloadProblem offload = offload_problem(p);
  require(offload.message.empty(), code::kUnsupportedFeature, offload.message, offload.help);
  require(p.precision.reduce == Dtype::kF32 && p.precision.master == Dtype::kF32 && p.precision.optimizer_state == Dtype::kF32,
          code::kUnsupportedFeature, "the native trainer keeps master, sums and moments in fp32");
  require(is_native_optimizer(p.train.optimizer), code::kUnsupportedFeature,
          fmt::format("the native trainer runs {}, not '{}'", native_optimizers(), p.train.optimizer));
  require(m.tp == 1 || keeps_elements(p.train.optimizer), code::kUnsupportedFeature,
          fmt::format("{} sees whole matrices, the mesh has tp {}: the native trainer does not bring their parts together",
                      p.train.optimizer, m.tp),
          "--tp 1, or --optimizer adamw");
  const MuonPlan& muon = p.train.muon;
  require(p.train.optimizer != kMuon || muon.adjust_lr == kOriginalRate || muon.adjust_lr == kMatchAdamW, code::kUnknownValue,
          fmt::format("adjust_lr is '{}', expected {} or {}", muon.adjust_lr, kOriginalRate, kMatchAdamW));
  require(p.train.optimizer != kMuon || (muon.newton_schulz_steps >= 1 && muon.newton_schulz_steps < 100), code::kOutOfRange,
          fmt::format("{} Newton-Schulz steps, expected 1 to 99", muon.newton_schulz_steps));
  return out;
}

}  // namespace

Diagnostics validate(const Plan& p) {
  const Mesh& m = p.mesh;
  Diagnostics out = check_sizes(p);
  if (std::min({m.pp, m.dp_replicate, m.dp_shard, m.cp, m.tp, m.ep}) < 1) return out;
  if (!is_native(p)) {
    requires_in(out)(m.dp_shard * m.cp % m.ep == 0, code::kMeshInvalid,
                     fmt::format("ep {} does not divide dp_shard {} × cp {}", m.ep, m.dp_shard, m.cp));
    return out;
  }
  append(out, check_preference(p));  // before programs are made for it
  append(out, check_tuning(p));
  if (const PackingProblem problem = packing_problem(p); !problem.message.empty())
    out.push_back(error(code::kUnsupportedFeature, {}, problem.message, problem.help));
  if (!has_error(out)) append(out, check_native(p.model, split_of(p), tuning_of(p.train)));
  if (!has_error(out)) append(out, check_bundled(p));
  return out;
}

Diagnostics check_trainable(const Plan& p) {
  Diagnostics out;
  if (!is_native(p)) {
    out.push_back(error(code::kUnsupportedFeature, {},
                        fmt::format("this plan is for {}, not for the bundled trainer", p.strategy.trainer),
                        "plan again without --trainer, or emit it: distsetup emit --plan plan.json --target ..."));
    return out;
  }
  const auto refuse = [&](bool condition, std::string_view code, std::string message, std::string help) {
    if (condition) out.push_back(error(code, {}, std::move(message), std::move(help)));
  };
  refuse(starts_from_weights(p) == p.weights.files.empty(), code::kConflict,
         fmt::format("train.init is '{}', and the plan names {} files of weights", p.train.init, p.weights.files.size()),
         "plan again");
  refuse(p.train.method != "pretrain" && p.train.method != "sft" && !learns_preferences(p.train), code::kUnsupportedFeature,
         fmt::format("the trainer runs pretrain, sft and dpo, the plan says method {}", p.train.method),
         "emit the plan for another trainer");
  return out;
}

}  // namespace distsetup
