// Saves of a run: every rank calls each function at the same step. Either training stops while the state is written, or it goes on:
// then the state is copied between two steps, each writer writes its file from the copy, and when all have, rank 0 commits. Both write
// the same bytes.
//   idle -> writing (every writer) -> committing (rank 0) -> idle
// A save in the background that fails (a full disk) is told and leaves nothing behind; training goes on, and the checkpoint before
// stays the newest. A second save waits for the first. What is saved at once fails the run.
#pragma once
#include <future>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/comm/communicator.h"

namespace distsetup {

struct CheckpointPlace {
  std::string directory;
  Retention retention;
  std::string plan_digest;
  std::set<int64_t> refused;  // steps that find_checkpoint() refused
};

// At once. Throws Failure, CommunicationError; a failure on one rank is a failure of all (monitor/failure.h). `writes`: this rank
// holds a shard that no lower replica writes. Returns complaints about retention (rank 0).
std::vector<std::string> save_checkpoint(Communicator& communicator, const CheckpointPlace& place, const ShardState& state,
                                         bool writes, const CheckpointMetadata& metadata);

struct SaveNews {
  std::optional<int64_t> committed;     // the step of a checkpoint that is now there
  double seconds = 0;                   // that it took
  std::vector<std::string> complaints;  // of this rank
};

// Complaints to standard error; what is committed to standard output, on the first rank.
void print_news(const std::vector<SaveNews>& news, bool is_first);

// What one rank's part of a save came to.
struct SaveOutcome {
  std::map<std::string, FileDigest> digests;  // of the files that this rank wrote
  Diagnostics said;
  std::vector<std::string> complaints;
};

class CheckpointSaver {
 public:
  // `copy`: where the state is copied to, of num_states * shard_numel values; empty: every save is at once.
  CheckpointSaver(Communicator& communicator, CheckpointPlace place, std::span<float> copy);

  int64_t newest() const { return newest_; }  // step of the newest that is committed; 0: none
  void set_newest(int64_t step) { newest_ = step; }

  enum class When { kAtOnce, kBeside };
  // Throws Failure (when at once), CommunicationError. News are of this save, and of the one before, which it waits for.
  std::vector<SaveNews> save(const ShardState& state, bool writes, const CheckpointMetadata& metadata, When when);
  // Between two steps: what has come of a save in the background. Costs nothing when there is none.
  std::optional<SaveNews> poll();
  std::vector<SaveNews> wait();  // until there is none

 private:
  enum class Stage { kIdle, kWriting, kCommitting };
  std::optional<SaveNews> start(const ShardState& state, bool writes, const CheckpointMetadata& metadata);
  ShardState copy_of(const ShardState& state);
  SaveNews end(const SaveOutcome& mine, bool has_failed);

  Communicator& communicator_;
  const CheckpointPlace place_;
  const std::span<float> copy_;
  Stage stage_ = Stage::kIdle;
  std::future<SaveOutcome> task_;  // of this rank, in this stage
  SaveOutcome outcome_;
  ShardState state_;  // in the copy
  CheckpointMetadata metadata_;
  double begin_s_ = 0;
  int64_t newest_ = 0;
};

}  // namespace distsetup
