#include "planner/replay/size_expression.h"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <utility>

#include "plan/expression_reader.h"

namespace distsetup::replay {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(Symbol::kCount)> kSymbolNames = {
    "T", "S", "h", "a",  "kv", "d", "f", "V", "t",  "s",  "c",  "n",  "rows", "r", "e", "b",
    "w", "E", "k", "fe", "fs", "l", "y", "R", "rq", "rk", "dn", "dr", "dv",   "m", "z", "ku"};

// Sums multiply out while they are read.
struct SumOfProducts {
  using Value = SizeExpression;
  const std::function<int(std::string_view)>& find;
  std::string& problem;

  bool fail(std::string message) const {
    if (problem.empty()) problem = std::move(message);
    return false;
  }
  bool number(int64_t number, SizeExpression& out) const {
    out.sum = {{.factor = number}};
    return true;
  }
  bool symbol(std::string_view name, SizeExpression& out) const {
    const int index = find(name);
    if (index < 0) return fail(fmt::format("unknown symbol '{}'", name));
    SizeExpression::Product p;
    p.times[p.num_times++] = static_cast<uint8_t>(index);
    out.sum = {p};
    return true;
  }
  bool call(std::string_view function, SizeExpression&, SizeExpression&) const {
    return fail(fmt::format("found '{}', expected sums and products", function));
  }
  bool combine(char sign, SizeExpression& left, SizeExpression& right) const {
    if (sign == '+' || sign == '-') {
      for (SizeExpression::Product p : right.sum) {
        if (sign == '-') p.factor = -p.factor;
        left.sum.push_back(p);
      }
      return true;
    }
    if (sign == '/' && right.sum.size() != 1) return fail("found a division by a sum, expected one name or number");
    SizeExpression result;
    for (const SizeExpression::Product& a : left.sum) {
      for (const SizeExpression::Product& b : right.sum) {
        if (!multiply(a, b, sign == '/', result.sum.emplace_back())) return false;
      }
    }
    left = std::move(result);
    return true;
  }
  bool multiply(const SizeExpression::Product& a, const SizeExpression::Product& b, bool over, SizeExpression::Product& p) const {
    p = a;
    (over ? p.divisor : p.factor) *= b.factor;
    (over ? p.factor : p.divisor) *= b.divisor;
    const auto append = [&](auto& into, uint8_t& count, const uint8_t* from, int n) {
      for (int i = 0; i < n; ++i) {
        if (count == std::size(into)) return fail("found a product of too many names");
        into[count++] = from[i];
      }
      return true;
    };
    if (over) return append(p.over, p.num_over, b.times, b.num_times) && append(p.times, p.num_times, b.over, b.num_over);
    return append(p.times, p.num_times, b.times, b.num_times) && append(p.over, p.num_over, b.over, b.num_over);
  }
};

}  // namespace

int symbol_index(std::string_view name) {
  for (size_t i = 0; i < kSymbolNames.size(); ++i) {
    if (kSymbolNames[i] == name) return static_cast<int>(i);
  }
  return -1;
}

bool parse_size(std::string_view text, const std::function<int(std::string_view)>& find, SizeExpression& out, std::string& problem) {
  SumOfProducts algebra{find, problem};
  out = {};
  return ExpressionReader<SumOfProducts>(text, algebra, problem).read(out);
}

}  // namespace distsetup::replay
