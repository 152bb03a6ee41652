// Which words are options and which belong to the next program is decided by the launchers' own switches (options without a value);
// everything else that starts with '-' takes the next word unless that one starts with '-' too.
#include "codegen/shell/launch_line.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>

#include "codegen/shell/arguments.h"
#include "codegen/shell/launch_switches.h"
#include "codegen/shell/slurm_names.h"
#include "codegen/shell/tool_launchers.h"
#include "codegen/shell/wrappers.h"

namespace distsetup::foreign {
namespace {

std::string base_name(std::string_view word) { return std::string(word.substr(word.rfind('/') + 1)); }

bool is_script_name(std::string_view word) {
  const bool is_text = word.find_first_of(" \n;&|") != std::string_view::npos;  // commands: bash -c "cd run && ./train.sh"
  return !is_text && base_name(word).size() > 3 && (word.ends_with(".py") || word.ends_with(".sh"));
}

std::string option_name(std::string_view spelled) {
  while (!spelled.empty() && spelled[0] == '-') spelled.remove_prefix(1);
  std::string name(spelled.substr(0, spelled.find('=')));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// argparse takes a beginning that no other option has: "--nnode"; the others are spelled in two ways, which share theirs.
std::string torchrun_name(std::string name) {
  const bool is_nnodes = name.size() > 1 && std::string_view("nnodes").starts_with(name);
  return is_nnodes ? "nnodes" : name;
}

std::string srun_name(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  name = whole_slurm_name(name, SlurmCommand::kSrun);
  std::replace(name.begin(), name.end(), '-', '_');
  return name == "tasks_per_node" ? "ntasks_per_node" : name;
}

bool is_option(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && std::isdigit(static_cast<unsigned char>(word[1])) == 0;
}

constexpr size_t kMaxStages = 20;
constexpr size_t kMaxLines = 64;  // every one is held against the whole script

// "&&" of a command that stands in a variable.
bool is_operator(const ShellWord& word) {
  return !word.text.empty() && word.text.find_first_not_of("|&;()<>") == std::string::npos && word.parts.size() == 1 &&
         word.parts[0].quote == ShellQuote::kNone;
}

class LineReader {
 public:
  LineReader(const ShellScript& script, size_t command)
      : script_(script), command_(command), words_(script.commands[command].expanded) {}

  std::vector<LaunchStage> read() {
    if (handles_files(words_)) return {};
    while (at_ < words_.size() && stages_.size() < kMaxStages) {
      const LaunchProgram program =
          is_value_of_script() || (stages_.empty() && is_value_of_uv(words_, at_)) ? LaunchProgram::kOther : starts_program();
      if (program == LaunchProgram::kOther) {
        ++at_;
        continue;
      }
      if (program == LaunchProgram::kScript) {
        if (std::optional<LaunchStage> launcher = launcher_of_tool(script_, command_, at_)) stages_.push_back(std::move(*launcher));
      }
      stage(program);
      if (stages_.back().program == LaunchProgram::kScript) break;
    }
    return std::move(stages_);
  }

 private:
  // bash run.sh --backend deepspeed: the value of a script's option, where a script that starts what it is given has none in front.
  bool is_value_of_script() const {
    const auto is_shell_script = [this](size_t i) { return i < words_.size() && words_[i].text.ends_with(".sh"); };
    const std::string first = words_.empty() ? "" : base_name(words_[0].text);
    if (at_ == 0 || !(is_shell_script(0) || ((first == "bash" || first == "sh") && is_shell_script(1)))) return false;
    const std::string& before = words_[at_ - 1].text;
    return before.rfind("--", 0) == 0 && before.size() > 2 && before.find('=') == std::string::npos;
  }

  // What begins at the cursor; python -m torch.distributed.run counts as torchrun and moves the cursor to its last word.
  LaunchProgram starts_program() {
    const std::string base = base_name(words_[at_].text);
    if (base == "srun") return LaunchProgram::kSrun;
    if (base == "torchrun") return LaunchProgram::kTorchrun;
    if (base == "deepspeed") return LaunchProgram::kDeepspeed;
    if (base == "mpirun" || base == "mpiexec" || base == "aprun" || base == "jsrun") return LaunchProgram::kMpirun;
    if (base == "accelerate" && at_ + 1 < words_.size() && words_[at_ + 1].text == "launch") {
      ++at_;
      return LaunchProgram::kAccelerate;
    }
    if (base == "tune" && at_ + 2 < words_.size() && words_[at_ + 1].text == "run") {
      // torchtune's own launcher takes torchrun's options; without one the recipe is a program like another (torchtune/_cli/run.py).
      if (is_option(words_[at_ + 2].text)) {
        ++at_;
        return LaunchProgram::kTorchrun;
      }
      at_ += 2;
      return LaunchProgram::kScript;
    }
    if (base.rfind("python", 0) == 0) return python();
    // Of a Python whose path is a variable; a debugger's own options stand behind the module.
    const bool is_module = at_ > 0 && words_[at_ - 1].text == "-m" && !(at_ > 1 && base_name(words_[at_ - 2].text) == "debugpy-run");
    if (is_module && (base == "torch.distributed.run" || base == "torch.distributed.launch")) return LaunchProgram::kTorchrun;
    if (is_module_of_uv(words_, at_)) return program_of_module(base);
    if ((leads() || is_wrapped()) && is_swift(words_, at_)) return LaunchProgram::kScript;
    if (leads() && (is_script_name(words_[at_].text) || is_tool(base))) return LaunchProgram::kScript;
    // ${LAUNCHER} train.py, "$PYTHON" train.py: whatever it holds, the script's arguments stand behind the script.
    const bool is_behind_unknown = at_ == 1 && words_[0].text.starts_with("$") && words_[1].text.ends_with(".py");
    if (is_behind_unknown) return LaunchProgram::kScript;
    if (at_ == 0 && is_command_of_trainer()) return LaunchProgram::kScript;
    return is_wrapped() && (is_wrapped_script() || trains_by_name(base)) ? LaunchProgram::kScript : LaunchProgram::kOther;
  }

  static bool is_tool(std::string_view base) {
    return base == "llamafactory-cli" || base == "axolotl" || base == "lightning" || base == "trl" || base == "xtuner" ||
           base == "automodel";
  }

  bool leads() const { return !stages_.empty() || at_ == 0; }

  // apptainer run -B /data image.sif llamafactory-cli train a.yaml: the container's options are not known one by one, so that a tool
  // has to name its task, and a script to stand right behind what runs it.
  bool is_wrapped() const { return at_ > 0 && starts_rest_of_line(words_[0].text); }

  bool trains_by_name(std::string_view base) const {
    static const SwitchNames kTasks = {"train", "sft", "dpo", "grpo", "kto", "reward", "rloo"};
    return is_tool(base) && at_ + 1 < words_.size() && kTasks.count(words_[at_ + 1].text) > 0;
  }

  // autoalign-cli sft --per_device_train_batch_size 4: a command of one's own that names its task and takes the Trainer's arguments.
  bool is_command_of_trainer() const {
    static const SwitchNames kTasks = {"train", "sft", "dpo", "pt", "pretrain", "finetune"};
    return words_.size() > 2 && kTasks.count(words_[1].text) > 0 &&
           std::any_of(words_.begin(), words_.end(), [](const ShellWord& word) {
             return word.text.starts_with("--per_device_train_batch_size") || word.text.starts_with("--gradient_accumulation_steps");
           });
  }

  bool is_wrapped_script() const {
    const std::string& word = words_[at_].text;
    return word.ends_with(".py") && words_[at_ - 1].text == "run" && base_name(words_[0].text) == "uv";
  }

  // Every option that torchrun is not given it takes from PET_ and its name (torch/distributed/argparse_util.py, env).
  void add_defaults_of_torchrun(LaunchStage& stage) const {
    for (const char* name : {"nnodes", "nproc_per_node"}) {
      LaunchOption option;
      std::string variable = "PET_";
      for (const char* c = name; *c != '\0'; ++c) variable += static_cast<char>(std::toupper(static_cast<unsigned char>(*c)));
      if (stage.has(name) || !variable_in_environment(script_, command_, at_, variable, option)) continue;
      option.name = name;
      option.spelled = variable;
      option.has_value = true;
      stage.defaults.push_back(std::move(option));
    }
  }

  static LaunchProgram program_of_module(std::string_view module) {
    if (module == "torch.distributed.run" || module == "torch.distributed.launch") return LaunchProgram::kTorchrun;
    if (module == "accelerate.commands.launch") return LaunchProgram::kAccelerate;
    return module == "deepspeed.launcher.runner" ? LaunchProgram::kDeepspeed : LaunchProgram::kScript;
  }

  LaunchProgram python() {
    size_t i = at_ + 1;
    for (; i < words_.size() && is_option(words_[i].text) && words_[i].text != "-m"; ++i) {
      if (words_[i].text == "-c") return LaunchProgram::kOther;  // a line of Python
      if (words_[i].text == "-X" || words_[i].text == "-W") ++i;
    }
    if (i + 1 < words_.size() && words_[i].text == "-m") {
      const std::string& module = words_[i + 1].text;
      at_ = i + 1;
      return program_of_module(module);
    }
    if (i >= words_.size() || words_[i].text == "-" || is_operator(words_[i])) return LaunchProgram::kOther;
    at_ = i;
    if (base_name(words_[i].text) == "torchrun") return LaunchProgram::kTorchrun;  // python $(which torchrun)
    if (base_name(words_[i].text) == "deepspeed") return LaunchProgram::kDeepspeed;
    return LaunchProgram::kScript;
  }

  void stage(LaunchProgram program) {
    LaunchStage out;
    out.program = program;
    out.name = words_[at_].text;
    out.span = words_[at_].span;
    out.command = command_;
    const bool is_of_two =
        (program == LaunchProgram::kAccelerate && out.name == "launch") ||
        (program == LaunchProgram::kTorchrun && out.name == "run" && at_ > 0 && words_[at_ - 1].text.ends_with("tune"));
    if (is_of_two && at_ > 0) out.span.begin = words_[at_ - 1].span.begin;
    if (is_of_two && program == LaunchProgram::kTorchrun) out.name = "tune run";
    begin_ = at_++;
    const SwitchNames* switches = switches_of(program);
    for (; at_ < words_.size(); ++at_) {
      const ShellWord& word = words_[at_];
      if (is_operator(word)) break;
      const bool is_wrapper = program == LaunchProgram::kScript && hands_on_program(words_, at_);
      if (is_wrapper) out.program = LaunchProgram::kOther;  // python submit.py --gpus 8 -- torchrun train.py
      if (is_wrapper) break;
      if (word.text == "--" && program == LaunchProgram::kScript && base_name(out.name) == "axolotl") break;
      if (word.text == "--") continue;  // the end of options, in front of what is started or of its arguments
      if (!is_option(word.text)) {
        if (program != LaunchProgram::kScript && !is_open_in_front()) break;
        out.positionals.push_back(word);
        const bool is_value = word.text.find('=') == std::string::npos && !is_script_name(word.text);
        const bool is_more = is_value && !out.options.empty() && out.options.back().has_value && !may_hold_arguments(word);
        if (is_more) out.options.back().more.push_back(word.text);
        continue;
      }
      if (program == LaunchProgram::kSrun && is_cluster(word.text)) {
        for (const char letter : word.text.substr(1)) out.options.push_back(switch_of(letter, word));
        continue;
      }
      out.options.push_back(option(word, switches, program));
    }
    if (program == LaunchProgram::kTorchrun) add_defaults_of_torchrun(out);
    if (out.program == LaunchProgram::kScript) add_launcher_of_options(out);
    stages_.push_back(std::move(out));
    if (program == LaunchProgram::kScript || program == LaunchProgram::kSrun || program == LaunchProgram::kMpirun ||
        at_ >= words_.size())
      return;
    // The rest is the script with its options, whatever its name; "--module openrlhf.cli.train_sft".
    const LaunchProgram again = starts_program();
    if (again == LaunchProgram::kOther) {
      stage(LaunchProgram::kScript);
    }
  }

  // axolotl train FILE --launcher torchrun -- --nproc_per_node=8: what stands behind "--" is the launcher's.
  void add_launcher_of_options(LaunchStage& tool) {
    std::optional<LaunchStage> launcher = launcher_of_options(tool);
    const bool has_more = at_ < words_.size() && words_[at_].text == "--";
    for (size_t end = has_more ? words_.size() : at_; at_ < end && !is_operator(words_[at_]); ++at_) {
      if (launcher && is_option(words_[at_].text) && words_[at_].text != "--")
        launcher->options.push_back(option(words_[at_], switches_of(launcher->program), launcher->program));
    }
    if (launcher && !launcher->options.empty()) stages_.push_back(std::move(*launcher));
  }

  // torchrun $DISTRIBUTED_ARGS train.py: the launcher's options, and no script.
  bool is_open_in_front() const {
    return at_ + 1 < words_.size() && may_hold_arguments(words_[at_]) && words_[at_ + 1].text.ends_with(".py");
  }

  // srun -lu: several switches of one letter each.
  static bool is_cluster(const std::string& word) {
    return word.size() > 2 && word[1] != '-' && std::all_of(word.begin() + 1, word.end(), [](char letter) {
             return switches_of(LaunchProgram::kSrun)->count(std::string_view(&letter, 1)) > 0;
           });
  }

  static LaunchOption switch_of(char letter, const ShellWord& word) {
    LaunchOption out;
    out.name = std::string(1, letter);
    out.spelled = std::string("-") + letter;
    out.span = out.value_span = word.span;
    return out;
  }

  LaunchOption option(const ShellWord& word, const SwitchNames* switches, LaunchProgram program) {
    LaunchOption out;
    out.name = option_name(word.text);
    if (program == LaunchProgram::kSrun && word.text[1] == '-') out.name = srun_name(out.name);
    if (program == LaunchProgram::kTorchrun && word.text[1] == '-') out.name = torchrun_name(out.name);
    out.spelled = word.text.substr(0, word.text.find('='));
    out.span = word.span;
    out.value_span = word.span;
    const size_t equals = word.text.find('=');
    const bool is_short = word.text[1] != '-';
    if (equals != std::string::npos) {
      out.value = word.text.substr(equals + 1);
      out.has_value = true;
      return out;
    }
    const bool is_jsrun = program == LaunchProgram::kMpirun && base_name(words_[begin_].text) == "jsrun";
    const bool joins_value =
        is_short && word.text.size() > 2 &&
        (is_jsrun || (program == LaunchProgram::kSrun && std::isdigit(static_cast<unsigned char>(word.text[2])) != 0));
    if (joins_value) {
      out.name = word.text.substr(1, 1);
      out.value = word.text.substr(2);
      out.has_value = true;
      return out;
    }
    const bool is_switch = switches != nullptr && switches->count(out.name) > 0;
    if (is_switch || at_ + 1 >= words_.size() || is_option(words_[at_ + 1].text) || is_operator(words_[at_ + 1])) return out;
    ++at_;
    out.value = words_[at_].text;
    out.value_span = words_[at_].span;
    out.has_value = true;
    if (words_[at_].span.begin >= out.span.begin) out.span.end = words_[at_].span.end;
    return out;
  }

  const ShellScript& script_;
  size_t command_;
  const std::vector<ShellWord>& words_;
  size_t at_ = 0, begin_ = 0;  // where the stage's name stands
  std::vector<LaunchStage> stages_;
};

}  // namespace

const LaunchOption* LaunchStage::find(std::string_view option) const {
  const LaunchOption* found = nullptr;
  for (const LaunchOption& one : options) {
    if (one.name == option) found = &one;
  }
  return found;
}

std::string LaunchStage::value(std::string_view option) const {
  const LaunchOption* found = find(option);
  return found == nullptr ? "" : found->value;
}

const LaunchStage* LaunchLine::find(LaunchProgram program) const {
  for (const LaunchStage& stage : stages) {
    if (stage.program == program) return &stage;
  }
  return nullptr;
}

std::vector<LaunchLine> find_lines(const ShellScript& script) {
  std::vector<LaunchLine> lines;
  for (size_t i = 0; i < script.commands.size() && lines.size() < kMaxLines; ++i) {
    if (script.commands[i].is_dead) continue;
    std::vector<LaunchStage> stages = LineReader(script, i).read();
    if (!stages.empty()) lines.push_back({std::move(stages), i});
  }
  return lines;
}

std::optional<long long> number(std::string_view text) {
  long long out = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (text.empty() || status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return out;
}

}  // namespace distsetup::foreign
