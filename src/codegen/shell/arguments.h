// What a function, or the script itself, is given: "1", "2", …, "#", "@" and "*".
#pragma once
#include <string_view>
#include <vector>

#include "codegen/shell/expander.h"

namespace distsetup::foreign {

// Not in quotes, and nothing but a variable or a $( ); or any number of words.
bool may_hold_arguments(const ShellWord& word);

// From here on. Where one may be any number, what stands behind it has no number that is known.
void set_arguments(ShellVariables& variables, const std::vector<ShellWord>& words);

// Those that there are, are there, and only the running script knows what they are.
void forget_arguments(ShellVariables& variables);

// What two calls give alike.
std::vector<ShellWord> common_arguments(const std::vector<ShellWord>& a, const std::vector<ShellWord>& b);

// shift, set -- A B
bool moves_arguments(const ShellCommand& command);
void move_arguments(const ShellCommand& command, ShellVariables& variables);

}  // namespace distsetup::foreign
