// The files of templates/: the embedded ones, and a folder of the user's over them. Which keys a target has, in which order and when,
// is data there (templates/README.md).
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/diagnostic.h"

namespace distsetup {

struct ReadTables;

// Files as (path below templates/, text). A file of the user's replaces the embedded one of the same relative path; a new folder with
// a target.yaml is a new target.
struct TemplateSet {
  std::vector<std::pair<std::string, std::string>> files;  // sorted by path, each once
  std::shared_ptr<ReadTables> read_tables = nullptr;       // key tables read so far: many targets share one; null: read each time
};
const TemplateSet& embedded_templates();
Result<TemplateSet> load_templates(const std::string& directory);                   // --templates DIR, over the embedded ones
const std::string* find_file(const TemplateSet& templates, std::string_view path);  // "native/target.yaml"; nullptr: not there

// Names of targets that `emit` knows: every folder with a target.yaml, without those that start with '_'.
std::vector<std::string> target_names(const TemplateSet& templates);

}  // namespace distsetup
