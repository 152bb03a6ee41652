#include "planner/replay/program_words.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"

namespace distsetup::replay {

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = text.find_first_not_of(" \n\t", at);
    if (begin == std::string_view::npos) break;
    const size_t end = std::min(text.find_first_of(" \n\t", begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    at = end;
  }
  return words;
}

std::vector<std::string> texts_of(const Value* value, Diagnostics& said) {
  std::vector<std::string> texts;
  if (value == nullptr) return texts;
  const auto add = [&](const Value& item) {
    Result<std::string> text = as_text(item);
    append(said, std::move(text.diagnostics));
    if (text.value) texts.push_back(*text.value);
  };
  if (value->kind == Value::Kind::kList) {
    for (const Value& item : value->items) add(item);
  } else {
    add(*value);
  }
  return texts;
}

SizeExpression size_of(std::string_view text, const std::function<int(std::string_view)>& find, const Location& at,
                       Diagnostics& said) {
  SizeExpression size;
  std::string problem;
  if (!parse_size(text, find, size, problem)) {
    said.push_back(error(code::kUnknownValue, at, fmt::format("size '{}': {}", text, problem)));
  }
  return size;
}

}  // namespace distsetup::replay
