#include "plan/expression.h"

#include <algorithm>

#include "base/check.h"

namespace distsetup {
namespace {

struct Evaluation {
  using Value = int64_t;
  std::string_view text;
  const Symbols& symbols;

  bool number(int64_t number, int64_t& out) const {
    out = number;
    return true;
  }
  bool symbol(std::string_view name, int64_t& out) const {
    const auto it = symbols.find(name);
    CHECK(it != symbols.end(), "expression '{}': symbol '{}'", text, name);
    out = it->second;
    return true;
  }
  bool combine(char sign, int64_t& left, int64_t right) const {
    CHECK(sign != '/' || (right != 0 && left % right == 0), "expression '{}': {} / {}", text, left, right);
    left = sign == '+' ? left + right : sign == '-' ? left - right : sign == '*' ? left * right : left / right;
    return true;
  }
  bool call(std::string_view function, int64_t& a, int64_t b) const {
    CHECK(function != "ceil_div" || b > 0, "expression '{}'", text);
    a = function == "min" ? std::min(a, b) : function == "max" ? std::max(a, b) : (a + b - 1) / b;
    return true;
  }
};

struct SymbolCheck {
  using Value = int;
  const Symbols& symbols;
  std::string& problem;

  bool number(int64_t, int&) const { return true; }
  bool symbol(std::string_view name, int&) const {
    if (symbols.contains(name)) return true;
    problem = fmt::format("found no symbol '{}'", name);
    return false;
  }
  bool combine(char, int&, int) const { return true; }
  bool call(std::string_view, int&, int) const { return true; }
};

}  // namespace

std::string expression_problem(std::string_view expression, const Symbols& symbols) {
  std::string problem;
  SymbolCheck algebra{symbols, problem};
  int value = 0;
  (void)ExpressionReader<SymbolCheck>(expression, algebra, problem).read(value);
  return problem;
}

int64_t evaluate(std::string_view expression, const Symbols& symbols) {
  if (const auto symbol = symbols.find(expression); symbol != symbols.end()) return symbol->second;  // most are one
  Evaluation algebra{expression, symbols};
  std::string problem;
  int64_t value = 0;
  CHECK(ExpressionReader<Evaluation>(expression, algebra, problem).read(value), "expression '{}': {}", expression, problem);
  return value;
}

}  // namespace distsetup
