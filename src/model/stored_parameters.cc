#include "model/stored_parameters.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/value_json.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

// The header as it stands. Files of other writers may be looser than ours: what they hold is counted all the same.
std::optional<Value> header_of(const fs::path& path) {
  constexpr uint64_t kLongestHeader = uint64_t{100} << 20;
  std::ifstream file(path, std::ios::binary);
  unsigned char bytes[8] = {};
  if (!file.read(reinterpret_cast<char*>(bytes), sizeof(bytes))) return std::nullopt;
  uint64_t length = 0;  // little-endian, whatever this machine is
  for (int i = 7; i >= 0; --i) length = length << 8 | bytes[i];
  if (length == 0 || length > kLongestHeader) return std::nullopt;
  std::string header(length, '\0');
  if (!file.read(header.data(), static_cast<std::streamsize>(length))) return std::nullopt;
  Result<Value> tensors = parse_json(header, path.string());
  return tensors.ok() ? std::optional(std::move(*tensors)) : std::nullopt;
}

// -1: weights are packed.
double elements_of(const std::string& name, const Value& tensor) {
  const Value *shape = tensor.find("shape"), *type = tensor.find("dtype");
  if (shape == nullptr) return 0;
  double elements = 1;
  for (const Value& size : shape->items) elements *= static_cast<double>(as_int(size).value.value_or(0));
  const std::string dtype = type == nullptr ? "" : type->text;
  if (dtype == "BOOL" || dtype.starts_with("I64")) return 0;  // numbers of positions, and masks
  if (dtype.starts_with("I") || dtype.starts_with("U")) return elements > 1 ? -1 : 0;
  const bool is_scale = name.ends_with("_scale") || name.ends_with("_scale_inv") || name.ends_with(".scales");
  return is_scale ? 0 : elements;  // of weights in 8 bits
}

// "model-00002-of-00008": the eight files that belong together, under the name in front.
struct Numbered {
  std::string name;
  int of = 0;
};
Numbered numbered(const std::string& stem) {
  const size_t of = stem.rfind("-of-");
  if (of == std::string::npos || stem.find_first_not_of("0123456789", of + 4) != std::string::npos || of + 4 == stem.size()) return {};
  return {stem.substr(0, stem.rfind('-', of - 1)) + stem.substr(of), std::atoi(stem.c_str() + of + 4)};
}

bool is_of_weights(const std::string& stem) {
  for (const char* other : {"adapter_", "consolidated", "optimizer", "ema"})
    if (stem.starts_with(other)) return false;
  return !stem.ends_with(".fp16");  // the same again, in Diffusers' folders
}

// The files that hold the weights, as Transformers looks for them: those of the index, one file of the usual name, or a numbered set.
// Otherwise all that may. Nothing: some are missing.
std::vector<fs::path> files_of_weights(const fs::path& directory) {
  std::error_code failure;
  const fs::path index = directory / "model.safetensors.index.json", whole = directory / "model.safetensors";
  if (std::ifstream file(index, std::ios::binary); file) {
    const Result<Value> read = parse_json(std::string{std::istreambuf_iterator<char>(file), {}}, index.string());
    const Value* map = read.ok() ? read->find("weight_map") : nullptr;
    std::set<fs::path> named;
    for (size_t i = 0; map != nullptr && i < map->entries.size(); ++i) named.insert(directory / map->entries[i].second.text);
    const bool are_here =
        std::all_of(named.begin(), named.end(), [&failure](const fs::path& one) { return fs::is_regular_file(one, failure); });
    return are_here ? std::vector<fs::path>(named.begin(), named.end()) : std::vector<fs::path>{};
  }
  if (fs::is_regular_file(whole, failure)) return {whole};
  std::vector<fs::path> others;
  std::map<std::string, std::pair<std::vector<fs::path>, int>> sets;  // with how many there should be
  for (fs::directory_iterator it(directory, failure), end; !failure && it != end; it.increment(failure)) {
    const std::string stem = it->path().stem().string();
    if (it->path().extension() != ".safetensors" || !is_of_weights(stem)) continue;
    const Numbered part = numbered(stem);
    if (part.of == 0) {
      others.push_back(it->path());
      continue;
    }
    sets[part.name].first.push_back(it->path());
    sets[part.name].second = part.of;
  }
  for (const auto& [name, set] : sets)
    if (static_cast<int>(set.first.size()) == set.second) return set.first;
  return sets.empty() ? others : std::vector<fs::path>{};
}

}  // namespace

int64_t count_in_safetensors(const std::string& directory) {
  constexpr double kMost = 1e15;
  double total = 0;
  for (const fs::path& path : files_of_weights(directory)) {
    const std::optional<Value> tensors = header_of(path);
    if (!tensors) return 0;
    for (const auto& [name, tensor] : tensors->entries) {
      const double elements = name == "__metadata__" ? 0 : elements_of(name, tensor);
      if (elements < 0 || elements > kMost || total > kMost) return 0;
      total += elements;
    }
  }
  return std::llround(total);
}

}  // namespace distsetup
