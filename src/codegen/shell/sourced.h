// Files that a script sources (source env.sh, . ./env.sh): what they set acts in the script itself.
#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codegen/shell/shell.h"
#include "codegen/shell/shell_tree.h"
#include "codegen/shell/variables.h"

namespace distsetup::foreign {

// The text of the file that has this path from where the script runs or from where it stands; nothing where there is none.
struct ReadSourced {
  ReadSourced() = default;
  ReadSourced(std::nullptr_t) {}  // NOLINT(google-explicit-constructor): no files
  template <class Function>
  ReadSourced(Function function) : read(std::move(function)) {}  // NOLINT(google-explicit-constructor): a lambda is one

  std::function<std::optional<std::string>(const std::string& path)> read;
  bool shows_calls = true;  // what the files' functions start counts where they are called; lint looks at the files themselves
};

class SourcedFiles {
 public:
  explicit SourcedFiles(ReadSourced read) : read_(std::move(read)) {}
  // The text that a command sources. Nothing of other commands, of files of the machine (~/.bashrc, /etc/profile), of what is not
  // here, and beyond the limits, which end cycles too.
  std::optional<std::string> read(const ShellCommand& command);
  bool shows_calls() const { return read_.shows_calls; }

 private:
  ReadSourced read_;
  size_t num_files_ = 0, num_bytes_ = 0;
};

// The path that a command sources, from the script's folder; "" of other commands, and of files of the machine.
std::string sourced_path(const ShellCommand& command);

// export A=1, declare -x A
bool is_export(const ShellCommand& command);
// Whether assignments are exported behind this command (set -a, set +a); `before`: in front of it.
bool exports_all(const ShellCommand& command, bool before);

// What the sourced script hands to programs, as variables from outside of the one that sources it.
void add_exported(const ShellScript& sourced, bool exports_all, const ShellVariables::Changes& changes,
                  std::vector<OuterVariable>& out);

// Its words stand in another file.
ShellValue without_places(ShellValue value);

// A command of a sourced file's function, where it is called.
ShellCommand placed_at(ShellCommand command, TextSpan call);
std::vector<size_t> commands_of(const ShellNode& node);

}  // namespace distsetup::foreign
