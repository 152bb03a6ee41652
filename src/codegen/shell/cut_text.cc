#include "codegen/shell/cut_text.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace distsetup::foreign {
namespace {

constexpr size_t kMaxLength = 300;  // every length is tried

// Behind the pattern's one character at `at` ("a", "?", "\\*", "[a-z]") where it matches `c`; npos where it does not.
size_t matches_one(std::string_view pattern, size_t at, char c) {
  if (pattern[at] == '?') return at + 1;
  const size_t close = pattern[at] == '[' ? pattern.find(']', at + 2) : std::string_view::npos;
  if (close == std::string_view::npos) {
    if (pattern[at] == '\\' && at + 1 < pattern.size()) ++at;
    return pattern[at] == c ? at + 1 : std::string_view::npos;
  }
  std::string_view set = pattern.substr(at + 1, close - at - 1);
  const bool is_not = set[0] == '!' || set[0] == '^';
  if (is_not) set.remove_prefix(1);
  bool is_in = false;
  for (size_t i = 0; i < set.size(); ++i) {
    const bool is_range = i + 2 < set.size() && set[i + 1] == '-';
    is_in = is_in || (is_range ? set[i] <= c && c <= set[i + 2] : set[i] == c);
    i += is_range ? 2 : 0;
  }
  return is_in != is_not ? close + 1 : std::string_view::npos;
}

// The shortest or longest part at the end (or the beginning) that the pattern matches is cut off.
std::string cut_end(const std::string& value, const std::string& pattern, bool at_end, bool is_longest) {
  for (size_t i = 0; i <= value.size(); ++i) {
    const size_t length = is_longest ? value.size() - i : i;
    const std::string part = at_end ? value.substr(value.size() - length) : value.substr(0, length);
    if (matches_pattern(part, pattern)) return at_end ? value.substr(0, value.size() - length) : value.substr(length);
  }
  return value;
}

// Plain texts only: what a pattern matches is not looked for.
std::optional<std::string> replaced(const std::string& value, std::string_view how) {
  const bool is_all = how.substr(0, 2) == "//";
  how.remove_prefix(is_all ? 2 : 1);
  const size_t slash = how.find('/');
  const std::string from(how.substr(0, slash)), to(slash == std::string_view::npos ? "" : how.substr(slash + 1));
  if (from.empty() || from.find_first_of("*?[\\#%") != std::string::npos) return std::nullopt;
  std::string out = value;
  for (size_t at = out.find(from); at != std::string::npos; at = is_all ? out.find(from, at + to.size()) : std::string::npos) {
    out.replace(at, from.size(), to);
    if (out.size() > 4 * kMaxLength) return std::nullopt;
  }
  return out;
}

// ":0:3"
std::optional<std::string> slice(const std::string& value, std::string_view how) {
  const auto number = [](std::string_view text) -> std::optional<size_t> {
    size_t out = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), out);
    if (text.empty() || status != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return out;
  };
  how.remove_prefix(1);
  const size_t colon = how.find(':');
  const auto begin = number(how.substr(0, colon));
  const auto length = colon == std::string_view::npos ? std::optional<size_t>(value.size()) : number(how.substr(colon + 1));
  if (!begin || !length) return std::nullopt;
  return value.substr(std::min(*begin, value.size()), *length);
}

}  // namespace

// Backtracks to the last * only, which is enough: its cost is the product of the lengths.
bool matches_pattern(std::string_view text, std::string_view pattern) {
  size_t at = 0, in = 0, star = std::string_view::npos, from = 0;
  while (at < text.size()) {
    if (in < pattern.size() && pattern[in] == '*') {
      star = in++;
      from = at;
      continue;
    }
    const size_t next = in < pattern.size() ? matches_one(pattern, in, text[at]) : std::string_view::npos;
    if (next != std::string_view::npos) {
      in = next;
      ++at;
    } else if (star != std::string_view::npos) {
      in = star + 1;
      at = ++from;
    } else {
      return false;
    }
  }
  while (in < pattern.size() && pattern[in] == '*') ++in;
  return in == pattern.size();
}

std::optional<std::string> cut_text(const std::string& value, std::string_view how) {
  if (value.size() > kMaxLength || how.size() > kMaxLength || how.empty()) return std::nullopt;
  const char c = how[0];
  if (c == '%' || c == '#') {
    const bool is_longest = how.size() > 1 && how[1] == c;
    return cut_end(value, std::string(how.substr(is_longest ? 2 : 1)), c == '%', is_longest);
  }
  if (c == '/') return replaced(value, how);
  if (c == ':') return slice(value, how);
  if (how != ",," && how != "^^") return std::nullopt;
  std::string out = value;
  for (char& one : out)
    one = static_cast<char>(c == ',' ? std::tolower(static_cast<unsigned char>(one)) : std::toupper(static_cast<unsigned char>(one)));
  return out;
}

std::string unquoted_default(std::string_view text, bool is_quoted) {
  std::string out;
  for (const char c : text) {
    if (c != '"' && (is_quoted || c != '\'')) out += c;
  }
  return out;
}

}  // namespace distsetup::foreign
