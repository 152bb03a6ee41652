#include "planner/resolve/resolve_training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/quantity.h"
#include "planner/resolve/adapters.h"

namespace distsetup {
namespace {

constexpr int64_t kAssumedBatchTokens = 1 << 20;

template <class T>
T value_or(Resolving& r, std::optional<T> given, T assumed, std::string said) {
  if (!given.has_value()) r.assume(std::move(said));
  return given.value_or(assumed);
}

void warmup(Resolving& r, TrainPlan& t) {
  const auto steps = r.spec.integer("train.warmup_steps");
  const auto ratio = r.spec.number("train.warmup_ratio");
  const int64_t part = ratio ? warmup_steps_of(*ratio, t.steps) : std::min<int64_t>(100, t.steps / 10);
  t.warmup_steps = steps.value_or(part);
  if (steps && ratio && *steps != part)
    r.fail(code::kConflict, "train.warmup_ratio",
           fmt::format("{} of {} steps are {} warm-up steps, not {}", *ratio, t.steps, part, *steps),
           "give warmup_steps or warmup_ratio, not both");
}

// For fine-tuning the defaults of TRL's SFTConfig and DPOConfig, and ten times as much where only adapters are trained: the rate of
// pretraining would undo what the model has learnt.
double usual_learning_rate(const Resolving& r) {
  const std::string& method = r.problem.base.train.method;
  if (method == "pretrain") return 3e-4;
  const bool is_adapter = r.spec.text("train.finetune").value_or("full") != "full";
  if (method == "dpo") return is_adapter ? 1e-5 : 1e-6;
  return is_adapter ? 2e-4 : 2e-5;
}

}  // namespace

void resolve_training(Resolving& r) {
  TrainPlan& t = r.plan().train;
  t.method = value_or<std::string>(r, r.spec.text("train.method"), "pretrain", "method pretrain");
  if (t.method == "sft" && r.native())
    r.said.push_back(warning(code::kUnsupportedFeature, r.spec.at("train.method"),
                             "the bundled trainer does not mask prompts yet: sft is planned, and cannot be launched with it"));
  t.sequence_length = value_or<int64_t>(r, r.spec.integer("train.sequence_length"), 4096, "sequence length 4,096");
  const int64_t longest = r.plan().model.max_positions;
  if (longest > 0 && t.sequence_length > longest)
    r.said.push_back(warning(code::kOutOfRange, r.spec.at("train.sequence_length"),
                             fmt::format("sequences of {} tokens, '{}' states at most {} positions", format_count(t.sequence_length),
                                         r.plan().model.name, format_count(longest)),
                             fmt::format("--sequence-length {}", longest)));
  t.steps = r.spec.integer("train.steps").value_or(1000);
  t.optimizer = value_or<std::string>(r, r.spec.text("train.optimizer"), "adamw", "AdamW");
  t.learning_rate = r.spec.number("train.learning_rate").value_or(usual_learning_rate(r));
  t.min_learning_rate = r.spec.number("train.min_learning_rate").value_or(std::stod(fmt::format("{:.12g}", t.learning_rate / 10)));
  warmup(r, t);
  t.weight_decay = r.spec.number("train.weight_decay").value_or(0.1);
  t.beta1 = r.spec.number("train.beta1").value_or(0.9);
  t.beta2 = r.spec.number("train.beta2").value_or(0.95);
  t.epsilon = r.spec.number("train.epsilon").value_or(1e-8);
  t.grad_clip = value_or<double>(r, r.spec.number("train.grad_clip"), 1.0, "gradient clip 1.0");
  t.seed = r.spec.integer("train.seed").value_or(0);
  if (t.min_learning_rate > t.learning_rate)
    r.fail(code::kConflict, "train.min_learning_rate",
           fmt::format("min_learning_rate {} is above learning_rate {}", t.min_learning_rate, t.learning_rate),
           fmt::format("--min-learning-rate {}", t.learning_rate / 10));
  if (t.warmup_steps > t.steps)
    r.fail(code::kConflict, "train.warmup_steps", fmt::format("{} warm-up steps do not end within {} steps", t.warmup_steps, t.steps),
           fmt::format("--warmup-steps {}", t.steps / 10));
  if (!r.spec.find("train.steps") || !r.spec.find("train.learning_rate"))
    r.assume(fmt::format("{} steps, learning rate {} to {}, {} warm-up steps", format_count(t.steps), t.learning_rate,
                         t.min_learning_rate, t.warmup_steps));
}

void resolve_batch(Resolving& r) {
  const auto sequences = r.spec.integer("train.global_batch");
  const auto tokens = r.spec.integer("train.global_batch_tokens");
  const int64_t length = r.plan().train.sequence_length;
  r.problem.batch_at = r.spec.at(sequences.has_value() ? "train.global_batch"
                                 : tokens.has_value()  ? "train.global_batch_tokens"
                                                       : "parallel.micro_batch");
  r.problem.micro_batch = r.spec.integer("parallel.micro_batch").value_or(0);
  r.problem.gradient_accumulation = r.spec.integer("parallel.gradient_accumulation").value_or(0);
  if (static_cast<double>(r.problem.micro_batch) * static_cast<double>(length) * static_cast<double>(length) > kMostPairs)
    r.fail(code::kOutOfRange, "parallel.micro_batch",
           fmt::format("micro-batch {} of {} tokens each is beyond any device, expected at most {}", r.problem.micro_batch,
                       format_count(length),
                       static_cast<int64_t>(kMostPairs / static_cast<double>(length) / static_cast<double>(length))),
           "--micro-batch auto");
  if (sequences.has_value()) {
    if (tokens.has_value() && *sequences * length != *tokens)
      r.fail(code::kConflict, "train.global_batch_tokens",
             fmt::format("{} sequences × {} tokens = {}, not {}", *sequences, length, *sequences * length, *tokens),
             "give global_batch or global_batch_tokens, not both");
    r.problem.global_batch = *sequences;
    return;
  }
  if (tokens.has_value() && *tokens < length)
    r.fail(code::kConflict, "train.global_batch_tokens",
           fmt::format("{} tokens per step are less than one sequence of {}", *tokens, length),
           fmt::format("--global-batch-tokens {}", length));
  r.problem.global_batch_tokens = tokens.value_or(kAssumedBatchTokens);
  const bool product = r.problem.micro_batch > 0 && r.problem.gradient_accumulation > 0;
  if (!tokens.has_value() && product) r.problem.global_batch_tokens = 0;  // micro-batch × accumulation × ranks says it
  if (!tokens.has_value() && !product) r.assume(fmt::format("{} tokens per step", format_count(r.problem.global_batch_tokens)));
}

void resolve_finetune(Resolving& r) {
  TrainPlan& plan = r.problem.base.train;
  plan.finetune = r.spec.text("train.finetune").value_or("full");
  if (plan.finetune == "full") {
    if (r.spec.find("train.lora_rank") != nullptr)
      r.fail(code::kConflict, "train.lora_rank", "lora_rank without adapters: finetune is full", "--finetune lora");
    return;
  }
  r.require(plan.finetune, "train.finetune", plan.finetune);
  append(r.said, resolve_adapters(r.spec, r.problem));
}

void resolve_optimizer(Resolving& r) {
  Setup& s = r.problem.setup;
  const std::string& name = r.problem.base.train.optimizer;
  const auto& known = r.problem.trainer.optimizers;
  if (std::find(known.begin(), known.end(), name) == known.end())
    r.fail(code::kUnsupportedFeature, "train.optimizer",
           fmt::format("{} has no '{}', expected one of: {}", r.problem.trainer.label, name, fmt::join(known, ", ")),
           "--optimizer adamw");
  s.paged_optimizer = name == "paged_adamw_8bit";
  s.optimizer = name == "adamw_8bit" || name == "paged_adamw_8bit" ? OptimizerKind::kAdamW8bit
                : name == "adafactor"                              ? OptimizerKind::kAdafactor
                : name == "lion"                                   ? OptimizerKind::kLion
                : name == "muon"                                   ? OptimizerKind::kMuon
                : name == "sgd"                                    ? OptimizerKind::kSgd
                                                                   : OptimizerKind::kAdamW;
}

}  // namespace distsetup
