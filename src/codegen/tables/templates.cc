// The only code of this layer that reads a disk.
#include "codegen/tables/templates.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/diagnostic_codes.h"
#include "base/embedded.h"
#include "base/file.h"
#include "base/value.h"
#include "codegen/tables/table_cache.h"

namespace distsetup {

const TemplateSet& embedded_templates() {
  static const TemplateSet embedded = [] {  // one: a command asks several times, and tables that were read stay read
    static constexpr std::string_view kFolder = "templates/";
    TemplateSet set;
    set.cache = std::make_shared<TableCache>();
    for (const EmbeddedFile& file : embedded_files()) {
      if (file.path.substr(0, kFolder.size()) == kFolder) set.files.emplace_back(file.path.substr(kFolder.size()), file.text);
    }
    return set;
  }();
  return embedded;
}

const std::string* find_file(const TemplateSet& templates, std::string_view path) {
  const auto found =
      std::find_if(templates.files.begin(), templates.files.end(), [&path](const auto& file) { return file.first == path; });
  return found == templates.files.end() ? nullptr : &found->second;
}

Result<TemplateSet> load_templates(const std::string& directory) {
  namespace fs = std::filesystem;
  const Location at{"command line", 0, 0};
  std::error_code failed;
  if (!fs::is_directory(directory, failed)) {
    return error(code::kUnreadableFile, at, fmt::format("'{}' is not a directory of templates", directory));
  }
  TemplateSet built_in = embedded_templates();
  std::map<std::string, std::string> files(built_in.files.begin(), built_in.files.end());
  for (auto it = fs::recursive_directory_iterator(directory, failed); !failed && it != fs::recursive_directory_iterator();
       it.increment(failed)) {
    if (!it->is_regular_file(failed)) continue;
    Result<std::string> text = read_file(it->path().string());
    if (!text.ok()) return text.diagnostics;
    files[it->path().lexically_relative(directory).generic_string()] = std::move(*text);
  }
  if (failed) return error(code::kUnreadableFile, at, fmt::format("cannot read '{}': {}", directory, failed.message()));
  return TemplateSet{{files.begin(), files.end()}, std::make_shared<TableCache>()};
}

std::vector<std::string> target_names(const TemplateSet& templates) {
  static constexpr std::string_view kName = "/target.yaml";
  std::vector<std::string> names;
  for (const auto& entry : templates.files) {
    const std::string& path = entry.first;
    if (path.size() <= kName.size() || path.compare(path.size() - kName.size(), kName.size(), kName) != 0 || path[0] == '_') continue;
    names.push_back(path.substr(0, path.size() - kName.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace distsetup
