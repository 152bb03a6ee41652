// A recursive-descent reader of size expressions; a dozen lines of grammar do not earn a library.
//   sum := product (('+' | '-') product)*      product := atom (('*' | '/') atom)*
//   atom := integer | symbol | '(' sum ')' | ('ceil_div' | 'min' | 'max') '(' sum ',' sum ')'
#include "plan/expression.h"

#include <algorithm>
#include <cctype>

#include "base/check.h"

namespace distsetup {
namespace {

class ExpressionReader {
 public:
  ExpressionReader(std::string_view text, const Symbols& symbols) : text_(text), symbols_(symbols) {}

  int64_t whole() {
    const int64_t value = sum();
    CHECK(at_ == text_.size(), "expression '{}' at {}", text_, at_);
    return value;
  }

 private:
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  int64_t sum() {
    int64_t value = product();
    for (;;) {
      if (take('+'))
        value += product();
      else if (take('-'))
        value -= product();
      else
        return value;
    }
  }

  int64_t product() {
    int64_t value = atom();
    for (;;) {
      if (take('*')) {
        value *= atom();
      } else if (take('/')) {
        const int64_t divisor = atom();
        CHECK(divisor != 0 && value % divisor == 0, "expression '{}': {} / {}", text_, value, divisor);
        value /= divisor;
      } else {
        return value;
      }
    }
  }

  int64_t atom() {
    if (take('(')) {
      const int64_t value = sum();
      CHECK(take(')'), "expression '{}' at {}", text_, at_);
      return value;
    }
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    CHECK(!word.empty(), "expression '{}' at {}", text_, at_);
    if (std::isdigit(static_cast<unsigned char>(word[0]))) {
      int64_t value = 0;
      for (const char c : word) value = value * 10 + (c - '0');
      return value;
    }
    if (word == "ceil_div" || word == "min" || word == "max") return call(word);
    const auto it = symbols_.find(word);
    CHECK(it != symbols_.end(), "expression '{}': symbol '{}'", text_, word);
    return it->second;
  }

  int64_t call(std::string_view function) {
    CHECK(take('('), "expression '{}'", text_);
    const int64_t a = sum();
    CHECK(take(','), "expression '{}'", text_);
    const int64_t b = sum();
    CHECK(take(')'), "expression '{}'", text_);
    if (function == "min") return std::min(a, b);
    if (function == "max") return std::max(a, b);
    CHECK(b > 0, "expression '{}'", text_);
    return (a + b - 1) / b;
  }

  std::string_view text_;
  const Symbols& symbols_;
  size_t at_ = 0;
};

}  // namespace

int64_t evaluate(std::string_view expression, const Symbols& symbols) { return ExpressionReader(expression, symbols).whole(); }

}  // namespace distsetup
