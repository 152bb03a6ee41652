#include "text/template/arithmetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/template/characters.h"
#include "text/template/compare.h"
#include "text/template/percent_format.h"
#include "text/template/steps.h"

namespace distsetup::jinja {
namespace {

[[noreturn]] void undefined_between(std::string_view sign, const PyValue& left, const PyValue& right) {
  for (const PyValue* one : {&left, &right}) {
    if (one->is(Type::kUndefined)) fail(why_undefined(*one));
  }
  fail(fmt::format("'{}' is not defined between {} and {}", sign, type_name(left), type_name(right)),
       sign == "+" ? "'~' joins values of any type as text" : "");
}

[[noreturn]] void too_large() { fail("a number has more than 38 digits"); }
[[noreturn]] void by_zero() { fail("division by zero"); }

Integer floor_divided(Integer a, Integer b) {
  if (b == 0) by_zero();
  if (b == -1) {
    Integer result = 0;
    if (__builtin_sub_overflow(Integer(0), a, &result)) too_large();
    return result;
  }
  const Integer quotient = a / b;
  return a % b != 0 && ((a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

Integer power(Integer base, Integer exponent) {
  Integer result = 1;
  for (bool is_large = false; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1 && (is_large || __builtin_mul_overflow(result, base, &result))) too_large();
    is_large = is_large || __builtin_mul_overflow(base, base, &base);
  }
  return result;
}

double float_remainder(double a, double b) {
  if (b == 0) by_zero();
  const double rest = std::fmod(a, b);
  if (rest != 0) return (rest < 0) != (b < 0) ? rest + b : rest;
  return std::copysign(0.0, b);
}

double float_floor_divided(double a, double b) {
  if (b == 0) by_zero();
  const double whole = (a - float_remainder(a, b)) / b;
  const double floored = std::floor(whole);
  return whole - floored > 0.5 ? floored + 1 : floored;
}

double float_power(double a, double b) {
  if (a == 0 && b < 0) by_zero();
  const double result = std::pow(a, b);
  if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) fail("a power of a negative number is not real");
  if (std::isinf(result) && !std::isinf(a) && !std::isinf(b)) fail("a power is too large for a float");
  return result;
}

PyValue whole_arithmetic(std::string_view sign, const PyValue& left, const PyValue& right) {
  const Integer a = left.whole(), b = right.whole();
  Integer result = 0;
  if (sign == "+"   ? __builtin_add_overflow(a, b, &result)
      : sign == "-" ? __builtin_sub_overflow(a, b, &result)
                    : sign == "*" && __builtin_mul_overflow(a, b, &result)) {
    too_large();
  }
  if (sign == "/") {
    if (b == 0) by_zero();
    return real(static_cast<double>(a) / static_cast<double>(b));
  }
  if (sign == "//") return integer(floor_divided(a, b));
  if (sign == "%") return integer(b == -1 ? Integer(0) : a - floor_divided(a, b) * b);
  if (sign == "**") return b < 0 ? real(float_power(static_cast<double>(a), static_cast<double>(b))) : integer(power(a, b));
  return integer(result);
}

PyValue float_arithmetic(std::string_view sign, double a, double b) {
  if (sign == "+") return real(a + b);
  if (sign == "-") return real(a - b);
  if (sign == "*") return real(a * b);
  if (sign == "//") return real(float_floor_divided(a, b));
  if (sign == "%") return real(float_remainder(a, b));
  if (sign == "**") return real(float_power(a, b));
  if (b == 0) by_zero();
  return real(a / b);
}

// Text that is marked safe escapes what is put beside it.
PyValue added_texts(const PyValue& left, const PyValue& right) {
  const bool is_safe = left.flag || right.flag;
  const auto part = [&](const PyValue& one) { return is_safe && !one.flag ? escape_html(text_of(one)) : text_of(one); };
  count_bytes(text_of(left).size() + text_of(right).size());
  return text(part(left) + part(right), is_safe);
}

PyValue repeated(const PyValue& value, const PyValue& times) {
  const Integer count = std::max(times.whole(), Integer(0));
  const size_t size = value.is(Type::kText) ? text_of(value).size() : items_of(value).size() * sizeof(PyValue);
  if (count > 0 && size > (uint64_t{1} << 40) / static_cast<uint64_t>(std::min(count, Integer(1) << 40)))
    fail("a repetition is too long");
  count_bytes(size * static_cast<uint64_t>(size == 0 ? Integer(0) : count));
  if (value.is(Type::kText)) {
    std::string joined;
    for (Integer i = 0; size > 0 && i < count; ++i) joined += text_of(value);
    return text(std::move(joined), value.flag);
  }
  Values items;
  for (Integer i = 0; size > 0 && i < count; ++i) items.insert(items.end(), items_of(value).begin(), items_of(value).end());
  return value.is(Type::kList) ? list(std::move(items)) : tuple(std::move(items));
}

bool is_row(const PyValue& value) { return value.is(Type::kText) || value.is(Type::kList) || value.is(Type::kTuple); }

PyValue added_rows(const PyValue& left, const PyValue& right) {
  Values items = items_of(left);
  items.insert(items.end(), items_of(right).begin(), items_of(right).end());
  count_bytes(items.size() * sizeof(PyValue));
  return left.is(Type::kList) ? list(std::move(items)) : tuple(std::move(items));
}

}  // namespace

PyValue arithmetic(std::string_view sign, const PyValue& left, const PyValue& right) {
  if (left.is_whole() && right.is_whole()) return whole_arithmetic(sign, left, right);
  if (left.is_number() && right.is_number()) return float_arithmetic(sign, left.number(), right.number());
  if (sign == "+" && left.type == right.type && is_row(left)) {
    return left.is(Type::kText) ? added_texts(left, right) : added_rows(left, right);
  }
  if (sign == "*" && is_row(left) && right.is_whole()) return repeated(left, right);
  if (sign == "*" && is_row(right) && left.is_whole()) return repeated(right, left);
  if (sign == "%" && left.is(Type::kText)) return percent_format(left, right);
  undefined_between(sign, left, right);
}

PyValue negative(const PyValue& value) {
  if (value.is(Type::kFloat)) return real(-value.real);
  if (!value.is_whole())
    fail(value.is(Type::kUndefined) ? why_undefined(value) : fmt::format("'-' is not defined for {}", type_name(value)));
  return arithmetic("-", integer(0), value);
}

PyValue positive(const PyValue& value) {
  if (!value.is_number())
    fail(value.is(Type::kUndefined) ? why_undefined(value) : fmt::format("'+' is not defined for {}", type_name(value)));
  return value.is(Type::kFloat) ? value : integer(value.whole());
}

bool is_ordered(std::string_view sign, const PyValue& left, const PyValue& right) {
  const bool is_nan = (left.is(Type::kFloat) && std::isnan(left.real)) || (right.is(Type::kFloat) && std::isnan(right.real));
  if (is_nan && left.is_number() && right.is_number()) return false;
  if (sign == "<") return less(left, right);
  if (sign == ">") return less(right, left);
  return sign == "<=" ? !less(right, left) : !less(left, right);
}

}  // namespace distsetup::jinja
