// Where this program is.
#pragma once
#include <filesystem>

namespace distsetup {

std::filesystem::path own_program();  // absolute, links followed; "" where the system does not say

}  // namespace distsetup
