#include "codegen/tables/accepted_names.h"

#include <algorithm>

#include "codegen/tables/name_table.h"

namespace distsetup {
namespace {

// "--nodes:text" is an option, "metadata:object_meta" a key whose section has a type of its own.
void add_type(const NameTable& names, const std::string& type, const std::string& section, std::vector<std::string> seen,
              std::set<std::string>& out) {
  const std::vector<NameEntry>* entries = names.type(type);
  if (entries == nullptr || std::find(seen.begin(), seen.end(), type) != seen.end()) return;
  seen.push_back(type);
  for (const NameEntry& one : *entries) {
    const bool is_option = one.name.compare(0, 2, "--") == 0;
    const std::string name = section + (is_option ? one.name.substr(2) : one.name);
    out.insert(accepted_form(name));
    if (!one.type.empty() && !is_option) add_type(names, one.type, name + ".", seen, out);
  }
}

}  // namespace

std::string accepted_form(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

void add_accepted_names(const TemplateSet& templates, KeyTable& table) {
  for (const AcceptedNames& one : table.accepts) {
    const auto names = load_name_table(templates, one.file);
    if (names.ok()) add_type(**names, one.type, one.section.empty() ? "" : one.section + ".", {}, table.accepted);
  }
}

}  // namespace distsetup
