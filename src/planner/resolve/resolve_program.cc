#include "planner/resolve/resolve_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "planner/native/program_share.h"
#include "planner/replay/built_in_programs.h"
#include "planner/replay/program_facts.h"
#include "planner/replay/program_file.h"

namespace distsetup {
namespace {

// A program whose weights differ by more from the model's parameters is another architecture's.
constexpr double kMostParametersOff = 0.02;

std::optional<LossHead> usual_loss(Resolving& r) {
  const TrainerFacts& facts = r.problem.trainer;
  return facts.releases == nullptr ? std::nullopt : loss_of_release(r.problem.setup, *facts.releases, facts.release_day);
}

// The configurations of the stack itself; what else runs under the same trainer takes the model's loss.
std::string default_loss_head(Resolving& r) {
  const TrainerFacts& facts = r.problem.trainer;
  const std::string target = r.spec.text("launch.target").value_or("");
  const std::optional<LossHead> head = usual_loss(r);
  // A script that compiles its model has the loss in it.
  if (!head.has_value() && r.problem.setup.compiled && facts.loss_heads.contains("compiled")) return "compiled";
  if (!head.has_value() || !(target.empty() || target == kNative || target.starts_with(facts.releases->stack)))
    return facts.default_loss_head;
  return head == LossHead::kEager ? facts.default_loss_head : head == LossHead::kCompiled ? "compiled" : "chunked";
}

// Whoever asks for a loss that is not there, and not for the plain one, wants fewer logits in memory.
std::string nearest_loss_head(const TrainerFacts& facts, std::string_view asked) {
  if (asked != "eager")
    for (const char* lean : {"cut", "liger", "chunked", "fused", "compiled"})
      if (facts.loss_heads.contains(lean)) return lean;
  return facts.default_loss_head;
}

// Who runs layers of a pipeline stage, or PyTorch's operations: "--trainer megatron, or --program hf_eager".
std::string who_runs_program(const Resolving& r, bool of_stages) {
  std::string help;
  for (const std::string& name : trainer_names(r.presets)) {
    const Result<TrainerFacts> facts = find_trainer(r.presets, name);
    if (!facts.ok() || name == kNative) continue;
    const FrameworkTraits& traits = facts->defaults.traits();
    if (traits.block_programs != of_stages) help += (help.empty() ? "--trainer " : ", ") + name;
  }
  const auto& programs = r.problem.trainer.programs;
  const auto usual = programs.contains("eager") ? programs.find("eager") : programs.begin();
  return fmt::format("{}{}--program {}", help, help.empty() ? "" : ", or ", usual->second);
}

// torchtitan has gated layers with grouped attention alone: other models run under FSDP2 as Transformers writes them.
void check_listed(Resolving& r, const replay::BlockProgram*& blocks) {
  Setup& s = r.problem.setup;
  const Geometry& g = r.problem.base.model;
  if (blocks == nullptr || !replay::lacks_for(*blocks, g).empty()) return;
  const double share = share_listed(*blocks, g);
  if (std::abs(share - 1) <= kMostParametersOff) return;
  const replay::BlockProgram* other = replay::find_program("hf_eager");
  const bool other_fits = replay::lacks_for(*other, g).empty() && std::abs(share_listed(*other, g) - 1) <= kMostParametersOff;
  const bool given = r.spec.text("trainer.program").has_value() || s.compiled;
  if (given || !other_fits) {
    r.fail(code::kUnsupportedFeature, given ? "trainer.program" : "model",
           fmt::format("program '{}' is of another architecture: its weights are {:.0f} % of the parameters of '{}'", s.program,
                       100 * share, g.name),
           other_fits ? "--program hf_eager" : "");
    return;
  }
  r.problem.base.assumptions.push_back(fmt::format("program hf_eager: '{}' lists no layers like those of '{}'", s.program, g.name));
  s.program = other->id;
  blocks = other;
}

// A program of compiled blocks was asked for by its name: they run compiled.
void read_compiled_program(Resolving& r, const replay::BlockProgram* blocks) {
  if (blocks == nullptr || !blocks->compiled || !r.spec.text("trainer.program").has_value()) return;
  if (const auto compile = r.spec.boolean("trainer.compile"); compile.has_value() && !*compile)
    return r.fail(code::kConflict, "trainer.compile",
                  fmt::format("program '{}' lists compiled blocks, and compile is false", r.problem.setup.program),
                  "leave one of them out");
  r.problem.setup.compiled = true;
}

// transformers/trainer.py: until 4.45 accumulate() heeds it; 4.46 to 5.1 enter no_sync whatever it says; 5.2 asks it again.
void read_sync(Resolving& r) {
  constexpr std::string_view kPath = "parallel.sync_each_batch";
  Setup& s = r.problem.setup;
  if (!r.spec.boolean(kPath).value_or(false)) {
    if (s.software.accumulates_whole) r.assume("with accumulation whole gradients per GPU (no_sync, not sync_each_batch)");
    return;
  }
  if (!r.problem.trainer.has("sync_each_batch"))
    return r.fail(
        code::kUnsupportedFeature, kPath,
        s.traits().python_hooks
            ? "DeepSpeed's stage says when gradients are reduced: 2 and 3 in each micro-batch, 0 and 1 once a step"
            : fmt::format("sync_each_batch is a switch of accelerate, and {} does not run under it", r.problem.trainer.label),
        s.traits().python_hooks ? "leave it out, or --sharding zero2" : "--trainer fsdp1, ddp, or fsdp2 --code-base transformers");
  constexpr int64_t kPassedOverSince = 20241024;  // 4.46
  if (r.problem.trainer.transformers != nullptr && r.problem.trainer.release_day >= kPassedOverSince)
    return r.assume("sync_each_batch passed over, as the Trainer does from Transformers 4.46 to 5.1");
  s.sync_each_batch = r.plan().strategy.sync_each_batch = true;
  if (r.problem.trainer.release_day > 0) return r.assume("sync_each_batch heeded, as by the Trainer until Transformers 4.45");
  r.assume("sync_each_batch heeded, as by the Trainer since Transformers 5.2 (4.46 to 5.1 pass it over)");
}

// Without a policy FSDP's root has all parameters: they are gathered at once, and stay so for backward.
void read_wrapping(Resolving& r) {
  constexpr std::string_view kPath = "parallel.auto_wrap_policy";
  if (r.spec.text(kPath).value_or(std::string(kWrapsBlocks)) != kWrapsNothing) return;
  if (!r.problem.trainer.has("auto_wrap_policy"))
    return r.fail(code::kUnsupportedFeature, kPath, fmt::format("{} has no wrap policy to leave out", r.problem.trainer.label),
                  "--trainer fsdp1, fsdp2 --code-base transformers, or unknown");
  r.problem.setup.software.wrapping = UnitWrapping::kWhole;
  r.plan().strategy.auto_wrap_policy = kWrapsNothing;
  r.assume("the whole model one unit of FSDP's, gathered at once and kept for backward (no_wrap)");
}

// FSDP1's alone: FSDP2 gathers the unit below before its own backward, and has no switch (torch/distributed/fsdp/api.py).
void read_backward_prefetch(Resolving& r) {
  constexpr std::string_view kPath = "parallel.backward_prefetch";
  const std::string when = r.spec.text(kPath).value_or(std::string(kPrefetchPre));
  if (when == kPrefetchPre) return;
  if (!r.problem.trainer.has("backward_prefetch"))
    return r.fail(code::kUnsupportedFeature, kPath,
                  fmt::format("backward_prefetch is a setting of FSDP version 1, and {} has none", r.problem.trainer.label),
                  "--trainer fsdp1");
  r.problem.setup.backward_prefetch = when == kPrefetchPost ? BackwardPrefetch::kPost : BackwardPrefetch::kNone;
  r.plan().strategy.backward_prefetch = when;
}

// Megatron-LM's two flags (megatron/training/arguments.py). The gather belongs to the distributed optimizer.
void read_overlap(Resolving& r) {
  const auto read = [&r](std::string_view path, bool& setup, bool& plan) {
    if (r.spec.boolean(path).value_or(true)) return;
    if (!r.problem.trainer.has("overlap"))
      return r.fail(code::kUnsupportedFeature, path,
                    fmt::format("{} is a switch of Megatron's, and {} has none", path, r.problem.trainer.label), "--trainer megatron");
    setup = plan = false;
  };
  Setup& s = r.problem.setup;
  read("parallel.overlap_grad_reduce", s.overlap_grad_reduce, r.plan().strategy.overlap_grad_reduce);
  read("parallel.overlap_param_gather", s.overlap_param_gather, r.plan().strategy.overlap_param_gather);
}

// The release of Transformers, and what else was out in its month: PyTorch's kernels are looked up by the same day.
void read_transformers(Resolving& r) {
  constexpr std::string_view kPath = "trainer.transformers";
  const auto version = r.spec.text(kPath);
  if (!version.has_value()) return;
  TrainerFacts& facts = r.problem.trainer;
  if (facts.transformers == nullptr)
    return r.fail(code::kUnsupportedFeature, kPath, fmt::format("{} does not run Transformers", facts.label),
                  "leave it out, or --trainer fsdp1, ddp, deepspeed, or fsdp2 --code-base transformers");
  const std::vector<NamedRelease>& named = facts.transformers->named;
  const NamedRelease* release = find_named_release(*facts.transformers, *version);
  if (release == nullptr)
    return r.fail(code::kUnknownValue, kPath,
                  fmt::format("no release '{}' of Transformers is known, expected {}.{} to {}.{}", *version, named.front().major,
                              named.front().minor, named.back().major, named.back().minor),
                  "without it the plan is for the release that the trainer's preset names");
  Software& software = r.problem.setup.software;
  const size_t at = software.name.find("transformers");  // "deepspeed 0.19", "Unsloth with transformers 5, torch 2.9"
  const std::string driver =
      at == std::string::npos ? software.name.substr(0, software.name.find(' ')) + " under " : software.name.substr(0, at);
  software.name = fmt::format("{}transformers {}.{} ({}-{:02})", driver, release->major, release->minor, release->day / 10000,
                              release->day / 100 % 100);
  software.released = static_cast<int>(release->day / 100);
  facts.releases = facts.transformers;
  facts.release_day = release->day;
}

// A trainer stands for all code bases of its kind until a target names one; other targets are scripts that only use the library.
bool is_named(const Resolving& r) {
  const std::string target = r.spec.text("launch.target").value_or("");
  return target.starts_with("torchtitan") || target.starts_with("megatron");
}

// The weights of axolotl and torchtune are loaded in 16 bits, and nothing is kept beside them.
bool loads_16_bits(const Resolving& r) {
  const Setup& s = r.problem.trainer.defaults;
  return !r.native() && !s.master_copy && s.parameter_dtype == Dtype::kBf16;
}

}  // namespace

// The release that the target writes for, or that the user names.
void resolve_release(Resolving& r) {
  read_transformers(r);
  const auto older = r.problem.trainer.older_releases.find(r.spec.text("launch.target").value_or(""));
  if (older == r.problem.trainer.older_releases.end()) return;
  r.problem.setup.software.name = older->second.first;
  r.problem.trainer.release_day = older->second.second;
}

bool is_stored_in_16_bits(const Resolving& r) { return loads_16_bits(r) && r.spec.text("precision.master") != "fp32"; }

void store_in_16_bits(Problem& problem) {
  problem.base.precision.master = Dtype::kBf16;
  problem.setup.master_copy = false;
  problem.setup.parameter_dtype = problem.setup.gradient_dtype = Dtype::kBf16;
}

void resolve_storage(Resolving& r) {
  Setup& s = r.problem.setup;
  const Dtype compute = r.problem.base.precision.compute;
  if (compute == Dtype::kF8) r.require("fp8", "precision.compute", "fp8");
  if (compute == Dtype::kF16) r.require("fp16", "precision.compute", "fp16");
  s.compute = compute;
  s.fp8 = compute == Dtype::kF8 ? Fp8Recipe::kTensorwise : Fp8Recipe::kNone;
  if (compute == Dtype::kF32) {
    s.parameter_dtype = s.gradient_dtype = s.reduce_dtype = s.state_dtype = Dtype::kF32;
    s.master_copy = false;
  }
  const auto stored = [&](std::string_view path, Dtype& plan, Dtype& setup) {
    const auto text = r.spec.text(path);
    if (!text.has_value()) return;
    plan = setup = *text == "bf16" ? Dtype::kBf16 : Dtype::kF32;
  };
  PrecisionPlan& p = r.problem.base.precision;
  if (loads_16_bits(r) && compute != Dtype::kF32) {
    p.master = p.optimizer_state = is_stored_in_16_bits(r) ? Dtype::kBf16 : Dtype::kF32;
    s.parameter_dtype = s.gradient_dtype = s.state_dtype = p.master;
  }
  stored("precision.reduce", p.reduce, s.reduce_dtype);
  // Megatron has one buffer for both: of the parameters' type unless it reduces in fp32
  // (megatron/core/distributed/param_and_grad_buffer).
  if (s.traits().sums_into_main_gradients && p.reduce == Dtype::kBf16 && compute != Dtype::kF32) s.gradient_dtype = Dtype::kBf16;
  stored("precision.optimizer_state", p.optimizer_state, s.state_dtype);
  if (const auto master = r.spec.text("precision.master"); master == "bf16") {  // nothing in fp32: parameters are their own master
    store_in_16_bits(r.problem);
    r.problem.base.assumptions.emplace_back("weights in bf16 without fp32 masters: what loads them has to ask for that");
    // PyTorch makes moments like the parameters (torch/optim/adamw.py: zeros_like).
    if (!r.spec.text("precision.optimizer_state").has_value()) p.optimizer_state = s.state_dtype = Dtype::kBf16;
  }
}

void resolve_program(Resolving& r) {
  Setup& s = r.problem.setup;
  StrategyPlan& plan = r.problem.base.strategy;
  const TrainerFacts& facts = r.problem.trainer;
  s.compiled = r.spec.boolean("trainer.compile").value_or(false);
  if (s.compiled) r.require("compile", "trainer.compile", "torch.compile");
  const auto it = facts.programs.find(s.compiled ? "compiled" : "eager");
  s.program = it != facts.programs.end() ? it->second : facts.programs.begin()->second;
  if (const auto given = r.spec.text("trainer.program"); given.has_value()) {
    s.program = *given;
    const PresetFile* file = find_preset(r.presets, "programs", *given);
    if (file == nullptr) {
      r.fail(code::kUnknownProgram, "trainer.program", fmt::format("no program is called '{}'", *given),
             suggest(*given, preset_ids(r.presets, "programs")));
    } else if (!file->is_embedded) {
      Result<std::shared_ptr<const replay::BlockProgram>> own = replay::load_program(r.presets, *file);
      if (own.value) s.own_program = *own.value;
      append(r.said, std::move(own.diagnostics));
    }
  }
  const replay::BlockProgram* blocks = s.own_program ? s.own_program.get() : replay::find_program(s.program);
  const FrameworkTraits& traits = s.traits();
  if (blocks == nullptr && !traits.lifetime_programs && !has_error(r.said)) {
    r.fail(code::kUnsupportedFeature, "trainer.program",
           fmt::format("program '{}' lists the layers of a pipeline stage, which {} does not have", s.program, facts.label),
           who_runs_program(r, true));
    return;
  }
  if (blocks != nullptr && !traits.block_programs) {
    r.fail(code::kUnsupportedFeature, "trainer.program",
           fmt::format("program '{}' lists PyTorch's operations; {} runs layers of its own", s.program, facts.label),
           who_runs_program(r, false));
    return;
  }
  check_listed(r, blocks);
  read_compiled_program(r, blocks);
  if (s.compute == Dtype::kF8 && !s.compiled && facts.has("compile"))
    r.problem.base.assumptions.push_back("fp8 casts in kernels of their own, slower than bf16: --compile fuses them");
  if (s.is_one_graph()) s.software.logits_kept = true;  // a model returns them with its loss
  if (const std::string lacks = blocks == nullptr ? "" : replay::lacks_for(*blocks, r.problem.base.model); !lacks.empty())
    r.fail(code::kUnsupportedFeature, "model",
           fmt::format("'{}' has {}, which program '{}' does not list", r.problem.base.model.name, lacks, s.program));
  const std::string head = r.spec.text("trainer.loss_head").value_or(default_loss_head(r));
  const auto found = facts.loss_heads.find(head);
  if (found == facts.loss_heads.end()) {
    std::string known;
    for (const auto& [name, unused] : facts.loss_heads) known += (known.empty() ? "" : ", ") + name;
    r.fail(code::kUnsupportedFeature, "trainer.loss_head",
           fmt::format("{} has no '{}' loss, expected one of: {}", facts.label, head, known),
           fmt::format("--loss-head {}", nearest_loss_head(facts, head)));
    return;
  }
  // Chunks of the logits became chunks of head and loss.
  const bool in_chunks = found->second == LossHead::kChunked && usual_loss(r) == LossHead::kChunkedHead;
  s.loss = in_chunks ? LossHead::kChunkedHead : found->second;
  // The Hugging Face Trainer asks for the fused AdamW; a script's own loop has torch.optim.AdamW as it comes, foreach
  // (torch/optim/optimizer.py, _default_to_fused_or_foreach).
  const auto usual = facts.programs.find("eager");
  const bool of_trainer = usual != facts.programs.end() && usual->second.starts_with("hf_");
  const bool is_adamw = r.spec.text("train.optimizer").value_or("adamw") == "adamw";
  if (of_trainer && is_adamw && !s.runs_transformers() && !s.is_one_graph() && !traits.python_hooks) {
    s.optimizer_implementation = OptimizerImplementation::kForeach;
    r.assume("torch.optim.AdamW as it comes, with a copy of the parameters' size in its step (foreach; fused=True has none)");
  }
  plan.program = s.program;
  plan.loss_head = head;
  plan.compile = s.compiled && facts.has("compile");
}

void settle_setup(Resolving& r) {
  Setup& s = r.problem.setup;
  const Plan& p = r.problem.base;
  s.model = p.model;
  s.sequence_length = p.train.sequence_length;
  s.frozen_reference = p.train.method == "dpo";
  s.host_memory_bytes = p.hardware.host_memory_bytes;
  if (const auto gpu = r.problem.gpus.find(p.hardware.gpu); gpu != r.problem.gpus.end()) s.gpu = gpu->second;
  // What a plan for DeepSpeed writes of its buckets, in elements (templates/deepspeed): what Hugging Face fills in for "auto".
  if (s.traits().python_hooks) {
    s.reduce_bucket_elements = s.model.hidden * s.model.hidden;
    s.prefetch_bucket_elements = s.reduce_bucket_elements * 9 / 10;
  }
  set_software(r.problem.trainer, s);
  // The model's own loss, until Transformers 4.49 (pull request 35646).
  if (s.software.logits_shifted && s.loss == LossHead::kEager && s.runs_transformers()) s.loss = LossHead::kHfShift;
  s.software.is_assumed = !is_named(r);
  // The Trainer's use_liger_kernel replaces more than the loss (liger_kernel/transformers/monkey_patch.py).
  if (s.loss == LossHead::kLiger && s.runs_transformers()) s.fused_norm = s.fused_rope = s.fused_swiglu = true;
  // Transformers' own choice, where neither the user nor a file says another.
  const bool assumes_kernel = s.runs_transformers() && !r.spec.text("trainer.attention").has_value() && s.flash_attention;
  const std::string_view kernel = !assumes_kernel ? ""
                                  : s.program == "hf_eager" && r.problem.trainer.releases == nullptr
                                      ? ", attention sdpa (before Transformers 4.36: --attention eager)"
                                      : ", attention sdpa";
  const bool assumes_cut = s.loss == LossHead::kCutCrossEntropy && !r.spec.text("trainer.loss_head").has_value();
  r.assume(fmt::format("{}, program {}{}{}", r.problem.setup.software.name, s.program, kernel,
                       assumes_cut ? ", no logits kept (before Unsloth 2024.11: --loss-head fused)" : ""));
  // The search proposes no more tensor ranks than kv heads; a user who asks for them knows the release.
  const auto few = r.problem.trainer.later.find("few_kv_heads");
  if (few != r.problem.trainer.later.end() && s.model.attention == Attention::kGrouped &&
      r.spec.integer("parallel.tp").value_or(1) > s.model.num_kv_heads)
    r.assume(fmt::format("tensor ranks share kv heads, as {} does from {} on", r.problem.trainer.label, few->second));
  read_sync(r);
  read_wrapping(r);
  read_backward_prefetch(r);
  read_overlap(r);
  // Without the packages Transformers runs the recurrence as a loop of PyTorch's operations, several times slower.
  if (s.model.scan_channels > 0 && s.runs_transformers() && !s.torch_delta_rule)
    r.assume(s.model.delta_heads > 0
                 ? "flash-linear-attention installed, for its recurrent layers (--linear-attention torch: it is not)"
                 : "fused kernels for its recurrent layers installed (mamba-ssm)");
  if (s.model.num_experts > 0 && !r.problem.trainer.defaults.traits().measured_experts)
    r.problem.base.assumptions.push_back(
        "every expert gets as many tokens as the others; no measured run of this trainer with experts");
}

}  // namespace distsetup
