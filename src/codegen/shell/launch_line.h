// What a command line starts, from the outside in: `srun torchrun train.py` is srun, then torchrun, then the script, each with its
// own options.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/shell/shell.h"

namespace distsetup::foreign {

// The value of an option that of branches which nothing decides one gives and another does not.
inline bool is_of_a_branch(std::string_view value) { return value.starts_with("${") && value.ends_with(":+}"); }

struct LaunchOption {
  std::string name;     // without dashes, '-' as '_'
  std::string spelled;  // "--nproc-per-node"
  std::string value;    // variables of known value replaced; "" when it stands alone
  bool has_value = false;
  std::vector<std::string> more;  // of a script's option: the words behind its value ("--betas 0.9 0.95")
  TextSpan span;                  // of flag and value
  TextSpan value_span;            // where the value is written: of a variable of known value in its assignment
};

enum class LaunchProgram { kSrun, kTorchrun, kDeepspeed, kAccelerate, kMpirun, kScript, kOther };

struct LaunchStage {
  LaunchProgram program = LaunchProgram::kOther;
  std::string name;  // as written: "srun", "pretrain_gpt.py"
  TextSpan span;     // of the name
  std::vector<LaunchOption> options;
  std::vector<LaunchOption> defaults;  // that variables of the environment give to torchrun
  std::vector<ShellWord> positionals;
  size_t command = 0;  // index in script.commands

  const LaunchOption* find(std::string_view option_name) const;  // '-' and '_' the same; the last one
  std::string value(std::string_view option_name) const;
  bool has(std::string_view option_name) const { return find(option_name) != nullptr; }
};

// The stages of every command that is not dead, outermost first; commands without a known program have none. Of a script that was
// followed (follow.h). The first 64 are read.
struct LaunchLine {
  std::vector<LaunchStage> stages;
  size_t command = 0;
  const LaunchStage* find(LaunchProgram program) const;
};
std::vector<LaunchLine> find_lines(const ShellScript& script);

// "8" -> 8; nothing when it is no whole number (a variable, auto).
std::optional<long long> number(std::string_view text);

}  // namespace distsetup::foreign
