// The three small files of a checkpoint directory.
//   index.json     {"format": 1, "plan_digest", "mesh", "states": ["", ".exp_avg", ".exp_avg_sq"], "parameters": {name: {"shape",
//                  "boxes": [{"file", "start", "size", "suffix"}]}}}. States are those of the run's optimizer (plan/optimizer.h). The
//                  tensor of a box in its file is called name + state + suffix; suffix is "" for a parameter that the file holds
//                  whole (its published name), else ".box<k>".
//   metadata.json  step, tokens, loss, learning rate, data cursor, seed: what is not a tensor; where parameters are frozen, and so in
//                  no file, "frozen": {"digest"} of their values; where steps were skipped or spikes are watched for, "losses":
//                  {"recent", "skipped", "skipped_in_a_row"}.
//   COMMIT         {"format": 1, "step", "files": {name: {"bytes", "sha256"}}} of every other file; written last. Without it, or when
//   a
//                  file differs from it, the directory is no checkpoint.
// Reading is strict: unknown and missing keys, wrong types and boxes outside their shape are errors.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "base/json_fwd.h"
#include "base/safetensors.h"
#include "plan/mesh.h"

namespace distsetup {

inline constexpr int kCheckpointFormat = 1;

struct StoredBox {
  std::string file;  // "rank_0.safetensors"
  std::vector<int64_t> start, size;
  std::string suffix;
  bool operator==(const StoredBox&) const = default;
};
struct StoredParameter {
  std::vector<int64_t> shape;
  std::vector<StoredBox> boxes;
  bool operator==(const StoredParameter&) const = default;
};
struct CheckpointIndex {
  std::string plan_digest;
  Mesh mesh;
  std::vector<std::string> states;  // suffixes: "" for the parameter, then the optimizer's
  std::map<std::string, StoredParameter> parameters;
  bool operator==(const CheckpointIndex&) const = default;
};

// Where training stands in its data. Exact: what was consumed, nothing that was prefetched.
struct Cursor {
  int64_t epoch = 0;
  int64_t position = 0;   // next entry of this epoch's permutation
  int64_t sequences = 0;  // consumed since the start
  int64_t tokens = 0;     // valid targets consumed since the start
  bool operator==(const Cursor&) const = default;
};

// What decides about the next loss (runtime/monitor/step_guard.h): the same after a resume as without it.
struct LossHistory {
  std::vector<double> recent;  // losses of the newest steps that were taken, where spikes are watched for
  int64_t skipped = 0;         // steps of the run that changed nothing
  int64_t skipped_in_a_row = 0;
  bool operator==(const LossHistory&) const = default;
};

struct CheckpointMetadata {
  int64_t step = 0;
  int64_t tokens = 0;
  double loss = 0;           // of that step
  double learning_rate = 0;  // of that step
  Cursor cursor;
  int64_t seed = 0;
  std::string data_digest;    // Corpus::digest
  std::string frozen_digest;  // of the parameters that are frozen, and not in the checkpoint; "": there are none
  LossHistory losses;
  bool operator==(const CheckpointMetadata&) const = default;
};

struct CheckpointCommit {
  int64_t step = 0;
  std::map<std::string, FileDigest> files;
  bool operator==(const CheckpointCommit&) const = default;
};

Json to_json(const CheckpointIndex& index);
Json to_json(const CheckpointMetadata& metadata);
Json to_json(const CheckpointCommit& commit);
Result<CheckpointIndex> index_from_json(std::string_view text, const std::string& path);
Result<CheckpointMetadata> metadata_from_json(std::string_view text, const std::string& path);
Result<CheckpointCommit> commit_from_json(std::string_view text, const std::string& path);

std::string rank_file_name(int rank);
bool is_rank_file_name(std::string_view name);  // exactly rank_<number>.safetensors

}  // namespace distsetup
