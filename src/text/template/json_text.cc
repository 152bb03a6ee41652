#include "text/template/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/template/characters.h"
#include "text/template/compare.h"
#include "text/template/python_text.h"
#include "text/template/steps.h"

namespace distsetup::jinja {
namespace {

void append_escaped_unit(std::string& to, uint32_t unit) { to += fmt::format("\\u{:04x}", unit); }

void append_json_text(std::string& to, std::string_view text, bool is_ascii) {
  to += '"';
  for (const char32_t c : code_points(text)) {
    const auto number = static_cast<uint32_t>(c);
    switch (c) {
      case U'"': to += "\\\""; break;
      case U'\\': to += "\\\\"; break;
      case U'\n': to += "\\n"; break;
      case U'\r': to += "\\r"; break;
      case U'\t': to += "\\t"; break;
      case U'\f': to += "\\f"; break;
      case U'\b': to += "\\b"; break;
      default:
        if (number >= 0x20 && (!is_ascii || number < 0x7f)) {
          append_code_point(to, c);
        } else if (number < 0x10000) {
          append_escaped_unit(to, number);
        } else {  // as two halves of UTF-16
          append_escaped_unit(to, 0xd800 + ((number - 0x10000) >> 10));
          append_escaped_unit(to, 0xdc00 + ((number - 0x10000) & 0x3ff));
        }
    }
  }
  to += '"';
}

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return float_text(value);
}

std::string json_key(const PyValue& key) {
  switch (key.type) {
    case Type::kText: return text_of(key);
    case Type::kNone: return "null";
    case Type::kBool: return key.flag ? "true" : "false";
    case Type::kInteger: return fmt::format("{}", key.integer);
    case Type::kFloat: return json_float(key.real);
    default: fail(fmt::format("'{}' cannot be a key of JSON", type_name(key)));
  }
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonForm& form) : form_(form) {}
  std::string take(const PyValue& value) {
    append(value, 1);
    return std::move(out_);
  }

 private:
  void append(const PyValue& value, int depth) {
    const size_t before = out_.size();
    switch (value.type) {
      case Type::kNone: out_ += "null"; break;
      case Type::kBool: out_ += value.flag ? "true" : "false"; break;
      case Type::kInteger: out_ += fmt::format("{}", value.integer); break;
      case Type::kFloat: out_ += json_float(value.real); break;
      case Type::kText: append_json_text(out_, text_of(value), form_.is_ascii); break;
      case Type::kList:
      case Type::kTuple: append_items(items_of(value), depth); break;
      case Type::kDict: append_entries(entries_of(value), depth); break;
      default:
        fail(fmt::format("{} cannot be written as JSON",
                         value.is(Type::kUndefined) ? why_undefined(value) + ": 'Undefined'" : "'" + type_name(value) + "'"));
    }
    count_bytes(out_.size() - before + 32);
  }

  void new_line(int depth) {
    if (!form_.indent) return;
    out_ += '\n';
    count_bytes(form_.indent->size() * static_cast<size_t>(depth));
    for (int i = 0; i < depth; ++i) out_ += *form_.indent;
  }

  void append_items(const Values& items, int depth) {
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += form_.item_separator;
      new_line(depth);
      append(items[i], depth + 1);
    }
    if (!items.empty()) new_line(depth - 1);
    out_ += ']';
  }

  void append_entries(Entries entries, int depth) {
    if (form_.is_sorted) {
      std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return less(a.first, b.first); });
    }
    out_ += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += form_.item_separator;
      new_line(depth);
      append_json_text(out_, json_key(entries[i].first), form_.is_ascii);
      out_ += form_.key_separator;
      append(entries[i].second, depth + 1);
    }
    if (!entries.empty()) new_line(depth - 1);
    out_ += '}';
  }

  const JsonForm& form_;
  std::string out_;
};

}  // namespace

std::string json_text(const PyValue& value, const JsonForm& form) { return JsonWriter(form).take(value); }

}  // namespace distsetup::jinja
