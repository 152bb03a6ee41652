#include "codegen/shell/references.h"

#include <algorithm>

#include "codegen/shell/words.h"

namespace distsetup::foreign {

bool has_reference(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '`' || (text[i] == '$' && i + 1 < text.size() && !is_shell_blank(text[i + 1]))) {
      return true;
    }
  }
  return false;
}

bool is_any_number(std::string_view word) {
  if (word == "$@" || word == "$*") return true;
  if (word.size() < 4 || !word.starts_with("${") || word.back() != '}') return false;
  return word[2] == '@' || word[2] == '*' || word.ends_with("[@]}") || word.ends_with("[*]}");
}

size_t name_end(std::string_view text, size_t begin) {
  size_t end = begin;
  while (end < text.size() && is_name_char(text[end])) ++end;
  return end;
}

std::string joined(const std::vector<ShellWord>& words) {
  std::string out;
  for (const ShellWord& word : words) {
    if (out.size() > kMaxValueBytes) break;
    out += (&word == &words[0] ? "" : " ") + word.text;
  }
  return out;
}

std::vector<ShellWord> words_of_text(std::string_view text, TextSpan span) {
  std::vector<ShellWord> out;
  for (size_t at = 0; at < text.size() && out.size() < kMaxValueWords;) {
    while (at < text.size() && is_shell_blank(text[at])) ++at;
    size_t end = at;
    while (end < text.size() && !is_shell_blank(text[end])) ++end;
    if (end > at) out.push_back(bare_word(std::string(text.substr(at, end - at)), span));
    at = end;
  }
  return out;
}

std::optional<std::vector<ShellWord>> arguments_from(const ShellValue& all, std::string_view slice) {
  if (slice.empty()) return all.words;
  const bool is_digit = slice.size() == 2 && slice[0] == ':' && slice[1] >= '1' && slice[1] <= '9';
  if (!is_digit) return std::nullopt;
  const auto first =
      all.words.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(static_cast<size_t>(slice[1] - '1'), all.words.size()));
  const bool is_counted = std::none_of(all.words.begin(), first, [](const ShellWord& word) { return is_any_number(word.text); });
  return is_counted ? std::optional<std::vector<ShellWord>>({first, all.words.end()}) : std::nullopt;
}

std::optional<std::pair<std::string_view, std::string_view>> single_reference(std::string_view text) {
  if (text.size() < 2 || text[0] != '$') return std::nullopt;
  std::string_view inside = text.substr(1);
  if (inside[0] == '{') {
    if (closing_bracket(text, 1, text.size()) != text.size() - 1) return std::nullopt;
    inside = inside.substr(1, inside.size() - 2);
  }
  const bool is_all = inside[0] == '@' || inside[0] == '*';  // all arguments
  const size_t end = is_all ? 1 : name_end(inside, 0);
  if (end == 0 || (!is_all && !is_name_start(inside[0]) && end > 1)) return std::nullopt;
  if (text[1] != '{' && end != inside.size()) return std::nullopt;
  return std::pair(inside.substr(0, end), inside.substr(end));
}

}  // namespace distsetup::foreign
