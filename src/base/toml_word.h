// A bare word of TOML (boolean, number, date): what it is as the other readers know it. Internal to base.
#pragma once
#include <string>

namespace distsetup {

struct TomlWord {
  std::string text;
  std::string problem, help;  // a message when it is none of these
};
TomlWord read_toml_word(const std::string& word);

}  // namespace distsetup
