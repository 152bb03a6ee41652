// Reading a key table, strictly: a row that could never be written, a field that does not exist or a value of the wrong type is
// found when the table is read, not when somebody emits with it.
#include "codegen/tables/key_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/diagnostic_codes.h"
#include "base/map_reader.h"
#include "base/names.h"
#include "base/value.h"
#include "base/value_yaml.h"

namespace distsetup {
namespace {

constexpr std::array<std::pair<std::string_view, KeyType>, 7> kTypes = {{{"bool", KeyType::kBool},
                                                                         {"int", KeyType::kInt},
                                                                         {"number", KeyType::kNumber},
                                                                         {"text", KeyType::kText},
                                                                         {"text_list", KeyType::kTextList},
                                                                         {"int_list", KeyType::kIntList},
                                                                         {"comma_list", KeyType::kCommaList}}};
constexpr std::array<std::pair<std::string_view, TableFormat>, 5> kFormats = {{{"json", TableFormat::kJson},
                                                                               {"yaml", TableFormat::kYaml},
                                                                               {"toml", TableFormat::kToml},
                                                                               {"directives", TableFormat::kDirectives},
                                                                               {"arguments", TableFormat::kArguments}}};
constexpr std::array<std::string_view, 4> kUnknownKey = {"parse error", "init error", "warning", "silent"};

struct KeyTableReader {
  KeyTable table;
  const Fields& names = no_fields();
  Diagnostics diagnostics;

  void fail(const Location& at, std::string message, std::string help = "") {
    diagnostics.push_back(error(code::kTemplate, at, std::move(message), std::move(help)));
  }

  // A field name must exist; `at` is where it is written.
  void check_field(const std::string& field, const Location& at) {
    if (names.count(field) != 0) return;
    std::vector<std::string> candidates;
    for (const auto& entry : names) candidates.push_back(entry.first);
    fail(at, fmt::format("unknown field '{}'", field), suggest(field, candidates));
  }

  // A constant of a row, by the row's type.
  Json constant(const Value& value, KeyType type) {
    auto take = [this](auto result) {
      append(diagnostics, result.diagnostics);
      return result.ok() ? Json(*result) : Json();
    };
    switch (type) {
      case KeyType::kBool: return take(as_bool(value));
      case KeyType::kInt: return take(as_int(value));
      case KeyType::kNumber: return take(as_double(value));
      case KeyType::kText: return take(as_text(value));
      case KeyType::kTextList:
      case KeyType::kIntList:
      case KeyType::kCommaList: break;
    }
    Json list = Json::array();
    if (value.kind != Value::Kind::kList) fail(value.location, "expected a list of texts");
    for (const Value& item : value.items) list.push_back(type == KeyType::kIntList ? take(as_int(item)) : take(as_text(item)));
    return list;
  }

  FieldCondition condition(const Value* map) {
    FieldCondition out;
    if (map == nullptr) return out;
    if (map->kind != Value::Kind::kMap) fail(map->location, "expected a map from field names to values");
    for (size_t i = 0; i < map->entries.size(); ++i) {
      const auto& [field, wanted] = map->entries[i];
      check_field(field, map->key_locations[i]);
      std::vector<std::string> texts;
      for (const Value& item : wanted.items) texts.push_back(item.text);
      if (wanted.kind == Value::Kind::kNull) texts.push_back("null");
      if (wanted.kind == Value::Kind::kScalar) texts.push_back(wanted.text);
      if (texts.empty()) fail(wanted.location, fmt::format("condition on '{}' names no value", field));
      out.emplace_back(field, std::move(texts));
    }
    return out;
  }

  void row(const Value& value) {
    KeyRow row;
    row.location = value.location;
    std::string type, since, until;
    MapReader reader(value, "a key's row", diagnostics);
    reader.get("key", row.key);
    reader.get("table", row.table);
    if (!row.table.empty()) {  // another table's rows, with a key as a section of that name; it is read when this one is loaded
      row.when = condition(reader.child("when"));
      reader.finish();
      table.rows.push_back(std::move(row));
      return;
    }
    reader.require("key");
    reader.require("type");
    reader.get("type", type);
    reader.get("field", row.field);
    reader.get("not_read", row.not_read);
    reader.get("since", since);  // stated for readers and lints; the writer has no version to compare with
    reader.get("until", until);
    row.when = condition(reader.child("when"));
    row.unless = condition(reader.child("unless"));
    const auto known = std::find_if(kTypes.begin(), kTypes.end(), [&type](const auto& entry) { return entry.first == type; });
    if (known == kTypes.end()) {
      fail(value.location, fmt::format("unknown type '{}' of key '{}'", type, row.key),
           "known: bool, int, number, text, text_list, int_list, comma_list");
    } else {
      row.type = known->second;
    }
    const Value* fixed = reader.child("value");
    if ((fixed != nullptr) == !row.field.empty())
      fail(value.location, fmt::format("key '{}' needs a field or a value, one of them", row.key));
    if (fixed != nullptr) row.value = constant(*fixed, row.type);
    if (!row.field.empty()) check_field(row.field, value.location);
    if (const Value* fallback = reader.child("default")) row.fallback = constant(*fallback, row.type);
    if (const Value* map = reader.child("values")) {
      if (map->kind != Value::Kind::kMap || map->entries.empty())
        fail(map->location, "expected a map from the field's texts to the tool's");
      const bool is_list = row.type == KeyType::kTextList || row.type == KeyType::kCommaList;  // item by item
      for (const auto& [from, to] : map->entries) row.value_map.emplace_back(from, constant(to, is_list ? KeyType::kText : row.type));
    }
    reader.finish();
    table.rows.push_back(std::move(row));
  }

  // A condition on keys of the file that is read.
  static FieldCondition given(const Value* map) {
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

  void read_row(const Value& value) {
    ReadRow row;
    row.location = value.location;
    std::string type;
    std::vector<std::string> keys;  // several that are read alike
    MapReader reader(value, "a row of reads", diagnostics);
    reader.get("keys", keys);
    if (keys.empty()) reader.require("key");
    reader.get("key", row.key);
    if (keys.empty()) {
      keys.push_back(row.key);
    } else if (!row.key.empty()) {
      fail(value.location, fmt::format("a row of reads has key '{}' and keys, expected one of them", row.key));
    }
    reader.get("field", row.field);
    reader.get("drop", row.drop);
    reader.get("file", row.is_file);
    reader.get("type", type);
    row.when = condition(reader.child("when"));
    row.unless = condition(reader.child("unless"));
    row.given = given(reader.child("given"));
    row.has_type = !type.empty();
    if (type.empty()) type = "text";
    const auto known = std::find_if(kTypes.begin(), kTypes.end(), [&type](const auto& entry) { return entry.first == type; });
    if (known == kTypes.end()) fail(value.location, fmt::format("unknown type '{}' of key '{}'", type, keys.front()));
    if (known != kTypes.end()) row.type = known->second;
    if (!row.field.empty()) check_field(row.field, value.location);
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
      fail(value.location, fmt::format("key '{}' has a field and is dropped", keys.front()));
    for (const std::string& key : keys) {
      row.key = key;
      table.reads.push_back(row);
    }
  }

  void part(const Value& value) {
    ReadPart part;
    MapReader reader(value, "a part", diagnostics);
    reader.require("section");
    reader.get("section", part.section);
    reader.get("into", part.into);
    reader.get("choose", part.choose);
    reader.get("by", part.by);
    reader.get("default", part.fallback);
    const Value *where = reader.child("where"), *keys = reader.child("keys");
    if (where != nullptr && where->entries.size() == 1)
      part.where = {where->entries.front().first, where->entries.front().second.text};
    for (const auto& [from, to] : keys == nullptr ? std::vector<Value::Entry>{} : keys->entries) part.keys.emplace_back(from, to.text);
    reader.finish();
    if (!part.choose.empty() && part.choose != "stage" && part.choose != "distributed")
      fail(value.location, fmt::format("unknown choice '{}'", part.choose), "known: stage, distributed");
    table.parts.push_back(std::move(part));
  }

  static Severity severity_of(const std::string& text) {
    return text == "error" ? Severity::kError : text == "warning" ? Severity::kWarning : Severity::kNote;
  }

  void check(const Value& value) {
    KeyCheck check;
    std::string severity = "error";
    MapReader reader(value, "a check", diagnostics);
    for (const char* key : {"given", "message"}) reader.require(key);
    check.given = given(reader.child("given"));
    reader.get("trainer", check.trainer);
    reader.get("weights", check.weights);
    reader.get("severity", severity);
    reader.get("message", check.message);
    reader.get("help", check.help);
    reader.finish();
    if (severity != "error" && severity != "warning" && severity != "note")
      fail(value.location, fmt::format("unknown severity '{}'", severity), "known: error, warning, note");
    check.severity = severity_of(severity);
    table.checks.push_back(std::move(check));
  }

  // "{name}" in a rule's text is the field's value.
  void check_places(const std::string& text, const Location& at) {
    for (size_t open = text.find('{'); open != std::string::npos; open = text.find('{', open + 1)) {
      const size_t close = text.find('}', open);
      if (close == std::string::npos) return fail(at, fmt::format("'{{' without '}}' in '{}'", text));
      check_field(text.substr(open + 1, close - open - 1), at);
    }
  }

  void rule(const Value& value) {
    Rule rule;
    std::string severity = "error";
    MapReader reader(value, "a rule", diagnostics);
    reader.require("message");
    rule.when = condition(reader.child("when"));
    rule.unless = condition(reader.child("unless"));
    reader.get("severity", severity);
    reader.get("message", rule.message);
    reader.get("help", rule.help);
    check_places(rule.message, value.location);
    check_places(rule.help, value.location);
    reader.finish();
    if (severity != "error" && severity != "warning" && severity != "note") {
      fail(value.location, fmt::format("unknown severity '{}'", severity), "known: error, warning, note");
    }
    rule.severity = severity_of(severity);
    table.rules.push_back(std::move(rule));
  }

  // unknown_key: how the tool takes a key it does not know, by section ('' = top level).
  void unknown_key(const Value* map) {
    if (map == nullptr) return;
    for (const auto& [section, how] : map->entries) {
      if (std::find(kUnknownKey.begin(), kUnknownKey.end(), how.text) == kUnknownKey.end()) {
        fail(how.location, fmt::format("unknown verdict '{}' for section '{}'", how.text, section),
             "known: parse error, init error, warning, silent");
      }
      table.unknown_key.emplace_back(section, how.text);
    }
  }

  void read(const Value& root) {
    int64_t version = 0;
    std::string format, source, checked;
    MapReader reader(root, "a key table", diagnostics);
    for (const char* key : {"version", "format", "tool", "source", "keys"}) reader.require(key);
    reader.get("version", version);
    reader.get("format", format);
    reader.get("tool", table.tool);
    reader.get("source", source);    // where the facts of the table come from
    reader.get("checked", checked);  // when, and against which release
    unknown_key(reader.child("unknown_key"));
    const Value* keys = reader.child("keys");
    const Value* rules = reader.child("rules");
    const Value* reads = reader.child("reads");
    if (const Value* renames = reader.child("read_as")) {
      for (const auto& [from, to] : renames->entries) table.read_as.emplace_back(from, to.text);
    }
    const Value* parts = reader.child("parts");
    for (const Value& item : parts == nullptr ? std::vector<Value>{} : parts->items) part(item);
    reader.get("words", table.words);
    const Value* accepts = reader.child("accepts");
    for (const auto& [names, types] : accepts == nullptr ? std::vector<Value::Entry>{} : accepts->entries) {
      for (const auto& [type, section] : types.entries) table.accepts.push_back({names, type, section.text});
    }
    reader.get("marks", table.marks);
    const Value* checks = reader.child("checks");
    for (const Value& item : checks == nullptr ? std::vector<Value>{} : checks->items) check(item);
    reader.finish();
    if (version != 1) fail(root.location, fmt::format("key table of version {}, expected 1", version));
    const auto known = std::find_if(kFormats.begin(), kFormats.end(), [&format](const auto& entry) { return entry.first == format; });
    if (known == kFormats.end()) {
      fail(root.location, fmt::format("unknown format '{}'", format), "known: json, yaml, toml, directives, arguments");
    } else {
      table.format = known->second;
    }
    if (keys != nullptr) {
      for (const Value& item : keys->items) row(item);
    }
    if (rules != nullptr) {
      for (const Value& item : rules->items) rule(item);
    }
    if (reads != nullptr) {
      for (const Value& item : reads->items) read_row(item);
    }
  }
};

}  // namespace

Result<KeyTable> parse_key_table(std::string_view text, const std::string& file_name) {
  Result<Value> root = parse_yaml(text, file_name);
  if (!root.ok()) return root.diagnostics;
  KeyTableReader reader;
  reader.table.name = file_name;
  reader.read(*root);
  if (has_error(reader.diagnostics)) return reader.diagnostics;
  return {std::move(reader.table), std::move(reader.diagnostics)};
}

}  // namespace distsetup
