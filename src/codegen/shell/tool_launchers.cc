#include "codegen/shell/tool_launchers.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>

#include "codegen/shell/wrappers.h"

namespace distsetup::foreign {
namespace {

std::string last_of_path(std::string_view word) { return std::string(word.substr(word.rfind('/') + 1)); }

bool is_command(const std::vector<ShellWord>& words, size_t at, std::string_view tool, std::string_view task) {
  return last_of_path(words[at].text) == tool && at + 1 < words.size() && words[at + 1].text == task;
}

// Takes the option out, where it has a value.
std::optional<LaunchOption> take_option(LaunchStage& stage, std::string_view name) {
  const LaunchOption* found = stage.find(name);
  if (found == nullptr || !found->has_value) return std::nullopt;
  LaunchOption out = *found;
  std::erase_if(stage.options, [name](const LaunchOption& one) { return one.name == name; });
  return out;
}

LaunchStage stage_beside(const LaunchStage& tool, LaunchProgram program) {
  LaunchStage out;
  out.program = program;
  out.name = tool.name;
  out.span = tool.span;
  out.command = tool.command;
  return out;
}

// axolotl train FILE --launcher torchrun: accelerate where nothing is said, which takes its processes from options of the command too
// (axolotl: src/axolotl/cli/main.py, train; src/axolotl/cli/launchers).
std::optional<LaunchStage> launcher_of_axolotl(LaunchStage& tool) {
  const std::string said = tool.value("launcher");
  const bool is_torchrun = said == "torchrun", is_accelerate = said.empty() || said == "accelerate";
  if (is_torchrun || is_accelerate || said == "python") take_option(tool, "launcher");
  if (!is_torchrun && !is_accelerate) return std::nullopt;
  LaunchStage out = stage_beside(tool, is_torchrun ? LaunchProgram::kTorchrun : LaunchProgram::kAccelerate);
  for (const char* name : {"num_processes", "main_process_port"}) {
    if (!is_accelerate) continue;
    if (std::optional<LaunchOption> option = take_option(tool, name)) out.options.push_back(std::move(*option));
  }
  return out;
}

// trl sft … --num_processes 4: of accelerate launch (trl/cli/commands/training.py).
std::optional<LaunchStage> launcher_of_trl(LaunchStage& tool) {
  LaunchStage out = stage_beside(tool, LaunchProgram::kAccelerate);
  for (const char* name : {"num_processes", "num_machines", "machine_rank", "main_process_ip", "main_process_port"}) {
    if (std::optional<LaunchOption> option = take_option(tool, name)) out.options.push_back(std::move(*option));
  }
  return out.options.empty() ? std::nullopt : std::optional(std::move(out));
}

}  // namespace

bool is_swift(const std::vector<ShellWord>& words, size_t at) {
  const std::string base = last_of_path(words[at].text), task = at + 1 < words.size() ? words[at + 1].text : "";
  return (base == "megatron" || base == "swift") && (task == "sft" || task == "pt" || task == "rlhf");
}

bool variable_in_environment(const ShellScript& script, size_t command, size_t at, std::string_view name, LaunchOption& out) {
  const auto take = [&out](const ShellAssignment& one) {
    out.value = one.known.empty() ? one.value.text : one.known;
    out.span = one.span;
    out.value_span = one.value.span;
    return true;
  };
  for (const ShellAssignment& one : script.commands[command].assignments) {
    if (one.name == name) return take(one);
  }
  const std::vector<ShellWord>& words = script.commands[command].expanded;
  const bool is_wrapped = at > 0 && starts_rest_of_line(words[0].text);
  for (size_t i = 1; is_wrapped && i < at; ++i) {  // docker exec -e NPROC_PER_NODE=8 box swift sft
    const std::string& word = words[i].text;
    if (word.size() <= name.size() || !word.starts_with(name) || word[name.size()] != '=') continue;
    out.value = word.substr(name.size() + 1);
    out.span = out.value_span = words[i].span;
    return true;
  }
  const auto exports = [name](const ShellCommand& one) {
    return !one.words.empty() && one.words[0].text == "export" &&
           (std::any_of(one.words.begin(), one.words.end(), [name](const ShellWord& word) { return word.text == name; }) ||
            std::any_of(one.assignments.begin(), one.assignments.end(), [name](const auto& set) { return set.name == name; }));
  };
  const auto begin = script.commands.begin(), end = begin + static_cast<std::ptrdiff_t>(command);
  if (std::any_of(begin, end, exports)) {
    for (size_t i = command; i-- > 0;) {
      for (const ShellAssignment& one : script.commands[i].assignments) {
        const bool is_only_theirs = !script.commands[i].words.empty() && script.commands[i].words[0].text != "export";
        if (one.name == name && !script.commands[i].is_dead && !is_only_theirs) return take(one);
      }
    }
  }
  for (const OuterVariable& one : script.outer) {
    if (one.name != name) continue;
    if (!one.is_known) return false;
    out.value = one.value;
    out.span = out.value_span = one.span;
    return true;
  }
  return false;
}

// ms-swift's command starts torchrun by itself where one of two variables says of how many (swift/cli/main.py, get_torchrun_args);
// xtuner's as well (xtuner/entry_point.py, cli), and LLaMA-Factory's (src/llamafactory/cli.py, Command.TRAIN).
std::optional<LaunchStage> launcher_of_tool(const ShellScript& script, size_t command, size_t at) {
  const std::vector<ShellWord>& words = script.commands[command].expanded;
  LaunchOption ray;  // Ray starts its own workers
  const bool is_factory = is_command(words, at, "llamafactory-cli", "train") &&
                          !(variable_in_environment(script, command, at, "USE_RAY", ray) && ray.value != "0");
  if (!is_factory && !is_swift(words, at) && !is_command(words, at, "xtuner", "train")) return std::nullopt;
  LaunchStage out;
  out.program = LaunchProgram::kTorchrun;
  out.name = words[at].text;
  out.span = words[at].span;
  out.command = command;
  for (const char* variable : {"NPROC_PER_NODE", "NNODES", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    LaunchOption option;
    if (!variable_in_environment(script, command, at, variable, option)) continue;
    for (const char* c = variable; *c != '\0'; ++c) option.name += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
    option.spelled = "--" + option.name;
    option.has_value = true;
    out.options.push_back(std::move(option));
  }
  const bool is_told = out.find("nproc_per_node") != nullptr || out.find("nnodes") != nullptr;
  return is_told ? std::optional(std::move(out)) : std::nullopt;
}

std::optional<LaunchStage> launcher_of_options(LaunchStage& tool) {
  const std::string base = last_of_path(tool.name);
  const bool trains = !tool.positionals.empty() && tool.positionals[0].text == "train";
  if (base == "axolotl" && trains) return launcher_of_axolotl(tool);
  if (base == "trl" && !tool.positionals.empty()) return launcher_of_trl(tool);
  if (base != "automodel" && !base.ends_with("nemo_automodel.cli.app") && !base.ends_with("nemo_automodel._cli.app"))
    return std::nullopt;
  // It starts torchrun on this machine's GPUs, or on so many of them (nemo_automodel/cli/app.py; until 0.3
  // nemo_automodel/_cli/app.py).
  for (LaunchOption& option : tool.options) {
    if (option.spelled == "-c") option.name = "config";
  }
  std::optional<LaunchOption> processes = take_option(tool, "nproc_per_node");
  if (!processes) return std::nullopt;
  LaunchStage out = stage_beside(tool, LaunchProgram::kTorchrun);
  out.options.push_back(std::move(*processes));
  return out;
}

}  // namespace distsetup::foreign
