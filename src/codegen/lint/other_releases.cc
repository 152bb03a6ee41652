#include "codegen/lint/other_releases.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/value_yaml.h"
#include "codegen/tables/name_table.h"
#include "codegen/tables/templates.h"

namespace distsetup::lint {
namespace {

using ReleaseOfName = std::map<std::string, std::string, std::less<>>;

std::map<std::string, ReleaseOfName, std::less<>> read_gone_names() {
  const std::string* text = find_file(embedded_templates(), "_other_releases.yaml");
  CHECK(text != nullptr, "templates/_other_releases.yaml");
  const Result<Value> root = parse_yaml(*text, "templates/_other_releases.yaml");
  CHECK(root.ok(), "{}", format_diagnostics(root.diagnostics));
  const Value* names = root->find("names");
  CHECK(names != nullptr, "templates/_other_releases.yaml has no names");
  std::map<std::string, ReleaseOfName, std::less<>> out;
  for (const auto& [table, list] : names->entries) {
    for (NameEntry& one : read_entries(list.text)) {
      CHECK(!one.type.empty(), "'{}' has no release", one.name);
      out[table][one.name] = std::move(one.type);
    }
  }
  return out;
}

}  // namespace

std::string gone_since(std::string_view table, std::string_view name) {
  static const auto kReleases = read_gone_names();
  const auto known = kReleases.find(table);
  if (known == kReleases.end()) return "";
  const auto found = known->second.find(name);
  return found == known->second.end() ? "" : found->second;
}

}  // namespace distsetup::lint
