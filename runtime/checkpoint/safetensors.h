// Safetensors files, strictly: eight bytes of header length, a JSON header, then the tensors' bytes without holes. The format is that
// of https://github.com/huggingface/safetensors (README, "Format"); its Python library reads what is written here. Only F32 is
// written: checkpoints hold fp32 master parameters and moments. Leaves out: reading other dtypes.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

namespace distsetup {

struct TensorEntry {
  std::string name;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes, from the first byte of the file
};

struct SafetensorsHeader {
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
  int64_t file_bytes = 0;  // header and data: what the file must have
};

// A tensor to write: rows of fp32 in row-major order.
struct TensorData {
  std::string name;
  std::vector<int64_t> shape;
  const float* data = nullptr;
};

struct FileDigest {
  int64_t bytes = 0;
  std::string sha256;
  bool operator==(const FileDigest&) const = default;
};

int64_t num_elements(const std::vector<int64_t>& shape);

// Writes and fsyncs a new file (an existing one is replaced); digests the bytes as they go. Names must differ.
Result<FileDigest> write_safetensors(const std::string& path, const std::vector<TensorData>& tensors,
                                     const std::map<std::string, std::string>& metadata);

// `file_bytes` -1 = not known: the size that the header asks for is not compared. `prefix`: at least the header, may be more.
// Refused: truncated or oversized header, JSON that is not an object of entries, duplicate or unknown keys, dtypes other than F32,
// negative or overflowing shapes, offsets that do not match the shape, overlap or holes, data beyond the file.
Result<SafetensorsHeader> parse_safetensors(std::string_view prefix, int64_t file_bytes, const std::string& path);
Result<SafetensorsHeader> read_safetensors_header(const std::string& path);

}  // namespace distsetup
