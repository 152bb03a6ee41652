#include "planner/resolve/resolve_training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/diagnostic_codes.h"
#include "base/quantity.h"
#include "model/rope.h"
#include "plan/native_program.h"
#include "plan/recorded_step.h"
#include "planner/resolve/adapters.h"
#include "planner/resolve/data_scan.h"
#include "planner/resolve/method_defaults.h"
#include "planner/resolve/resolve_learning_rate.h"
#include "planner/resolve/resolve_native_optimizer.h"

namespace distsetup {
namespace {

constexpr int64_t kMostBatchTokens = int64_t{1} << 30;  // published runs go up to some 100 million

template <class T>
T value_or(Resolving& r, std::optional<T> given, T assumed, std::string said) {
  if (!given.has_value()) r.assume(std::move(said));
  return given.value_or(assumed);
}

// Tokens or samples in place of steps. Of two that say the same thing one is too many.
void read_length(Resolving& r) {
  const auto tokens = r.spec.integer("train.total_tokens"), samples = r.spec.integer("train.samples");
  const auto epochs = r.spec.number("train.epochs");
  if (!tokens && !samples && !epochs) return;
  RunLength& length = r.problem.length;
  const std::string first = tokens ? "train.total_tokens" : samples ? "train.samples" : "train.epochs";
  if (r.spec.find("train.steps") != nullptr || (tokens && (samples || epochs)))
    return r.fail(code::kConflict, first,
                  fmt::format("the length of the run is given twice, by {} and {}", first,
                              r.spec.find("train.steps") ? "train.steps"
                              : samples                  ? "train.samples"
                                                         : "train.epochs"),
                  "give steps, total_tokens, or samples and epochs");
  if (samples) length.sequences = std::max<int64_t>(1, std::llround(static_cast<double>(*samples) * epochs.value_or(1)));
  if (tokens) length.tokens = std::max<int64_t>(1, *tokens / sequences_per_sample(r.plan()));
  if (samples || tokens) return;
  if (!r.inputs.data.has_value())
    return r.fail(code::kMissingArgument, "train.epochs", "epochs of what: neither samples nor text is given",
                  "--samples 50000, or --data FOLDER");
  const auto of_epochs = [&](int64_t one) { return std::max<int64_t>(1, std::llround(static_cast<double>(one) * *epochs)); };
  if (r.inputs.samples.has_value())
    length.sequences =
        std::max<int64_t>(1, num_rows(*r.inputs.samples, r.plan().train.sequence_length,
                                      r.spec.boolean("data.packing").value_or(false) ? Packing::kOn : Packing::kOff,
                                      r.spec.integer("train.seed").value_or(0), *epochs,
                                      r.spec.boolean("data.shuffle").value_or(true) ? PieceOrder::kShuffled : PieceOrder::kAsStored));
  else
    length.tokens = of_epochs(train_bytes(*r.inputs.data));
}

}  // namespace

int64_t assumed_sequence_length(const Geometry& model) {
  const int64_t most = 4096, learned = positions_in_table(model);  // there is no row for a position beyond them
  return learned > 0 ? std::min(learned, most) : most;
}

// Adapters are trained beside published weights: on answers, unless the data are texts, which do not say what an answer is.
static std::string usual_method(const Resolving& r) {
  const bool has_adapters = r.spec.text("train.finetune").value_or("full") != "full";
  return has_adapters && !r.inputs.data.has_value() ? "sft" : "pretrain";
}

void resolve_training(Resolving& r) {
  TrainPlan& t = r.plan().train;
  const std::string assumed_method = usual_method(r);
  t.method = value_or<std::string>(r, r.spec.text("train.method"), assumed_method,
                                   "method " + assumed_method + (assumed_method == "sft" ? ", as there are adapters" : ""));
  const int64_t assumed = assumed_sequence_length(r.plan().model);
  t.sequence_length =
      value_or<int64_t>(r, r.spec.integer("train.sequence_length"), assumed, fmt::format("sequence length {}", format_count(assumed)));
  if (const LongestSequence ours = longest_sequence(r.plan().model);
      r.native() && ours.tokens > 0 && t.sequence_length > ours.tokens)  // another trainer has the kernel, and none more rows
    r.fail(positions_in_table(r.plan().model) == ours.tokens ? code::kOutOfRange : code::kUnsupportedFeature, "train.sequence_length",
           fmt::format("sequences of {} tokens are too long for model '{}': {}", format_count(t.sequence_length), r.plan().model.name,
                       ours.why),
           fmt::format("--sequence-length {}", ours.tokens));
  const int64_t longest = r.plan().model.max_positions;
  if (longest > 0 && t.sequence_length > longest)
    r.said.push_back(warning(code::kOutOfRange, r.spec.at("train.sequence_length"),
                             fmt::format("sequences of {} tokens, '{}' states at most {} positions", format_count(t.sequence_length),
                                         r.plan().model.name, format_count(longest)),
                             fmt::format("--sequence-length {}", longest)));
  t.steps = r.spec.integer("train.steps").value_or(1000);
  read_length(r);
  t.optimizer = value_or<std::string>(r, r.spec.text("train.optimizer"), "adamw", "AdamW");
  const Result<MethodDefaults> usual = method_defaults(r.presets, t.method, r.spec.text("train.finetune").value_or("full"));
  if (!usual.ok()) return append(r.said, usual.diagnostics);
  resolve_learning_rate(r, *usual);
  if (r.native()) {
    resolve_native_optimizer(r, *usual);
  } else {
    t.weight_decay = r.spec.number("train.weight_decay").value_or(usual->weight_decay);
    t.beta1 = r.spec.number("train.beta1").value_or(usual->beta1);
    t.beta2 = r.spec.number("train.beta2").value_or(usual->beta2);
    t.epsilon = r.spec.number("train.epsilon").value_or(usual->epsilon);
    refuse_momentum(r);
  }
  t.grad_clip = value_or<double>(r, r.spec.number("train.grad_clip"), 1.0, "gradient clip 1.0");
  t.seed = r.spec.integer("train.seed").value_or(0);
  t.deterministic = r.spec.boolean("train.deterministic").value_or(false);
  if (t.deterministic) r.refuse_elsewhere("train.deterministic");
  const bool is_usual = t.method == "pretrain" && r.spec.text("train.finetune").value_or("full") == "full";
  if (!is_usual && !r.spec.find("train.learning_rate")) r.assume(fmt::format("learning rate by {}", usual->source));
}

void resolve_batch(Resolving& r) {
  const auto sequences = r.spec.integer("train.global_batch");
  const auto tokens = r.spec.integer("train.global_batch_tokens");
  const int64_t length = r.plan().train.sequence_length * sequences_per_sample(r.plan());
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
    if (*sequences > kMostBatchTokens / std::max<int64_t>(length, 1))
      r.said.push_back(warning(code::kOutOfRange, r.problem.batch_at,
                               fmt::format("{} sequences of {} tokens in one step: more than any published run",
                                           format_count(*sequences), format_count(length)),
                               "a batch in tokens is --global-batch-tokens"));
    return;
  }
  if (tokens.has_value() && *tokens < length)
    r.fail(code::kConflict, "train.global_batch_tokens",
           fmt::format("{} tokens per step are less than one sequence of {}", *tokens, length),
           fmt::format("--global-batch-tokens {}", length));
  if (tokens.has_value()) {
    r.problem.global_batch_tokens = *tokens;
    return;
  }
  if (r.problem.micro_batch > 0 && r.problem.gradient_accumulation > 0) return;  // micro-batch × accumulation × ranks says it
  const Result<MethodDefaults> usual =
      method_defaults(r.presets, r.plan().train.method, r.spec.text("train.finetune").value_or("full"));
  if (!usual.ok()) return append(r.said, usual.diagnostics);
  r.problem.global_batch_tokens = usual->batch_samples > 0 ? usual->batch_samples * length : usual->batch_tokens;
  r.problem.has_usual_batch = true;
  const std::string_view most = r.problem.gradient_accumulation > 0 ? "at most " : "";
  r.assume(usual->batch_samples > 0 ? fmt::format("{}{} {} per step", most, usual->batch_samples,
                                                  sequences_per_sample(r.plan()) == 2 ? "pairs" : "sequences")
                                    : fmt::format("{}{} tokens per step", most, format_count(r.problem.global_batch_tokens)));
}

void resolve_finetune(Resolving& r) {
  TrainPlan& plan = r.problem.base.train;
  plan.finetune = r.spec.text("train.finetune").value_or("full");
  r.refuse_elsewhere("train.trainable");
  if (plan.finetune == "full") {
    if (r.spec.find("train.lora_rank") != nullptr)
      r.fail(code::kConflict, "train.lora_rank", "lora_rank without adapters: finetune is full", "--finetune lora");
    if (r.spec.find("adapter.dropout") != nullptr)
      r.fail(code::kConflict, "adapter.dropout", "adapter.dropout without adapters: finetune is full", "--finetune lora");
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
  s.paged_optimizer = name.starts_with("paged_");
  s.optimizer = name == "adamw_8bit" || name == "paged_adamw_8bit" ? OptimizerKind::kAdamW8bit
                : name == "adafactor"                              ? OptimizerKind::kAdafactor
                : name == "lion"                                   ? OptimizerKind::kLion
                : name == "muon"                                   ? OptimizerKind::kMuon
                : name == "sgd"                                    ? OptimizerKind::kSgd
                                                                   : OptimizerKind::kAdamW;
}

void resolve_recording(Resolving& r) {
  constexpr std::string_view kPath = "train.cuda_graphs";
  if (!r.spec.boolean(kPath).value_or(false) || r.refuse_elsewhere(kPath)) return;
  r.plan().train.cuda_graphs = true;
  Plan plan = r.plan();
  plan.mesh.pp = std::max(r.problem.pp, 1);
  const bool on_cpu = plan.hardware.accelerator == Accelerator::kCpu;
  if (const std::string problem = on_cpu ? "a CPU has no launches to save" : recording_problem(plan); !problem.empty())
    r.fail(code::kUnsupportedFeature, kPath, fmt::format("CUDA graphs cannot hold this plan's steps: {}", problem),
           "leave --cuda-graphs out");
}

}  // namespace distsetup
