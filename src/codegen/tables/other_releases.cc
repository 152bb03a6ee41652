#include "codegen/tables/other_releases.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/value_yaml.h"
#include "codegen/tables/name_table.h"
#include "codegen/tables/templates.h"

namespace distsetup {
namespace {

using WordOfName = std::map<std::string, std::string, std::less<>>;
using WordsByTable = std::map<std::string, WordOfName, std::less<>>;

// `part`: names, renamed or meant.
WordsByTable read_gone_names(std::string_view part) {
  const std::string* text = find_file(embedded_templates(), "_other_releases.yaml");
  CHECK(text != nullptr, "templates/_other_releases.yaml");
  const Result<Value> root = parse_yaml(*text, "templates/_other_releases.yaml");
  CHECK(root.ok(), "{}", format_diagnostics(root.diagnostics));
  const Value* names = root->find(part);
  CHECK(names != nullptr, "templates/_other_releases.yaml has no {}", part);
  WordsByTable out;
  for (const auto& [table, list] : names->entries) {
    for (NameEntry& one : read_entries(list.text)) {
      CHECK(!one.type.empty(), "{}: nothing behind '{}'", part, one.name);
      out[table][one.name] = std::move(one.type);
    }
  }
  return out;
}

std::string word_of(const WordsByTable& words, std::string_view table, std::string_view name) {
  const auto known = words.find(table);
  if (known == words.end()) return "";
  const auto found = known->second.find(name);
  return found == known->second.end() ? "" : found->second;
}

}  // namespace

std::string gone_since(std::string_view table, std::string_view name) {
  static const WordsByTable kReleases = read_gone_names("names");
  return word_of(kReleases, table, name);
}

std::string renamed_to(std::string_view table, std::string_view name) {
  static const WordsByTable kNames = read_gone_names("renamed");
  return word_of(kNames, table, name);
}

std::string meant_by(std::string_view table, std::string_view name) {
  static const WordsByTable kNames = read_gone_names("meant");
  return word_of(kNames, table, name);
}

}  // namespace distsetup
