#include "codegen/read/job_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/diagnostic_codes.h"
#include "codegen/read/counted_keys.h"
#include "codegen/read/match.h"
#include "codegen/read/read_script.h"
#include "codegen/read/srun_tasks.h"
#include "codegen/shell/shell_tree.h"
#include "codegen/shell/starts_training.h"

namespace distsetup {
namespace {

using namespace foreign;

// By the words in the name of what it starts: it trains nothing, and has a launcher all the same.
bool trains_nothing(const LaunchLine& line) {
  const LaunchStage* script = line.find(LaunchProgram::kScript);
  const std::string name = script == nullptr ? "" : script->name.substr(script->name.rfind('/') + 1);
  static constexpr std::string_view kWords[] = {"eval",    "infer",   "generat", "predict", "bench",         "preprocess",
                                                "prepare", "tokeniz", "convert", "merge",   "lora_combiner", "interactive_chat"};
  return std::any_of(std::begin(kWords), std::end(kWords),
                     [&name](std::string_view word) { return name.find(word) != std::string::npos; });
}

// A script by itself: no launcher in front, and none around it.
bool is_plain(const ScriptPart& part, const LaunchLine& line) {
  const bool is_alone = std::all_of(line.stages.begin(), line.stages.end(),
                                    [](const LaunchStage& stage) { return stage.program == LaunchProgram::kScript; });
  return is_alone && part.script.commands[line.command].depth == 0;
}

// ./run.sh: what trains stands in there.
bool starts_shell_script(const LaunchLine& line) {
  const LaunchStage& only = line.stages.front();
  return line.stages.size() == 1 && only.program == LaunchProgram::kScript && only.name.ends_with(".sh") && !is_wrapper(only);
}

// What a run trains with, by the names that scripts have for it.
constexpr std::string_view kTrainingOptions[] = {"learning_rate",
                                                 "lr",
                                                 "per_device_train_batch_size",
                                                 "train_batch_size",
                                                 "micro_batch_size",
                                                 "batch_size",
                                                 "gradient_accumulation_steps",
                                                 "gradient_accumulation",
                                                 "max_steps",
                                                 "max_train_steps",
                                                 "num_train_epochs",
                                                 "num_epochs",
                                                 "epochs"};

// The first of them that two starts of a script say, each in its own way; nullptr: none.
const LaunchOption* differing_option(const LaunchStage& one, const LaunchStage& other) {
  for (const std::string_view name : kTrainingOptions) {
    const LaunchOption *here = one.find(name), *there = other.find(name);
    const auto first = here == nullptr ? std::nullopt : number_of(here->value);
    const auto second = there == nullptr ? std::nullopt : number_of(there->value);
    if (first && second && *first != *second) return there;
  }
  return nullptr;
}

// --eval_only, --preprocess: a task beside the training, by an option that the other start does not have.
bool has_other_task(const LaunchStage& script, const LaunchStage& training) {
  static constexpr std::string_view kWords[] = {"eval",    "test", "infer", "predict", "generat", "sampl",  "preprocess",
                                                "prepare", "dry",  "debug", "export",  "merge",   "convert"};
  return std::any_of(script.options.begin(), script.options.end(), [&training](const LaunchOption& one) {
    if (training.has(one.name)) return false;
    return std::any_of(std::begin(kWords), std::end(kWords),
                       [&one](std::string_view word) { return one.name.find(word) != std::string::npos; });
  });
}

}  // namespace

Diagnostics RunLines::started_again(const SourceText& source, const ScriptPart& part) const {
  const auto base_of = [](const LaunchStage& script) { return script.name.substr(script.name.rfind('/') + 1); };
  for (const LaunchLine& line : part.lines) {
    const LaunchStage* training = line.find(LaunchProgram::kScript);
    if (training == nullptr || is_plain(part, line) || !starts_training_itself(line)) continue;
    for (const LaunchLine& other : part.lines) {
      const LaunchStage* script = other.find(LaunchProgram::kScript);
      if (script == nullptr || is_run(part, other) || base_of(*script) != base_of(*training)) continue;
      const LaunchOption* differs = differing_option(*training, *script);
      const bool is_other = !starts_training_itself(other) || trains_nothing(other) || has_other_task(*script, *training);
      if (differs == nullptr || is_other || may_be_alternatives(part.script, line.command, other.command)) continue;
      Diagnostic conflict =
          error(code::kConflict, source.at(differs->span.begin),
                fmt::format("'{}' says {}, and {} where the same script starts in line {}: they are two runs", differs->spelled,
                            differs->value, training->value(differs->name), source.at(training->span.begin).line),
                "the file starts several runs: keep one of them in it");
      conflict.length = static_cast<int>(differs->spelled.size());
      return {conflict};
    }
  }
  return {};
}

RunLines::RunLines(const Document& document) {
  for (const ScriptPart& part : document.parts) {
    trains_outside_ =
        trains_outside_ || std::any_of(part.lines.begin(), part.lines.end(), [&part](const LaunchLine& line) {
          return !part.script.commands[line.command].in_substitution && foreign::starts_training(part.script, part.lines, line);
        });
  }
  for (const ScriptPart& part : document.parts) {
    for (const LaunchLine& line : part.lines) {
      if (only_hands_over(part, line)) continue;
      const bool trains = foreign::starts_training(part.script, part.lines, line) && !trains_nothing(line);
      has_training_ = has_training_ || trains;
      trains_here_ = trains_here_ || (trains && starts_training_itself(line) && !starts_shell_script(line));
      has_launched_ = has_launched_ || (trains && !is_plain(part, line));
    }
  }
}

bool RunLines::is_run(const ScriptPart& part, const LaunchLine& line) const {
  if (shows_help(line) || only_hands_over(part, line)) return false;
  // Beside what trains a start that scores or generates is a step of its own.
  if (!is_plain(part, line)) return !has_launched_ || (starts_training(part.script, part.lines, line) && !trains_nothing(line));
  return !has_launched_ && (!has_training_ || starts_training_itself(line));
}

bool is_server(const ShellCommand& command) {
  static const std::set<std::string, std::less<>> kServers = {"vllm-serve", "sglang.launch_server",
                                                              "vllm.entrypoints.openai.api_server"};
  const std::vector<ShellWord>& words = command.expanded;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool is_vllm = words[i].text == "serve" && i > 0 && words[i - 1].text == "vllm";
    if (is_vllm || kServers.count(words[i].text) != 0) return true;
  }
  return false;
}

Diagnostics undecided_commands(const SourceText& source, const ShellScript& script) {
  Diagnostics out;
  std::set<std::string_view> said;
  for (const ShellCommand& command : script.commands) {
    const bool has_options = std::any_of(command.expanded.begin(), command.expanded.end(), [](const ShellWord& word) {
      return word.text.starts_with("--") || word.text.ends_with(".py");
    });
    const bool is_shown = !command.words.empty() && (command.words[0].text == "echo" || command.words[0].text == "printf");
    if (command.undecided.empty() || command.is_dead || is_shown || !has_options || !said.insert(command.undecided).second) continue;
    Diagnostic one =
        error(code::kConflict, source.at(command.words[0].span.begin),
              fmt::format("branches set '{}' to different commands: what they agree on is read, what starts it is not known",
                          command.undecided),
              "take out the branch that does not run, or give --nodes and --gpus");
    one.severity = Severity::kWarning;
    out.push_back(std::move(one));
  }
  return out;
}

std::optional<LostKey> started_script(const SourceText& source, const LaunchLine& line) {
  const LaunchStage& last = line.stages.back();
  const bool is_started = line.find(LaunchProgram::kSrun) != nullptr || line.find(LaunchProgram::kMpirun) != nullptr;
  if (!is_started || last.program != LaunchProgram::kScript || !last.name.ends_with(".sh") || is_wrapper(last)) return std::nullopt;
  return started_key(source, last.name, last.span);
}

LostKey started_key(const SourceText& source, const std::string& path, foreign::TextSpan at) {
  LostKey lost{kStartedScript, path, "what it starts stands there: give it beside this file", source.at(at.begin)};
  lost.is_file = true;
  return lost;
}

bool has_ray(const ShellScript& script) {
  return std::any_of(script.commands.begin(), script.commands.end(), [](const ShellCommand& command) {
    for (size_t i = 0; i + 1 < command.words.size(); ++i) {
      const std::string& word = command.words[i].text;
      const bool is_ray = word == "ray" || word.ends_with("/ray");
      if (is_ray && (command.words[i + 1].text == "start" || command.words[i + 1].text == "job")) return true;
    }
    return false;
  });
}

long long nodes_of_part(const ScriptPart& part, const LaunchLine& line) {
  const LaunchStage* srun = line.find(LaunchProgram::kSrun);
  const Directive* nodes = part.script.directive("nodes");
  if (srun == nullptr || nodes == nullptr || is_step_of_one_node(line)) return 0;
  const auto of_job = number(nodes->value), of_step = number(srun->has("nodes") ? srun->value("nodes") : srun->value("N"));
  return of_job && of_step && *of_step < *of_job ? *of_step : 0;
}

bool trains_on_a_part(const ScriptPart& part) {
  long long num_nodes = 0;
  for (const LaunchLine& line : part.lines) {
    const bool trains = line.find(LaunchProgram::kSrun) != nullptr && starts_training(part.script, part.lines, line);
    if (!trains) continue;
    const long long here = nodes_of_part(part, line);
    if (here == 0 || (num_nodes != 0 && here != num_nodes)) return false;
    num_nodes = here;
  }
  return num_nodes != 0 && !has_ray(part.script);
}

bool trains_on_open_nodes(const ScriptPart& part) {
  return std::any_of(part.lines.begin(), part.lines.end(), [&part](const LaunchLine& line) {
    const LaunchStage* srun = line.find(LaunchProgram::kSrun);
    if (srun == nullptr || !starts_training(part.script, part.lines, line)) return false;
    const LaunchOption* nodes = srun->find("nodes") != nullptr ? srun->find("nodes") : srun->find("N");
    if (nodes == nullptr || !nodes->value.starts_with("${#") || !nodes->value.ends_with("[@]}")) return false;
    const std::string list = nodes->value.substr(3, nodes->value.size() - 7);
    return std::any_of(part.script.commands.begin(), part.script.commands.end(), [&list](const ShellCommand& command) {
      return std::any_of(command.assignments.begin(), command.assignments.end(), [&list](const ShellAssignment& one) {
        const bool is_cut = !one.array.empty() && one.array[0].text.find("[@]:") != std::string::npos;
        return one.name == list && is_cut;
      });
    });
  });
}

long long gpus_of_steps(const ScriptPart& part) {
  long long gpus = 0;
  for (const LaunchLine& line : part.lines) {
    const LaunchStage* srun = line.find(LaunchProgram::kSrun);
    if (srun == nullptr || !starts_training(part.script, part.lines, line)) continue;
    const long long here = foreign::gpus_of_step(part.script, *srun);
    if (here == 0 || (gpus != 0 && here != gpus)) return 0;
    gpus = here;
  }
  return gpus;
}

void count_gpus(const ShellScript& script, FoundKey& key) {
  const auto said = [&script](const char* name) -> long long {
    const Directive* one = script.directive(name);
    return one == nullptr ? 0 : number(one->value).value_or(0);
  };
  const size_t colon = key.text.rfind(':') == std::string::npos ? 0 : key.text.rfind(':') + 1;
  const auto count = number(key.text.substr(colon));
  const long long nodes = std::max(1LL, said("nodes"));
  const long long tasks = said("ntasks-per-node") > 0 ? said("ntasks-per-node") : std::max(1LL, said("ntasks") / nodes);
  constexpr long long kMost = 1'000'000;
  if (!count || *count < 1 || *count > kMost || tasks > kMost || script.directive("gpus-per-node") != nullptr ||
      script.directive("gres") != nullptr)
    return;
  const bool is_of_task = key.key == "gpus-per-task";
  if (is_of_task && script.directive("nodes") == nullptr && said("ntasks-per-node") == 0 && said("ntasks") > 1) {
    key.text = std::to_string(*count * tasks);  // SLURM chooses how many nodes they stand on
    key.key = "gpus";
    return;
  }
  if (!is_of_task && *count % nodes != 0) return;
  key.text = key.text.substr(0, colon) + std::to_string(is_of_task ? *count * tasks : *count / nodes);
  key.key = "gpus-per-node";
}

namespace {

struct OtherScheduler {
  std::string_view begins, name;
};
constexpr OtherScheduler kOtherSchedulers[] = {{"#$ -", "Grid Engine"}, {"#flux: -", "Flux"}, {"# flux: -", "Flux"},
                                               {"#COBALT -", "Cobalt"}, {"#PJM -", "PJM"},    {"#OAR -", "OAR"},
                                               {"#MSUB -", "Moab"}};

Reading lines_of_other_schedulers(const Document& document) {
  Reading out;
  out.file = document.path;
  const std::string_view text = document.text;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    while (line.ends_with('\r') || line.ends_with(' ')) line.remove_suffix(1);
    for (const OtherScheduler& one : kOtherSchedulers) {
      if (!line.starts_with(one.begins)) continue;
      const size_t option = one.begins.size() - 1, blank = std::min(line.find_first_of(" =", option), line.size());
      const std::string_view value = line.substr(std::min(blank + 1, line.size()));
      out.tool = std::string(one.name);
      out.lost.push_back({std::string(line.substr(0, blank)), std::string(value),
                          fmt::format("lines of {} are not read: --nodes and --gpus", one.name), document.place(at)});
    }
    at = end + 1;
  }
  return out;
}

bool is_left_open(const Reading& reading) {
  return std::any_of(reading.lost.begin(), reading.lost.end(),
                     [](const LostKey& one) { return one.reason.starts_with("only the running script knows"); });
}

// They bring programs, and no settings of a run.
bool brings_programs(std::string_view path) {
  const std::string_view base = path.substr(path.rfind('/') + 1);
  return base == "activate" || base == "conda.sh" || base == "setvars.sh" || base.ends_with("bashrc") || base.ends_with("profile");
}

}  // namespace

std::string_view other_scheduler(const Document& document) {
  const std::string_view text = document.text;
  for (const OtherScheduler& one : kOtherSchedulers) {
    const size_t at = text.find(one.begins);
    if (at != std::string_view::npos && (at == 0 || text[at - 1] == '\n')) return one.name;
  }
  return "";
}

Result<std::vector<Reading>> with_what_is_unread(const Document& document, Result<std::vector<Reading>> read) {
  if (!read.ok() || read->empty()) return read;
  if (std::any_of(read->begin(), read->end(), is_left_open)) {
    for (const ScriptPart& part : document.parts) {
      for (const auto& [path, at] : part.script.not_here) {
        if (!brings_programs(path))
          read->back().lost.push_back(
              {"source", path, "it is not here, and may set what only the running script knows", document.place(at.begin)});
      }
    }
  }
  for (const EnvironmentSetting& one : document.environment) {
    if (one.name != kLightningFile || one.value.empty() || one.value.find('$') != std::string::npos) continue;
    LostKey lost{one.name, one.value, "it is a file of its own: give it beside this one", document.place(one.span.begin)};
    lost.is_file = true;
    read->back().lost.push_back(std::move(lost));
    break;
  }
  if (Reading others = lines_of_other_schedulers(document); !others.lost.empty()) read->push_back(std::move(others));
  return read;
}

}  // namespace distsetup
