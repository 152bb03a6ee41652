// What a script's variables stand for where that is known without running it: assignments of literals.
#include <algorithm>
#include <cctype>
#include <optional>

#include "codegen/lint/shell.h"

namespace distsetup::lint {
namespace {

bool starts_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool continues_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

}  // namespace

std::vector<std::pair<std::string, size_t>> expansions(std::string_view text, Span range) {
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

std::string literal(const ShellScript& script, std::string_view text) {
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
    if (const Assignment* known = end > begin ? script.assignment(text.substr(begin, end - begin)) : nullptr) {
      if (!known->is_array && known->value.text.find('$') == std::string::npos && known->value.text.find('`') == std::string::npos)
        value = known->value.text;
    }
    if (is_braced) {
      const size_t close = text.find('}', end);
      if (close == std::string_view::npos) return out + std::string(text.substr(i));
      const std::string_view rest = text.substr(end, close - end);
      const bool has_default = rest.size() > 2 && rest.substr(0, 2) == ":-";
      if (!value && has_default && rest.find('$') == std::string_view::npos) value = std::string(rest.substr(2));
      if (!has_default && !rest.empty()) value.reset();
      after = close + 1;
    }
    out += value ? *value : std::string(text.substr(i, after - i));
    i = std::max(after, i + 1);
  }
  return out;
}

namespace {

constexpr int kMaxExpansions = 6;  // variables that are made of variables

std::vector<ShellWord> expand(const ShellScript& script, const std::vector<ShellWord>& words, int depth) {
  std::vector<ShellWord> out;
  for (const ShellWord& word : words) {
    std::string name = word.text;
    const bool is_reference = name.size() > 1 && name[0] == '$';
    if (is_reference) {
      name.erase(0, 1);
      if (name[0] == '{' && name.back() == '}') name = name.substr(1, name.size() - 2);
      for (const std::string_view tail : {"[@]", "[*]"}) {
        if (name.size() > 3 && name.substr(name.size() - 3) == tail) name.erase(name.size() - 3);
      }
    }
    const Assignment* known = is_reference ? script.assignment(name) : nullptr;
    if (known == nullptr) {
      out.push_back(word);
    } else if (known->is_array) {
      for (const ShellWord& item : known->array) out.push_back(item);
      for (const ShellCommand& command : script.commands) {
        for (const Assignment& more : command.assignments) {
          if (more.name == name && more.appends) out.insert(out.end(), more.array.begin(), more.array.end());
        }
      }
    } else {
      bool is_split = false;
      for (const WordPart& part : known->value.parts) {
        const ShellScript inner = parse_shell(script.text, part.span);
        for (const ShellCommand& command : inner.commands) {
          const std::vector<ShellWord> inside = depth < kMaxExpansions ? expand(script, command.words, depth + 1) : command.words;
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

}  // namespace distsetup::lint
