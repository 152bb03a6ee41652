#include "codegen/read/names.h"

#include <algorithm>
#include <sstream>

#include "base/value.h"
#include "base/value_yaml.h"

namespace distsetup {
namespace {

// "--nodes:text" is an option, "metadata:object_meta" a key whose section has a type of its own.
void add_type(const Value& types, const std::string& type, const std::string& section, std::vector<std::string> seen,
              std::set<std::string>& out) {
  const Value* names = types.find(type);
  if (names == nullptr || std::find(seen.begin(), seen.end(), type) != seen.end()) return;
  seen.push_back(type);
  std::istringstream words(names->text);
  for (std::string word; words >> word;) {
    const size_t colon = word.find(':');
    const bool is_option = word.compare(0, 2, "--") == 0;
    const std::string name =
        section + word.substr(is_option ? 2 : 0, colon == std::string::npos ? colon : colon - (is_option ? 2 : 0));
    out.insert(accepted_form(name));
    if (colon != std::string::npos && !is_option) add_type(types, word.substr(colon + 1), name + ".", seen, out);
  }
}

}  // namespace

std::string accepted_form(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

void add_accepted_names(const TemplateSet& templates, KeyTable& table) {
  for (const AcceptedNames& one : table.accepts) {
    const std::string path = "_lint/names/" + one.file + ".yaml";
    const std::string* text = find_file(templates, path);
    if (text == nullptr) continue;
    const Result<Value> root = parse_yaml(*text, "templates/" + path);
    const Value* types = root.ok() ? root->find("types") : nullptr;
    if (types != nullptr) add_type(*types, one.type, one.section.empty() ? "" : one.section + ".", {}, table.accepted);
  }
}

}  // namespace distsetup
