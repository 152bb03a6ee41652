// A script followed from its beginning, as far as that can be done without running it.
#pragma once
#include "codegen/shell/shell.h"
#include "codegen/shell/sourced.h"

namespace distsetup::foreign {

// Fills in `expanded`, `known`, `is_dead` and `files` of a script that was parsed. It is read as it is started without arguments:
// values that the script sets count, so do its defaults; variables of the environment are not known. Of a branch that nothing decides,
// what all its ways agree on counts behind it. `read`: of files that it sources.
ShellScript follow_shell(ShellScript script, const ReadSourced& read = nullptr);

}  // namespace distsetup::foreign
