// Scripts that complete command lines in bash, zsh and fish, generated from the one flag table. They are whole: nothing is asked of
// the program while a user types.
#pragma once
#include <string>

namespace distsetup {

std::string bash_completions();
std::string zsh_completions();
std::string fish_completions();

}  // namespace distsetup
