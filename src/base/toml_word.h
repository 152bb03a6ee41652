// Parts of TOML that need no place: bare words (boolean, number, date) as the other readers know them, escaped characters. Internal to
// base.
#pragma once
#include <cstdint>
#include <string>

namespace distsetup {

struct TomlWord {
  std::string text;
  std::string problem, help;  // a message when it is none of these
};
TomlWord read_toml_word(const std::string& word);

// False for what is no character (a surrogate, beyond U+10FFFF).
bool append_utf8(uint32_t code_point, std::string& out);

}  // namespace distsetup
