#include "codegen/shell/words.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace distsetup::foreign {
namespace {

// Behind the single-quoted text whose contents begin at `at`; `end` where it does not close. $'…' has escapes.
size_t single_quote_end(std::string_view text, size_t at, size_t end, bool has_escapes) {
  for (; at < end && text[at] != '\''; ++at) {
    if (has_escapes && text[at] == '\\') ++at;
  }
  return std::min(at, end);
}

// The delimiter of the here-document that is announced at `at` (`<<`); moves `at` behind it.
std::string here_delimiter(std::string_view text, size_t& at, size_t end) {
  at += 2;
  if (at < end && text[at] == '-') ++at;
  while (at < end && (text[at] == ' ' || text[at] == '\t')) ++at;
  std::string delimiter;
  for (; at < end && !ends_word(text[at]); ++at) {
    if (text[at] != '\'' && text[at] != '"' && text[at] != '\\' && text[at] != kWordJoint) delimiter += text[at];
  }
  return delimiter;
}

// The end of the line that ends a here-document whose first line begins behind `at`.
size_t here_document_end(std::string_view text, size_t at, size_t end, const std::string& delimiter) {
  while (at < end) {
    const size_t next = std::min(text.find('\n', at + 1), end);
    std::string_view line = text.substr(at + 1, next - at - 1);
    while (!line.empty() && is_shell_blank(line.front())) line.remove_prefix(1);
    while (!line.empty() && is_shell_blank(line.back())) line.remove_suffix(1);
    if (line == delimiter) return next;
    at = next;
  }
  return end;
}

size_t closing_of(std::string_view text, size_t open, size_t end, int depth);

// The `"` that ends the text whose contents begin at `at`.
size_t double_quote_end(std::string_view text, size_t at, size_t end, int depth) {
  for (; at < end && text[at] != '"'; ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text[at] == '$' && at + 1 < end && (text[at + 1] == '(' || text[at + 1] == '{')) {
      at = closing_of(text, at + 1, end, depth + 1);
    }
  }
  return std::min(at, end);
}

constexpr int kMaxQuoteDepth = 100;  // "$("$(" …

size_t closing_of(std::string_view text, size_t open, size_t end, int depth) {
  if (depth > kMaxQuoteDepth) return end;
  std::vector<char> closers;         // innermost last
  std::vector<std::string> waiting;  // here-documents that begin behind the line
  for (size_t i = open; i < end; ++i) {
    const char c = text[i];
    const bool in_braces = !closers.empty() && closers.back() == '}';
    if (c == '\\') {
      ++i;
    } else if (c == '\'' && !in_braces) {
      i = single_quote_end(text, i + 1, end, text[i - 1] == '$');
    } else if (c == '"') {
      i = double_quote_end(text, i + 1, end, depth);
    } else if (c == '`' && !in_braces) {
      i = std::min(text.find('`', i + 1), end);
    } else if (c == '#' && !in_braces && is_shell_blank(text[i - 1])) {
      i = std::min(text.find('\n', i), end) - 1;
    } else if (c == '\n' && !waiting.empty()) {
      for (const std::string& delimiter : waiting) i = here_document_end(text, i, end, delimiter);
      waiting.clear();
    } else if (c == '<' && !in_braces && text.substr(i, 2) == "<<" && text.substr(i, 3) != "<<<" && text[i - 1] != '<') {
      waiting.push_back(here_delimiter(text, i, end));
      --i;
    } else if ((c == '(' && !in_braces) || (c == '{' && (i == open || text[i - 1] == '$'))) {
      closers.push_back(c == '(' ? ')' : '}');
    } else if (!closers.empty() && c == closers.back()) {
      closers.pop_back();
      if (closers.empty()) return i;
    }
  }
  return end;
}

class WordReader {
 public:
  WordReader(std::string_view text, TextSpan rest) : text_(text), at_(rest.begin), end_(rest.end) {}

  WordRead read() {
    ShellWord& word = out_.word;
    word.span.begin = at_;
    while (at_ < end_ && (!ends_word(peek()) || is_process())) part();
    word.span.end = at_;
    for (const WordPart& one : word.parts) word.text += one.text;
    out_.end = at_;
    return std::move(out_);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < end_ ? text_[at_ + ahead] : '\0'; }
  bool is_process() const { return (peek() == '<' || peek() == '>') && peek(1) == '(' && !out_.word.parts.empty(); }  // a=<(b)

  void part() {
    const char c = peek();
    if (c == '\\' && (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n'))) {
      at_ += peek(1) == '\n' ? 2 : 3;
      return;
    }
    if (c == kWordJoint) {
      ++at_;
      is_joint_ = true;
      return;
    }
    if (c == '\\' && at_ + 1 < end_) {
      if (peek(1) != '$') ++at_;  // "\$" stays told apart from an expansion
      bare_until(at_ + (peek() == '\\' && peek(1) == '$' ? 2 : 1));
    } else if (c == '\'' || (c == '$' && peek(1) == '\'')) {
      single_quoted();
    } else if (c == '"' || (c == '$' && peek(1) == '"')) {
      at_ += c == '$' ? 1 : 0;
      double_quoted();
    } else if (c == '`') {
      bare_until(backticks() + 1);
    } else if ((c == '$' && (peek(1) == '(' || peek(1) == '{')) || is_process()) {
      bare_until(bracket() + 1);
    } else if (c == '$' && peek(1) == '[') {  // bash's old $[ ], arithmetic
      bare_until(std::min({text_.find(']', at_), text_.find('\n', at_), end_ - 1}) + 1);
    } else {
      bare_until(at_ + 1);
    }
    std::vector<WordPart>& parts = out_.word.parts;
    if (!parts.empty() && parts.back().quote == ShellQuote::kNone) parts.back().span.end = at_;
  }

  // Where the `…` at the cursor closes.
  size_t backticks() {
    size_t close = at_ + 1;
    while (close < end_ && text_[close] != '`') close += text_[close] == '\\' ? 2 : 1;
    close = std::min(close, end_);
    if (close == end_) complain(at_);
    out_.substitutions.push_back({at_ + 1, close});
    return close;
  }

  // Where the $( or ${ at the cursor closes.
  size_t bracket() {
    const size_t close = closing_bracket(text_, at_ + 1, end_);
    if (close == end_) complain(at_);
    if (peek(1) == '(') out_.substitutions.push_back({at_ + 2, close});
    return close;
  }

  void complain(size_t at) {
    if (!out_.unclosed) out_.unclosed = at;
  }

  // The characters up to `stop` as they are, outside of quotes.
  void bare_until(size_t stop) {
    stop = std::min(stop, end_);
    std::vector<WordPart>& parts = out_.word.parts;
    const bool is_new = parts.empty() || parts.back().quote != ShellQuote::kNone || std::exchange(is_joint_, false);
    if (is_new) parts.push_back({ShellQuote::kNone, "", {at_, at_}});
    parts.back().text += text_.substr(at_, stop - at_);
    at_ = stop;
  }

  void single_quoted() {
    const size_t open = at_;
    const bool has_escapes = peek() == '$';
    at_ += has_escapes ? 2 : 1;
    const size_t close = single_quote_end(text_, at_, end_, has_escapes);
    if (close == end_) complain(open);
    out_.word.parts.push_back({ShellQuote::kSingle, std::string(text_.substr(at_, close - at_)), {at_, close}});
    std::erase(out_.word.parts.back().text, kWordJoint);
    at_ = std::min(close + 1, end_);
  }

  void double_quoted() {
    const size_t open = at_++;
    WordPart part;
    part.quote = ShellQuote::kDouble;
    part.span.begin = at_;
    const auto take_until = [this, &part](size_t stop) {
      stop = std::min(stop, end_);
      part.text += text_.substr(at_, stop - at_);
      at_ = stop;
    };
    while (at_ < end_ && peek() != '"') {
      if (peek() == '\\' && std::string_view("\"\\`\n").find(peek(1)) != std::string_view::npos && at_ + 1 < end_) {
        if (peek(1) != '\n') part.text += peek(1);
        at_ += 2;
      } else if (peek() == '\\' && peek(1) == '$') {
        take_until(at_ + 2);  // stays told apart from an expansion
      } else if (peek() == '$' && (peek(1) == '(' || peek(1) == '{')) {
        take_until(bracket() + 1);
      } else if (peek() == '`') {
        take_until(backticks() + 1);
      } else if (peek() == kWordJoint) {  // "a'$X'b": a name ends here
        part.span.end = at_;
        out_.word.parts.push_back(part);
        part.text.clear();
        part.span.begin = ++at_;
      } else {
        take_until(at_ + 1);
      }
    }
    part.span.end = at_;
    out_.word.parts.push_back(std::move(part));
    if (at_ >= end_) complain(open);
    if (at_ < end_) ++at_;
  }

  std::string_view text_;
  size_t at_, end_;
  bool is_joint_ = false;  // a part of its own begins
  WordRead out_;
};

}  // namespace

size_t closing_bracket(std::string_view text, size_t open, size_t end) { return closing_of(text, open, end, 0); }

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
ShellWord bare_word(std::string text, TextSpan span) {
  ShellWord out;
  out.parts = {{ShellQuote::kNone, text, span}};
  out.text = std::move(text);
  out.span = span;
  return out;
}

bool is_declaration(std::string_view word) {
  return word == "export" || word == "declare" || word == "local" || word == "readonly" || word == "typeset";
}

bool is_shell_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

bool ends_word(char c) {
  return c == '\0' || std::isspace(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("|&;()<>").find(c) != std::string_view::npos;
}

WordRead read_word(std::string_view text, TextSpan rest) { return WordReader(text, rest).read(); }

std::string without_escapes(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_escape =
        text[i] == '\\' && i + 1 < text.size() && std::string_view("$`\\\n").find(text[i + 1]) != std::string_view::npos;
    if (is_escape) ++i;
    if (!is_escape || text[i] != '\n') out += text[i];
  }
  return out;
}

size_t end_of_placeholder(std::string_view text, size_t at, size_t end) {
  constexpr size_t kMost = 80;
  if (at + 2 >= end || text[at] != '<' || !is_name_start(text[at + 1])) return at;
  for (size_t i = at + 1; i < end && i < at + kMost; ++i) {
    if (text[i] == '>') return text[i - 1] == ' ' || text[i - 1] == '-' ? at : i + 1;
    if (!is_name_char(text[i]) && std::string_view(" ./:-").find(text[i]) == std::string_view::npos) return at;
  }
  return at;
}

const WordPart* only_quoted(const ShellWord& word) {
  const WordPart* only = nullptr;
  for (const WordPart& part : word.parts) {
    if (part.quote == ShellQuote::kNone) return nullptr;
    if (part.text.empty() && word.parts.size() > 1) continue;
    if (only != nullptr) return nullptr;
    only = &part;
  }
  return only;
}

}  // namespace distsetup::foreign
