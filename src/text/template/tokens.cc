#include "text/template/tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/names.h"
#include "text/template/characters.h"
#include "text/template/text_literal.h"

namespace distsetup::jinja {
namespace {

// Line breaks as \n, and without the last one, which jinja2 drops.
std::string normalised(std::string_view source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalised(source)), text_(source_) {}

  std::vector<Token> take() {
    while (position_ < text_.size()) read_data();
    add(TokenType::kEnd, position_);
    return std::move(tokens_);
  }

 private:
  bool starts(std::string_view word, size_t at) const { return text_.substr(std::min(at, text_.size()), word.size()) == word; }
  bool starts(std::string_view word) const { return starts(word, position_); }

  // The place of a byte; cheap when asked in rising order.
  void place(size_t at, int& line, int& column) {
    if (at < counted_) counted_ = 0, line_ = 1, column_ = 1;
    for (; counted_ < at; ++counted_) {
      const auto byte = static_cast<unsigned char>(text_[counted_]);
      if (byte == '\n') {
        ++line_, column_ = 1;
      } else if ((byte & 0xc0) != 0x80) {
        ++column_;
      }
    }
    line = line_, column = column_;
  }

  [[noreturn]] void fail_at(size_t at, std::string message, std::string help = "") {
    TemplateError failure{std::move(message), std::move(help)};
    place(at, failure.line, failure.column);
    throw failure;
  }

  Token& add(TokenType kind, size_t at, std::string text = "") {
    Token token;
    token.kind = kind;
    token.text = std::move(text);
    place(at, token.line, token.column);
    return tokens_.emplace_back(std::move(token));
  }

  // Past whitespace, also other than ASCII's.
  size_t after_space(size_t at) const { return text_.size() - strip(text_.substr(at), Side::kLeft).size(); }

  // The sign behind "{%": '-', '+' or 0; the position moves behind it.
  char take_sign() {
    if (!starts("-") && !starts("+")) return 0;
    return text_[position_++];
  }

  // Text in front of a tag, of which the sign of the tag may take whitespace away.
  void add_data(size_t begin, size_t end, char sign, bool is_variable) {
    std::string_view data = text_.substr(begin, end - begin);
    if (sign == '-') {
      data = strip(data, Side::kRight);
    } else if (sign == 0 && !is_variable) {
      const size_t line_begin = data.rfind('\n') + 1;  // 0 where there is none
      const std::string_view last = data.substr(line_begin);
      const bool is_line = line_begin > 0 || begin == 0 || text_[begin - 1] == '\n';
      if (is_line && is_blank(last)) data.remove_suffix(last.size());
    }
    if (!data.empty()) add(TokenType::kData, begin, std::string(data));
  }

  void read_data() {
    const size_t begin = position_;
    size_t tag = begin;
    while (tag < text_.size() && !starts("{{", tag) && !starts("{%", tag) && !starts("{#", tag)) ++tag;
    if (tag == text_.size()) {
      add(TokenType::kData, begin, std::string(text_.substr(begin)));
      position_ = tag;
      return;
    }
    const char opened = text_[tag + 1];
    position_ = tag + 2;
    const char sign = take_sign();
    add_data(begin, tag, sign, opened == '{');
    if (opened == '#') return skip_comment(tag);
    if (opened == '%' && skip_raw_begin()) return read_raw(tag);
    add(opened == '{' ? TokenType::kVariableBegin : TokenType::kBlockBegin, tag);
    read_code(tag, opened == '{' ? "}}" : "%}");
  }

  // Behind a tag's end at `end` ("%}" or "#}"): with '-' whitespace goes, with nothing one line break.
  void leave(size_t end, char sign) {
    position_ = end + 2;
    if (sign == '-') position_ = after_space(position_);
    if (sign == 0 && starts("\n")) ++position_;
  }

  void skip_comment(size_t tag) {
    const size_t end = text_.find("#}", position_);
    if (end == std::string_view::npos) fail_at(tag, "a comment is not closed, expected '#}'");
    const char before = end > position_ ? text_[end - 1] : ' ';
    leave(end, before == '-' || before == '+' ? before : char(0));
  }

  bool skip_raw_begin() {
    size_t at = after_space(position_);
    if (!starts("raw", at)) return false;
    at = after_space(at + 3);
    const bool is_strict = starts("-%}", at);
    if (!is_strict && !starts("%}", at)) return false;
    position_ = is_strict ? after_space(at + 3) : at + 2;
    return true;
  }

  void read_raw(size_t tag) {
    const size_t begin = position_;
    for (size_t at = text_.find("{%", begin); at != std::string_view::npos; at = text_.find("{%", at + 1)) {
      position_ = at + 2;
      const char sign = take_sign();
      size_t end = after_space(position_);
      if (!starts("endraw", end)) continue;
      end = after_space(end + 6);
      const char end_sign = starts("-%}", end) || starts("+%}", end) ? text_[end] : char(0);
      if (end_sign != 0) ++end;
      if (!starts("%}", end)) continue;
      add_data(begin, at, sign, false);
      return leave(end, end_sign);
    }
    fail_at(tag, "a raw block is not closed, expected '{% endraw %}'");
  }

  // Words up to the end of the tag. Brackets must match, so that `}}` can close two dicts.
  void read_code(size_t tag, std::string_view end) {
    std::string open;
    while (position_ < text_.size()) {
      if (open.empty()) {
        const bool is_variable = end == "}}";
        const char sign = starts("-") || (!is_variable && starts("+")) ? text_[position_] : char(0);
        const size_t at = position_ + (sign != 0 ? 1 : 0);
        if (starts(end, at)) {
          add(is_variable ? TokenType::kVariableEnd : TokenType::kBlockEnd, position_);
          if (is_variable) {
            position_ = sign == '-' ? after_space(at + 2) : at + 2;
          } else {
            leave(at, sign);
          }
          return;
        }
      }
      const size_t next = after_space(position_);
      if (next != position_) {
        position_ = next;
      } else {
        read_word(open);
      }
    }
    fail_at(tag, fmt::format("a tag is not closed, expected '{}'", end));
  }

  void read_word(std::string& open) {
    const char c = text_[position_];
    if (is_digit(c)) return read_number();
    if (is_name_start(c)) {
      const size_t begin = position_;
      while (position_ < text_.size() && is_name_part(text_[position_])) ++position_;
      add(TokenType::kName, begin, std::string(text_.substr(begin, position_ - begin)));
      return;
    }
    if (c == '\'' || c == '"') return read_text();
    read_sign(open);
  }

  void read_text() {
    const size_t begin = position_;
    size_t end = begin + 1;
    while (end < text_.size() && text_[end] != text_[begin]) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fail_at(begin, fmt::format("a text is not closed, expected {}", text_[begin]));
    TextLiteral literal = text_literal(text_.substr(begin + 1, end - begin - 1));
    if (!literal.mistake.empty()) fail_at(begin, literal.mistake);
    add(TokenType::kText, begin, std::move(literal.text));
    position_ = end + 1;
  }

  // Digits with single underscores between them.
  size_t after_digits(size_t at, bool (*is_part)(char) = is_digit) const {
    const size_t begin = at;
    while (at < text_.size() &&
           (is_part(text_[at]) || (at > begin && text_[at] == '_' && at + 1 < text_.size() && is_part(text_[at + 1]))))
      ++at;
    return at;
  }

  void read_number() {
    const size_t begin = position_;
    const size_t whole = after_digits(begin);
    size_t end = whole;
    if (begin == 0 || text_[begin - 1] != '.') {
      if (starts(".", whole) && whole + 1 < text_.size() && is_digit(text_[whole + 1])) end = after_digits(whole + 1);
      if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
        size_t digits = end + 1;
        if (digits < text_.size() && (text_[digits] == '-' || text_[digits] == '+')) ++digits;
        if (digits < text_.size() && is_digit(text_[digits])) end = after_digits(digits);
      }
    }
    if (end > whole) {
      position_ = end;
      add(TokenType::kFloat, begin).real = std::strtod(without_underscores(begin, end).c_str(), nullptr);
      return;
    }
    read_integer(begin, whole);
  }

  std::string without_underscores(size_t begin, size_t end) const {
    std::string out(text_.substr(begin, end - begin));
    out.erase(std::remove(out.begin(), out.end(), '_'), out.end());
    return out;
  }

  void read_integer(size_t begin, size_t end) {
    int base = 10;
    size_t digits = begin;
    if (text_[begin] == '0' && begin + 1 < text_.size()) {
      const char mark = static_cast<char>(std::tolower(static_cast<unsigned char>(text_[begin + 1])));
      base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
      if (base != 10)
        digits = begin + 2, end = after_digits(digits, [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; });
    }
    Integer value = 0;
    for (const char c : without_underscores(digits, end)) {
      const int digit = is_digit(c) ? c - '0' : std::tolower(static_cast<unsigned char>(c)) - 'a' + 10;
      if (digit >= base) fail_at(begin, fmt::format("'{}' is no number", text_.substr(begin, end - begin)));
      if (__builtin_mul_overflow(value, Integer(base), &value) || __builtin_add_overflow(value, Integer(digit), &value)) {
        fail_at(begin, "a number has more than 38 digits");
      }
    }
    const bool is_octal_like = base == 10 && text_[begin] == '0' && value != 0;
    if (end == digits || is_octal_like) fail_at(begin, fmt::format("'{}' is no number", text_.substr(begin, end - begin)));
    position_ = end;
    add(TokenType::kInteger, begin).integer = value;
  }

  void read_sign(std::string& open) {
    static constexpr std::string_view kLong[] = {"//", "**", "==", "!=", ">=", "<="};
    const auto* found = std::find_if(std::begin(kLong), std::end(kLong), [&](std::string_view one) { return starts(one); });
    const std::string_view sign = found != std::end(kLong) ? *found : text_.substr(position_, 1);
    if (sign.size() == 1 && std::string_view("+-/*%~[](){}><=.:|,;").find(sign[0]) == std::string_view::npos) {
      const size_t length = std::max<size_t>(utf8_length(text_.substr(position_)), 1);
      const std::string shown(text_.substr(position_, length));
      fail_at(position_, fmt::format("unexpected character '{}'", shown),
              length > 1 ? "names have the letters a-z, A-Z, digits and _" : "");
    }
    if (sign == "(" || sign == "[" || sign == "{") open += sign == "(" ? ')' : sign == "[" ? ']' : '}';
    if (sign == ")" || sign == "]" || sign == "}") {
      if (open.empty()) fail_at(position_, fmt::format("unexpected '{}': nothing is open here", sign));
      if (open.back() != sign[0]) fail_at(position_, fmt::format("unexpected '{}', expected '{}'", sign, open.back()));
      open.pop_back();
    }
    add(TokenType::kSign, position_, std::string(sign));
    position_ += sign.size();
  }

  const std::string source_;
  const std::string_view text_;
  size_t position_ = 0;
  size_t counted_ = 0;
  int line_ = 1, column_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenType::kData: return "text";
    case TokenType::kVariableBegin: return "'{{'";
    case TokenType::kVariableEnd: return "'}}'";
    case TokenType::kBlockBegin: return "'{%'";
    case TokenType::kBlockEnd: return "'%}'";
    case TokenType::kText: return "a text in quotes";
    case TokenType::kInteger:
    case TokenType::kFloat: return "a number";
    case TokenType::kEnd: return "the end of the template";
    default: return fmt::format("'{}'", token.text);
  }
}

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).take(); }

}  // namespace distsetup::jinja
