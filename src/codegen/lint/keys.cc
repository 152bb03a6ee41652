// Unknown keys and values of the wrong type: one walk over the tables templates/_lint/*_keys.yaml, which state per section how the
// tool takes a key it does not know. Nothing here knows a format.
#include "codegen/lint/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/names.h"
#include "codegen/tables/templates.h"

namespace distsetup::lint {
namespace {

struct KeySpec {
  std::string name, type;  // "int>=0", "bool", "cpu|nvme|none", "any"
};

struct AcceptedSection {
  std::string path;       // "zero_optimization.offload_param"; "" = top
  std::string unknown;    // parse, start, silent
  std::string code;       // of the rule for unknown keys
  std::string type_code;  // of the rule for wrong types; empty: not checked here
  std::string type_bites;
  std::vector<KeySpec> keys;
  std::vector<std::string> prefixes;  // keys that may carry this in front ("fsdp_")
};

struct Accepted {
  std::string kind;  // templates/_kinds.yaml
  std::string tool;
  std::vector<AcceptedSection> sections;
};

std::vector<Accepted> read_accepted() {
  std::vector<Accepted> tables;
  for (const auto& [path, text] : embedded_templates().files) {
    if (path.rfind("_lint/", 0) != 0 || path.find("_keys.") == std::string::npos) continue;
    const Result<Value> root = parse_yaml(text, "templates/" + path);
    CHECK(root.ok(), "{}", format_diagnostics(root.diagnostics));
    Diagnostics diagnostics;
    Accepted table;
    std::string source, checked;
    int64_t version = 0;
    MapReader reader(*root, "a table of accepted keys", diagnostics);
    for (const char* key : {"version", "kind", "tool", "source", "checked", "sections"}) reader.require(key);
    reader.get("version", version);
    reader.get("kind", table.kind);
    reader.get("tool", table.tool);
    reader.get("source", source);
    reader.get("checked", checked);
    const Value* sections = reader.child("sections");
    reader.finish();
    CHECK(built_in_kinds().find(table.kind) != nullptr && version == 1 && sections != nullptr, "{}", path);
    for (const Value& item : sections->items) {
      AcceptedSection section;
      MapReader one(item, "a section", diagnostics);
      one.require("unknown");
      one.require("code");
      one.get("section", section.path);
      one.get("unknown", section.unknown);
      one.get("code", section.code);
      one.get("type_code", section.type_code);
      one.get("types", section.type_bites);
      one.get("prefixes", section.prefixes);
      const Value* keys = one.child("keys");
      CHECK(keys != nullptr, "{}: section '{}' has no keys", path, section.path);
      for (const auto& [name, type] : keys->entries) section.keys.push_back({name, type.text});
      one.finish();
      table.sections.push_back(std::move(section));
    }
    CHECK(diagnostics.empty(), "{}", format_diagnostics(diagnostics));
    tables.push_back(std::move(table));
  }
  return tables;
}

const std::vector<Accepted>& accepted_tables() {
  static const std::vector<Accepted> kTables = read_accepted();
  return kTables;
}

std::string_view bare_key(const AcceptedSection& section, std::string_view key) {
  for (const std::string& prefix : section.prefixes) {
    if (key.substr(0, prefix.size()) == prefix) return key.substr(prefix.size());
  }
  return key;
}

const KeySpec* find_spec(const AcceptedSection& section, std::string_view key) {
  for (const KeySpec& one : section.keys) {
    if (one.name == key || (!section.prefixes.empty() && one.name == bare_key(section, key))) return &one;
  }
  return nullptr;
}

bool is_bool_word(const Value& v) { return v.text == "true" || v.text == "false" || v.text == "True" || v.text == "False"; }

// What was expected, when the value is not it.
std::string mismatch(const std::string& type, const Value& v) {
  if (type == "any") return "";
  if (v.kind == Value::Kind::kNull)
    return type.find('|') != std::string::npos && type.find("null") == std::string::npos ? "one of " + type : "";
  if (type == "map") return v.kind == Value::Kind::kMap ? "" : "a section";
  if (type == "list") return v.kind == Value::Kind::kList ? "" : "a list";
  if (type == "text") return v.kind == Value::Kind::kScalar ? "" : "a text";
  if (v.kind != Value::Kind::kScalar) return "a single value";
  if (type == "strict_bool") return is_bool_word(v) && !v.quoted ? "" : "true or false";
  if (type == "strict_text") return v.quoted ? "" : "a text in quotes";
  if (type == "bool") return is_bool_word(v) ? "" : "true or false";
  if (type.find('|') != std::string::npos) {
    for (size_t at = 0; at <= type.size();) {
      const size_t bar = std::min(type.find('|', at), type.size());
      if (type.substr(at, bar - at) == v.text) return "";
      at = bar + 1;
    }
    return "one of " + type;
  }
  std::optional<double> n;
  if (!v.quoted || type.find("strict") == std::string::npos) n = real_of(v);
  const bool is_int = type.rfind("int", 0) == 0 || type.rfind("strict_int", 0) == 0;
  std::string wanted = is_int ? "a whole number" : "a number";
  if (!n || (is_int && (*n != std::floor(*n) || (v.quoted && v.text.find_first_not_of("-0123456789") != std::string::npos))))
    return wanted;
  if (type.rfind("strict_int", 0) == 0 && v.text.find_first_not_of("-0123456789") != std::string::npos)
    return "a whole number without a point";
  if (type.find(">=0") != std::string::npos && *n < 0) return wanted + " from 0 on";
  if (type.find(">0") != std::string::npos && *n <= 0) return wanted + " above 0";
  if (type.find("0..1") != std::string::npos && (*n < 0 || *n > 1)) return "a number from 0 to 1";
  return "";
}

std::string where_else(const Accepted& table, const AcceptedSection& here, const std::string& key) {
  for (const AcceptedSection& other : table.sections) {
    if (&other == &here || find_spec(other, key) == nullptr) continue;
    return other.path.empty() ? fmt::format("'{}' belongs at the top of the file", key)
                              : fmt::format("'{}' belongs in '{}'", key, other.path);
  }
  return "";
}

void check_section(const Accepted& table, const AcceptedSection& section, const Document& d, const Value& map, Findings& report) {
  std::vector<std::string> names;
  for (const KeySpec& one : section.keys) names.push_back(section.prefixes.empty() ? one.name : section.prefixes[0] + one.name);
  for (size_t i = 0; i < map.entries.size(); ++i) {
    const std::string& key = map.entries[i].first;
    const std::string path = section.path.empty() ? key : section.path + "." + key;
    const TreeNode at{&map.entries[i].second, &map, i};
    const KeySpec* spec = find_spec(section, key);
    if (spec == nullptr) {
      const std::string near = nearest_name(key, names);
      std::string help = near.empty() ? where_else(table, section, key) : fmt::format("did you mean '{}'", near);
      if (help.empty()) help = fmt::format("remove it; {}", suggest(key, names));
      const std::string how =
          section.unknown == "silent"  ? fmt::format("'{}' is silently ignored: {} does not know it", path, table.tool)
          : section.unknown == "start" ? fmt::format("{} stops at '{}' when training starts: it does not know it", table.tool, path)
                                       : fmt::format("{} refuses '{}': it does not know it", table.tool, path);
      report.add(section.code, d, key_span(d, at), how, {help, section.unknown, {}, {}});
      continue;
    }
    if (section.type_code.empty() || spec->type == "any") continue;
    if (at.value->kind == Value::Kind::kScalar && at.value->text == "auto") continue;  // a rule of its own
    const std::string wanted = mismatch(spec->type, *at.value);
    if (wanted.empty()) continue;
    report.add(section.type_code, d, value_span(d, *at.value), fmt::format("'{}' is '{}', expected {}", path, at.value->text, wanted),
               {fmt::format("write {}", wanted), section.type_bites, {}, {}});
  }
}

}  // namespace

void check_keys(const LintSetup&, const Document& d, Findings& report) {
  for (const Accepted& table : accepted_tables()) {
    if (!d.is_a(table.kind)) continue;
    for (const AcceptedSection& section : table.sections) {
      const TreeNode at = node(d.root, section.path);
      if (at && at.value->kind == Value::Kind::kMap) check_section(table, section, d, *at.value, report);
    }
  }
}

}  // namespace distsetup::lint
