#include "service/model_lookup.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "base/json_text.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMostModels = 1000;

std::optional<FoundModel> model_in(const std::string& name, const fs::path& folder) {
  std::error_code failure;
  if (!fs::is_regular_file(folder / "config.json", failure)) return std::nullopt;
  FoundModel out = {name, folder.string(), false, fs::is_regular_file(folder / "tokenizer.json", failure)};
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end; it.increment(failure)) {
    if (it->path().extension() == ".safetensors") out.has_weights = true;
  }
  return out;
}

}  // namespace

std::optional<std::string> path_below(const std::vector<std::string>& roots, const std::string& path) {
  std::error_code failure;
  const fs::path whole = fs::canonical(path, failure);
  if (failure) return std::nullopt;
  for (const std::string& root : roots) {
    const fs::path base = fs::canonical(root, failure);
    if (failure) continue;
    const auto [in_base, _] = std::mismatch(base.begin(), base.end(), whole.begin(), whole.end());
    if (in_base == base.end()) return whole.string();
  }
  return std::nullopt;
}

std::optional<FoundModel> find_served_model(const ServiceSettings& settings, const std::string& name) {
  for (const fs::path& part : fs::path(name)) {
    if (part == ".." || part == "." || part == "/") return std::nullopt;
  }
  const std::string short_name = name.substr(name.rfind('/') == std::string::npos ? 0 : name.rfind('/') + 1);
  for (const std::string& root : settings.model_roots) {
    for (const std::string& tried : {name, short_name}) {
      const std::optional<std::string> folder = path_below({root}, root + "/" + tried);
      if (!folder) continue;
      if (std::optional<FoundModel> found = model_in(name, *folder)) return found;
    }
  }
  return std::nullopt;
}

bool has_chat_template(const FoundModel& model) {
  std::error_code failure;
  const fs::path folder = model.folder;
  if (fs::exists(folder / "chat_template.jinja", failure) || fs::exists(folder / "chat_template.json", failure)) return true;
  const Result<std::string> text = read_file(folder / "tokenizer_config.json");
  const Json config = text.ok() ? json_from_text(*text) : Json();
  return config.is_object() && config.contains("chat_template") && !config["chat_template"].is_null();
}

std::vector<FoundModel> served_models(const ServiceSettings& settings) {
  std::vector<FoundModel> out;
  std::error_code failure;
  for (const std::string& root : settings.model_roots) {
    for (fs::directory_iterator it(root, failure), end; !failure && it != end && out.size() < kMostModels; it.increment(failure)) {
      const std::string first = it->path().filename().string();
      if (std::optional<FoundModel> found = model_in(first, it->path())) {
        out.push_back(std::move(*found));
        continue;
      }
      std::error_code none;
      if (!fs::is_directory(it->path(), none)) continue;
      for (fs::directory_iterator below(it->path(), none), last; !none && below != last && out.size() < kMostModels;
           below.increment(none)) {
        if (std::optional<FoundModel> found = model_in(first + "/" + below->path().filename().string(), below->path()))
          out.push_back(std::move(*found));
      }
    }
  }
  std::sort(out.begin(), out.end(), [](const FoundModel& a, const FoundModel& b) { return a.name < b.name; });
  return out;
}

}  // namespace distsetup
