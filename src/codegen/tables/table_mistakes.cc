#include "codegen/tables/table_mistakes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "codegen/tables/fields.h"

namespace distsetup {
namespace {

constexpr std::array<std::pair<std::string_view, KeyType>, 7> kTypes = {{{"bool", KeyType::kBool},
                                                                         {"int", KeyType::kInt},
                                                                         {"number", KeyType::kNumber},
                                                                         {"text", KeyType::kText},
                                                                         {"text_list", KeyType::kTextList},
                                                                         {"int_list", KeyType::kIntList},
                                                                         {"comma_list", KeyType::kCommaList}}};

}  // namespace

void TableMistakes::fail(const Location& at, std::string message, std::string help) {
  diagnostics.push_back(error(code::kTemplate, at, std::move(message), std::move(help)));
}

void TableMistakes::check_field(const std::string& field, const Location& at) {
  if (no_fields().count(field) != 0) return;
  std::vector<std::string> candidates;
  for (const auto& entry : no_fields()) candidates.push_back(entry.first);
  fail(at, fmt::format("unknown field '{}'", field), suggest(field, candidates));
}

std::optional<KeyType> key_type_of(std::string_view name) {
  const auto known = std::find_if(kTypes.begin(), kTypes.end(), [name](const auto& entry) { return entry.first == name; });
  return known == kTypes.end() ? std::nullopt : std::optional(known->second);
}

FieldCondition field_condition(const Value* map, TableMistakes& mistakes) {
  FieldCondition out;
  if (map == nullptr) return out;
  if (map->kind != Value::Kind::kMap) mistakes.fail(map->location, "expected a map from field names to values");
  for (size_t i = 0; i < map->entries.size(); ++i) {
    const auto& [field, wanted] = map->entries[i];
    mistakes.check_field(field, map->key_locations[i]);
    std::vector<std::string> texts;
    for (const Value& item : wanted.items) texts.push_back(item.text);
    if (wanted.kind == Value::Kind::kNull) texts.push_back("null");
    if (wanted.kind == Value::Kind::kScalar) texts.push_back(wanted.text);
    if (texts.empty()) mistakes.fail(wanted.location, fmt::format("condition on '{}' names no value", field));
    out.emplace_back(field, std::move(texts));
  }
  return out;
}

FieldCondition key_condition(const Value* map) {
  FieldCondition out;
  for (const auto& [key, wanted] : map == nullptr ? std::vector<Value::Entry>{} : map->entries) {
    std::vector<std::string> texts;
    for (const Value& item : wanted.items) texts.push_back(item.kind == Value::Kind::kNull ? "null" : item.text);
    if (wanted.kind == Value::Kind::kNull) texts.push_back("null");
    if (wanted.kind == Value::Kind::kScalar) texts.push_back(wanted.text);
    out.emplace_back(key, std::move(texts));
  }
  return out;
}

Severity severity_of(const std::string& word, const Location& at, TableMistakes& mistakes) {
  if (word == "error") return Severity::kError;
  if (word == "warning") return Severity::kWarning;
  if (word != "note") mistakes.fail(at, fmt::format("unknown severity '{}'", word), "known: error, warning, note");
  return Severity::kNote;
}

}  // namespace distsetup
