#include "codegen/tables/load_table.h"

#include <fmt/format.h>

#include <utility>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "codegen/tables/accepted_names.h"
#include "codegen/tables/table_cache.h"

namespace distsetup {
namespace {

std::string below_section(const std::string& section, const std::string& key) {
  return section.empty() || key.empty() ? section + key : section + "." + key;
}

// Rows of `table` become rows of `into`: under `section` (empty: beside the others), and only while `when` holds; likewise its rules.
void include_table(const KeyTable& table, const std::string& section, const FieldCondition& when, KeyTable& into) {
  for (KeyRow row : table.rows) {
    row.key = below_section(section, row.key);
    row.when.insert(row.when.end(), when.begin(), when.end());
    into.rows.push_back(std::move(row));
  }
  for (Rule rule : table.rules) {
    rule.when.insert(rule.when.end(), when.begin(), when.end());
    into.rules.push_back(std::move(rule));
  }
  for (ReadRow row : table.reads) {
    row.key = below_section(section, row.key);
    for (auto& [key, texts] : row.given) key = below_section(section, key);
    row.when.insert(row.when.end(), when.begin(), when.end());
    // A tool assumes nothing for a section that is not there.
    if (!section.empty()) row.given.push_back({section + ".*", {"*"}});
    into.reads.push_back(std::move(row));
  }
  for (const auto& [inner, how] : table.unknown_key) into.unknown_key.emplace_back(below_section(section, inner), how);
  const std::string prefix = section.empty() ? "" : section + ".";
  for (const auto& [from, to] : table.read_as) into.read_as.emplace_back(prefix + from, prefix + to);
  for (const std::string& key : table.words) into.words.push_back(prefix + key);
  for (const std::string& key : table.decides) into.decides.push_back(prefix + key);
  for (const std::string& key : table.extended_by) into.extended_by.push_back(prefix + key);
  for (const std::string& name : table.accepted) into.accepted.insert(prefix + name);
}

// With the tables that it includes, each as `load` has it.
template <class Load>
Result<KeyTable> with_included(const KeyTable& parsed, const std::string& path, const Load& load) {
  KeyTable table = parsed;
  table.rows.clear();
  for (const KeyRow& row : parsed.rows) {
    if (row.table.empty()) {
      table.rows.push_back(row);
      continue;
    }
    if (row.table == path) return error(code::kTemplate, row.location, fmt::format("table '{}' includes itself", path));
    const Result<std::shared_ptr<const KeyTable>> inner = load(row.table, row.location);
    if (!inner.ok()) return inner.diagnostics;
    include_table(**inner, row.key, row.when, table);
  }
  return table;
}

// What the target's reads.yaml adds. Rows of the target's own come before those of tables that it includes.
void add_reads(const KeyTable& more, KeyTable& table) {
  const auto add = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  std::vector<ReadRow> reads = more.reads;
  add(reads, table.reads);
  table.reads = std::move(reads);
  add(table.read_as, more.read_as);
  add(table.words, more.words);
  add(table.checks, more.checks);
  add(table.decides, more.decides);
  add(table.extended_by, more.extended_by);
  add(table.told_by, more.told_by);
  add(table.not_told_by, more.not_told_by);
  add(table.called, more.called);
  add(table.accepts, more.accepts);
  add(table.programs, more.programs);
}

}  // namespace

Result<std::string> template_text(const TemplateSet& templates, const std::string& path, const Location& at) {
  const std::string* text = find_file(templates, path);
  if (text != nullptr) return *text;
  std::vector<std::string> known;
  for (const auto& file : templates.files) known.push_back(file.first);
  return error(code::kTemplate, at, fmt::format("no template '{}'", path), suggest(path, known));
}

Result<std::shared_ptr<const KeyTable>> load_table_alone(const TemplateSet& templates, const std::string& path, const Location& at) {
  const Result<std::string> text = template_text(templates, path, at);
  if (!text.ok()) return text.diagnostics;
  return cached(templates, &TableCache::parsed, path, *text, [&] { return parse_key_table(*text, "templates/" + path); });
}

Result<std::shared_ptr<const KeyTable>> load_key_table(const TemplateSet& templates, const std::string& path, const Location& at) {
  auto parsed = load_table_alone(templates, path, at);
  if (!parsed.ok()) return parsed;
  const auto load = [&templates](const std::string& inner, const Location& place) { return load_key_table(templates, inner, place); };
  return cached(templates, &TableCache::to_write, path, *find_file(templates, path),
                [&] { return with_included(**parsed, path, load); });
}

Result<std::shared_ptr<const KeyTable>> load_read_table(const TemplateSet& templates, const std::string& path, const Location& at) {
  auto parsed = load_table_alone(templates, path, at);
  if (!parsed.ok()) return parsed;
  const auto load = [&templates](const std::string& inner, const Location& place) { return load_read_table(templates, inner, place); };
  const auto read = [&]() -> Result<KeyTable> {
    Result<KeyTable> table = with_included(**parsed, path, load);
    if (!table.ok()) return table;
    const std::string beside = path.substr(0, path.rfind('/') + 1) + "reads.yaml";
    if (path != beside && find_file(templates, beside) != nullptr) {
      const auto more = load_table_alone(templates, beside, at);
      if (!more.ok()) return more.diagnostics;
      add_reads(**more, *table);
    }
    add_accepted_names(templates, *table);
    return table;
  };
  return cached(templates, &TableCache::to_read, path, *find_file(templates, path), read);
}

}  // namespace distsetup
