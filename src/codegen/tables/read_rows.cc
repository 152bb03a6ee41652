#include "codegen/tables/read_rows.h"

#include <fmt/format.h>

#include <optional>

#include "base/map_reader.h"

namespace distsetup {

void read_read_row(const Value& value, KeyTable& table, TableMistakes& mistakes) {
  ReadRow row;
  row.location = value.location;
  std::string type;
  std::vector<std::string> keys;  // several that are read alike
  MapReader reader(value, "a row of reads", mistakes.diagnostics);
  reader.get("keys", keys);
  if (keys.empty()) reader.require("key");
  reader.get("key", row.key);
  if (keys.empty()) {
    keys.push_back(row.key);
  } else if (!row.key.empty()) {
    mistakes.fail(value.location, fmt::format("a row of reads has key '{}' and keys, expected one of them", row.key));
  }
  reader.get("field", row.field);
  reader.get("drop", row.drop);
  reader.get("file", row.is_file);
  reader.get("first", row.is_first);
  reader.get("part_of", row.part_of);
  reader.get("count", row.is_counted);
  reader.get("type", type);
  row.when = field_condition(reader.child("when"), mistakes);
  row.unless = field_condition(reader.child("unless"), mistakes);
  row.given = key_condition(reader.child("given"));
  row.has_type = !type.empty();
  if (type.empty()) type = "text";
  const std::optional<KeyType> known = key_type_of(type);
  if (!known) mistakes.fail(value.location, fmt::format("unknown type '{}' of key '{}'", type, keys.front()));
  row.type = known.value_or(KeyType::kText);
  if (!row.field.empty()) mistakes.check_field(row.field, value.location);
  reader.get("choice", row.choice);
  if (const Value* absent = reader.child("absent")) {
    row.has_absent = true;
    row.absent = absent->text;
  }
  if (const Value* of = reader.child("of")) {
    if (of->kind == Value::Kind::kNull) row.of.emplace_back();
    if (of->kind == Value::Kind::kScalar) row.of.emplace_back(of->text);
    for (const Value& item : of->items) row.of.push_back(item.kind == Value::Kind::kNull ? Json() : Json(item.text));
  }
  if (const Value* map = reader.child("values")) {
    for (const auto& [from, to] : map->entries) row.values.emplace_back(from, to.text);
  }
  reader.finish();
  if (!row.field.empty() && !row.drop.empty())
    mistakes.fail(value.location, fmt::format("key '{}' has a field and is dropped", keys.front()));
  for (const std::string& key : keys) {
    row.key = key;
    table.reads.push_back(row);
  }
}

void read_part(const Value& value, KeyTable& table, TableMistakes& mistakes) {
  ReadPart part;
  MapReader reader(value, "a part", mistakes.diagnostics);
  reader.require("section");
  reader.get("section", part.section);
  reader.get("into", part.into);
  reader.get("choose", part.choose);
  reader.get("by", part.by);
  reader.get("default", part.fallback);
  reader.get("mixture", part.mixture);
  const Value *where = reader.child("where"), *keys = reader.child("keys");
  if (where != nullptr && where->entries.size() == 1) part.where = {where->entries.front().first, where->entries.front().second.text};
  for (const auto& [from, to] : keys == nullptr ? std::vector<Value::Entry>{} : keys->entries) part.keys.emplace_back(from, to.text);
  reader.finish();
  if (!part.choose.empty() && part.choose != "stage" && part.choose != "distributed")
    mistakes.fail(value.location, fmt::format("unknown choice '{}'", part.choose), "known: stage, distributed");
  table.parts.push_back(std::move(part));
}

void read_check(const Value& value, KeyTable& table, TableMistakes& mistakes) {
  KeyCheck check;
  std::string severity = "error";
  MapReader reader(value, "a check", mistakes.diagnostics);
  for (const char* key : {"given", "message"}) reader.require(key);
  check.given = key_condition(reader.child("given"));
  reader.get("trainer", check.trainer);
  reader.get("weights", check.weights);
  reader.get("severity", severity);
  reader.get("message", check.message);
  reader.get("help", check.help);
  reader.finish();
  check.severity = severity_of(severity, value.location, mistakes);
  table.checks.push_back(std::move(check));
}

}  // namespace distsetup
