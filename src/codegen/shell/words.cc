#include "codegen/shell/words.h"

#include <algorithm>
#include <cctype>

namespace distsetup::foreign {
namespace {

class WordReader {
 public:
  WordReader(std::string_view text, TextSpan rest) : text_(text), at_(rest.begin), end_(rest.end) {}

  WordRead read() {
    ShellWord& word = out_.word;
    word.span.begin = at_;
    while (at_ < end_ && !ends_word(peek())) part();
    word.span.end = at_;
    for (const WordPart& one : word.parts) word.text += one.text;
    out_.end = at_;
    return std::move(out_);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < end_ ? text_[at_ + ahead] : '\0'; }

  void part() {
    const char c = peek();
    if (c == '\\' && peek(1) == '\n') {
      at_ += 2;
      return;
    }
    if (c == '\\' && at_ + 1 < end_) {
      ++at_;
      bare_until(at_ + 1);
    } else if (c == '\'' || (c == '$' && peek(1) == '\'')) {
      single_quoted();
    } else if (c == '"') {
      double_quoted();
    } else if (c == '`') {
      const size_t close = std::min(text_.find('`', at_ + 1), end_);
      out_.substitutions.push_back({at_ + 1, close});
      bare_until(close + 1);
    } else if (c == '$' && (peek(1) == '(' || peek(1) == '{')) {
      const size_t close = closing(at_ + 1);
      if (peek(1) == '(') out_.substitutions.push_back({at_ + 2, close});
      bare_until(close + 1);
    } else {
      bare_until(at_ + 1);
    }
    std::vector<WordPart>& parts = out_.word.parts;
    if (!parts.empty() && parts.back().quote == ShellQuote::kNone) parts.back().span.end = at_;
  }

  // The characters up to `stop` as they are, outside of quotes.
  void bare_until(size_t stop) {
    stop = std::min(stop, end_);
    std::vector<WordPart>& parts = out_.word.parts;
    if (parts.empty() || parts.back().quote != ShellQuote::kNone) parts.push_back({ShellQuote::kNone, "", {at_, at_}});
    parts.back().text += text_.substr(at_, stop - at_);
    at_ = stop;
  }

  void single_quoted() {
    at_ += peek() == '$' ? 2 : 1;
    const size_t close = std::min(text_.find('\'', at_), end_);
    out_.word.parts.push_back({ShellQuote::kSingle, std::string(text_.substr(at_, close - at_)), {at_, close}});
    at_ = std::min(close + 1, end_);
  }

  void double_quoted() {
    ++at_;
    WordPart part;
    part.quote = ShellQuote::kDouble;
    part.span.begin = at_;
    while (at_ < end_ && peek() != '"') {
      if (peek() == '\\' && std::string_view("\"\\`\n").find(peek(1)) != std::string_view::npos) {
        if (peek(1) != '\n') part.text += peek(1);
        at_ += 2;
      } else if (peek() == '\\' && peek(1) == '$') {
        part.text += "\\$";  // stays told apart from an expansion
        at_ += 2;
      } else if (peek() == '$' && (peek(1) == '(' || peek(1) == '{')) {
        const size_t close = closing(at_ + 1);
        if (peek(1) == '(') out_.substitutions.push_back({at_ + 2, close});
        part.text += text_.substr(at_, std::min(close + 1, end_) - at_);
        at_ = std::min(close + 1, end_);
      } else {
        part.text += peek();
        ++at_;
      }
    }
    part.span.end = at_;
    out_.word.parts.push_back(std::move(part));
    if (at_ < end_) ++at_;
  }

  // Of the bracket at `open`: where it closes, quotes inside respected.
  size_t closing(size_t open) const {
    const char opens = text_[open];
    const char closes = opens == '(' ? ')' : '}';
    int level = 0;
    for (size_t i = open; i < end_; ++i) {
      const char c = text_[i];
      if (c == '\\') {
        ++i;
      } else if (c == '\'' && opens == '(') {
        i = std::min(text_.find('\'', i + 1), end_);
      } else if (c == opens) {
        ++level;
      } else if (c == closes && --level == 0) {
        return i;
      }
    }
    return end_;
  }

  std::string_view text_;
  size_t at_, end_;
  WordRead out_;
};

}  // namespace

bool ends_word(char c) {
  return c == '\0' || std::isspace(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("|&;()<>").find(c) != std::string_view::npos;
}

WordRead read_word(std::string_view text, TextSpan rest) { return WordReader(text, rest).read(); }

}  // namespace distsetup::foreign
