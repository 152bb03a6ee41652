// A checkpoint on disk, read: is it whole, and any box of any parameter, whatever mesh wrote it. Reads are positioned (pread): what is
// asked for is read and no other bytes.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "base/file.h"
#include "plan/layout.h"
#include "weights/manifest.h"

namespace distsetup {

// Committed, every file there in its size, and the digests of files number `part`, `part` + `parts`, … as committed. `path`: the
// checkpoint's directory. `part` kSizesAlone: no file is read for its digest.
inline constexpr int kSizesAlone = -1;
Result<CheckpointMetadata> verify_stored(const std::string& path, int part = 0, int parts = 1);

class StoredCheckpoint {
 public:
  // Reads COMMIT and the index. Errors: one is missing or malformed, or a box lies in a file that is not committed.
  static Result<StoredCheckpoint> open(const std::string& path);

  const CheckpointIndex& index() const { return index_; }
  // The parameters of `geometry` that have a gradient, no others, in their shapes: else it is of another model, or of a run that
  // trained other parts of it.
  Diagnostics check_model(const Geometry& geometry, const Tuning& tuning = {}) const;
  // Every element of every parameter lies in exactly one box, and every box in its file, in its shape: nothing but headers is read.
  Diagnostics check_boxes();
  // A box of `parameter` (its master, or another of index().states) as box.numel() values in row-major order. Errors:
  // elements that no file holds, a file that cannot be read.
  Diagnostics read(const std::string& parameter, std::string_view state, const Box& box, float* values);

 private:
  struct RankFile {
    OpenFile file;
    SafetensorsHeader header;
  };
  Diagnostics check_boxes(const std::string& name, const StoredParameter& stored, const std::vector<std::string>& states);
  Result<const RankFile*> rank_file(const std::string& name);
  // Where a state of a box begins in its file. Errors: it is not there, or in another shape or type.
  Result<int64_t> place_of(const std::string& tensor, const StoredBox& box);

  std::string path_;
  CheckpointIndex index_;
  std::map<std::string, RankFile> open_;
};

// "" where a checkpoint is whole: every byte as committed, and every element of every parameter there once. Else what is wrong.
std::string fault_of(const std::string& path);

}  // namespace distsetup
