// A script that completes command lines in fish; completions.h says what all of them have in common.
#pragma once
#include <string>

namespace distsetup {

std::string fish_completions();

}  // namespace distsetup
