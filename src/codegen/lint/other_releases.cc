#include "codegen/lint/other_releases.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/value_yaml.h"
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
    for (size_t at = list.text.find_first_not_of(" \n"); at != std::string::npos;) {
      const size_t end = std::min(list.text.find_first_of(" \n", at), list.text.size());
      const std::string one = list.text.substr(at, end - at);
      const size_t colon = one.find(':');
      CHECK(colon != std::string::npos, "'{}' has no release", one);
      out[table][one.substr(0, colon)] = one.substr(colon + 1);
      at = list.text.find_first_not_of(" \n", end);
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
