// Boxes of parameters out of published tensors: only their bytes are read (pread, in pieces of at most kPieceBytes), put into the
// program's order of rows and widened to fp32. Memory: one piece, whatever the size of a tensor.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "plan/layout.h"
#include "weights/convert.h"
#include "weights/folder.h"

namespace distsetup {

inline constexpr int64_t kPieceBytes = 16 << 20;

class BoxReader {
 public:
  BoxReader(const WeightsFolder& folder, const Geometry& geometry) : folder_(folder), geometry_(geometry) {}

  // `box` of `parameter`, in the program's order, as box.numel() values, row-major. The tensor has the parameter's published shape and
  // a type that is read. Errors (kWeights), naming file and tensor: it cannot be opened or read, or ends early.
  Diagnostics read(const Parameter& parameter, const PublishedTensor& tensor, const Box& box, float* values);

  int64_t bytes_read() const { return bytes_read_; }

 private:
  struct Run {  // neighbours in the file
    int64_t count, target, stride;
  };
  struct Target {
    int fd = -1;
    StoredType type = StoredType::kF32;
    int64_t tensor_begin = 0;
    float* values = nullptr;
  };
  Result<int> descriptor(size_t file);
  int add(const Target& to, int64_t element, Run run);  // 0 or errno
  int flush(const Target& to);
  Diagnostics read_mxfp4(const Parameter& parameter, const PublishedTensor& tensor, const Box& box, float* values);
  Diagnostics unreadable(const PublishedTensor& tensor, size_t file, int number) const;

  const WeightsFolder& folder_;
  const Geometry& geometry_;
  std::map<size_t, OpenFile> open_;
  // What is read at once: runs that follow each other in the file.
  std::vector<Run> runs_;
  int64_t first_element_ = 0, num_elements_ = 0;
  std::vector<char> piece_;
  int64_t bytes_read_ = 0;
};

}  // namespace distsetup
