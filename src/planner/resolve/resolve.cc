// Spec → Problem: names are looked up, defaults filled in and said, contradictions refused. Every rule about what a user may write
// together is here; what is then chosen among the legal combinations is search.cc's.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/digest.h"
#include "base/names.h"
#include "base/quantity.h"
#include "model/count.h"
#include "model/geometry_value.h"
#include "model/presets.h"
#include "model/validate.h"
#include "plan/native_program.h"
#include "plan/schedule_text.h"
#include "planner/planner.h"
#include "planner/resolve/data_scan.h"
#include "planner/resolve/resolve_hardware.h"
#include "planner/resolve/trainer_problem.h"
#include "planner/search/search.h"
#include "planner/time/economics.h"

namespace distsetup {
namespace {

constexpr int64_t kAssumedBatchTokens = 1 << 20;
// A label such as "7B" further than this from the true count is said.

class Resolver {
 public:
  Resolver(const Spec& spec, const Presets& presets, const Inputs& inputs) : spec_(spec), presets_(presets), inputs_(inputs) {}

  Result<Problem> run() {
    native_ = spec_.text("trainer.name").value_or("native") == "native";
    if (native_) append(diagnostics_, refuse_not_native(spec_));
    model();
    precision();
    hardware();
    train();
    batch();
    parallel();
    if (native_) offload();
    data();
    rest();
    if (!native_ && !has_error(diagnostics_)) append(diagnostics_, resolve_trainer(spec_, presets_, gpus_, problem_));
    if (has_error(diagnostics_)) return diagnostics_;
    plan().inputs_digest = inputs_digest();
    for (Diagnostic& d : diagnostics_) plan().diagnostics.push_back(d);
    return problem_;
  }

 private:
  Plan& plan() { return problem_.base; }
  void fail(const char* code, std::string_view path, std::string message, std::string help = "") {
    const Setting* setting = spec_.find(path);
    Diagnostic d = error(code, spec_.at(path), std::move(message), std::move(help));
    if (setting != nullptr) d.length = std::max<int>(1, static_cast<int>(setting->text.size()));
    diagnostics_.push_back(std::move(d));
  }
  void assume(std::string text) { plan().assumptions.push_back(std::move(text)); }

  // --- model

  void model() {
    if (spec_.model.has_value()) {
      const bool has_base = spec_.model->find("base") != nullptr;
      take(has_base ? model_over_base(presets_, *spec_.model) : geometry_from_value(presets_, *spec_.model, "inline"));
      if (has_base) used_ += preset_text(presets_, "models", plan().model.name);
    } else if (inputs_.model.has_value()) {
      plan().model = *inputs_.model;
      used_ += inputs_.model_text;
    } else if (const auto name = spec_.text("model"); name.has_value()) {
      take(find_model(presets_, *name, spec_.at("model")));
      used_ += preset_text(presets_, "models", plan().model.name);
    } else {
      fail(code::kMissingKey, "model", "no model given, expected a size, a preset or a directory with config.json", "add --model 8B");
    }
    if (has_error(diagnostics_)) return;
    append(diagnostics_, validate(plan().model, model_at()));
    if (native_)
      for (Diagnostic& d : pinned_at(check_native(plan().model), model_at())) diagnostics_.push_back(d);
    if (has_error(diagnostics_)) return;
    if (std::optional<Diagnostic> off = label_note(plan().model); off.has_value()) append(diagnostics_, pinned_at({*off}, model_at()));
  }

  Location model_at() const { return spec_.model.has_value() ? spec_.model->location : spec_.at("model"); }
  static Diagnostics pinned_at(Diagnostics diagnostics, const Location& at) {
    for (Diagnostic& d : diagnostics) d.location = at;
    return diagnostics;
  }
  void take(Result<Geometry> geometry) {
    append(diagnostics_, geometry.diagnostics);
    if (geometry.ok()) plan().model = std::move(*geometry);
  }

  // --- training

  template <class T>
  T value_or(std::optional<T> given, T assumed, std::string said) {
    if (!given.has_value()) assume(std::move(said));
    return given.value_or(assumed);
  }

  void train() {
    TrainPlan& t = plan().train;
    t.method = value_or<std::string>(spec_.text("train.method"), "pretrain", "method pretrain");
    if (t.method == "sft" && native_)
      diagnostics_.push_back(warning(code::kUnsupportedFeature, spec_.at("train.method"),
                                     "the bundled trainer does not mask prompts yet: sft is planned, and cannot be launched with it"));
    t.sequence_length = value_or<int64_t>(spec_.integer("train.sequence_length"), 4096, "sequence length 4,096");
    const int64_t longest = plan().model.max_positions;
    if (longest > 0 && t.sequence_length > longest)
      diagnostics_.push_back(warning(code::kOutOfRange, spec_.at("train.sequence_length"),
                                     fmt::format("sequences of {} tokens, '{}' states at most {} positions",
                                                 format_count(t.sequence_length), plan().model.name, format_count(longest)),
                                     fmt::format("--sequence-length {}", longest)));
    t.steps = spec_.integer("train.steps").value_or(1000);
    t.optimizer = value_or<std::string>(spec_.text("train.optimizer"), "adamw", "AdamW");
    t.learning_rate = spec_.number("train.learning_rate").value_or(3e-4);
    t.min_learning_rate = spec_.number("train.min_learning_rate").value_or(std::stod(fmt::format("{:.12g}", t.learning_rate / 10)));
    warmup(t);
    t.weight_decay = spec_.number("train.weight_decay").value_or(0.1);
    t.beta1 = spec_.number("train.beta1").value_or(0.9);
    t.beta2 = spec_.number("train.beta2").value_or(0.95);
    t.epsilon = spec_.number("train.epsilon").value_or(1e-8);
    t.grad_clip = value_or<double>(spec_.number("train.grad_clip"), 1.0, "gradient clip 1.0");
    t.seed = spec_.integer("train.seed").value_or(0);
    if (t.min_learning_rate > t.learning_rate)
      fail(code::kConflict, "train.min_learning_rate",
           fmt::format("min_learning_rate {} is above learning_rate {}", t.min_learning_rate, t.learning_rate),
           fmt::format("--min-learning-rate {}", t.learning_rate / 10));
    if (t.warmup_steps > t.steps)
      fail(code::kConflict, "train.warmup_steps", fmt::format("{} warm-up steps do not end within {} steps", t.warmup_steps, t.steps),
           fmt::format("--warmup-steps {}", t.steps / 10));
    if (!spec_.find("train.steps") || !spec_.find("train.learning_rate"))
      assume(fmt::format("{} steps, learning rate {} to {}, {} warm-up steps", format_count(t.steps), t.learning_rate,
                         t.min_learning_rate, t.warmup_steps));
  }

  void warmup(TrainPlan& t) {
    const auto steps = spec_.integer("train.warmup_steps");
    const auto ratio = spec_.number("train.warmup_ratio");
    const int64_t part = ratio ? warmup_steps_of(*ratio, t.steps) : std::min<int64_t>(100, t.steps / 10);
    t.warmup_steps = steps.value_or(part);
    if (steps && ratio && *steps != part)
      fail(code::kConflict, "train.warmup_ratio",
           fmt::format("{} of {} steps are {} warm-up steps, not {}", *ratio, t.steps, part, *steps),
           "give warmup_steps or warmup_ratio, not both");
  }

  void precision() {
    const std::string compute = value_or<std::string>(spec_.text("precision.compute"), "bf16", "bf16 with fp32 master weights");
    plan().precision.compute = compute == "fp32"   ? Dtype::kF32
                               : compute == "fp16" ? Dtype::kF16
                               : compute == "fp8"  ? Dtype::kF8
                                                   : Dtype::kBf16;
  }

  // --- hardware

  void hardware() {
    if (has_error(diagnostics_)) return;
    ResolvedHardware h = resolve_hardware(spec_, presets_, inputs_, plan().precision.compute);
    append(diagnostics_, std::move(h.diagnostics));
    for (std::string& text : h.assumptions) assume(std::move(text));
    used_ += h.used_texts;
    plan().hardware = std::move(h.plan);
    gpus_ = std::move(h.gpus);
    problem_.node_counts = std::move(h.node_counts);
    problem_.other_hardware = std::move(h.other);
    problem_.larger_hardware = std::move(h.larger);
    problem_.hardware_assumed = h.assumed;
    problem_.gpus_per_node_given = h.gpus_per_node_given;
    per_node_ = plan().hardware.gpus_per_node;
  }

  // --- batch and axes

  void batch() {
    const auto sequences = spec_.integer("train.global_batch");
    const auto tokens = spec_.integer("train.global_batch_tokens");
    const int64_t length = plan().train.sequence_length;
    problem_.batch_at = spec_.at(sequences.has_value() ? "train.global_batch"
                                 : tokens.has_value()  ? "train.global_batch_tokens"
                                                       : "parallel.micro_batch");
    problem_.micro_batch = spec_.integer("parallel.micro_batch").value_or(0);
    problem_.gradient_accumulation = spec_.integer("parallel.gradient_accumulation").value_or(0);
    if (static_cast<double>(problem_.micro_batch) * static_cast<double>(length) * static_cast<double>(length) > kMostPairs)
      fail(code::kOutOfRange, "parallel.micro_batch",
           fmt::format("micro-batch {} of {} tokens each is beyond any device, expected at most {}", problem_.micro_batch,
                       format_count(length),
                       static_cast<int64_t>(kMostPairs / static_cast<double>(length) / static_cast<double>(length))),
           "--micro-batch auto");
    if (sequences.has_value()) {
      if (tokens.has_value() && *sequences * length != *tokens)
        fail(code::kConflict, "train.global_batch_tokens",
             fmt::format("{} sequences × {} tokens = {}, not {}", *sequences, length, *sequences * length, *tokens),
             "give global_batch or global_batch_tokens, not both");
      problem_.global_batch = *sequences;
      return;
    }
    if (tokens.has_value() && *tokens < length)
      fail(code::kConflict, "train.global_batch_tokens",
           fmt::format("{} tokens per step are less than one sequence of {}", *tokens, length),
           fmt::format("--global-batch-tokens {}", length));
    problem_.global_batch_tokens = tokens.value_or(kAssumedBatchTokens);
    const bool product = problem_.micro_batch > 0 && problem_.gradient_accumulation > 0;
    if (!tokens.has_value() && product) problem_.global_batch_tokens = 0;  // micro-batch × accumulation × ranks says it
    if (!tokens.has_value() && !product) assume(fmt::format("{} tokens per step", format_count(problem_.global_batch_tokens)));
  }

  int axis(std::string_view path) { return static_cast<int>(spec_.integer(path).value_or(0)); }

  void parallel() {
    if (native_) refuse_axes();
    problem_.dp_shard = axis("parallel.dp_shard");
    problem_.dp_replicate = axis("parallel.dp_replicate");
    sharding();
    recompute();
    mesh();
  }

  void refuse_axes() {
    for (const auto& [path, what] :
         {std::pair{"parallel.tp", "tensor parallelism"}, std::pair{"parallel.pp", "pipeline parallelism"},
          std::pair{"parallel.cp", "context parallelism"}, std::pair{"parallel.ep", "expert parallelism"}}) {
      if (axis(path) > 1)
        fail(code::kUnsupportedFeature, path,
             fmt::format("{} {}: the bundled trainer does not run {} yet, expected 1", path, axis(path), what),
             fmt::format("--{} 1", std::string_view(path).substr(9)));
    }
    if (spec_.boolean("parallel.sequence_parallel").value_or(false))
      fail(code::kUnsupportedFeature, "parallel.sequence_parallel",
           "sequence_parallel splits over tensor-parallel ranks, which the bundled trainer does not run yet",
           "--sequence-parallel false");
    if (spec_.text("parallel.cp_method").has_value())
      fail(code::kUnsupportedFeature, "parallel.cp_method", "cp_method needs cp above 1, which the bundled trainer does not run yet",
           "leave cp_method out");
  }

  void sharding() {
    const std::string given = spec_.text("parallel.sharding").value_or("auto");
    if (given == "auto") problem_.shardings = {Sharding::kDdp, Sharding::kZero1, Sharding::kZero2, Sharding::kZero3};
    if (given == "ddp") problem_.shardings = {Sharding::kDdp};
    if (given == "zero1") problem_.shardings = {Sharding::kZero1};
    if (given == "zero2" || given == "hybrid_shard_zero2") problem_.shardings = {Sharding::kZero2};
    if (given == "zero3" || given == "hybrid_shard") problem_.shardings = {Sharding::kZero3};
    problem_.hybrid = given.starts_with("hybrid_shard");
    problem_.reshard_after_forward = {1, 0};
    const auto reshard = spec_.boolean("parallel.reshard_after_forward");
    if (!reshard.has_value()) return;
    problem_.reshard_after_forward = {*reshard ? 1 : 0};
    if (given == "auto") problem_.shardings = {Sharding::kZero3};
    if (problem_.shardings == std::vector{Sharding::kZero3}) return;
    fail(code::kConflict, "parallel.reshard_after_forward",
         fmt::format("reshard_after_forward is a choice of zero3, sharding is {}", name(problem_.shardings.front())),
         "--sharding zero3");
  }

  void recompute() {
    const std::string given = spec_.text("parallel.recompute").value_or("auto");
    problem_.recomputes = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
    if (given == "none") problem_.recomputes = {Recompute::kNone};
    if (given == "selective") problem_.recomputes = {Recompute::kSelective};
    if (given == "full") problem_.recomputes = {Recompute::kFull};
    if (!given.starts_with("every_k:")) return;
    problem_.recomputes = {Recompute::kEveryK};
    problem_.recompute_every_k = std::stoi(given.substr(8));
  }

  void mesh() {
    problem_.parallel_at = spec_.at(spec_.find("parallel.dp_shard") != nullptr ? "parallel.dp_shard" : "parallel.dp_replicate");
    if (problem_.hybrid) {
      if (problem_.parallel_at.file.empty()) problem_.parallel_at = spec_.at("parallel.sharding");
      if (problem_.dp_shard > 0 && per_node_ > 0 && problem_.dp_shard != per_node_)
        fail(code::kConflict, "parallel.dp_shard",
             fmt::format("'{}' shards over the {} GPUs of a node, dp_shard says {}", spec_.find("parallel.sharding")->text, per_node_,
                         problem_.dp_shard),
             fmt::format("--sharding {} --dp-shard {}", name(problem_.shardings.front()), problem_.dp_shard));
      problem_.dp_shard = per_node_;
    }
    if (problem_.shardings == std::vector{Sharding::kDdp} && problem_.dp_shard > 1)
      fail(code::kConflict, "parallel.dp_shard", fmt::format("ddp shards nothing, dp_shard is {}", problem_.dp_shard),
           "--sharding zero3");
    if (problem_.node_counts.size() != 1 || per_node_ <= 0 || has_error(diagnostics_)) return;
    if (!native_) return;  // further axes divide the ranks first
    const int64_t ranks = int64_t{problem_.node_counts.front()} * per_node_;
    const int64_t shard = problem_.dp_shard, replicate = problem_.dp_replicate;
    const std::string product = fmt::format("{} node{} × {} GPUs = {}", problem_.node_counts.front(),
                                            problem_.node_counts.front() == 1 ? "" : "s", per_node_, ranks);
    if (shard > 0 && replicate > 0 && shard * replicate != ranks)
      fail(code::kMeshInvalid, "parallel.dp_shard",
           fmt::format("dp_replicate {} × dp_shard {} = {}, not {}", replicate, shard, replicate * shard, product),
           ranks % shard == 0 ? fmt::format("--dp-replicate {}", ranks / shard) : "leave one of them out");
    else if (shard > 0 && ranks % shard != 0)
      fail(code::kMeshInvalid, "parallel.dp_shard", fmt::format("dp_shard {} does not divide {}", shard, product),
           fmt::format("--dp-shard {}", ranks));
    else if (replicate > 0 && ranks % replicate != 0)
      fail(code::kMeshInvalid, "parallel.dp_replicate", fmt::format("dp_replicate {} does not divide {}", replicate, product),
           "--dp-replicate 1");
  }

  void offload() {
    for (const std::string_view what : {"optimizer", "parameters", "activations"}) {
      const std::string path = fmt::format("parallel.offload.{}", what);
      if (const auto place = spec_.text(path); place.has_value() && *place != "none")
        fail(code::kUnsupportedFeature, path,
             fmt::format("offload of {} to {}: the bundled trainer does not offload yet", what, *place),
             fmt::format("--offload-{} none", what));
    }
  }

  // --- data and the rest

  void data() {
    for (const Diagnostic& d : inputs_.notes) diagnostics_.push_back(d);
    if (!inputs_.data.has_value()) return;
    plan().data = *inputs_.data;
    plan().data.tokenizer = spec_.text("data.tokenizer").value_or("bytes");
    if (plan().model.vocabulary > 0 && plan().model.vocabulary < 256)
      fail(code::kData, "data.paths",
           fmt::format("a byte-level tokenizer has 256 tokens, '{}' a vocabulary of {}", plan().model.name, plan().model.vocabulary),
           "give the model a vocabulary of at least 256");
    // One token more than a step reads: targets are shifted by one.
    const int64_t batch =
        problem_.global_batch > 0 ? problem_.global_batch * plan().train.sequence_length : problem_.global_batch_tokens;
    const int64_t tokens = train_bytes(plan().data);
    if (tokens < batch + 1)
      fail(code::kData, "data.paths",
           fmt::format("{} tokens to train on, one step reads {}", format_count(tokens), format_count(batch)),
           fmt::format("--global-batch-tokens {}, or add text", std::max<int64_t>(plan().train.sequence_length, tokens / 2)));
  }

  void rest() {
    CheckpointPlan& c = plan().checkpoint;
    c.directory = spec_.text("checkpoint.directory").value_or(c.directory);
    c.every_steps = spec_.integer("checkpoint.every_steps").value_or(c.every_steps);
    c.keep = spec_.integer("checkpoint.keep").value_or(c.keep);
    problem_.save_time_s = spec_.integer("checkpoint.save_time").value_or(0);
    problem_.gpu_hours_per_failure = spec_.number("checkpoint.failure_hours").value_or(0);
    if (problem_.save_time_s > 0 && problem_.gpu_hours_per_failure == 0)
      assume(fmt::format("a failure every {} GPU-hours (Llama 3, arXiv 2407.21783)", format_count(std::llround(kGpuHoursPerFailure))));
    LaunchPlan& l = plan().launch;
    l.target = spec_.text("launch.target").value_or(l.target);
    l.site = spec_.text("launch.site").value_or(l.site);
    l.time_limit_s = spec_.integer("launch.time_limit").value_or(l.time_limit_s);
    l.init_timeout_s = spec_.integer("launch.init_timeout").value_or(l.init_timeout_s);
    l.collective_timeout_s = spec_.integer("launch.collective_timeout").value_or(l.collective_timeout_s);
  }

  std::string inputs_digest() const {
    std::string text = canonical_text(spec_) + used_;
    for (const DataFile& f : problem_.base.data.files) text += fmt::format("{} {}\n", f.path, f.sha256);
    return sha256(text);
  }

  const Spec& spec_;
  const Presets& presets_;
  const Inputs& inputs_;
  Problem problem_;
  Diagnostics diagnostics_;
  std::string used_;  // texts of the presets that were looked up
  int per_node_ = 0;
  bool native_ = true;
  std::map<std::string, Gpu> gpus_;
};

}  // namespace

Result<Problem> resolve(const Spec& spec, const Presets& presets, const Inputs& inputs) {
  return Resolver(spec, presets, inputs).run();
}

}  // namespace distsetup
