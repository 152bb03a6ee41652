// The walk that writes: rules first (what the tool cannot express is refused, with the reason), then the rows in order.
#include "codegen/tables/key_walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "codegen/shell/quote.h"

namespace distsetup {
namespace {

// "{name}" becomes the field's text; the reader of the table checked the names.
std::string fill(const std::string& message, const Fields& fields) {
  std::string out;
  for (size_t at = 0; at < message.size();) {
    const size_t open = message.find('{', at);
    if (open == std::string::npos) return out + message.substr(at);
    const size_t close = message.find('}', open);
    out += message.substr(at, open - at) + field_text(fields.find(message.substr(open + 1, close - open - 1))->second);
    at = close + 1;
  }
  return out;
}

// The field's value in the row's type. A mismatch is a mistake of the table, found on the first emit.
Result<Json> typed(const KeyRow& row, const Json& value, const std::string& table) {
  const auto wrong = [&](std::string_view expected) {
    return error(code::kTemplate, row.location,
                 fmt::format("field '{}' of key '{}' is '{}', expected {}", row.field, row.key, value.dump(), expected),
                 "correct the type in " + table);
  };
  switch (row.type) {
    case KeyType::kBool:
      if (!value.is_boolean()) return wrong("true or false");
      return value;
    case KeyType::kInt:
      if (value.is_number_float() && std::nearbyint(value.get<double>()) == value.get<double>()) return Json(value.get<int64_t>());
      if (!value.is_number_integer()) return wrong("an integer");
      return value;
    case KeyType::kNumber:
      if (!value.is_number()) return wrong("a number");
      return value;
    case KeyType::kText: return value.is_string() ? value : Json(field_text(value));
    case KeyType::kTextList: return value.is_array() ? value : Json::array({field_text(value)});
    case KeyType::kIntList:
      if (!value.is_array()) return wrong("a list of integers");
      return value;
    case KeyType::kCommaList: return Json(field_text(value));
  }
  return wrong("a known type");
}

Result<Json> value_of(const KeyRow& row, const Fields& fields, const std::string& table) {
  if (row.field.empty()) return typed(row, row.value, table);
  const Json& value = fields.find(row.field)->second;  // the reader of the table checked the name
  if (value.is_null()) return row.fallback.is_null() ? Result<Json>(Json()) : Result<Json>(row.fallback);
  if (row.value_map.empty()) return typed(row, value, table);
  const auto mapped = [&row](const std::string& one) -> const Json* {
    for (const auto& [from, to] : row.value_map) {
      if (from == one) return &to;
    }
    return nullptr;
  };
  std::string text = field_text(value);
  if (value.is_array()) {  // item by item
    Json list = Json::array();
    for (const Json& item : value) {
      const Json* to = mapped(field_text(item));
      if (to == nullptr) text = field_text(item);
      if (to == nullptr) break;
      list.push_back(*to);
    }
    if (list.size() == value.size()) return typed(row, list, table);
  } else if (const Json* to = mapped(text)) {
    return typed(row, *to, table);
  }
  std::string known;
  for (const auto& entry : row.value_map) known += (known.empty() ? "" : ", ") + entry.first;
  return error(code::kNoForm, row.location, fmt::format("'{}' = '{}' has no form in key '{}'", row.field, text, row.key),
               "it has: " + known);
}

}  // namespace

bool holds(const FieldCondition& condition, const Fields& fields) {
  return std::all_of(condition.begin(), condition.end(), [&fields](const auto& entry) {
    const auto field = fields.find(entry.first);
    CHECK(field != fields.end(), "no field '{}'", entry.first);
    const std::string text = field_text(field->second);
    return std::find(entry.second.begin(), entry.second.end(), text) != entry.second.end();
  });
}

Result<Entries> walk_keys(const KeyTable& table, const Fields& fields, const Location& at) {
  Diagnostics diagnostics;
  for (const Rule& rule : table.rules) {
    if (!holds(rule.when, fields) || (!rule.unless.empty() && holds(rule.unless, fields))) continue;
    Diagnostic found = error(code::kNoForm, at, fill(rule.message, fields), fill(rule.help, fields));
    found.severity = rule.severity;
    diagnostics.push_back(std::move(found));
  }
  if (has_error(diagnostics)) return diagnostics;
  Entries entries;
  std::set<std::string> written;
  for (const KeyRow& row : table.rows) {
    if (written.count(row.key) != 0 || !holds(row.when, fields) || (!row.unless.empty() && holds(row.unless, fields))) continue;
    Result<Json> value = value_of(row, fields, table.name);
    append(diagnostics, value.diagnostics);
    if (!value.ok() || value->is_null()) continue;
    // JSON, YAML and TOML are UTF-8; a shell takes any bytes.
    const bool is_text_file = table.format != TableFormat::kArguments && table.format != TableFormat::kDirectives;
    if (is_text_file && !is_utf8(field_text(*value))) {
      diagnostics.push_back(error(code::kWrongType, at,
                                  fmt::format("'{}' would hold bytes that are no UTF-8 text, expected text", row.key),
                                  "rename what has them"));
    }
    written.insert(row.key);
    entries.emplace_back(row.key, std::move(*value));
    if (!row.not_read.empty()) {
      diagnostics.push_back(
          warning(code::kKeyNotRead, at, fmt::format("'{}' is written, but not read by today's tools", row.key), row.not_read));
    }
  }
  if (has_error(diagnostics)) return diagnostics;
  return {std::move(entries), std::move(diagnostics)};
}

}  // namespace distsetup
