// What a scalar means. The text decides alone, so that a file reads the same whichever YAML version a reader has in mind: spellings
// that YAML 1.1 and 1.2 take differently (`no`, `010`, `1_000`) are refused with the way out. Integers are computed from their digits,
// never through a double.
#include "base/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "base/diagnostic_codes.h"
#include "base/names.h"

namespace distsetup {
namespace {

constexpr size_t kMaxShownText = 60;

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

// YAML 1.1 reads these as booleans, YAML 1.2 as text.
bool is_word_for_bool(std::string_view text) {
  const std::string word = lower(text);
  return is_one_of(word, {"y", "n", "yes", "no", "on", "off"});
}

std::optional<bool> core_bool(std::string_view text) {
  if (is_one_of(text, {"true", "True", "TRUE"})) return true;
  if (is_one_of(text, {"false", "False", "FALSE"})) return false;
  return std::nullopt;
}

// sign, digits before the point, digits behind it, exponent. `well_formed`: [-+]? (d+ (. d*)? | . d+) ([eE] [-+]? d+)?
struct Decimal {
  bool well_formed = false;
  bool negative = false;
  bool only_digits = false;  // neither point nor exponent
  std::string whole;
  std::string fraction;
  int64_t exponent = 0;
};

std::string take_digits(std::string_view& text) {
  size_t n = 0;
  while (n < text.size() && is_digit(text[n])) ++n;
  std::string digits(text.substr(0, n));
  text.remove_prefix(n);
  return digits;
}

Decimal parse_decimal(std::string_view text) {
  Decimal d;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) d.negative = text[0] == '-', text.remove_prefix(1);
  d.whole = take_digits(text);
  d.only_digits = text.empty();
  if (!text.empty() && text[0] == '.') {
    text.remove_prefix(1);
    d.fraction = take_digits(text);
  }
  if (d.whole.empty() && d.fraction.empty()) return d;
  if (!text.empty() && (text[0] == 'e' || text[0] == 'E')) {
    text.remove_prefix(1);
    const bool negative = !text.empty() && text[0] == '-';
    if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
    const std::string digits = take_digits(text);
    if (digits.empty()) return d;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), d.exponent).ec != std::errc()) d.exponent = 1'000'000'000;
    d.exponent = std::min<int64_t>(d.exponent, 1'000'000'000) * (negative ? -1 : 1);
  }
  d.well_formed = text.empty();
  return d;
}

bool has_leading_zero(const Decimal& d) { return d.whole.size() > 1 && d.whole[0] == '0'; }

// 010, 0x1f, 0o17, 0b11, 1_000: readers disagree about them. The help says how to write the number.
std::optional<std::string> other_spelling_of_number(std::string_view text) {
  std::string_view body = text;
  const std::string sign = !body.empty() && body[0] == '-' ? "-" : "";
  if (!body.empty() && (body[0] == '-' || body[0] == '+')) body.remove_prefix(1);
  if (body.empty() || !is_digit(body[0])) return std::nullopt;
  const std::string prefix = lower(body.substr(0, 2));
  const auto all = [](std::string_view s, std::string_view allowed) { return s.find_first_not_of(allowed) == std::string_view::npos; };
  if (body.size() > 2 && prefix == "0x" && all(body.substr(2), "0123456789abcdefABCDEF_"))
    return "write the number with decimal digits";
  if (body.size() > 2 && (prefix == "0o" || prefix == "0b") && all(body.substr(2), "01234567_"))
    return "write the number with decimal digits";
  if (const Decimal d = parse_decimal(text); d.well_formed && has_leading_zero(d)) {
    const size_t first = std::min(body.find_first_not_of('0'), body.size());
    const bool keeps_zero = first == body.size() || !is_digit(body[first]);
    return fmt::format("write {}{}", sign, body.substr(keeps_zero ? first - 1 : first));
  }
  std::string number(body);
  std::erase(number, '_');
  if (number.size() < body.size() && parse_decimal(number).well_formed) return fmt::format("write {}{}", sign, number);
  return std::nullopt;
}

std::string found(const Value& value) {
  switch (value.kind) {
    case Value::Kind::kNull: return value.text.empty() ? "nothing" : fmt::format("'{}'", value.text);
    case Value::Kind::kList: return "a list";
    case Value::Kind::kMap: return "a map";
    case Value::Kind::kScalar: break;
  }
  const bool is_long = value.text.size() > kMaxShownText;
  return fmt::format("{}'{}'", value.quoted ? "the text " : "", is_long ? value.text.substr(0, kMaxShownText) + "..." : value.text);
}

int length_of(const Value& value) {
  if (value.kind == Value::Kind::kList || value.kind == Value::Kind::kMap) return 1;
  return static_cast<int>(value.text.size()) + (value.quoted ? 2 : 0);
}

Diagnostic mistake(const char* code, const Value& value, std::string message, std::string help = "") {
  Diagnostic d = error(code, value.location, std::move(message), std::move(help));
  d.length = std::max(length_of(value), 1);
  return d;
}

Diagnostic expected(const Value& value, std::string_view what, std::string help = "") {
  return mistake(code::kWrongType, value, fmt::format("found {}, expected {}", found(value), what), std::move(help));
}

Diagnostic ambiguous(const Value& value, std::string_view what, std::string help) {
  return mistake(code::kAmbiguousSpelling, value,
                 fmt::format("found '{}', which YAML versions read differently, expected {}", value.text, what), std::move(help));
}

// What is wrong with a scalar that should be a number, before its digits are looked at.
std::optional<Diagnostic> not_a_number(const Value& value, std::string_view what) {
  if (value.kind != Value::Kind::kScalar) return expected(value, what);
  if (value.quoted) {
    const bool is_number = parse_decimal(value.text).well_formed;
    return expected(value, what, is_number ? fmt::format("remove the quotes: {}", value.text) : "");
  }
  if (is_word_for_bool(value.text)) return ambiguous(value, what, "write a number");
  if (const auto help = other_spelling_of_number(value.text)) return ambiguous(value, what, *help);
  if (parse_decimal(value.text).well_formed) return std::nullopt;
  std::string number = value.text;  // 1,048,576 is a number for nobody but people
  std::erase(number, ',');
  return expected(value, what, parse_decimal(number).well_formed ? fmt::format("write {}", number) : "");
}

}  // namespace

const Value* Value::find(std::string_view key) const {
  if (kind != Kind::kMap) return nullptr;
  for (const auto& entry : entries) {
    if (entry.first == key) return &entry.second;
  }
  const auto same = [](char a, char b) { return a == b || ((a == '-' || a == '_') && (b == '-' || b == '_')); };
  for (const auto& entry : entries) {
    if (std::equal(entry.first.begin(), entry.first.end(), key.begin(), key.end(), same)) return &entry.second;
  }
  return nullptr;
}

Result<bool> as_bool(const Value& value) {
  if (value.kind != Value::Kind::kScalar) return expected(value, "true or false");
  const std::optional<bool> answer = core_bool(value.text);
  if (value.quoted) return expected(value, "true or false", answer ? fmt::format("remove the quotes: {}", lower(value.text)) : "");
  if (answer) return *answer;
  if (is_word_for_bool(value.text)) return ambiguous(value, "true or false", "write true or false, or quote it");
  return expected(value, "true or false");
}

Result<int64_t> as_int(const Value& value) {
  constexpr std::string_view kWhat = "a whole number";
  if (std::optional<Diagnostic> d = not_a_number(value, kWhat)) return *d;
  const Decimal d = parse_decimal(value.text);
  std::string digits = d.whole + d.fraction;
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  if (digits.empty()) return int64_t{0};
  int64_t exponent = d.exponent - static_cast<int64_t>(d.fraction.size());
  while (digits.back() == '0') digits.pop_back(), ++exponent;
  if (exponent < 0) return expected(value, kWhat);
  if (digits.size() + static_cast<size_t>(exponent) <= 20) digits.append(static_cast<size_t>(exponent), '0'), exponent = 0;
  const std::string number = (d.negative ? "-" : "") + digits;
  int64_t out = 0;
  const bool fits = exponent == 0 && std::from_chars(number.data(), number.data() + number.size(), out).ec == std::errc();
  if (!fits) {
    return mistake(code::kOutOfRange, value,
                   fmt::format("found {}, expected a whole number of at most 9223372036854775807", found(value)));
  }
  return out;
}

Result<double> as_double(const Value& value) {
  if (std::optional<Diagnostic> d = not_a_number(value, "a number")) return *d;
  const std::string_view text = value.text;
  const std::string_view number = text[0] == '+' ? text.substr(1) : text;
  double out = 0;
  if (std::from_chars(number.data(), number.data() + number.size(), out).ec != std::errc()) {
    return mistake(code::kOutOfRange, value, fmt::format("found {}, expected a number that a double can hold", found(value)));
  }
  return out;
}

Value scalar_value(std::string text, const Location& at) {
  Value value;
  value.kind = Value::Kind::kScalar;
  value.text = std::move(text);
  value.location = at;
  return value;
}

Result<std::string> as_text(const Value& value) {
  constexpr std::string_view kWhat = "text";
  if (value.kind != Value::Kind::kScalar) {
    const bool is_word = value.kind == Value::Kind::kNull && !value.text.empty();
    return expected(value, kWhat, is_word ? fmt::format("quote it if you mean text: '{}'", value.text) : "");
  }
  if (value.quoted) return value.text;
  const std::string quote = fmt::format("quote it if you mean text: '{}'", value.text);
  if (is_word_for_bool(value.text)) return ambiguous(value, kWhat, quote);
  if (const auto help = other_spelling_of_number(value.text)) return ambiguous(value, kWhat, quote + ", or " + *help);
  if (core_bool(value.text)) return expected(value, kWhat, quote);
  return value.text;
}

}  // namespace distsetup
