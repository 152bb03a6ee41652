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
#include "codegen/tables/read_rows.h"
#include "codegen/tables/table_mistakes.h"

namespace distsetup {
namespace {

constexpr std::array<std::pair<std::string_view, TableFormat>, 5> kFormats = {{{"json", TableFormat::kJson},
                                                                               {"yaml", TableFormat::kYaml},
                                                                               {"toml", TableFormat::kToml},
                                                                               {"directives", TableFormat::kDirectives},
                                                                               {"arguments", TableFormat::kArguments}}};
constexpr std::array<std::string_view, 5> kUnknownKey = {"parse error", "declared", "init error", "warning", "silent"};

struct KeyTableReader {
  KeyTable table;
  TableMistakes mistakes;
  Diagnostics& diagnostics = mistakes.diagnostics;

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
    if (value.kind != Value::Kind::kList) mistakes.fail(value.location, "expected a list of texts");
    for (const Value& item : value.items) list.push_back(type == KeyType::kIntList ? take(as_int(item)) : take(as_text(item)));
    return list;
  }

  void row(const Value& value) {
    KeyRow row;
    row.location = value.location;
    std::string type;
    MapReader reader(value, "a key's row", diagnostics);
    reader.get("key", row.key);
    reader.get("table", row.table);
    if (!row.table.empty()) {  // another table's rows, with a key as a section of that name; it is read when this one is loaded
      row.when = field_condition(reader.child("when"), mistakes);
      reader.finish();
      table.rows.push_back(std::move(row));
      return;
    }
    reader.require("key");
    reader.require("type");
    reader.get("type", type);
    reader.get("field", row.field);
    reader.get("not_read", row.not_read);
    row.when = field_condition(reader.child("when"), mistakes);
    row.unless = field_condition(reader.child("unless"), mistakes);
    const std::optional<KeyType> known = key_type_of(type);
    if (!known) {
      mistakes.fail(value.location, fmt::format("unknown type '{}' of key '{}'", type, row.key),
                    "known: bool, int, number, text, text_list, int_list, comma_list");
    } else {
      row.type = *known;
    }
    const Value* fixed = reader.child("value");
    if ((fixed != nullptr) == !row.field.empty())
      mistakes.fail(value.location, fmt::format("key '{}' needs a field or a value, one of them", row.key));
    if (fixed != nullptr) row.value = constant(*fixed, row.type);
    if (!row.field.empty()) mistakes.check_field(row.field, value.location);
    if (const Value* fallback = reader.child("default")) row.fallback = constant(*fallback, row.type);
    if (const Value* map = reader.child("values")) {
      if (map->kind != Value::Kind::kMap || map->entries.empty())
        mistakes.fail(map->location, "expected a map from the field's texts to the tool's");
      const bool is_list = row.type == KeyType::kTextList || row.type == KeyType::kCommaList;  // item by item
      for (const auto& [from, to] : map->entries) row.value_map.emplace_back(from, constant(to, is_list ? KeyType::kText : row.type));
    }
    reader.finish();
    table.rows.push_back(std::move(row));
  }

  // "{name}" in a rule's text is the field's value.
  void check_places(const std::string& text, const Location& at) {
    for (size_t open = text.find('{'); open != std::string::npos; open = text.find('{', open + 1)) {
      const size_t close = text.find('}', open);
      if (close == std::string::npos) return mistakes.fail(at, fmt::format("'{{' without '}}' in '{}'", text));
      mistakes.check_field(text.substr(open + 1, close - open - 1), at);
    }
  }

  void rule(const Value& value) {
    Rule rule;
    std::string severity = "error";
    MapReader reader(value, "a rule", diagnostics);
    reader.require("message");
    rule.when = field_condition(reader.child("when"), mistakes);
    rule.unless = field_condition(reader.child("unless"), mistakes);
    reader.get("severity", severity);
    reader.get("message", rule.message);
    reader.get("help", rule.help);
    check_places(rule.message, value.location);
    check_places(rule.help, value.location);
    reader.finish();
    rule.severity = severity_of(severity, value.location, mistakes);
    table.rules.push_back(std::move(rule));
  }

  // unknown_key: how the tool takes a key it does not know, by section ('' = top level).
  void unknown_key(const Value* map) {
    if (map == nullptr) return;
    for (const auto& [section, how] : map->entries) {
      if (std::find(kUnknownKey.begin(), kUnknownKey.end(), how.text) == kUnknownKey.end()) {
        mistakes.fail(how.location, fmt::format("unknown verdict '{}' for section '{}'", how.text, section),
                      "known: parse error, declared, init error, warning, silent");
      }
      table.unknown_key.emplace_back(section, how.text);
    }
  }

  void program(const std::string& name, const Value& value) {
    ProgramRow one;
    one.program = name;
    MapReader reader(value, "a program", diagnostics);
    reader.get("drop", one.drop);
    if (const Value* fields = reader.child("fields"))
      for (const auto& [field, text] : fields->entries) one.fields.emplace_back(field, text.text);
    reader.finish();
    table.programs.push_back(std::move(one));
  }

  void read(const Value& root) {
    int64_t version = 0;
    std::string format, source;
    MapReader reader(root, "a key table", diagnostics);
    for (const char* key : {"version", "format", "tool", "source", "keys"}) reader.require(key);
    reader.get("version", version);
    reader.get("format", format);
    reader.get("tool", table.tool);
    reader.get("source", source);  // where the facts of the table come from
    reader.get("checked", table.checked);
    unknown_key(reader.child("unknown_key"));
    const Value* keys = reader.child("keys");
    const Value* rules = reader.child("rules");
    const Value* reads = reader.child("reads");
    if (const Value* renames = reader.child("read_as")) {
      for (const auto& [from, to] : renames->entries) table.read_as.emplace_back(from, to.text);
    }
    const Value* parts = reader.child("parts");
    for (const Value& item : parts == nullptr ? std::vector<Value>{} : parts->items) read_part(item, table, mistakes);
    reader.get("words", table.words);
    reader.get("decides", table.decides);
    reader.get("extended_by", table.extended_by);
    const Value* accepts = reader.child("accepts");
    for (const auto& [names, types] : accepts == nullptr ? std::vector<Value::Entry>{} : accepts->entries) {
      for (const auto& [type, section] : types.entries) table.accepts.push_back({names, type, section.text});
    }
    reader.get("marks", table.marks);
    reader.get("told_by", table.told_by);
    reader.get("not_told_by", table.not_told_by);
    reader.get("told_only", table.is_told_only);
    if (const Value* called = reader.child("called")) {
      for (const auto& [key, tool] : called->entries) table.called.emplace_back(key, tool.text);
    }
    if (const Value* programs = reader.child("programs"))
      for (const auto& [name, row] : programs->entries) program(name, row);
    const Value* checks = reader.child("checks");
    for (const Value& item : checks == nullptr ? std::vector<Value>{} : checks->items) read_check(item, table, mistakes);
    reader.finish();
    if (version != 1) mistakes.fail(root.location, fmt::format("key table of version {}, expected 1", version));
    const auto known = std::find_if(kFormats.begin(), kFormats.end(), [&format](const auto& entry) { return entry.first == format; });
    if (known == kFormats.end()) {
      mistakes.fail(root.location, fmt::format("unknown format '{}'", format), "known: json, yaml, toml, directives, arguments");
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
      for (const Value& item : reads->items) read_read_row(item, table, mistakes);
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
