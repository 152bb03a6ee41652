// What a condition of a script comes to, as far as the script's own settings decide it.
#pragma once
#include <optional>

#include "codegen/shell/expander.h"
#include "codegen/shell/shell.h"

namespace distsetup::foreign {

// [[ … ]], [ … ], test …, (( … )), true and false; nothing where only the running script knows.
std::optional<bool> truth_of(const ShellCommand& command, ShellExpander& variables);

}  // namespace distsetup::foreign
