// A folder of published weights, as a test wants it: every tensor of a model in its published shape and order of rows, in one file or
// several. Values are a function of (name, element), exact in every type that is read.
#pragma once
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "plan/layout.h"
#include "plan/published_order.h"
#include "weights/convert.h"

namespace distsetup::published {

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype = "F32";
  std::vector<float> values;  // in the published order
};

inline float value_of(const std::string& name, int64_t element) {
  uint64_t h = 1469598103934665603ull + static_cast<uint64_t>(element) * 0x9e3779b97f4a7c15ull;
  for (const char c : name) h = (h ^ static_cast<uint8_t>(c)) * 1099511628211ull;
  return static_cast<float>(static_cast<int64_t>((h >> 40) % 255) - 127) * 0x1p-6f;  // 8 bits: exact in bf16 and fp16
}

inline std::vector<Tensor> tensors_of(const Geometry& geometry, const std::string& dtype) {
  std::vector<Tensor> all;
  for (const UnitLayout& unit : make_layout(geometry, {}).units) {
    for (const Parameter& p : unit.parameters) {
      Tensor tensor = {p.name, published_shape(p), dtype, std::vector<float>(static_cast<size_t>(full_numel(p)))};
      for (size_t i = 0; i < tensor.values.size(); ++i) tensor.values[i] = value_of(p.name, static_cast<int64_t>(i));
      all.push_back(std::move(tensor));
    }
  }
  return all;
}

// The bytes of a file. Written here and not by the code under test.
inline std::string file_of(const std::vector<Tensor>& tensors) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const Tensor& tensor : tensors) {
    const size_t begin = data.size();
    StoredType type = StoredType::kF32;
    const bool is_read = stored_type_of(tensor.dtype, type);
    std::string bytes(tensor.values.size() * static_cast<size_t>(is_read ? size_of(type) : 1), '\0');  // others: of 8 bits
    if (is_read) narrow(type, tensor.values.data(), static_cast<int64_t>(tensor.values.size()), bytes.data());
    data += bytes;
    header[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + text + data;
}

inline void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// One file, or several with their index.
inline void write_folder(const std::string& folder, const std::vector<Tensor>& tensors, size_t num_files = 1) {
  if (num_files == 1) return write(folder + "/model.safetensors", file_of(tensors));
  Json map = Json::object();
  std::vector<std::vector<Tensor>> files(num_files);
  for (size_t i = 0; i < tensors.size(); ++i) {
    files[i % num_files].push_back(tensors[i]);
    map[tensors[i].name] = "model-" + std::to_string(i % num_files + 1) + ".safetensors";
  }
  for (size_t f = 0; f < num_files; ++f) write(folder + "/model-" + std::to_string(f + 1) + ".safetensors", file_of(files[f]));
  write(folder + "/model.safetensors.index.json", Json({{"metadata", {{"total_size", 1}}}, {"weight_map", map}}).dump());
}

}  // namespace distsetup::published
