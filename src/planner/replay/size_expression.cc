// A recursive descent whose values are sums of products: sums multiply out while they are read.
#include "planner/replay/size_expression.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>

namespace distsetup::replay {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(Symbol::kCount)> kSymbolNames = {
    "T", "S", "h", "a", "kv", "d",  "f", "V", "t", "s",  "c",  "n",  "rows", "r", "e",
    "b", "w", "E", "k", "fe", "fs", "l", "y", "R", "rq", "rk", "dn", "dr",   "dv"};

struct SizeParser {
  std::string_view text;
  const std::function<int(std::string_view)>& find;
  std::string& problem;
  size_t at = 0;

  void skip() {
    while (at < text.size() && text[at] == ' ') ++at;
  }
  bool take(char c) {
    skip();
    if (at >= text.size() || text[at] != c) return false;
    ++at;
    return true;
  }
  bool fail(std::string message) {
    if (problem.empty()) problem = std::move(message);
    return false;
  }

  bool sum(SizeExpression& out) {
    if (!product(out)) return false;
    for (;;) {
      const bool minus = take('-');
      if (!minus && !take('+')) return true;
      SizeExpression next;
      if (!product(next)) return false;
      for (SizeExpression::Product p : next.sum) {
        if (minus) p.factor = -p.factor;
        out.sum.push_back(p);
      }
    }
  }

  bool product(SizeExpression& out) {
    if (!factor(out)) return false;
    for (;;) {
      const bool over = take('/');
      if (!over && !take('*')) return true;
      SizeExpression next;
      if (!factor(next)) return false;
      if (over && next.sum.size() != 1) return fail("found a division by a sum, expected one name or number");
      SizeExpression result;
      for (const SizeExpression::Product& left : out.sum) {
        for (const SizeExpression::Product& right : next.sum) {
          SizeExpression::Product p = left;
          (over ? p.divisor : p.factor) *= right.factor;
          (over ? p.factor : p.divisor) *= right.divisor;
          const auto append = [&](uint8_t* into, uint8_t& count, size_t room, const uint8_t* from, int n) {
            for (int i = 0; i < n; ++i) {
              if (count == room) return fail("found a product of too many names");
              into[count++] = from[i];
            }
            return true;
          };
          if (!append(over ? p.over : p.times, over ? p.num_over : p.num_times, over ? 3 : 6, right.times, right.num_times))
            return false;
          if (!append(over ? p.times : p.over, over ? p.num_times : p.num_over, over ? 6 : 3, right.over, right.num_over))
            return false;
          result.sum.push_back(p);
        }
      }
      out = std::move(result);
    }
  }

  bool factor(SizeExpression& out) {
    skip();
    out.sum.clear();
    if (take('(')) return sum(out) && (take(')') || fail("found no ')', expected one"));
    const size_t begin = at;
    SizeExpression::Product p;
    if (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0) {
      while (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0) ++at;
      std::from_chars(text.data() + begin, text.data() + at, p.factor);
      out.sum.push_back(p);
      return true;
    }
    while (at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_')) ++at;
    if (at == begin) return fail(fmt::format("found '{}', expected a number, a name or '('", text.substr(begin)));
    const std::string_view name = text.substr(begin, at - begin);
    const int index = find(name);
    if (index < 0) return fail(fmt::format("unknown symbol '{}'", name));
    p.times[p.num_times++] = static_cast<uint8_t>(index);
    out.sum.push_back(p);
    return true;
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
  SizeParser parser{text, find, problem};
  out = {};
  if (!parser.sum(out)) return false;
  parser.skip();
  if (parser.at == text.size()) return true;
  problem = fmt::format("found '{}', expected the end", text.substr(parser.at));
  return false;
}

}  // namespace distsetup::replay
