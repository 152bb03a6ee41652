// The grammar of size expressions, a recursive descent; a dozen lines of grammar do not earn a library.
//   sum := product (('+' | '-') product)*      product := atom (('*' | '/') atom)*
//   atom := integer | symbol | '(' sum ')' | ('ceil_div' | 'min' | 'max') '(' sum ',' sum ')'
// What comes of it is the algebra's business: plan/expression.cc evaluates at once, planner/replay/size_expression.cc keeps a sum of
// products that is evaluated for many setups.
#pragma once
#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

namespace distsetup {

// `Algebra` has a type Value and these, each false with a message in `problem` where it has no answer:
//   bool number(int64_t, Value&), symbol(std::string_view, Value&)
//   bool combine(char, Value& left, Value& right)          '+', '-', '*' or '/'; the result in `left`
//   bool call(std::string_view function, Value& a, Value& b)   the result in `a`
template <class Algebra>
class ExpressionReader {
 public:
  using Value = typename Algebra::Value;
  ExpressionReader(std::string_view text, Algebra& algebra, std::string& problem)
      : text_(text), algebra_(algebra), problem_(problem) {}

  bool read(Value& out) {
    if (!sum(out)) return false;
    skip();
    return at_ == text_.size() || fail(fmt::format("found '{}', expected the end", text_.substr(at_)));
  }

 private:
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool expect(char c) { return take(c) || fail(fmt::format("found no '{}', expected one", c)); }
  bool fail(std::string message) {
    if (problem_.empty()) problem_ = std::move(message);
    return false;
  }

  bool sum(Value& out) {
    if (!product(out)) return false;
    for (;;) {
      const char sign = take('+') ? '+' : take('-') ? '-' : 0;
      if (sign == 0) return true;
      Value next{};
      if (!product(next) || !algebra_.combine(sign, out, next)) return false;
    }
  }

  bool product(Value& out) {
    if (!atom(out)) return false;
    for (;;) {
      const char sign = take('*') ? '*' : take('/') ? '/' : 0;
      if (sign == 0) return true;
      Value next{};
      if (!atom(next) || !algebra_.combine(sign, out, next)) return false;
    }
  }

  bool atom(Value& out) {
    if (take('(')) return sum(out) && expect(')');
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')) ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word.empty()) return fail(fmt::format("found '{}', expected a number, a name or '('", text_.substr(begin)));
    if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) {
      int64_t number = 0;
      const auto [stop, wrong] = std::from_chars(word.data(), word.data() + word.size(), number);
      at_ = begin + static_cast<size_t>(stop - word.data());  // "2h" is 2, and then a name where none can be
      return wrong == std::errc() ? algebra_.number(number, out) : fail(fmt::format("found '{}', expected a number", word));
    }
    if (word != "ceil_div" && word != "min" && word != "max") return algebra_.symbol(word, out);
    Value second{};
    return expect('(') && sum(out) && expect(',') && sum(second) && expect(')') && algebra_.call(word, out, second);
  }

  std::string_view text_;
  Algebra& algebra_;
  std::string& problem_;
  size_t at_ = 0;
};

}  // namespace distsetup
