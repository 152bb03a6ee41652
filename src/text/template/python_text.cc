#include "text/template/python_text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <iterator>

#include "text/template/characters.h"
#include "text/template/steps.h"
#include "text/template/template_loop.h"

namespace distsetup::jinja {
namespace {

void append_repr(std::string& to, const PyValue& value, int depth);

void append_text_repr(std::string& to, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  to += quote;
  for (const char32_t c : code_points(text)) {
    switch (c) {
      case U'\n': to += "\\n"; break;
      case U'\r': to += "\\r"; break;
      case U'\t': to += "\\t"; break;
      case U'\\': to += "\\\\"; break;
      default:
        if (c == static_cast<char32_t>(quote)) {
          to += fmt::format("\\{}", quote);
        } else if (is_printable(c)) {
          append_code_point(to, c);
        } else {
          const auto number = static_cast<uint32_t>(c);
          to += number < 0x100     ? fmt::format("\\x{:02x}", number)
                : number < 0x10000 ? fmt::format("\\u{:04x}", number)
                                   : fmt::format("\\U{:08x}", number);
        }
    }
  }
  to += quote;
}

void append_row(std::string& to, const Values& items, int depth) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) to += ", ";
    append_repr(to, items[i], depth);
  }
}

void append_dict(std::string& to, const Entries& entries, int depth) {
  to += '{';
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) to += ", ";
    append_repr(to, entries[i].first, depth);
    to += ": ";
    append_repr(to, entries[i].second, depth);
  }
  to += '}';
}

void append_range(std::string& to, const HeldRange& range) {
  to += range.step == 1 ? fmt::format("range({}, {})", range.start, range.stop)
                        : fmt::format("range({}, {}, {})", range.start, range.stop, range.step);
}

void append_view(std::string& to, const PyValue& value, int depth) {
  to += type_name(value) + "([";
  append_row(to, all_items(value), depth);
  to += "])";
}

void append_repr(std::string& to, const PyValue& value, int depth) {
  const size_t before = to.size();
  if (depth > kMaxDepth) fail(fmt::format("a value is nested more than {} deep", kMaxDepth));
  switch (value.type) {
    case Type::kUndefined: to += "Undefined"; break;
    case Type::kNone: to += "None"; break;
    case Type::kBool: to += value.flag ? "True" : "False"; break;
    case Type::kInteger: to += fmt::format("{}", value.integer); break;
    case Type::kFloat: to += float_text(value.real); break;
    case Type::kText:
      if (value.flag) to += "Markup(";
      append_text_repr(to, text_of(value));
      if (value.flag) to += ')';
      break;
    case Type::kList:
      to += '[';
      append_row(to, items_of(value), depth + 1);
      to += ']';
      break;
    case Type::kTuple:
      to += '(';
      append_row(to, items_of(value), depth + 1);
      to += items_of(value).size() == 1 ? ",)" : ")";
      break;
    case Type::kDict: append_dict(to, entries_of(value), depth + 1); break;
    case Type::kNamespace:
      to += "<Namespace ";
      append_dict(to, entries_of(value), depth + 1);
      to += '>';
      break;
    case Type::kView: append_view(to, value, depth + 1); break;
    case Type::kRange: append_range(to, range_of(value)); break;
    case Type::kLoop: to += fmt::format("<LoopContext {}/{}>", loop_of(value).index0() + 1, loop_of(value).length()); break;
    case Type::kIterator:
    case Type::kCallable:
      fail(fmt::format("'{}' is written as text: Python prints an address of memory there", type_name(value)),
           value.is(Type::kIterator) ? "turn it into a list first: |list, or |join" : "call it: name()");
  }
  count_bytes(to.size() - before + 32);
}

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (value == 0) return std::signbit(value) ? "-0.0" : "0.0";
  char buffer[40];
  const std::to_chars_result end = std::to_chars(std::begin(buffer), std::end(buffer), std::abs(value), std::chars_format::scientific);
  const std::string_view shortest(buffer, static_cast<size_t>(end.ptr - buffer));  // "1.25e+01": the fewest digits that read back
  const size_t e = shortest.find('e');
  std::string digits(shortest.substr(0, 1));
  if (e > 2) digits += shortest.substr(2, e - 2);
  const int exponent = std::stoi(std::string(shortest.substr(e + 1)));
  const std::string sign = std::signbit(value) ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    const std::string fraction = digits.size() > 1 ? "." + digits.substr(1) : "";
    return fmt::format("{}{}{}e{}{:02}", sign, digits[0], fraction, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return fmt::format("{}0.{}{}", sign, std::string(static_cast<size_t>(-exponent - 1), '0'), digits);
  const auto num_whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= num_whole) return sign + digits + std::string(num_whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, num_whole) + "." + digits.substr(num_whole);
}

std::string python_repr(const PyValue& value) {
  std::string out;
  append_repr(out, value, 1);
  return out;
}

std::string python_str(const PyValue& value) {
  if (value.is(Type::kText)) return text_of(value);
  return value.is(Type::kUndefined) ? "" : python_repr(value);
}

}  // namespace distsetup::jinja
