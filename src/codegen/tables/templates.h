// The files of templates/: the embedded ones, with those of a folder of the user's over them. Tables are read out of them by
// load_table.h (key tables), name_table.h (names that tools take) and kind.h (kinds of files), each once.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/diagnostic.h"

namespace distsetup {

struct TableCache;

// (path below templates/, text). A file of the same relative path replaces the embedded one; a new folder with a target.yaml is a new
// target.
struct TemplateSet {
  std::vector<std::pair<std::string, std::string>> files;  // sorted by path, each once
  std::shared_ptr<TableCache> cache = nullptr;             // tables read so far: many targets share one; null: read each time
};
const TemplateSet& embedded_templates();
const std::string* find_file(const TemplateSet& templates, std::string_view path);  // "native/target.yaml"; nullptr: not there
Result<TemplateSet> load_templates(const std::string& directory);                   // --templates DIR, over the embedded ones

// Names of targets that `emit` knows: every folder with a target.yaml, without those that start with '_'.
std::vector<std::string> target_names(const TemplateSet& templates);

}  // namespace distsetup
