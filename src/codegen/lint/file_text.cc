#include "codegen/lint/file_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace distsetup::lint {
namespace {

void blank_keys(const Document& d, const Value& value, Findings& report) {
  for (size_t i = 0; i < value.entries.size(); ++i) {
    const auto& [key, below] = value.entries[i];
    if (ends_in_blank(key)) {
      std::string right = key;
      while (!right.empty() && right.back() == ' ') right.pop_back();
      right.erase(0, std::min(right.find_first_not_of(' '), right.size()));
      report.add("FIL004", d, key_span(d, {&below, &value, i}),
                 fmt::format("the key '{}' has a blank at its end: it is not '{}'", key, right),
                 {fmt::format("write '{}'", right), "", {}, {}});
    }
    blank_keys(d, below, report);
  }
  for (const Value& item : value.items) blank_keys(d, item, report);
}

// X="${1:-'x'}": within double quotes the inner ones are part of the value.
void kept_quotes(const Document& d, const ShellScript& script, Findings& report) {
  const bool reads_again = d.text.find("eval ") != std::string::npos || d.text.find("bash -c \"") != std::string::npos;
  for (const ShellCommand& command : script.commands) {
    if (command.depth > 0) continue;
    for (const ShellAssignment& one : command.assignments) {
      for (const WordPart& part : one.value.parts) {
        const std::string_view text = d.cut(part.span);
        const size_t dollar = part.quote == ShellQuote::kDouble ? text.find("${") : std::string_view::npos;
        const size_t dash = dollar == std::string_view::npos ? dollar : text.find("-'", dollar);
        const size_t end = dash == std::string_view::npos ? dash : text.find("'}", dash + 2);
        if (end == std::string_view::npos) continue;
        const std::string_view name = text.substr(dollar + 2, dash - dollar - 2);
        const bool is_name = std::all_of(
            name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == ':'; });
        if (!is_name) continue;
        const TextSpan at{part.span.begin + dollar, part.span.begin + end + 2};
        const std::string_view value = text.substr(dash + 1, end + 1 - dash - 1);
        report.add("SH001", d, at,
                   fmt::format("{} becomes {} with its quotes: within double quotes they belong to the value", one.name, value),
                   {fmt::format("write {}", value.substr(1, value.size() - 2)),
                    "",
                    {},
                    reads_again ? std::optional<Severity>(Severity::kWarning) : std::nullopt});
      }
    }
  }
}

}  // namespace

bool ends_in_blank(std::string_view key) {
  return key.size() > 1 && (key.back() == ' ' || key.front() == ' ') && key.find_first_not_of(' ') != std::string_view::npos;
}

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

void check_file_text(const LintSetup&, const Document& d, Findings& report) {
  for (const Value& root : d.roots) blank_keys(d, root, report);
  if (d.roots.empty() && d.is_structured()) blank_keys(d, d.root, report);
  for (const ScriptPart& part : d.parts) kept_quotes(d, part.script, report);
}

}  // namespace distsetup::lint
