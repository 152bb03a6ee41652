// The layers that a command line and its environment say: flags of keys, --set and DISTSETUP_ variables.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "cli/line/flags.h"

namespace distsetup {

// One flag may set two things ("--gpus 8xH100"); two flags that set one thing differently are a mistake, whichever came last.
Result<Spec> read_flags(const Arguments& arguments);
// --set key.path=value. Beside files of other tools a key that no run has is theirs, and left out here.
Result<Spec> read_assignments(const Arguments& arguments, bool has_foreign_files);
std::vector<std::pair<std::string, std::string>> foreign_assignments(const Arguments& arguments);
// Warnings: variables that no key reads.
Result<Spec> read_variables();

// "train.steps=50": a setting by its path or by one of its flags.
Diagnostics set_by_path(Spec& spec, const std::string& assignment, const Location& at);
// Values of a flag that may be given several times (FlagKind::kList).
std::vector<std::string> lines_of(const std::string& text);

}  // namespace distsetup
