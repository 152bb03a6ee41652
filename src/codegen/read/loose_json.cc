#include "codegen/read/loose_json.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace distsetup::foreign {

std::string json_without_comments(std::string_view text) {
  std::string out(text);
  bool has_some = false;
  const auto blank = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < std::min(end, out.size()); ++i) {
      if (out[i] != '\n') out[i] = ' ';
    }
    has_some = true;
  };
  size_t comma = std::string::npos;  // the last one, with nothing but blanks behind it
  for (size_t i = 0; i < text.size();) {
    const std::string_view two = text.substr(i, 2);
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"' && text[i] != '\n'; ++i) i += text[i] == '\\' ? 1 : 0;
      ++i;
      comma = std::string::npos;
    } else if (two == "//" || text[i] == '#') {
      const size_t end = std::min(text.find('\n', i), text.size());
      blank(i, end);
      i = end;
    } else if (two == "/*") {
      const size_t end = text.find("*/", i + 2);
      if (end == std::string_view::npos) return "";
      blank(i, end + 2);
      i = end + 2;
    } else {
      if ((text[i] == '}' || text[i] == ']') && comma != std::string::npos) blank(comma, comma + 1);
      const bool is_blank = std::isspace(static_cast<unsigned char>(text[i])) != 0;
      if (!is_blank) comma = text[i] == ',' ? i : std::string::npos;
      ++i;
    }
  }
  return has_some ? out : "";
}

DocumentPointer without_comments(const Document& document) {
  if (document.form != TextForm::kJson || document.kind == nullptr || !has_error(document.broken)) return nullptr;
  const std::string text = json_without_comments(document.text);
  if (text.empty()) return nullptr;
  DocumentPointer read = parse_document_as(document.kind, document.path, text);
  return has_error(read->broken) ? nullptr : read;
}

std::string template_mark(std::string_view text, size_t at) {
  for (const std::string_view mark : {"{{", "{%"}) {
    if (text.find(mark) != std::string_view::npos) return std::string(mark);
  }
  const auto is_word = [](char c) {
    return std::isupper(static_cast<unsigned char>(c)) != 0 || std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  while (at > 0 && is_word(text[at - 1])) --at;
  for (const auto& [open, close] : {std::pair<std::string_view, std::string_view>{"${", "}"}, {"<", ">"}}) {
    const size_t end = text.substr(at, open.size()) == open ? text.find(close, at) : std::string_view::npos;
    if (end != std::string_view::npos) return std::string(text.substr(at, end + close.size() - at));
  }
  size_t end = at;
  while (end < text.size() && is_word(text[end])) ++end;
  const std::string word(text.substr(at, end - at));
  const bool is_name = word.size() >= 3 && std::isupper(static_cast<unsigned char>(word[0])) != 0;
  return is_name ? word : "";
}

}  // namespace distsetup::foreign
