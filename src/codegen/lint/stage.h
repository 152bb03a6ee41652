// What a command line starts, from the outside in: `srun torchrun train.py` is srun, then torchrun, then the script, each with its
// own options.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/shell/shell.h"

namespace distsetup::lint {

struct Option {
  std::string name;     // without dashes, '-' as '_'
  std::string spelled;  // "--nproc-per-node"
  std::string value;    // variables of known value replaced; "" when it stands alone
  bool has_value = false;
  std::vector<std::string> more;  // of a script's option: the words behind its value ("--betas 0.9 0.95")
  Span span;                      // of flag and value
};

enum class Program { kSrun, kTorchrun, kDeepspeed, kAccelerate, kMpirun, kScript, kOther };

struct Stage {
  Program program = Program::kOther;
  std::string name;  // as written: "srun", "pretrain_gpt.py"
  Span span;         // of the name
  std::vector<Option> options;
  std::vector<ShellWord> positionals;
  size_t command = 0;  // index in script.commands

  const Option* find(std::string_view option_name) const;  // '-' and '_' the same; the last one
  std::string value(std::string_view option_name) const;
  bool has(std::string_view option_name) const { return find(option_name) != nullptr; }
};

// The stages of every command, outermost first; commands without a known program have none.
struct Line {
  std::vector<Stage> stages;
  size_t command = 0;
  const Stage* find(Program program) const;
};
std::vector<Line> find_lines(const ShellScript& script);

// "8" -> 8; nothing when it is no whole number (a variable, auto).
std::optional<long long> number(std::string_view text);

}  // namespace distsetup::lint
