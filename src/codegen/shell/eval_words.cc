#include "codegen/shell/eval_words.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "codegen/shell/references.h"
#include "codegen/shell/words.h"

namespace distsetup::foreign {
namespace {

constexpr std::string_view kOperators = "|&;()<>";

// ">", "&&"; "2" in front of a redirection is a part of it.
ShellWord operator_at(std::string_view text, size_t& at, TextSpan span) {
  const size_t begin = text.find_first_not_of("0123456789", at);
  at = std::min(text.find_first_not_of(kOperators, begin), text.size());
  return bare_word(std::string(text.substr(begin, at - begin)), span);
}

bool is_operator_at(std::string_view text, size_t at) {
  const size_t begin = text.find_first_not_of("0123456789", at);
  if (begin == std::string_view::npos || kOperators.find(text[begin]) == std::string_view::npos) return false;
  return begin == at || text[begin] == '<' || text[begin] == '>';
}

bool is_bare_word(const ShellWord& word) { return word.parts.size() == 1 && word.parts[0].quote == ShellQuote::kNone; }

// && || ; | & and none of the redirections.
bool parts_commands(const ShellWord& word) {
  return is_bare_word(word) && !word.text.empty() && word.text.find_first_not_of("|&;") == std::string::npos;
}

// `text` as words and operators, at the places of the words that ended at `ends` of it; nothing where a quote does not close.
std::optional<std::vector<ShellWord>> read_again(const std::string& text, const std::vector<size_t>& ends,
                                                 const std::vector<TextSpan>& spans) {
  std::vector<ShellWord> out;
  for (size_t at = 0, i = 0; at < text.size();) {
    while (at >= ends[i]) ++i;
    if (is_shell_blank(text[at])) {
      ++at;
    } else if (is_operator_at(text, at)) {
      out.push_back(operator_at(text, at, spans[i]));
    } else {
      WordRead read = read_word(text, {at, text.size()});
      if (read.unclosed || read.end <= at) return std::nullopt;
      read.word.span = spans[i];
      for (WordPart& part : read.word.parts) part.span = spans[i];
      out.push_back(std::move(read.word));
      at = read.end;
    }
  }
  return out;
}

std::optional<std::vector<ShellWord>> read_again(const std::vector<ShellWord>& words, size_t begin, size_t end) {
  std::string text;
  std::vector<size_t> ends;
  std::vector<TextSpan> spans;
  for (size_t i = begin; i < end; ++i) {
    text += words[i].text + ' ';
    ends.push_back(text.size());
    spans.push_back(words[i].span);
  }
  return read_again(text, ends, spans);
}

// From `at` up to the end of a command's line, which goes on behind a backslash at its end.
std::string line_of_command(std::string_view text, size_t& at) {
  std::string line;
  for (bool goes_on = true; goes_on && at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    line += text.substr(at, end - at);
    at = end + 1;
    const size_t last = line.find_last_not_of('\\');
    goes_on = (line.size() - (last == std::string::npos ? 0 : last + 1)) % 2 == 1;
    if (goes_on) line.back() = ' ';
  }
  return line;
}

// Every line is a command. `words`: the same text without its lines, with places of its own.
std::vector<ShellWord> words_of_lines(std::string_view text, const std::vector<ShellWord>& words, TextSpan span) {
  std::vector<ShellWord> out;
  size_t next = 0;
  for (size_t at = 0; at < text.size();) {
    const std::vector<ShellWord> line = words_of_text(line_of_command(text, at), span);
    const bool says_something = !line.empty() && line[0].text[0] != '#';
    for (const ShellWord& word : line) {
      const bool has_place = next < words.size() && words[next].text == word.text;
      if (says_something) out.push_back(has_place ? words[next] : word);
      next += has_place ? 1 : 0;
    }
    if (says_something) out.push_back(bare_word(";", span));
  }
  return out;
}

std::vector<std::vector<ShellWord>> commands_in_words(const std::vector<ShellWord>& words) {
  const auto may_part = [](const ShellWord& word) {
    return is_bare_word(word) && word.text.find_first_of("|&;") != std::string::npos;
  };
  if (std::none_of(words.begin(), words.end(), may_part)) return {words};
  std::vector<std::vector<ShellWord>> out(1);
  for (size_t i = 0; i < words.size();) {
    size_t end = i;
    while (end < words.size() && is_bare_word(words[end])) ++end;
    std::optional<std::vector<ShellWord>> inside = read_again(words, i, end);
    if (end == i) inside->push_back(words[end++]);
    if (!inside) return {words};
    for (const ShellWord& word : *inside) {
      if (!parts_commands(word)) out.back().push_back(word);
      if (parts_commands(word) && !out.back().empty()) out.emplace_back();
    }
    i = end;
  }
  if (out.back().empty()) out.pop_back();
  return out.empty() ? std::vector<std::vector<ShellWord>>{words} : out;
}

}  // namespace

std::vector<ShellWord> words_of_eval(std::vector<ShellWord> words) {
  if (words.size() < 2 || words[0].text != "eval") return words;
  const auto inside = read_again(words, 1, words.size());
  if (!inside) return words;
  words.resize(1);
  words.insert(words.end(), inside->begin(), inside->end());
  return words;
}

std::vector<ShellCommand> take_apart(ShellCommand& command, std::string_view text) {
  std::vector<std::vector<ShellWord>> all = commands_in_words(
      text.find('\n') == std::string_view::npos ? command.expanded : words_of_lines(text, command.expanded, command.words[0].span));
  std::vector<ShellCommand> others(all.size() - 1, command);
  command.expanded = std::move(all[0]);
  for (size_t i = 1; i < all.size(); ++i) others[i - 1].expanded = std::move(all[i]);
  return others;
}

}  // namespace distsetup::foreign
