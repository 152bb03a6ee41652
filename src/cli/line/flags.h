// The one flag table. Every flag of every command is described once; the parser and the help are two walks over it. Flags that set a
// key of the run come from the planner's key table; flags of a command only are in flags.cc.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "cli/line/terminal.h"
#include "planner/spec/spec.h"
#include "planner/spec/spec_table.h"

namespace distsetup {

enum class FlagKind { kSwitch, kValue, kList };  // kList: may be repeated; its values are the lines of one text

// A flag of a command alone.
struct Flag {
  std::string name;                  // without dashes, words joined by '-'
  std::vector<std::string> aliases;  // other spellings; '-' and '_' are the same anyway
  FlagKind kind = FlagKind::kValue;
  std::string placeholder = "VALUE";  // in the help
  std::string help;                   // one line
  char letter = 0;                    // -q
  std::vector<std::string> values{};  // what a shell offers for it; empty: by the placeholder (files for PATH, folders for DIR)
};

// What a spelling is: a command's own flag, or a flag of a key of the run (then `key`, and `bare` says that it may stand alone).
struct FlagMatch {
  const Flag* flag = nullptr;
  const SpecKey* key = nullptr;
  std::string name;  // canonical, without dashes
  bool bare = false;
  explicit operator bool() const { return flag != nullptr || key != nullptr; }
};

class Arguments;

enum class AfterDashes { kPositionals, kPassedOn, kTrainerFlags };  // what words behind "--" are

struct Command {
  std::string name;
  std::string summary;                                        // one line of the list of commands
  std::string positional;                                     // "[run.yaml]"; empty: takes none
  std::vector<std::string> (*positional_values)() = nullptr;  // what a shell offers for it; none: files, where it names them
  int min_positionals = 0, max_positionals = 0;
  AfterDashes after_dashes = AfterDashes::kPositionals;
  std::vector<std::string> examples;  // pasteable lines
  std::vector<Flag> flags;            // its own, first in the help; they win over a run flag of the same spelling
  std::vector<std::string> run_keys;  // which keys of the run it takes as flags: "" all, "hardware" those below it
  std::string notes;                  // paragraph below the flags; empty = none
  int (*run)(const Arguments&, const Terminal&) = nullptr;
};

// What was on the command line: values by canonical flag name.
class Arguments {
 public:
  const Command* command = nullptr;
  std::vector<std::string> positionals;
  std::vector<std::string> passed_on;         // AfterDashes::kPassedOn, kTrainerFlags
  std::map<std::string, std::string> values;  // its own flags that are present; a switch has ""
  struct RunFlag {
    std::string spelling;              // without dashes
    std::optional<std::string> value;  // none: it stood alone
  };
  std::vector<RunFlag> run_flags;  // in order
  std::vector<std::string> words;  // the whole line, as typed

  bool has(std::string_view name) const { return values.find(std::string(name)) != values.end(); }
  std::optional<std::string> find(std::string_view name) const;
  std::string text(std::string_view name, std::string_view absent = "") const { return find(name).value_or(std::string(absent)); }
};

inline const std::vector<std::string> kAllRunKeys = {""};
bool takes_key(const Command& command, const SpecKey& key);

// Flags every command takes.
const std::vector<Flag>& common_flags();
// Spelling without dashes; '-' and '_' the same, case ignored.
FlagMatch find_flag(const Command& command, std::string_view spelling);
std::vector<std::string> flag_spellings(const Command& command);  // with dashes

// Command-line location of every message about flags.
Location command_line();
// Flags that would be ignored: each of `names` that is present is an error, since it acts `only` elsewhere ("with --print-schedule").
Diagnostics refuse_idle(const Arguments& arguments, const std::vector<std::string>& names, std::string_view only);
// Numbers of command-only flags.
Result<int64_t> int_flag(const Arguments& arguments, std::string_view name, int64_t absent, int64_t min, int64_t max);
Result<double> double_flag(const Arguments& arguments, std::string_view name, double absent);
// One of `allowed`, compared without case, '-' and '_' the same; the allowed spelling is returned.
Result<std::string> choice_flag(const Arguments& arguments, std::string_view name, std::string_view absent,
                                const std::vector<std::string>& allowed);

}  // namespace distsetup
