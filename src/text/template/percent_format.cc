#include "text/template/percent_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/names.h"
#include "text/template/characters.h"
#include "text/template/python_text.h"
#include "text/template/steps.h"

namespace distsetup::jinja {
namespace {

constexpr int kMaxWidth = 10'000;

struct Field {
  std::string name;  // of %(name)s
  bool is_left = false, is_signed = false, is_spaced = false, has_zeros = false;
  int width = 0, precision = -1;
  char kind = 0;
};

class FormatReader {
 public:
  FormatReader(const PyValue& format, const PyValue& values) : format_(format), text_(text_of(format)), values_(values) {}

  PyValue take() {
    std::string out;
    while (position_ < text_.size()) {
      if (text_[position_] != '%') {
        out += text_[position_++];
      } else {
        out += field();
      }
    }
    const bool is_used = is_named_ || values_.is(Type::kDict) || next_ >= num_values();
    if (!is_used) fail("more values than the text has places for ('%s')");
    count_bytes(out.size());
    return text(std::move(out), format_.flag);
  }

 private:
  size_t num_values() const { return values_.is(Type::kTuple) ? items_of(values_).size() : 1; }

  PyValue next_value() {
    if (next_ >= num_values()) fail("fewer values than the text has places for ('%s')");
    const size_t i = next_++;
    return values_.is(Type::kTuple) ? items_of(values_)[i] : values_;
  }

  char current() {
    if (position_ == text_.size()) fail("a text to format ends inside of a '%'");
    return text_[position_];
  }

  int number() {
    int value = 0;
    for (; is_digit(current()); ++position_) {
      value = value * 10 + (text_[position_] - '0');
      if (value > kMaxWidth) fail(fmt::format("a width of more than {}", kMaxWidth));
    }
    return value;
  }

  Field read_field() {
    Field field;
    ++position_;
    if (current() == '(') {
      const size_t end = text_.find(')', position_);
      if (end == std::string_view::npos) fail("'%(' without a ')'");
      field.name = text_.substr(position_ + 1, end - position_ - 1);
      is_named_ = true;
      position_ = end + 1;
    }
    for (;; ++position_) {
      const char flag = current();
      if (flag == '-')
        field.is_left = true;
      else if (flag == '+')
        field.is_signed = true;
      else if (flag == ' ')
        field.is_spaced = true;
      else if (flag == '0')
        field.has_zeros = true;
      else
        break;
    }
    field.width = number();
    if (current() == '.') {
      ++position_;
      field.precision = number();
    }
    field.kind = current();
    ++position_;
    return field;
  }

  std::string field() {
    const Field field = read_field();
    if (field.kind == '%') return "%";
    PyValue value;
    if (field.name.empty()) {
      value = next_value();
    } else {
      const PyValue* found = values_.is(Type::kDict) ? find_entry(entries_of(values_), field.name) : nullptr;
      if (found == nullptr) fail(fmt::format("'%({})' has no value", field.name));
      value = *found;
    }
    return padded(field, field.kind == 's' || field.kind == 'r' ? text_form(field, value) : number_form(field, value));
  }

  std::string text_form(const Field& field, const PyValue& value) const {
    std::string out = field.kind == 's' ? python_str(value) : python_repr(value);
    if (format_.flag && !(value.is(Type::kText) && value.flag)) out = escape_html(out);
    if (field.precision >= 0) out = utf8(code_points(out).substr(0, static_cast<size_t>(field.precision)));
    return out;
  }

  static std::string whole_form(char kind, const PyValue& value) {
    Integer whole = value.is_whole() ? value.whole() : Integer(0);
    if (value.is(Type::kFloat)) {
      if (!(std::abs(value.real) < 1e18) || kind == 'x' || kind == 'X' || kind == 'o')
        fail(fmt::format("'%{}' needs a whole number", kind));
      whole = static_cast<Integer>(value.real);
    }
    if (kind == 'x') return fmt::format("{:x}", whole);
    if (kind == 'X') return fmt::format("{:X}", whole);
    return kind == 'o' ? fmt::format("{:o}", whole) : fmt::format("{}", whole);
  }

  static std::string float_form(const Field& field, double value) {
    const int precision = field.precision < 0 ? 6 : field.precision;
    switch (field.kind) {
      case 'f':
      case 'F': return fmt::format("{:.{}f}", value, precision);
      case 'e': return fmt::format("{:.{}e}", value, precision);
      case 'E': return fmt::format("{:.{}E}", value, precision);
      case 'G': return fmt::format("{:.{}G}", value, std::max(precision, 1));
      default: return fmt::format("{:.{}g}", value, std::max(precision, 1));
    }
  }

  static std::string number_form(const Field& field, const PyValue& value) {
    static constexpr std::string_view kWhole = "diuxXo", kFloat = "fFeEgG";
    const bool is_whole = kWhole.find(field.kind) != std::string_view::npos;
    if (!is_whole && kFloat.find(field.kind) == std::string_view::npos) {
      fail(fmt::format("'%{}' is not read", field.kind), "places are %s %r %d %i %f %e %g %x %o and %%");
    }
    if (!value.is_number()) fail(fmt::format("'%{}' needs a number, found {}", field.kind, type_name(value)));
    std::string out = is_whole ? whole_form(field.kind, value) : float_form(field, value.number());
    if (is_whole && field.precision >= 0) {
      const size_t sign = out[0] == '-' ? 1 : 0;
      while (out.size() - sign < static_cast<size_t>(field.precision)) out.insert(sign, "0");
    }
    if (out[0] != '-' && field.is_signed) return "+" + out;
    return out[0] != '-' && field.is_spaced ? " " + out : out;
  }

  static std::string padded(const Field& field, std::string out) {
    const size_t size = num_characters(out);
    if (size >= static_cast<size_t>(field.width)) return out;
    const size_t missing = static_cast<size_t>(field.width) - size;
    if (field.is_left) return out + std::string(missing, ' ');
    const bool is_number = field.kind != 's' && field.kind != 'r';
    if (!field.has_zeros || !is_number) return std::string(missing, ' ') + out;
    const size_t sign = out[0] == '-' || out[0] == '+' || out[0] == ' ' ? 1 : 0;
    return out.substr(0, sign) + std::string(missing, '0') + out.substr(sign);
  }

  const PyValue& format_;
  const std::string_view text_;
  const PyValue& values_;
  size_t position_ = 0, next_ = 0;
  bool is_named_ = false;
};

}  // namespace

PyValue percent_format(const PyValue& format, const PyValue& values) { return FormatReader(format, values).take(); }

}  // namespace distsetup::jinja
