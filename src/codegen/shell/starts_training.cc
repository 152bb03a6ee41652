#include "codegen/shell/starts_training.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace distsetup::foreign {
namespace {

std::string last_part(std::string_view word) { return std::string(word.substr(word.rfind('/') + 1)); }

// Programs with several tasks, of which one trains; and words in a program's name that say it does something else.
bool is_other_task(const LaunchStage& script) {
  struct Tasks {
    std::string_view program, training;
  };
  static constexpr Tasks kTasks[] = {
      {"trl", "sft dpo grpo kto reward rloo"}, {"axolotl", "train"}, {"llamafactory-cli", "train"}, {"xtuner", "train"}};
  const std::string base = last_part(script.name);
  for (const Tasks& one : kTasks) {
    if (base != one.program || script.positionals.empty()) continue;
    return (" " + std::string(one.training) + " ").find(" " + script.positionals[0].text + " ") == std::string::npos;
  }
  for (const std::string_view word : {"vllm", "sglang", "serve", "http.server", "pip", "venv", "collect_env", "preprocess", "download",
                                      "convert", "merge", "eleuther_eval", "quantize"}) {
    if (base.find(word) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

bool shows_help(const LaunchLine& line) {
  const LaunchStage* script = line.find(LaunchProgram::kScript);
  return script != nullptr && std::any_of(script->options.begin(), script->options.end(), [](const LaunchOption& one) {
           return !one.has_value && (one.spelled == "-h" || one.spelled == "--help");
         });
}

bool is_wrapper(const LaunchStage& script) {
  return std::any_of(script.positionals.begin(), script.positionals.end(), [](const ShellWord& word) {
    const std::string base = last_part(word.text);
    return base.starts_with("python") || base == "torchrun" || base == "accelerate" || base == "deepspeed";
  });
}

bool starts_training_itself(const LaunchLine& line) {
  return !shows_help(line) && std::any_of(line.stages.begin(), line.stages.end(), [](const LaunchStage& stage) {
    return stage.program == LaunchProgram::kTorchrun || stage.program == LaunchProgram::kDeepspeed ||
           stage.program == LaunchProgram::kAccelerate || (stage.program == LaunchProgram::kScript && !is_other_task(stage));
  });
}

std::vector<const LaunchLine*> lines_inside(const ShellScript& script, const std::vector<LaunchLine>& lines, const LaunchLine& line) {
  std::vector<const LaunchLine*> out;
  const ShellCommand& outer = script.commands[line.command];
  if (outer.words.empty()) return out;
  const TextSpan last = outer.words.back().span;
  for (const LaunchLine& other : lines) {
    const ShellCommand& inner = script.commands[other.command];
    const bool is_inside = inner.depth > outer.depth && !inner.in_substitution && !inner.words.empty() &&
                           inner.words[0].span.begin >= last.begin && inner.words[0].span.end <= last.end;
    if (is_inside) out.push_back(&other);
  }
  return out;
}

bool starts_training(const ShellScript& script, const std::vector<LaunchLine>& lines, const LaunchLine& line) {
  if (starts_training_itself(line)) return true;
  const std::vector<const LaunchLine*> inside = lines_inside(script, lines, line);
  return std::any_of(inside.begin(), inside.end(), [](const LaunchLine* other) { return starts_training_itself(*other); });
}

}  // namespace distsetup::foreign
