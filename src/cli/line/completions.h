// A script that completes command lines in bash (completions_zsh.h, completions_fish.h: in zsh and fish), generated from the one flag
// table. It is whole: nothing is asked of the program while a user types.
#pragma once
#include <string>

namespace distsetup {

std::string bash_completions();

}  // namespace distsetup
