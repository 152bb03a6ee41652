// Safetensors files, strictly: eight bytes of header length, a JSON header, then the tensors' bytes without holes. The format is that
// of https://github.com/huggingface/safetensors (README, "Format"); its Python library reads what is written here. What type a tensor
// has is the reader's to judge: a header is right with any that the format knows.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "base/file.h"

namespace distsetup {

class Sha256;

struct TensorEntry {
  std::string name;
  std::string dtype;  // as the format spells it: "F32", "BF16"
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes, from the first byte of the file
};

struct SafetensorsHeader {
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
  int64_t file_bytes = 0;  // header and data: what the file must have
  std::string sha256;      // of the header with the length before it
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

// Writes a file whose tensors are known by type and shape, their bytes piece by piece and in order. An existing file is replaced.
class SafetensorsWriter {
 public:
  struct Tensor {
    std::string name, dtype;
    std::vector<int64_t> shape;
  };
  // Names must differ. Opens the file and writes the header.
  SafetensorsWriter(std::string path, const std::vector<Tensor>& tensors, const std::map<std::string, std::string>& metadata);
  ~SafetensorsWriter();
  void append(const void* data, int64_t num_bytes);  // after a failure: does nothing
  // fsyncs and closes. Errors (kUnwritableFile): whatever has failed since the beginning. All announced bytes have been appended.
  Result<FileDigest> finish();

 private:
  std::string path_;
  OpenFile file_;
  int failure_ = 0;  // errno
  int64_t bytes_ = 0, expected_bytes_ = 0;
  std::unique_ptr<Sha256> digest_;
};

// Writes and fsyncs a new file of F32 tensors (an existing one is replaced); digests the bytes as they go. Names must differ.
Result<FileDigest> write_safetensors(const std::string& path, const std::vector<TensorData>& tensors,
                                     const std::map<std::string, std::string>& metadata);

// `file_bytes` -1 = not known: the size that the header asks for is not compared. `prefix`: at least the header, may be more.
// Refused: truncated or oversized header, JSON that is not an object of entries, duplicate or unknown keys, unknown dtypes, negative
// or overflowing shapes, offsets that do not match the shape, overlap or holes, data beyond the file.
Result<SafetensorsHeader> parse_safetensors(std::string_view prefix, int64_t file_bytes, const std::string& path);
Result<SafetensorsHeader> read_safetensors_header(const std::string& path);

}  // namespace distsetup
