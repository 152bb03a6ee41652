// What a script's variables stand for where that is known without running it: assignments of literals.
#include "codegen/shell/expand.h"

#include <algorithm>
#include <cctype>
#include <optional>

namespace distsetup::foreign {
namespace {

bool starts_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool continues_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

}  // namespace

std::vector<std::pair<std::string, size_t>> expansions(std::string_view text, TextSpan range) {
  std::vector<std::pair<std::string, size_t>> out;
  for (size_t i = range.begin; i + 1 < range.end; ++i) {
    if (text[i] == '\\') {
      ++i;
      continue;
    }
    if (text[i] != '$') continue;
    size_t begin = i + 1;
    if (text[begin] == '{') ++begin;
    size_t end = begin;
    while (end < range.end && continues_name(text[end])) ++end;
    if (end > begin && starts_name(text[begin])) out.emplace_back(std::string(text.substr(begin, end - begin)), i);
  }
  return out;
}

namespace {

using VariableNames = std::vector<std::string_view>;

// The `}` of the `${` whose name begins at `begin`; npos: it does not close.
size_t closing_brace(std::string_view text, size_t begin) {
  int level = 1;
  for (size_t i = begin; i < text.size(); ++i) {
    if (text[i] == '}' && --level == 0) return i;
    if (text[i] == '{' && text[i - 1] == '$') ++level;
  }
  return std::string_view::npos;
}

std::string known_text(const ShellScript& script, std::string_view text, const VariableNames& inside);

// What a variable holds; nothing when only the running script knows it. `inside`: the variables this one is part of, so that the
// default of NAME=${NAME:-x} counts.
std::optional<std::string> value_of_variable(const ShellScript& script, std::string_view name, const VariableNames& inside) {
  const bool is_inside = std::find(inside.begin(), inside.end(), name) != inside.end();
  const ShellAssignment* known = is_inside ? nullptr : script.assignment(name);
  if (known == nullptr || known->is_array) return std::nullopt;
  for (const WordPart& part : known->value.parts) {
    if (part.quote == ShellQuote::kSingle && part.text.find('$') != std::string::npos) return std::nullopt;
  }
  VariableNames deeper = inside;
  deeper.push_back(name);
  std::string value = known_text(script, known->value.text, deeper);
  if (value.find_first_of("$`") != std::string::npos) return std::nullopt;
  return value;
}

std::string known_text(const ShellScript& script, std::string_view text, const VariableNames& inside) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (text[i] != '$' || i + 1 >= text.size()) {
      out += text[i++];
      continue;
    }
    const bool is_braced = text[i + 1] == '{';
    const size_t begin = i + (is_braced ? 2 : 1);
    size_t end = begin;
    while (end < text.size() && continues_name(text[end])) ++end;
    size_t after = end;
    std::optional<std::string> value;
    if (end > begin) value = value_of_variable(script, text.substr(begin, end - begin), inside);
    if (is_braced) {
      const size_t close = closing_brace(text, begin);
      if (close == std::string_view::npos) return out + std::string(text.substr(i));
      const std::string_view rest = text.substr(end, close - end);
      const bool has_default = end > begin && rest.substr(0, 2) == ":-";
      if (!value && has_default) {
        const std::string other = known_text(script, rest.substr(2), inside);
        if (other.find_first_of("$`") == std::string::npos) value = other;
      }
      if (!has_default && !rest.empty()) value.reset();
      after = close + 1;
    }
    out += value ? *value : std::string(text.substr(i, after - i));
    i = std::max(after, i + 1);
  }
  return out;
}

}  // namespace

std::string literal(const ShellScript& script, std::string_view text) { return known_text(script, text, {}); }

namespace {

constexpr int kMaxExpansions = 6;  // variables that are made of variables

// "$name", "${name[@]}": name; else "".
std::string referred(const ShellWord& word) {
  std::string name = word.text;
  if (name.size() < 2 || name[0] != '$') return "";
  name.erase(0, 1);
  if (name[0] == '{' && name.back() == '}') name = name.substr(1, name.size() - 2);
  for (const std::string_view tail : {"[@]", "[*]"}) {
    if (name.size() > 3 && name.substr(name.size() - 3) == tail) name.erase(name.size() - 3);
  }
  return name;
}

// What an array holds, with what is added to it. Nothing when it is set anew, as in command=(torchrun "${command[@]}"): then only the
// running script knows.
std::optional<std::vector<ShellWord>> items_of(const ShellScript& script, std::string_view name) {
  std::vector<ShellWord> items;
  int num_set = 0;
  for (const ShellCommand& command : script.commands) {
    for (const ShellAssignment& one : command.assignments) {
      if (one.name != name) continue;
      num_set += one.appends ? 0 : 1;
      items.insert(items.end(), one.array.begin(), one.array.end());
    }
  }
  if (num_set > 1) return std::nullopt;
  return items;
}

std::vector<ShellWord> expand(const ShellScript& script, const std::vector<ShellWord>& words, int depth) {
  std::vector<ShellWord> out;
  for (const ShellWord& word : words) {
    const std::string name = referred(word);
    const ShellAssignment* known = name.empty() ? nullptr : script.assignment(name);
    const bool is_quoted = word.parts.size() == 1 && word.parts[0].quote == ShellQuote::kDouble;
    if (known == nullptr || depth > kMaxExpansions || (is_quoted && !known->is_array)) {
      out.push_back(word);
    } else if (known->is_array) {
      const std::optional<std::vector<ShellWord>> items = items_of(script, name);
      const std::vector<ShellWord> inside = items ? expand(script, *items, depth + 1) : std::vector<ShellWord>{word};
      out.insert(out.end(), inside.begin(), inside.end());
    } else {
      bool is_split = false;
      for (const WordPart& part : known->value.parts) {
        const ShellScript inner = parse_shell(script.text, part.span);
        for (const ShellCommand& command : inner.commands) {
          const std::vector<ShellWord> inside = expand(script, command.words, depth + 1);
          out.insert(out.end(), inside.begin(), inside.end());
          is_split = true;
        }
      }
      if (!is_split) out.push_back(word);
    }
  }
  return out;
}

}  // namespace

std::vector<ShellWord> expand_words(const ShellScript& script, const std::vector<ShellWord>& words) {
  return expand(script, words, 0);
}

}  // namespace distsetup::foreign
