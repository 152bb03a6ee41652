#include "planner/resolve/named_model.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/diagnostic_codes.h"
#include "weights/hub_cache.h"

namespace distsetup {

std::string downloaded_model(const Presets& presets, const std::string& name, bool is_for_weights) {
  if (!is_hub_id(name) || (!is_for_weights && find_model(presets, name).ok())) return "";
  const Result<std::string> folder = find_in_hub_cache(name, {});
  return folder.ok() ? *folder : "";
}

void name_by_hub_id(const std::string& id, Geometry& model) {
  model.hub_id = id;
  model.name = id.substr(id.rfind('/') + 1);
}

void say_how_to_download(const std::string& name, Diagnostics& diagnostics) {
  if (!is_hub_id(name)) return;
  for (Diagnostic& one : diagnostics) {
    if (one.code == code::kUnknownModel && one.help.starts_with("did you mean"))
      one.help += fmt::format("; or download its description: hf download {} config.json", name);
    if (one.code == code::kUnknownModel && one.help.starts_with("known:"))
      one.help = fmt::format("download its description: hf download {} config.json; or describe it: distsetup explain {}", name,
                             code::kUnknownModel);
  }
}

Result<Geometry> named_model(const Presets& presets, const std::string& name, const Location& at) {
  std::error_code failure;
  const std::string folder = std::filesystem::exists(name, failure) ? "" : downloaded_model(presets, name, false);
  Result<Geometry> model = resolve_model(presets, folder.empty() ? name : folder, at);
  if (model.ok() && !folder.empty()) name_by_hub_id(name, *model);
  say_how_to_download(name, model.diagnostics);
  return model;
}

}  // namespace distsetup
