// A script that completes command lines in zsh; completions.h says what all of them have in common.
#pragma once
#include <string>

namespace distsetup {

std::string zsh_completions();

}  // namespace distsetup
