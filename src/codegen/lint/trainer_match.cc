// The Trainer compares its arguments with the settings of DeepSpeed that it was given, whether by --deepspeed or by the file of
// accelerate launch, and stops with a list of what differs (transformers, integrations/deepspeed.py: trainer_config_process,
// trainer_config_finalize, propagate_args_to_deepspeed).
#include "codegen/lint/trainer_match.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/names.h"
#include "codegen/lint/caller_values.h"

namespace distsetup::lint {
namespace {

struct Pair {
  std::string_view json, argument;
  std::optional<double> usual = {};  // what the argument is where nothing says it, in TRL and LLaMA-Factory, too
  bool is_switch = false;
  double least = -HUGE_VAL;         // below it the argument says something else
  std::optional<size_t> item = {};  // of a list

  std::string path() const { return item ? fmt::format("{}[{}]", json, *item) : std::string(json); }
};
// fill_match; training_args.py.
constexpr std::array<Pair, 13> kMatched = {{{"train_micro_batch_size_per_gpu", "per_device_train_batch_size"},
                                            {"gradient_accumulation_steps", "gradient_accumulation_steps", 1},
                                            {"gradient_clipping", "max_grad_norm", 1},
                                            {"optimizer.params.lr", "learning_rate"},
                                            {"optimizer.params.eps", "adam_epsilon"},
                                            {"optimizer.params.weight_decay", "weight_decay"},
                                            {"scheduler.params.warmup_max_lr", "learning_rate"},
                                            {"scheduler.params.warmup_num_steps", "warmup_steps", {}, false, 1},
                                            {"scheduler.params.total_num_steps", "max_steps", {}, false, 1},
                                            {"bf16.enabled", "bf16", {}, true},
                                            {"fp16.enabled", "fp16", {}, true},
                                            {"optimizer.params.betas", "adam_beta1", 0.9, false, -HUGE_VAL, 0},
                                            {"optimizer.params.betas", "adam_beta2", 0.999, false, -HUGE_VAL, 1}}};

std::string last_name(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }

// The settings of DeepSpeed that a run has: a JSON file, or the section of accelerate's.
struct EngineSettings {
  const Document* d = nullptr;
  bool is_section = false;
  std::string path(std::string_view key) const { return (is_section ? "deepspeed_config." : "") + std::string(key); }
  // A number or a switch; nothing where it is "auto" or not given.
  TreeNode find(std::string_view key, std::optional<size_t> item = {}) const {
    TreeNode at = node(d->root, path(key));
    if (at && item) at.value = *item < at.value->items.size() ? &at.value->items[*item] : nullptr;
    return at && at.value->kind == Value::Kind::kScalar && at.text() != "auto" && !at.text().empty() ? at : TreeNode{};
  }
};

// What an argument is given, and where.
struct GivenArgument {
  std::string spelled, text;
  TextSpan at;
  bool is_open = false;  // whoever starts the script may give another value
};

std::optional<double> number_in(const std::string& text) {
  Value value;
  value.kind = Value::Kind::kScalar;
  value.text = text;
  return real_of(value);
}

std::optional<bool> switch_in(const std::string& text) {
  const std::string word = lower(text);
  if (word == "true" || word == "yes" || word == "1") return true;
  if (word == "false" || word == "no" || word == "0") return false;
  return std::nullopt;
}

// Whether both are known and differ.
bool differ(const Pair& pair, const std::string& argument, const std::string& setting) {
  if (pair.is_switch) {
    const auto x = switch_in(argument), y = switch_in(setting);
    return x && y && *x != *y;
  }
  const auto x = number_in(argument), y = number_in(setting);
  return x && y && *x >= pair.least && *x != *y;
}

struct TrainerRun {
  const Document& d;  // what gives the arguments
  EngineSettings settings;
  std::string doubt;          // what has to be so for a difference to stop the run; "": it does
  bool is_of_launch = false;  // the settings are those of accelerate launch
  std::array<std::optional<GivenArgument>, kMatched.size()> given;
};

constexpr std::string_view kStays = "the values stay as they are here";

// True when something was said.
bool report_differences(const TrainerRun& run, Findings& report) {
  bool is_said = false;
  for (size_t i = 0; i < kMatched.size(); ++i) {
    const TreeNode setting = run.settings.find(kMatched[i].json, kMatched[i].item);
    const std::optional<GivenArgument>& one = run.given[i];
    if (!setting || !one || !differ(kMatched[i], one->text, setting.text())) continue;
    is_said = true;
    report.add("HF003", run.d, one->at,
               fmt::format("'{}' is {} here and '{}' is {} in '{}'", one->spelled, one->text, run.settings.path(kMatched[i].path()),
                           setting.text(), run.settings.d->path),
               {.help = run.settings.is_section ? "make them equal, or leave it out of deepspeed_config" : "",
                .error_if = one->is_open && run.doubt.empty() ? std::string(kStays) : run.doubt});
  }
  return is_said;
}

// train_batch_size has to be what the arguments multiply to.
void report_batch(const LintSetup& setup, const TrainerRun& run, Findings& report) {
  const TreeNode batch = run.settings.find("train_batch_size");
  const std::optional<GivenArgument>&micro = run.given[0], &accumulation = run.given[1];
  if (!batch || !micro || !accumulation || has(run.settings.d->root, "sequence_parallel_size")) return;
  const auto all = number(batch.text()), of_micro = number(micro->text), steps = number(accumulation->text);
  constexpr long long kMost = 1'000'000;
  if (!all || !of_micro || !steps || *of_micro < 1 || *steps < 1 || *of_micro > kMost || *steps > kMost) return;
  const long long of_rank = *of_micro * *steps;
  const int64_t ranks = setup.world();
  if (*all % of_rank == 0 && (ranks < 1 || ranks > kMost || *all == of_rank * ranks)) return;
  const std::string product = fmt::format("{} {} × {} {}", micro->spelled, *of_micro, accumulation->spelled, *steps);
  const bool is_open = micro->is_open || accumulation->is_open;
  report.add("HF003", run.d, micro->at,
             *all % of_rank != 0
                 ? fmt::format("'train_batch_size' is {} in '{}', no multiple of {}", *all, run.settings.d->path, product)
                 : fmt::format("'train_batch_size' is {} in '{}', and {} × {} ranks are {}", *all, run.settings.d->path, product,
                               ranks, of_rank * ranks),
             {.error_if = is_open && run.doubt.empty() ? std::string(kStays) : run.doubt});
}

// A JSON without gradient_accumulation_steps accumulates once: accelerate writes 1 into it (utils/dataclasses.py, DeepSpeedPlugin).
// accelerate launch hands that to the comparison; the Trainer's own file has been filled in before, and DeepSpeed finds a batch that
// is not the product of its parts (runtime/config.py, _batch_assertion).
void report_accumulation(const TrainerRun& run, Findings& report) {
  const std::optional<GivenArgument>& steps = run.given[1];
  if (run.settings.is_section || !steps || number(steps->text).value_or(1) <= 1) return;
  const Value& root = run.settings.d->root;
  const bool is_filled = has(root, "train_batch_size") && has(root, "train_micro_batch_size_per_gpu");
  if (has(root, kMatched[1].json) || has(root, "sequence_parallel_size") || !(run.is_of_launch || is_filled)) return;
  report.add("HF003", run.d, steps->at,
             fmt::format("'{}' is {} here, and '{}' has none, which counts as 1", steps->spelled, steps->text, run.settings.d->path),
             {.help = "add \"gradient_accumulation_steps\": \"auto\" to the JSON",
              .error_if = steps->is_open && run.doubt.empty() ? std::string(kStays) : run.doubt});
}

// A number in the settings beside an argument that nothing here gives: the script may.
void report_usual(const TrainerRun& run, const Pair& pair, std::string_view giver, Findings& report) {
  const TreeNode at = run.settings.find(pair.json, pair.item);
  if (!at || !pair.usual) return;
  const auto x = real_of(*at.value);
  if (!x || *x == *pair.usual) return;
  const Document& there = *run.settings.d;
  report.add("HF003", there, value_span(there, *at.value),
             fmt::format("'{}' is {} here, and '{}', which '{}' does not give, is {}", run.settings.path(pair.path()), at.text(),
                         pair.argument, giver, *pair.usual),
             {.error_if = fmt::format("nothing else gives {}", pair.argument)});
}

const Document* deepspeed_file(const LintSetup& setup, std::string_view named) {
  const std::string base = last_name(named);
  for (const auto& other : setup.documents) {
    if (!base.empty() && other->is(file_kind::kDeepspeed) && last_name(other->path) == base) return other.get();
  }
  return nullptr;
}

// What accelerate's file hands on: its section, or the JSON that it names.
EngineSettings settings_of_accelerate(const LintSetup& setup, const Document& d) {
  if (text(d.root, "distributed_type") != "DEEPSPEED") return {};
  const std::string named = text(d.root, "deepspeed_config.deepspeed_config_file");
  if (!named.empty()) return {deepspeed_file(setup, named), false};
  return has(d.root, "deepspeed_config") ? EngineSettings{&d, true} : EngineSettings{};
}

const Document* only_accelerate_file(const LintSetup& setup) {
  const Document* found = nullptr;
  for (const auto& other : setup.documents) {
    if (!other->is(file_kind::kAccelerate)) continue;
    if (found != nullptr) return nullptr;
    found = other.get();
  }
  return found;
}

const Document* launch_file(const LintSetup& setup, const LaunchStage& launch) {
  if (!launch.has("config_file")) return only_accelerate_file(setup);
  const std::string base = last_name(launch.value("config_file"));
  for (const auto& other : setup.documents) {
    if (other->is(file_kind::kAccelerate) && last_name(other->path) == base) return other.get();
  }
  return nullptr;
}

// Of accelerate launch: its own flags are over its file, and are not compared here.
EngineSettings settings_of_launch(const LintSetup& setup, const LaunchStage& launch) {
  for (const char* name : {"gradient_accumulation_steps", "gradient_clipping", "use_deepspeed", "use_fsdp", "multi_gpu"}) {
    if (launch.has(name)) return {};
  }
  if (launch.has("deepspeed_config_file")) return {deepspeed_file(setup, launch.value("deepspeed_config_file")), false};
  const Document* file = launch_file(setup, launch);
  return file == nullptr ? EngineSettings{} : settings_of_accelerate(setup, *file);
}

// Names that scripts with a loop of their own give what the Trainer has under other ones (transformers' *_no_trainer.py, diffusers'
// examples): its parser would refuse them.
bool has_own_loop(const LaunchStage& script) {
  static constexpr std::array<std::string_view, 6> kOfLoops = {"num_warmup_steps", "max_train_steps", "checkpointing_steps",
                                                               "lr_warmup_steps",  "with_tracking",   "adam_weight_decay"};
  return script.name.find("no_trainer") != std::string::npos ||
         std::any_of(kOfLoops.begin(), kOfLoops.end(), [&script](std::string_view one) { return script.has(one); });
}

// The program beside the file, where it is there: it steps by itself and speaks of no Trainer.
bool loops_itself(const LintSetup& setup, const Document& d, const LaunchStage& script) {
  if (setup.context.text_of_program == nullptr || !script.name.ends_with(".py")) return false;
  std::string text = setup.context.text_of_program(script.name);
  if (text.empty() && script.name[0] != '/')
    text = setup.context.text_of_program(d.path.substr(0, d.path.rfind('/') + 1) + script.name);
  const auto says = [&text](std::string_view word) { return text.find(word) != std::string::npos; };
  return (says(".backward(") || says("add_argument(")) && !says("Trainer") && !says("TrainingArguments") && !says("HfArgumentParser");
}

}  // namespace

// Scripts that loop themselves have some of the Trainer's flags, and hardly those of how it saves, logs and evaluates.
bool takes_training_arguments(const LaunchStage& script) {
  if (has_own_loop(script)) return false;
  static constexpr std::array<std::string_view, 14> kOfTrainer = {"deepspeed",
                                                                  "save_strategy",
                                                                  "save_steps",
                                                                  "save_total_limit",
                                                                  "logging_steps",
                                                                  "logging_strategy",
                                                                  "eval_strategy",
                                                                  "evaluation_strategy",
                                                                  "warmup_ratio",
                                                                  "overwrite_output_dir",
                                                                  "lr_scheduler_type",
                                                                  "remove_unused_columns",
                                                                  "gradient_checkpointing",
                                                                  "dataloader_num_workers"};
  const auto num = std::count_if(kOfTrainer.begin(), kOfTrainer.end(), [&script](std::string_view one) { return script.has(one); });
  constexpr ptrdiff_t kEnough = 3;
  return script.has("per_device_train_batch_size") && (num >= kEnough || !script.value("deepspeed").empty());
}

namespace {

// "$ARGS", "$@": words that may hold any argument. A file of arguments may, too.
bool may_give_more(const ScriptPart& part, const LaunchLine& line, const LaunchStage& script) {
  const auto is_settings = [](const ShellWord& word) {
    return word.text.find(".yaml") != std::string::npos || word.text.ends_with(".json");
  };
  if (script.has("config") || std::any_of(script.positionals.begin(), script.positionals.end(), is_settings)) return true;
  const std::vector<ShellWord>& words = part.script.commands[line.command].words;
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i].text.starts_with('$') && !words[i - 1].text.starts_with("--")) return true;
  }
  return false;
}

// accelerate's file for FSDP beside a configuration of DeepSpeed: the Trainer makes an engine of DeepSpeed, and what accelerate launch
// sets for FSDP is left over (transformers, training_args.py, _setup_devices; accelerate, state.py).
void report_two_ways(const Document& fsdp, const Document& d, TextSpan at, std::string_view named, std::string doubt,
                     Findings& report) {
  report.add("ACC023", d, at, fmt::format("'{}' is DeepSpeed's, and '{}' starts FSDP: one run has one of them", named, fsdp.path),
             {.help = doubt.empty() ? "" : fmt::format("leave one of them away where {}", doubt)});
}

void fsdp_beside_deepspeed(const LintSetup& setup, const Document& d, const LaunchStage& launch, const LaunchStage& script,
                           Findings& report) {
  const LaunchOption* named = script.find("deepspeed");
  const Document* file = launch_file(setup, launch);
  const bool is_over = launch.has("use_deepspeed") || launch.has("multi_gpu") || launch.has("cpu");
  if (named == nullptr || !named->value.ends_with(".json") || file == nullptr || is_over) return;
  if (text(file->root, "distributed_type") == "FSDP") report_two_ways(*file, d, named->span, named->value, "", report);
}

void match_script(const LintSetup& setup, const Document& d, const ScriptPart& part, const LaunchLine& line, Findings& report) {
  const LaunchStage *script = line.find(LaunchProgram::kScript), *launch = line.find(LaunchProgram::kAccelerate);
  if (script == nullptr) return;
  if (launch != nullptr) fsdp_beside_deepspeed(setup, d, *launch, *script, report);
  TrainerRun run{d, {}, "", false, {}};
  if (const std::string named = script->value("deepspeed"); !named.empty()) {
    run.settings = {deepspeed_file(setup, named), false};
  } else if (launch != nullptr) {
    run.settings = settings_of_launch(setup, *launch);
    run.is_of_launch = true;
  }
  if (run.settings.d == nullptr) return;
  const bool is_trainer = takes_training_arguments(*script) && !loops_itself(setup, d, *script);
  if (!is_trainer) run.doubt = "the script takes TrainingArguments";
  for (size_t i = 0; i < kMatched.size(); ++i) {
    const LaunchOption* option = script->find(kMatched[i].argument);
    if (option == nullptr) continue;
    run.given[i] = {option->spelled, option->has_value ? option->value : "true", option->span,
                    comes_from_caller(d, part.script, *option)};
  }
  if (script->has("auto_find_batch_size")) run.given[0].reset();  // the size of a micro-batch is not compared then
  if (!report_differences(run, report)) report_batch(setup, run, report);
  report_accumulation(run, report);
  if (!is_trainer || !script->name.ends_with(".py") || may_give_more(part, line, *script)) return;
  for (const Pair& pair : kMatched) {
    if (!script->has(pair.argument)) report_usual(run, pair, d.path, report);
  }
}

// Flags of a script are over its file of arguments.
bool is_given_by_line(const LintSetup& setup, std::string_view argument) {
  for (const auto& other : setup.documents) {
    for (const ScriptPart& part : other->parts) {
      for (const LaunchLine& line : part.lines) {
        const LaunchStage* script = line.find(LaunchProgram::kScript);
        if (script != nullptr && script->has(argument)) return true;
      }
    }
  }
  return false;
}

void match_file(const LintSetup& setup, const Document& d, Findings& report) {
  TrainerRun run{d, {}, "", false, {}};
  for (size_t i = 0; i < kMatched.size(); ++i) {
    const TreeNode at = node(d.root, kMatched[i].argument);
    if (!at || at.value->kind != Value::Kind::kScalar || is_given_by_line(setup, kMatched[i].argument)) continue;
    run.given[i] = {std::string(kMatched[i].argument), at.text(), value_span(d, *at.value), false};
  }
  if (is_true(d.root, "auto_find_batch_size")) run.given[0].reset();
  const TreeNode named = node(d.root, "deepspeed");
  for (const auto& other : setup.documents) {
    if (!other->is(file_kind::kDeepspeed)) continue;
    run.settings = {other.get(), false};
    const bool is_said = report_differences(run, report);
    if (!named || last_name(named.text()) != last_name(other->path)) continue;
    if (!is_said) report_batch(setup, run, report);
    report_accumulation(run, report);
    for (const Pair& pair : kMatched) {
      if (!has(d.root, pair.argument) && !is_given_by_line(setup, pair.argument)) report_usual(run, pair, d.path, report);
    }
  }
  const Document* accelerate = only_accelerate_file(setup);
  if (accelerate == nullptr) return;
  if (named && named.text().ends_with(".json") && text(accelerate->root, "distributed_type") == "FSDP")
    report_two_ways(*accelerate, d, value_span(d, *named.value), named.text(), "one run has both", report);
  if (named) return;
  run.settings = settings_of_accelerate(setup, *accelerate);
  run.doubt = "one run has both files";
  if (run.settings.d != nullptr && run.settings.is_section) report_differences(run, report);
}

}  // namespace

void check_trainer_match(const LintSetup& setup, const Document& d, Findings& report) {
  if (d.takes_training_arguments()) match_file(setup, d, report);
  for (const ScriptPart& part : d.parts) {
    for (const LaunchLine& line : part.lines) match_script(setup, d, part, line, report);
  }
}

}  // namespace distsetup::lint
