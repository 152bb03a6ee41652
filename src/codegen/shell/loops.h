// What loops say of the variables that they change.
#pragma once
#include "codegen/shell/shell.h"

namespace distsetup::foreign {

// for pair in "${PAIRS[@]}", by its header: the list is the script's. Arguments ("$@") are those of whoever starts it, and a script is
// read as it is started without any.
bool is_over_list(const ShellCommand& header);

// TOTAL="$TOTAL,$one"
bool names_itself(const ShellAssignment& assignment);

}  // namespace distsetup::foreign
