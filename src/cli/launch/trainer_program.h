// Where the bundled trainer's program is.
#pragma once
#include <string>

namespace distsetup {

// `given`, if it is not empty, else distsetup-train beside this program. Whether it is there is not looked at.
std::string trainer_program(const std::string& given);
bool is_program(const std::string& path);  // a file that can be executed

}  // namespace distsetup
