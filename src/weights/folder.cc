#include "weights/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_text.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

Diagnostic bad_weights(const std::string& path, std::string message, std::string help = "") {
  return error(code::kWeights, {path}, std::move(message), std::move(help));
}

std::string inside(const std::string& directory, const std::string& name) { return (fs::path(directory) / name).string(); }

// Weights in other formats: what they are called, and what to do.
Diagnostic nothing_to_read(const std::string& directory) {
  struct Format {
    std::string_view ending, name;
  };
  constexpr Format kOthers[] = {{".bin", "pickled (.bin)"}, {".pt", "pickled (.pt)"},    {".pth", "pickled (.pth)"},
                                {".gguf", "GGUF"},          {".h5", "TensorFlow (.h5)"}, {".msgpack", "Flax (.msgpack)"}};
  std::error_code failure;
  for (fs::directory_iterator it(directory, failure), end; !failure && it != end; it.increment(failure)) {
    for (const Format& format : kOthers) {
      if (it->path().extension() != format.ending) continue;
      return bad_weights(directory,
                         fmt::format("'{}' has {} weights, such as '{}', expected safetensors", directory, format.name,
                                     it->path().filename().string()),
                         "save the model with safetensors: Transformers' save_pretrained() writes them");
    }
  }
  return bad_weights(directory, fmt::format("no {} and no {} in '{}'", kSingleFile, kIndexFile, directory),
                     "name a folder that Transformers' save_pretrained() wrote, or one downloaded from a hub");
}

// A name inside the folder: an index comes from elsewhere.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.find('/') == std::string::npos && name.find('\\') == std::string::npos && name != "." && name != "..";
}

// Tensor to file, as the index says.
Result<std::map<std::string, std::string>> read_index(const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.diagnostics;
  const Json json = json_from_text(*text);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object() || json["weight_map"].empty())
    return bad_weights(path, fmt::format("'{}' is not an index of safetensors: it has no 'weight_map' from tensors to files", path));
  std::map<std::string, std::string> map;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!file.is_string() || !is_plain_name(file.get<std::string>()))
      return bad_weights(path, fmt::format("'{}' says that tensor '{}' is in {}, expected the name of a file beside it", path, tensor,
                                           file.dump(-1, ' ', false, Json::error_handler_t::replace)));
    map[tensor] = file.get<std::string>();
  }
  return map;
}

// Adds a file and its tensors.
Diagnostics add_file(const std::string& name, WeightsFolder& folder) {
  const std::string path = inside(folder.plan.directory, name);
  Result<SafetensorsHeader> header = read_safetensors_header(path);
  if (!header.ok()) {
    for (Diagnostic& d : header.diagnostics) d.code = code::kWeights;
    return header.diagnostics;
  }
  const size_t number = folder.plan.files.size();
  folder.plan.files.push_back({name, header->file_bytes, header->sha256});
  for (auto& [tensor, entry] : header->tensors) {
    const auto [at, fresh] = folder.tensors.try_emplace(tensor, PublishedTensor{number, entry});
    if (!fresh)
      return {bad_weights(path,
                          fmt::format("tensor '{}' is in '{}' and in '{}'", tensor, folder.plan.files[at->second.file].path, name),
                          "leave one of the two files out")};
  }
  return {};
}

Diagnostics check_index(const std::map<std::string, std::string>& index, const WeightsFolder& folder) {
  for (const auto& [tensor, file] : index) {
    const auto found = folder.tensors.find(tensor);
    if (found != folder.tensors.end() && folder.plan.files[found->second.file].path == file) continue;
    return {bad_weights(inside(folder.plan.directory, kIndexFile),
                        fmt::format("{} says that tensor '{}' is in '{}', which has none of this name", kIndexFile, tensor, file),
                        "download the folder again: its files do not belong together")};
  }
  return {};
}

}  // namespace

bool has_weights(const std::string& directory) {
  std::error_code failure;
  return fs::exists(inside(directory, kSingleFile), failure) || fs::exists(inside(directory, kIndexFile), failure);
}

Result<WeightsFolder> read_weights_folder(const std::string& directory) {
  std::error_code failure;
  if (!fs::is_directory(directory, failure))
    return bad_weights(directory, fmt::format("no folder '{}', expected one with safetensors", directory));
  if (!has_weights(directory)) return nothing_to_read(directory);
  WeightsFolder folder;
  folder.plan.directory = directory;
  std::map<std::string, std::string> index;
  std::set<std::string> names = {kSingleFile};
  if (!fs::exists(inside(directory, kSingleFile), failure)) {  // Transformers too takes the single file first
    Result<std::map<std::string, std::string>> read = read_index(inside(directory, kIndexFile));
    if (!read.ok()) return read.diagnostics;
    index = std::move(*read);
    names.clear();
    for (const auto& entry : index) names.insert(entry.second);
  }
  for (const std::string& name : names)
    if (Diagnostics said = add_file(name, folder); has_error(said)) return said;
  if (Diagnostics said = check_index(index, folder); has_error(said)) return said;
  return folder;
}

Result<WeightsFolder> read_planned_weights(const WeightsPlan& plan, const std::string& directory) {
  WeightsFolder folder;
  folder.plan.directory = directory;
  for (const WeightsFile& file : plan.files) {
    if (Diagnostics said = add_file(file.path, folder); has_error(said)) return said;
    const WeightsFile& found = folder.plan.files.back();
    if (found == file) continue;
    const std::string what = found.bytes != file.bytes
                                 ? fmt::format("{} bytes, expected {}", found.bytes, file.bytes)
                                 : fmt::format("the header digest {:.12}…, expected {:.12}…", found.header_sha256, file.header_sha256);
    return bad_weights(inside(directory, file.path),
                       fmt::format("'{}' is not the file that was planned with: it has {}", inside(directory, file.path), what),
                       "plan again with the weights as they are now");
  }
  return folder;
}

}  // namespace distsetup
