// The words around each prompt, written as for Python's str.format: "User: {}\nAssistant: ", braces of the text itself twice.
#pragma once
#include <string>

#include "base/diagnostic.h"

namespace distsetup {

struct PromptFormat {
  std::string before, after;
};
// Errors: no {} or several, other fields than {}, a brace alone.
Result<PromptFormat> parse_prompt_format(const std::string& text, const Location& at);

}  // namespace distsetup
