#include "codegen/tables/load_table.h"

#include <fmt/format.h>

#include "base/diagnostic_codes.h"
#include "base/names.h"

namespace distsetup {
namespace {

Result<KeyTable> with_included(const TemplateSet& templates, const std::string& path, const std::string& text) {
  Result<KeyTable> read = parse_key_table(text, "templates/" + path);
  if (!read.ok()) return read;
  std::vector<KeyRow> rows = std::move(read->rows);
  read->rows.clear();
  for (KeyRow& row : rows) {
    if (row.table.empty()) {
      read->rows.push_back(std::move(row));
      continue;
    }
    if (row.table == path) return error(code::kTemplate, row.location, fmt::format("table '{}' includes itself", path));
    const auto inner = load_key_table(templates, row.table, row.location);
    if (!inner.ok()) return inner.diagnostics;
    include_table(**inner, row.key, row.when, *read);
  }
  return read;
}

}  // namespace

Result<std::string> template_text(const TemplateSet& templates, const std::string& path, const Location& at) {
  const std::string* text = find_file(templates, path);
  if (text != nullptr) return *text;
  std::vector<std::string> known;
  for (const auto& file : templates.files) known.push_back(file.first);
  return error(code::kTemplate, at, fmt::format("no template '{}'", path), suggest(path, known));
}

Result<std::shared_ptr<const KeyTable>> load_key_table(const TemplateSet& templates, const std::string& path, const Location& at) {
  const Result<std::string> text = template_text(templates, path, at);
  if (!text.ok()) return text.diagnostics;
  ReadTables* known = templates.read_tables.get();
  if (known != nullptr) {
    const auto found = known->tables.find(path);
    if (found != known->tables.end() && found->second.first == *text) return found->second.second;
  }
  Result<KeyTable> read = with_included(templates, path, *text);
  if (!read.ok()) return read.diagnostics;
  auto table = std::make_shared<const KeyTable>(std::move(*read));
  if (known != nullptr) known->tables.insert_or_assign(path, std::pair{*text, table});
  return {std::move(table), std::move(read.diagnostics)};
}

}  // namespace distsetup
