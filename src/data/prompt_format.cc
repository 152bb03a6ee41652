#include "data/prompt_format.h"

#include <fmt/format.h>

#include "base/diagnostic_codes.h"

namespace distsetup {

Result<PromptFormat> parse_prompt_format(const std::string& text, const Location& at) {
  const auto bad = [&](const char* what) {
    return error(code::kWrongType, at, fmt::format("the prompt format '{}' has {}, expected {{}} once, for the prompt", text, what),
                 "'Question: {}\\nAnswer: ' in a file; a brace of the text is written twice: {{ and }}");
  };
  PromptFormat format;
  bool has_prompt = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i], next = i + 1 < text.size() ? text[i + 1] : '\0';
    const bool is_brace = c == '{' || c == '}';
    if (c == '{' && next == '}') {
      if (has_prompt) return bad("{} more than once");
      has_prompt = true;
      ++i;
      continue;
    }
    if (is_brace && next != c) return bad(c == '{' ? "a '{' that is no {}" : "a '}' alone");
    (has_prompt ? format.after : format.before) += c;
    if (is_brace) ++i;
  }
  if (!has_prompt) return bad("no {}");
  return format;
}

}  // namespace distsetup
