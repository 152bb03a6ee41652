// Checkpoints on disk: `<directory>/checkpoint_<step>/` with rank_<r>….safetensors, index.json, metadata.json, and COMMIT last
// (manifest.h). What a rank holds are boxes of published parameters, and readers look at nothing else: any mesh and any sharding loads
// what any other wrote.
//   save: begin (rank 0) -> write_rank_files (every writer) -> commit (rank 0) -> retire (rank 0; weights/checkpoint_folder.h)
//   load (load.h): newest first, verify (all ranks share the digesting) -> load_shard (every rank)
// A crash at any instant leaves the checkpoints before it whole: files are written into `checkpoint_<step>.partial`, which is renamed,
// and only COMMIT makes a directory a checkpoint. Who calls what on which rank, and who waits for whom, is decided by
// runtime/checkpoint/collective.h. Leaves out: writing in the background, other formats.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "plan/layout.h"
#include "plan/mesh.h"
#include "plan/optimizer.h"
#include "weights/checkpoint_folder.h"
#include "weights/manifest.h"

namespace distsetup {

// One rank's piece of the training state: flat shards as Layout describes them. What is frozen is in no checkpoint: it is read again
// from where it came from.
struct ShardState {
  const Layout* layout = nullptr;
  Coordinates at;  // the rank's place in the layout's mesh
  std::span<float> master;
  std::vector<StateValues> states;  // of the optimizer; they may be left out where the parameters alone are read
};

// Ranks that write a file: those of replica 0, which hold all of the model together.
std::vector<int> writer_ranks(const Layout& layout);

// Makes `directory` and an empty checkpoint_<step>.partial; left-overs of a killed run with our file names are removed from it.
Diagnostics begin_checkpoint(const std::string& directory, int64_t step);
Result<std::map<std::string, FileDigest>> write_rank_files(const std::string& directory, int64_t step, int rank,
                                                           const ShardState& state);  // by name
// `state`: any rank's, for its layout and its states' names. `files`: digests of all rank files. Writes index and metadata, renames,
// writes COMMIT.
Diagnostics commit_checkpoint(const std::string& directory, const ShardState& state, const std::string& plan_digest,
                              const CheckpointMetadata& metadata, const std::map<std::string, FileDigest>& files);
void discard_partial(const std::string& directory, int64_t step);  // after a failed write

}  // namespace distsetup
