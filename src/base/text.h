// Texts taken apart at a character.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace distsetup {

// "a,,b" has three parts, "" has one.
std::vector<std::string> split(std::string_view text, char separator);
// Without blanks around them, empty ones left out.
std::vector<std::string> split_words(std::string_view text, char separator);

}  // namespace distsetup
