// Files that a script sources (source env.sh, . ./env.sh): what they set acts in the script itself.
#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "codegen/shell/shell.h"
#include "codegen/shell/variables.h"

namespace distsetup::foreign {

// The text of the file that has this path from where the script runs or from where it stands; nothing where there is none.
using ReadSourced = std::function<std::optional<std::string>(const std::string& path)>;

class SourcedFiles {
 public:
  explicit SourcedFiles(ReadSourced read) : read_(std::move(read)) {}
  // The text that a command sources. Nothing of other commands, of files of the machine (~/.bashrc, /etc/profile), of what is not
  // here, and beyond the limits, which end cycles too.
  std::optional<std::string> read(const ShellCommand& command);

 private:
  ReadSourced read_;
  size_t num_files_ = 0, num_bytes_ = 0;
};

// export A=1, declare -x A
bool is_export(const ShellCommand& command);
// Whether assignments are exported behind this command (set -a, set +a); `before`: in front of it.
bool exports_all(const ShellCommand& command, bool before);

// What the sourced script hands to programs, as variables from outside of the one that sources it.
void add_exported(const ShellScript& sourced, bool exports_all, const ShellVariables::Changes& changes,
                  std::vector<OuterVariable>& out);

// Its words stand in another file.
ShellValue without_places(ShellValue value);

}  // namespace distsetup::foreign
