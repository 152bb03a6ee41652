#pragma once
#include <string>
#include <vector>

namespace distsetup {

// The whole program: `words` are argv without the program's name. Returns the exit code.
int run_cli(const std::vector<std::string>& words);

}  // namespace distsetup
