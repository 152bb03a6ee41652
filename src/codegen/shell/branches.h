// Which branches of a script's ifs its own settings take.
#pragma once
#include "codegen/shell/shell.h"

namespace distsetup::foreign {

// Without the commands of branches that cannot be taken with the script's own settings: if [[ $A == b ]] (also =, !=, -n, -z, of [ ]
// too) where A has a known value. What else a condition asks leaves all its branches in.
ShellScript taken_branches(const ShellScript& script);

}  // namespace distsetup::foreign
