// Reading templates/_lint/names. A table is read when the first file of its tool is linted: together they are some 150 KB, and a run
// needs one or two of them.
#include "codegen/tables/name_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/map_reader.h"
#include "base/names.h"
#include "base/value.h"
#include "base/value_yaml.h"
#include "codegen/tables/table_cache.h"

namespace distsetup {

std::vector<NameEntry> read_entries(std::string_view text) {
  std::vector<NameEntry> entries;
  for (size_t at = text.find_first_not_of(" \n"); at != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(" \n", at), text.size());
    const std::string_view one = text.substr(at, end - at);
    const size_t colon = std::min(one.find(':'), one.size());
    entries.push_back({std::string(one.substr(0, colon)), std::string(one.substr(std::min(colon + 1, one.size())))});
    at = text.find_first_not_of(" \n", end);
  }
  return entries;
}
namespace {

Result<NameTable> read_name_table(const std::string& text, const std::string& file) {
  const Result<Value> root = parse_yaml(text, file);
  if (!root.ok()) return root.diagnostics;
  Diagnostics diagnostics;
  NameTable table;
  std::string source, checked;
  int64_t version = 0;
  MapReader reader(*root, "a table of names", diagnostics);
  for (const char* key : {"version", "tool", "source", "checked", "unknown", "code", "types"}) reader.require(key);
  reader.get("version", version);
  reader.get("tool", table.tool);
  reader.get("source", source);
  reader.get("checked", checked);
  reader.get("unknown", table.unknown);
  reader.get("code", table.code);
  reader.get("takes_prefixes", table.takes_prefixes);
  if (const Value* roots = reader.child("roots")) {
    for (const auto& [kind, type] : roots->entries) table.roots[kind] = type.text;
  }
  if (const Value* types = reader.child("types")) {
    for (const auto& [name, names] : types->entries) table.types[name] = read_entries(names.text);
  }
  reader.finish();
  if (version != 1 || table.types.empty())
    diagnostics.push_back(error(code::kTemplate, root->location, "expected a table of names of version 1, with types"));
  if (has_error(diagnostics)) return diagnostics;
  return table;
}

}  // namespace

const std::vector<NameEntry>* NameTable::type(std::string_view name) const {
  const auto found = types.find(name);
  return found == types.end() ? nullptr : &found->second;
}

Result<std::shared_ptr<const NameTable>> load_name_table(const TemplateSet& templates, std::string_view name) {
  const std::string path = fmt::format("_lint/names/{}.yaml", name), file = "templates/" + path;
  const std::string* text = find_file(templates, path);
  if (text == nullptr) return error(code::kTemplate, {file, 0, 0}, fmt::format("no table of names '{}'", name));
  return cached(templates, &TableCache::names, path, *text, [&] { return read_name_table(*text, file); });
}

const NameTable& name_table(std::string_view name) {
  const Result<std::shared_ptr<const NameTable>> table = load_name_table(embedded_templates(), name);  // its cache keeps it
  CHECK(table.ok(), "{}", format_diagnostics(table.diagnostics));
  return **table;
}

const NameEntry* find_name(const std::vector<NameEntry>& entries, std::string_view name) {
  const auto found = std::find_if(entries.begin(), entries.end(), [name](const NameEntry& one) { return one.name == name; });
  return found == entries.end() ? nullptr : &*found;
}

std::vector<std::string> spellings(const std::vector<NameEntry>& entries) {
  std::vector<std::string> names;
  for (const NameEntry& one : entries) names.push_back(one.name);
  return names;
}

bool takes_option(const std::vector<NameEntry>& entries, std::string_view spelled, bool takes_prefixes) {
  if (find_name(entries, spelled) != nullptr) return true;
  const bool is_long = spelled.size() > 2 && spelled[1] == '-';
  if (!is_long) return spelled.size() > 2 && find_name(entries, spelled.substr(0, 2)) != nullptr;  // -N4, -lm
  return takes_prefixes && std::any_of(entries.begin(), entries.end(),
                                       [spelled](const NameEntry& one) { return one.name.compare(0, spelled.size(), spelled) == 0; });
}

std::string nearest_option(const std::vector<NameEntry>& entries, std::string_view spelled) {
  std::vector<std::string> names;
  for (const NameEntry& one : entries) {
    if (one.name.size() > 2 && one.name[1] == '-') names.push_back(one.name.substr(2));
  }
  const std::string near = nearest_name(spelled.substr(std::min(spelled.find_first_not_of('-'), spelled.size())), names);
  if (near.empty()) return "";
  std::string underscored = "--" + near;
  std::replace(underscored.begin() + 2, underscored.end(), '-', '_');
  const bool is_underscored = spelled.find('_') != std::string_view::npos && find_name(entries, underscored) != nullptr;
  return is_underscored ? underscored : "--" + near;
}

std::string says_unknown(const NameTable& table, std::string_view spelled) {
  if (table.unknown == "silent") return fmt::format("'{}' is silently ignored: {} does not know it", spelled, table.tool);
  if (table.unknown == "start") return fmt::format("{} stops at '{}' when training starts: it does not know it", table.tool, spelled);
  return fmt::format("{} refuses '{}': it does not know it", table.tool, spelled);
}

}  // namespace distsetup
