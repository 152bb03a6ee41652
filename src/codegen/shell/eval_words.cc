#include "codegen/shell/eval_words.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

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

}  // namespace

std::vector<ShellWord> words_of_eval(std::vector<ShellWord> words) {
  if (words.size() < 2 || words[0].text != "eval") return words;
  std::string text;
  std::vector<size_t> ends;  // of the words in the text
  for (size_t i = 1; i < words.size(); ++i) {
    text += words[i].text + ' ';
    ends.push_back(text.size());
  }
  std::vector<ShellWord> out = {words[0]};
  for (size_t at = 0, i = 0; at < text.size();) {
    while (at >= ends[i]) ++i;
    const TextSpan span = words[i + 1].span;
    if (is_shell_blank(text[at]) || text[at] == '\n' || text[at] == '\r') {
      ++at;
    } else if (is_operator_at(text, at)) {
      out.push_back(operator_at(text, at, span));
    } else {
      WordRead read = read_word(text, {at, text.size()});
      if (read.unclosed || read.end <= at) return words;
      read.word.span = span;
      for (WordPart& part : read.word.parts) part.span = span;
      out.push_back(std::move(read.word));
      at = read.end;
    }
  }
  return out;
}

}  // namespace distsetup::foreign
