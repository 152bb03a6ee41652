// The cache's layout: models--ORG--NAME/refs/main (or datasets--ORG--NAME) holds a revision, and snapshots/REVISION its files, as
// links. Source: huggingface_hub, docs/source/en/guides/manage-cache.md; where the cache is: huggingface_hub/constants.py.
#include "weights/hub_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "base/diagnostic_codes.h"
#include "base/file.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

fs::path hub_cache(const VariableReader& variable) {
  if (const auto named = variable("HF_HUB_CACHE")) return *named;
  if (const auto home = variable("HF_HOME")) return fs::path(*home) / "hub";
  if (const auto cache = variable("XDG_CACHE_HOME")) return fs::path(*cache) / "huggingface/hub";
  return fs::path(variable("HOME").value_or("/")) / ".cache/huggingface/hub";
}

}  // namespace

std::optional<std::string> environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
}

bool is_hub_id(std::string_view name) {
  const size_t slash = name.find('/');
  if (slash == std::string_view::npos || slash == 0 || slash + 1 == name.size() || name.find("..") != std::string_view::npos)
    return false;
  const auto is_fine = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.'; };
  const std::string_view owner = name.substr(0, slash), own = name.substr(slash + 1);
  return std::all_of(owner.begin(), owner.end(), is_fine) && std::all_of(own.begin(), own.end(), is_fine) && owner.front() != '.';
}

Result<std::string> find_in_hub_cache(const std::string& id, const Location& at, const VariableReader& variable, HubKind kind) {
  const bool is_model = kind == HubKind::kModel;
  const char* const failed = is_model ? code::kWeights : code::kData;
  const size_t slash = id.find('/');
  const fs::path cache = hub_cache(variable),
                 own = cache / fmt::format("{}--{}--{}", is_model ? "models" : "datasets", id.substr(0, slash), id.substr(slash + 1));
  const std::string download = fmt::format("download it: hf download {}{}", is_model ? "" : "--repo-type dataset ", id);
  std::error_code failure;
  if (!fs::is_directory(own, failure))
    return error(failed, at,
                 fmt::format("'{}' is no {}, and no downloaded {} in '{}'", id, is_model ? "folder" : "file or folder",
                             is_model ? "model" : "data set", cache.string()),
                 download);
  const Result<std::string> revision = read_file((own / "refs/main").string());
  const std::string name = revision.ok() ? revision->substr(0, revision->find_first_of(" \r\n")) : "";
  const fs::path snapshot = own / "snapshots" / name;
  if (name.empty() || name.find('/') != std::string::npos || !fs::is_directory(snapshot, failure))
    return error(failed, at, fmt::format("'{}' has no downloaded revision 'main' of '{}'", own.string(), id), download);
  return snapshot.string();
}

}  // namespace distsetup
