// What a launch line of a script says beside the keys that tables know.
#pragma once
#include <string>
#include <vector>

#include "base/tree_builder.h"
#include "codegen/read/found.h"
#include "codegen/read/reading.h"
#include "codegen/shell/launch_line.h"

namespace distsetup {

// The table of a launcher's own options; "" of a script.
std::string table_of(foreign::LaunchProgram program);

// Arguments of a program that no table knows.
Reading unread(const std::vector<FoundKey>& found, const std::string& file, const std::string& what);

// Words that may hold any arguments: $COMMON_ARGS, $(cat args.txt), "$@".
std::vector<LostKey> open_words(const SourceText& source, const foreign::LaunchStage& stage);
// Words behind the one value of an option that was read: of a path with blanks that nobody quoted, or the script's own.
void tell_words_behind(const SourceText& source, const foreign::LaunchStage& stage, Reading& reading);
// One of them is the script's own, so that a default of the program may not hold. What the script is given when it is started ("$@")
// is nothing, as its arguments are.
bool may_set_more(const std::vector<LostKey>& open);

// One training of a file: a second one that starts another program, and says what the first does not, is no part of the same run.
class OneTraining {
 public:
  // `readings`: of the line, from `first` on.
  Diagnostics take(const SourceText& source, const foreign::LaunchLine& line, const std::vector<Reading>& readings, size_t first);

 private:
  std::string program_;
  Location at_;
  std::vector<std::string> said_;
  bool names_model_ = false;
};

}  // namespace distsetup
