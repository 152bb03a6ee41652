// The three small files of a checkpoint directory.
//   index.json     {"format": 2, "plan_digest", "mesh", "states": ["", ".exp_avg", ".exp_avg_sq"], "parameters": {name: {"shape",
//                  "boxes": [{"file", "start", "size"}]}}}. States are those of the run's optimizer (plan/optimizer.h). The tensor
//                  of a box in its file is called name + state. Where an optimizer keeps other things of one parameter than of
//                  another, or means of rows and columns, "state_tensors" has each of them by its whole name, as "parameters" has
//                  those. A rank's boxes of one parameter lie in different files, whose headers say where each begins, as PyTorch's
//                  distributed checkpoints do: torch.distributed.checkpoint's HuggingFaceStorageReader loads them. In format 1, which
//                  is still read, they lie in one file and their names end in "suffix".
//   metadata.json  step, tokens, loss, learning rate, data cursor, seed: what is not a tensor; where parameters are frozen, and so in
//                  no file, "frozen": {"digest"} of their values; where steps were skipped or spikes are watched for, "losses":
//                  {"recent", "skipped", "skipped_in_a_row"}; of a run in fp16 "loss_scale": {"scale", "good_steps",
//                  "overflows_left"}; where held-out data were evaluated, "held_out": {"best", "num_worse"}, and "loss" where it was
//                  at this step.
//   COMMIT         {"format": 2, "step", "files": {name: {"bytes", "sha256"}}} of every other file; written last. Without it, or
//                  when a file differs from it, the directory is no checkpoint.
// Reading is strict: unknown and missing keys, wrong types and boxes outside their shape are errors.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "base/json_fwd.h"
#include "base/safetensors.h"
#include "plan/mesh.h"

namespace distsetup {

inline constexpr int kCheckpointFormat = 2, kOldestCheckpointFormat = 1;

struct StoredBox {
  std::string file;  // "rank_0.safetensors"
  std::vector<int64_t> start, size;
  std::string suffix;  // format 1
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
  std::map<std::string, StoredParameter> state_tensors;  // "lm_head.weight.row_var"; empty: each state has its parameter's boxes
  // The boxes of a state of a parameter; nullptr: there is no such tensor.
  const StoredParameter* find(const std::string& parameter, std::string_view state) const;
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

// The loss scale of a run in fp16 (runtime/optim/loss_scale.h).
struct LossScaleState {
  double scale = 1;
  int64_t good_steps = 0;      // since it changed, or the last overflow
  int64_t overflows_left = 1;  // until it is halved
  bool operator==(const LossScaleState&) const = default;
};

// What evaluations have found so far.
struct HeldOutRecord {
  double best = 0;        // smallest loss
  int64_t num_worse = 0;  // evaluations since then
  bool operator==(const HeldOutRecord&) const = default;
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
  std::optional<LossScaleState> loss_scale = std::nullopt;  // nullopt: the run has none
  std::optional<HeldOutRecord> held_out;                    // nullopt: nothing was evaluated yet
  std::optional<double> held_out_loss;  // of these parameters; nullopt: they were not evaluated, or it is not finite
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

// "rank_3.safetensors" has the first box of each parameter of rank 3, "rank_3.1.safetensors" the second, and so on.
std::string rank_file_name(int rank, size_t box = 0);
bool is_rank_file_name(std::string_view name);  // exactly that

}  // namespace distsetup
