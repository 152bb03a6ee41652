// The settings of trainers other than the bundled one. Every refusal names the feature, the trainer, and which trainers have it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "planner/native/program_share.h"
#include "planner/replay/built_in_programs.h"
#include "planner/replay/program_facts.h"
#include "planner/replay/program_file.h"
#include "planner/resolve/trainer_problem.h"

namespace distsetup {
namespace {

// A program whose weights differ by more from the model's parameters is another architecture's.
constexpr double kMostParametersOff = 0.02;

class TrainerResolver {
 public:
  TrainerResolver(const Spec& spec, const Presets& presets, const std::map<std::string, Gpu>& gpus, Problem& problem)
      : spec_(spec), presets_(presets), problem_(problem) {
    trainer_.gpus = gpus;
  }

  Diagnostics run(std::string_view trainer_name) {
    Result<TrainerFacts> facts = find_trainer(presets_, trainer_name, spec_.at("trainer.name"));
    if (!facts.ok()) return facts.diagnostics;
    trainer_.facts = std::move(*facts);
    trainer_.base = trainer_.facts.defaults;
    release();
    model();
    axes();
    precision();
    program();
    finetune();
    optimizer();
    offload();
    narrow();
    if (has_error(said_)) return said_;
    settle();
    return said_;
  }

 private:
  void fail(const char* code, std::string_view path, std::string message, std::string help = "") {
    Diagnostic d = error(code, spec_.at(path), std::move(message), std::move(help));
    if (const Setting* setting = spec_.find(path)) d.length = std::max<int>(1, static_cast<int>(setting->text.size()));
    said_.push_back(std::move(d));
  }
  bool require(std::string_view feature, std::string_view path, std::string_view what) {
    if (trainer_.facts.has(feature)) return true;
    const std::vector<std::string> others = trainers_with(presets_, feature);
    fail(code::kUnsupportedFeature, path, fmt::format("{} is planned without {}", trainer_.facts.label, what),
         others.empty() ? "" : fmt::format("--trainer {}", nearest(others)));
    return false;
  }

  // Of the trainers that have a feature, one that splits as far as this one does.
  std::string nearest(const std::vector<std::string>& others) const {
    const auto splits = [](const TrainerFacts& facts) {
      return std::find(facts.shardings.begin(), facts.shardings.end(), Sharding::kZero3) != facts.shardings.end();
    };
    for (const std::string& other : others) {
      const Result<TrainerFacts> facts = find_trainer(presets_, other);
      if (facts.ok() && splits(*facts) == splits(trainer_.facts)) return other;
    }
    return others.front();
  }

  void axis(std::string_view path, std::string_view feature, std::string_view what, int& out) {
    out = static_cast<int>(spec_.integer(path).value_or(0));
    if (!trainer_.facts.has(feature)) {
      if (out > 1) require(feature, path, what);
      out = 1;
    }
  }

  // The release that the target writes for.
  void release() {
    const auto older = trainer_.facts.older_releases.find(spec_.text("launch.target").value_or(""));
    if (older == trainer_.facts.older_releases.end()) return;
    trainer_.base.software.name = older->second.first;
    trainer_.facts.release_day = older->second.second;
  }

  void model() {
    const Geometry& g = problem_.base.model;
    const TrainerFacts& facts = trainer_.facts;
    if (g.attention == Attention::kLatent && !facts.has("latent_attention")) unplanned("latent attention", "latent_attention");
    if (g.num_experts == 0) return;
    const bool mixed = std::find(g.expert_layer.begin(), g.expert_layer.end(), false) != g.expert_layer.end();
    if (!facts.has("experts")) {
      unplanned("experts", "experts");
    } else if (mixed && !facts.has("mixed_layers")) {
      unplanned("dense layers beside layers with experts", "mixed_layers");
    }
  }
  void unplanned(std::string_view what, std::string_view feature) {
    const std::vector<std::string> others = trainers_with(presets_, feature);
    fail(code::kUnsupportedFeature, "model",
         fmt::format("'{}' has {}, which are not planned for {} yet", problem_.base.model.name, what, trainer_.facts.label),
         others.empty() ? "" : fmt::format("--trainer {}", others.front()));
  }

  void axes() {
    axis("parallel.tp", "tensor_parallel", "tensor parallelism", trainer_.tp);
    axis("parallel.pp", "pipeline_parallel", "pipeline parallelism", trainer_.pp);
    axis("parallel.cp", "context_parallel", "context parallelism", trainer_.cp);
    axis("parallel.ep", "expert_parallel", "expert parallelism", trainer_.ep);
    axis("parallel.hpz", "hpz", "a second copy of the parameters (hpZ)", trainer_.hpz);
    axis("parallel.virtual_stages", "virtual_stages", "interleaved pipeline stages", trainer_.virtual_stages);
    if (problem_.base.model.num_experts == 0) {
      if (trainer_.ep > 1)
        fail(code::kMeshInvalid, "parallel.ep", fmt::format("ep {}, but '{}' has no experts", trainer_.ep, problem_.base.model.name),
             "--ep 1");
      trainer_.ep = 1;
    }
    trainer_.sequence_parallel = spec_.boolean("parallel.sequence_parallel").value_or(trainer_.facts.has("sequence_parallel"));
    if (trainer_.sequence_parallel && spec_.boolean("parallel.sequence_parallel").has_value())
      require("sequence_parallel", "parallel.sequence_parallel", "sequence parallelism");
    for (const auto& [text, method] : {std::pair{"ring", CpMethod::kRing}, std::pair{"allgather", CpMethod::kAllGather},
                                       std::pair{"ulysses", CpMethod::kUlysses}}) {
      const auto& known = trainer_.facts.cp_methods;
      const bool has = std::find(known.begin(), known.end(), text) != known.end();
      const auto given = spec_.text("parallel.cp_method");
      const bool refused = known.empty() && spec_.integer("parallel.cp").value_or(1) > 1;  // cp itself is
      if (given.has_value() && *given == text && !has && !refused)
        fail(code::kUnsupportedFeature, "parallel.cp_method",
             known.empty() ? fmt::format("{} has no context parallelism, so no '{}'", trainer_.facts.label, text)
                           : fmt::format("{} has no '{}', expected one of: {}", trainer_.facts.label, text, fmt::join(known, ", ")),
             known.empty() ? "leave cp_method out" : fmt::format("--cp-method {}", known.front()));
      if (has && given.value_or(text) == text) trainer_.cp_methods.push_back(method);
    }
  }

  void precision() {
    Setup& s = trainer_.base;
    const Dtype compute = problem_.base.precision.compute;
    if (compute == Dtype::kF8) require("fp8", "precision.compute", "fp8");
    if (compute == Dtype::kF16) require("fp16", "precision.compute", "fp16");
    s.compute = compute;
    s.fp8 = compute == Dtype::kF8 ? Fp8Recipe::kTensorwise : Fp8Recipe::kNone;
    if (compute == Dtype::kF32) {
      s.parameter_dtype = s.gradient_dtype = s.reduce_dtype = s.state_dtype = Dtype::kF32;
      s.master_copy = false;
    }
    const auto stored = [&](std::string_view path, Dtype& plan, Dtype& setup) {
      const auto text = spec_.text(path);
      if (!text.has_value()) return;
      plan = setup = *text == "bf16" ? Dtype::kBf16 : Dtype::kF32;
    };
    PrecisionPlan& p = problem_.base.precision;
    stored("precision.reduce", p.reduce, s.reduce_dtype);
    stored("precision.optimizer_state", p.optimizer_state, s.state_dtype);
    if (const auto master = spec_.text("precision.master"); master == "bf16") {  // nothing in fp32: parameters are their own master
      p.master = Dtype::kBf16;
      s.master_copy = false;
      s.parameter_dtype = s.gradient_dtype = Dtype::kBf16;
    }
  }

  void program() {
    Setup& s = trainer_.base;
    StrategyPlan& plan = problem_.base.strategy;
    const TrainerFacts& facts = trainer_.facts;
    s.compiled = spec_.boolean("trainer.compile").value_or(false);
    if (s.compiled) require("compile", "trainer.compile", "torch.compile");
    if (s.compute == Dtype::kF8 && !s.compiled && facts.has("compile"))
      problem_.base.assumptions.push_back("fp8 casts in kernels of their own, slower than bf16: --compile fuses them");
    const auto it = facts.programs.find(s.compiled ? "compiled" : "eager");
    s.program = it != facts.programs.end() ? it->second : facts.programs.begin()->second;
    if (const auto given = spec_.text("trainer.program"); given.has_value()) {
      s.program = *given;
      const PresetFile* file = find_preset(presets_, "programs", *given);
      if (file == nullptr) {
        fail(code::kUnknownProgram, "trainer.program", fmt::format("no program is called '{}'", *given),
             suggest(*given, preset_ids(presets_, "programs")));
      } else if (!file->is_embedded) {
        Result<std::shared_ptr<const replay::BlockProgram>> own = replay::load_program(presets_, *file);
        if (own.value) s.own_program = *own.value;
        append(said_, std::move(own.diagnostics));
      }
    }
    const replay::BlockProgram* blocks = s.own_program ? s.own_program.get() : replay::find_program(s.program);
    const FrameworkTraits& traits = s.traits();
    if (blocks == nullptr && !traits.lifetime_programs && !has_error(said_)) {
      fail(code::kUnsupportedFeature, "trainer.program",
           fmt::format("program '{}' lists the layers of a pipeline stage, which {} does not have", s.program, facts.label),
           fmt::format("--program {}", facts.programs.begin()->second));
      return;
    }
    if (blocks != nullptr && !traits.block_programs) {
      fail(code::kUnsupportedFeature, "trainer.program",
           fmt::format("program '{}' lists PyTorch's operations; {} runs layers of its own", s.program, facts.label),
           fmt::format("--program {}", facts.programs.begin()->second));
      return;
    }
    listed(blocks);
    if (const std::string lacks = blocks == nullptr ? "" : replay::lacks_for(*blocks, problem_.base.model); !lacks.empty())
      fail(code::kUnsupportedFeature, "model",
           fmt::format("'{}' has {}, which program '{}' does not list", problem_.base.model.name, lacks, s.program));
    const std::string head = spec_.text("trainer.loss_head").value_or(default_loss_head());
    const auto found = facts.loss_heads.find(head);
    if (found == facts.loss_heads.end()) {
      std::string known;
      for (const auto& [name, unused] : facts.loss_heads) known += (known.empty() ? "" : ", ") + name;
      fail(code::kUnsupportedFeature, "trainer.loss_head",
           fmt::format("{} has no '{}' loss, expected one of: {}", facts.label, head, known),
           fmt::format("--loss-head {}", facts.default_loss_head));
      return;
    }
    // Chunks of the logits became chunks of head and loss.
    const bool in_chunks = found->second == LossHead::kChunked && usual_loss() == LossHead::kChunkedHead;
    s.loss = in_chunks ? LossHead::kChunkedHead : found->second;
    plan.program = s.program;
    plan.loss_head = head;
    plan.compile = s.compiled;
  }

  std::optional<LossHead> usual_loss() const {
    const TrainerFacts& facts = trainer_.facts;
    return facts.releases == nullptr ? std::nullopt : loss_of_release(trainer_.base, *facts.releases, facts.release_day);
  }

  // The configurations of the stack itself; what else runs under the same trainer takes the model's loss.
  std::string default_loss_head() const {
    const TrainerFacts& facts = trainer_.facts;
    const std::string target = spec_.text("launch.target").value_or("");
    const std::optional<LossHead> head = usual_loss();
    if (!head.has_value() || !(target.empty() || target == "native" || target.starts_with(facts.releases->stack)))
      return facts.default_loss_head;
    return head == LossHead::kEager ? facts.default_loss_head : head == LossHead::kCompiled ? "compiled" : "chunked";
  }

  // torchtitan has gated layers with grouped attention alone: other models run under FSDP2 as Transformers writes them.
  void listed(const replay::BlockProgram*& blocks) {
    Setup& s = trainer_.base;
    const Geometry& g = problem_.base.model;
    if (blocks == nullptr || !replay::lacks_for(*blocks, g).empty()) return;
    const double share = share_listed(*blocks, g);
    if (std::abs(share - 1) <= kMostParametersOff) return;
    const replay::BlockProgram* other = replay::find_program("hf_eager");
    const bool other_fits = replay::lacks_for(*other, g).empty() && std::abs(share_listed(*other, g) - 1) <= kMostParametersOff;
    const bool given = spec_.text("trainer.program").has_value() || s.compiled;
    if (given || !other_fits) {
      fail(code::kUnsupportedFeature, given ? "trainer.program" : "model",
           fmt::format("program '{}' is of another architecture: its weights are {:.0f} % of the parameters of '{}'", s.program,
                       100 * share, g.name),
           other_fits ? "--program hf_eager" : "");
      return;
    }
    problem_.base.assumptions.push_back(fmt::format("program hf_eager: '{}' lists no layers like those of '{}'", s.program, g.name));
    s.program = other->id;
    blocks = other;
  }

  void finetune() {
    TrainPlan& plan = problem_.base.train;
    plan.finetune = spec_.text("train.finetune").value_or("full");
    if (plan.finetune == "full") {
      if (spec_.find("train.lora_rank") != nullptr)
        fail(code::kConflict, "train.lora_rank", "lora_rank without adapters: finetune is full", "--finetune lora");
      return;
    }
    require(plan.finetune, "train.finetune", plan.finetune);
    append(said_, resolve_adapters(spec_, problem_, trainer_));
  }

  void optimizer() {
    Setup& s = trainer_.base;
    const std::string& name = problem_.base.train.optimizer;
    const auto& known = trainer_.facts.optimizers;
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail(code::kUnsupportedFeature, "train.optimizer",
           fmt::format("{} has no '{}', expected one of: {}", trainer_.facts.label, name, fmt::join(known, ", ")),
           "--optimizer adamw");
    s.paged_optimizer = name == "paged_adamw_8bit";
    s.optimizer = name == "adamw_8bit" || name == "paged_adamw_8bit" ? OptimizerKind::kAdamW8bit
                  : name == "adafactor"                              ? OptimizerKind::kAdafactor
                  : name == "lion"                                   ? OptimizerKind::kLion
                  : name == "muon"                                   ? OptimizerKind::kMuon
                  : name == "sgd"                                    ? OptimizerKind::kSgd
                                                                     : OptimizerKind::kAdamW;
  }

  void offload() {
    OffloadPlan& o = problem_.base.offload;
    const auto read = [&](std::string_view what, OffloadPlace& place) {
      const std::string path = fmt::format("parallel.offload.{}", what);
      const auto text = spec_.text(path);
      if (!text.has_value() || *text == "none") return;
      place = *text == "nvme" ? OffloadPlace::kNvme : OffloadPlace::kHost;
      require(fmt::format("offload_{}", what), path, fmt::format("offload of {}", what));
      if (place == OffloadPlace::kNvme) require("offload_nvme", path, "offload to NVMe");
    };
    read("optimizer", o.optimizer);
    read("parameters", o.parameters);
    read("activations", o.activations);
    together(o);
    trainer_.base.offload = o;
  }

  // FSDP's CPU offload (CPUOffload, CPUOffloadPolicy) is one switch: the optimizer runs where the shards are.
  void together(OffloadPlan& o) {
    if (!trainer_.facts.has("offload_together") || o.optimizer == o.parameters) return;
    if (o.optimizer == OffloadPlace::kNvme || o.parameters == OffloadPlace::kNvme) return;  // refused by itself
    if (o.parameters == OffloadPlace::kNone || spec_.find("parallel.offload.optimizer") != nullptr) {
      fail(code::kUnsupportedFeature, "parallel.offload.optimizer",
           fmt::format("{} moves parameters, gradients and optimizer state to the host together, not one alone", trainer_.facts.label),
           "--offload-parameters host --offload-optimizer host");
      return;
    }
    o.optimizer = o.parameters;
    problem_.base.assumptions.push_back("optimizer state on the host: FSDP moves it with the parameters");
  }

  // What the trainer has no form for leaves the search; a pinned value is refused.
  void narrow() {
    const TrainerFacts& facts = trainer_.facts;
    if (problem_.hybrid && !require("hybrid", "parallel.sharding", "copies of a shard group (hybrid sharding)")) return;
    const bool pinned = problem_.shardings.size() == 1;
    std::erase_if(problem_.shardings,
                  [&](Sharding s) { return std::find(facts.shardings.begin(), facts.shardings.end(), s) == facts.shardings.end(); });
    if (problem_.shardings.empty()) {
      std::vector<std::string_view> known;
      for (const Sharding s : facts.shardings) known.push_back(name(s));
      const std::string given = pinned && spec_.find("parallel.sharding") ? spec_.find("parallel.sharding")->text : "";
      fail(code::kUnsupportedFeature, "parallel.sharding",
           fmt::format("{} has no '{}', expected one of: {}", facts.label, given, fmt::join(known, ", ")),
           fmt::format("--sharding {}", known.front()));
    }
    const std::vector<Recompute> wanted = problem_.recomputes;
    std::erase_if(problem_.recomputes, [&](Recompute r) { return !facts.recomputes.contains(r); });
    if (problem_.recomputes.empty()) {
      std::vector<std::string_view> known;
      for (const auto& [policy, unused] : facts.recomputes) known.push_back(name(policy));
      fail(code::kUnsupportedFeature, "parallel.recompute",
           fmt::format("{} has no recompute '{}', expected one of: {}", facts.label, name(wanted.front()), fmt::join(known, ", ")),
           fmt::format("--recompute {}", known.back()));
    }
    if (facts.has("hybrid")) return;
    if (problem_.dp_replicate > 1 && problem_.dp_shard > 1) require("hybrid", "parallel.dp_replicate", "copies of the shard group");
  }

  void settle() {
    Setup& s = trainer_.base;
    const Plan& p = problem_.base;
    s.model = p.model;
    s.sequence_length = p.train.sequence_length;
    s.frozen_reference = p.train.method == "dpo";
    s.host_memory_bytes = p.hardware.host_memory_bytes;
    if (const auto gpu = trainer_.gpus.find(p.hardware.gpu); gpu != trainer_.gpus.end()) s.gpu = gpu->second;
    set_software(trainer_, s);
    problem_.base.strategy.trainer = trainer_.facts.name;
    problem_.base.assumptions.push_back(fmt::format("{}, program {}", trainer_.base.software.name, s.program));
    if (s.model.num_experts > 0 && !trainer_.facts.defaults.traits().measured_experts)
      problem_.base.assumptions.push_back(
          "every expert gets as many tokens as the others; no measured run of this trainer with experts");
    problem_.trainer = std::make_shared<const TrainerProblem>(std::move(trainer_));
  }

  const Spec& spec_;
  const Presets& presets_;
  Problem& problem_;
  TrainerProblem trainer_;
  Diagnostics said_;
};

}  // namespace

Diagnostics resolve_trainer(const Spec& spec, const Presets& presets, const std::map<std::string, Gpu>& gpus, Problem& problem) {
  return TrainerResolver(spec, presets, gpus, problem).run(*spec.text("trainer.name"));
}

}  // namespace distsetup
