#include "text/template/filters_of_numbers.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "base/names.h"
#include "text/template/arithmetic.h"
#include "text/template/attributes.h"
#include "text/template/call.h"
#include "text/template/characters.h"
#include "text/template/compare.h"
#include "text/template/walk.h"

namespace distsetup::jinja {
namespace {

PyValue default_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  const Matched given("default", arguments, {"default_value", "boolean"});
  const bool is_absent = input.is(Type::kUndefined) || (given.truth_of(1, false) && !truth(input));
  return is_absent ? given.value(0, text("")) : input;
}

PyValue length_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  (void)Matched("length", arguments, {});
  const std::optional<size_t> length = length_of(input);
  if (!length) {
    fail(fmt::format("'{}' has no length", type_name(input)),
         input.is(Type::kIterator) ? "turn it into a list first: |list|length" : "");
  }
  return integer(static_cast<Integer>(*length));
}

PyValue abs_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  (void)Matched("abs", arguments, {});
  if (!input.is_number()) fail(fmt::format("abs needs a number, found {}", type_name(input)));
  if (input.is(Type::kFloat)) return real(std::abs(input.real));
  return input.whole() < 0 ? negative(input) : integer(input.whole());
}

// A text as Python's int() or float() reads it: blanks around it, single underscores between digits.
std::optional<std::string> number_text(const std::string& written) {
  std::string out;
  const std::string_view inner = strip(written, Side::kBoth);
  for (size_t i = 0; i < inner.size(); ++i) {
    if (inner[i] != '_') {
      out += inner[i];
    } else if (i == 0 || i + 1 == inner.size() || !is_digit(inner[i - 1]) || !is_digit(inner[i + 1])) {
      return std::nullopt;
    }
  }
  return out;
}

std::optional<double> float_of(const PyValue& value) {
  if (value.is(Type::kUndefined)) fail(why_undefined(value));
  if (value.is_number()) return value.number();
  const std::optional<std::string> written = value.is(Type::kText) ? number_text(text_of(value)) : std::nullopt;
  const bool is_hexadecimal = written && written->find_first_of("xXpP(") != std::string::npos;  // strtod reads more than Python
  if (!written || written->empty() || is_hexadecimal) return std::nullopt;
  char* end = nullptr;
  const double number = std::strtod(written->c_str(), &end);
  return *end == '\0' ? std::optional(number) : std::nullopt;
}

std::optional<Integer> whole_of(const std::string& text, int base) {
  std::optional<std::string> written = number_text(text);
  if (!written) return std::nullopt;
  const bool is_negative = written->substr(0, 1) == "-";
  if (is_negative || written->substr(0, 1) == "+") written->erase(0, 1);
  const std::string mark = lower(written->substr(0, 2));
  if ((base == 16 && mark == "0x") || (base == 8 && mark == "0o") || (base == 2 && mark == "0b")) written->erase(0, 2);
  if (written->empty()) return std::nullopt;
  Integer value = 0;
  for (const char c : *written) {
    const int digit = is_digit(c) ? c - '0' : c >= 'a' && c <= 'z' ? c - 'a' + 10 : c >= 'A' && c <= 'Z' ? c - 'A' + 10 : 99;
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, Integer(base), &value) || __builtin_add_overflow(value, Integer(digit), &value)) {
      fail("a number has more than 38 digits");
    }
  }
  return is_negative ? -value : value;
}

std::optional<Integer> truncated(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (std::abs(value) > 1e38) fail("a number has more than 38 digits");
  return static_cast<Integer>(value);
}

PyValue int_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  const Matched given("int", arguments, {"default", "base"});
  const Integer base = given.whole(1, 10);
  if (base < 2 || base > 36) fail("int: 'base' is between 2 and 36");
  std::optional<Integer> whole;
  if (input.is_whole()) whole = input.whole();
  if (input.is(Type::kText)) whole = whole_of(text_of(input), static_cast<int>(base));
  if (!whole) {
    const std::optional<double> number = float_of(input);
    if (number) whole = truncated(*number);
  }
  return whole ? integer(*whole) : given.value(0, integer(0));
}

PyValue float_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  const Matched given("float", arguments, {"default"});
  const std::optional<double> number = float_of(input);
  return number ? real(*number) : given.value(0, real(0));
}

// round(): halves go to the even neighbour, judged by the exact value, as printf does.
double rounded(double value, Integer precision) {
  if (precision > 30) return value;
  if (precision >= 0) return std::strtod(fmt::format("{:.{}f}", value, static_cast<int>(precision)).c_str(), nullptr);
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(value / unit) * unit;
}

PyValue round_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  const Matched given("round", arguments, {"precision", "method"});
  const Integer precision = given.whole(0, 0);
  const std::string method = given.has(1) ? given.text_at(1) : "common";
  if (method != "common" && method != "ceil" && method != "floor") fail("round: 'method' is common, ceil or floor");
  if (!input.is_number()) fail(fmt::format("round needs a number, found {}", type_name(input)));
  if (precision < -30 || precision > 300) fail("round: 'precision' is between -30 and 300");
  if (method == "common") {
    if (input.is_whole() && precision >= 0) return integer(input.whole());
    if (input.is_whole()) fail("round: whole numbers are rounded to digits behind the point only");
    return std::isfinite(input.real) ? real(rounded(input.real, precision)) : input;
  }
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.number() * unit;
  return real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

PyValue attr_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  const Matched given("attr", arguments, {"name"}, 1);
  const std::string& name = given.text_at(0);
  // Only what the object has itself: a key of a dict does not count.
  if (input.is(Type::kDict) && find_entry(entries_of(input), name) != nullptr) {
    return attribute_of(dict({}), name);
  }
  return attribute_of(input, name);
}

PyValue sum_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  const Matched given("sum", arguments, {"attribute", "start"});
  PyValue sum = given.value(1, integer(0));
  if (sum.is(Type::kText)) fail("sum: texts are put together with |join");
  for (Walk walk(input); std::optional<PyValue> one = walk.next();) {
    sum = arithmetic("+", sum, given.has_value(0) ? path_of(*one, given.at(0)) : *one);
  }
  return sum;
}

}  // namespace

std::vector<NamedFilter> number_filters() {
  return {{"default", default_filter}, {"d", default_filter}, {"length", length_filter}, {"count", length_filter},
          {"abs", abs_filter},         {"int", int_filter},   {"float", float_filter},   {"round", round_filter},
          {"attr", attr_filter},       {"sum", sum_filter}};
}

}  // namespace distsetup::jinja
