// The folder in which a run keeps its checkpoints, `checkpoint_<step>` each (manifest.h): which there are, and which of them stay. The
// trainer and `distsetup checkpoint` ask here. Nothing is touched whose name is not exactly checkpoint_<number> or that has no COMMIT
// of ours, nor files of other names inside one.
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "plan/plan.h"
#include "weights/manifest.h"

namespace distsetup {

std::string checkpoint_name(int64_t step);  // "checkpoint_120"
std::string checkpoint_path(const std::string& directory, int64_t step);
std::vector<int64_t> list_checkpoints(const std::string& directory);  // steps of directories of exactly that name, newest first
// `path` where it holds checkpoints, else the folder of a run's in it: the one that its plan.json names, or "checkpoints".
std::string checkpoints_folder(const std::string& path);
// The checkpoints that a path names, committed or not, newest first: itself, or all of its run's. Errors: there are none.
Result<std::vector<std::string>> find_checkpoints(const std::string& path);
// `path` where it is a committed checkpoint, else the newest committed one of the run, or of the folder of checkpoints, there.
Result<std::string> committed_checkpoint(const std::string& path);
// The committed checkpoint with the smallest held-out loss of those that were evaluated, of equal ones the newest; where none was, the
// newest.
Result<std::string> best_checkpoint(const std::string& path);
// Removes the files of a checkpoint, COMMIT first, then its directory. 0, or errno of what could not be removed (ENOTEMPTY: files of
// other names).
int remove_checkpoint(const std::string& path);

// nullopt: it was not measured at that step.
std::optional<double> metric_of(const CheckpointMetadata& metadata, CheckpointMetric metric);

// A checkpoint stays when one of the rules keeps it. The newest always stays.
struct Retention {
  int64_t keep = 0;        // the newest so many; 0: all of them
  int64_t keep_every = 0;  // those of every so many steps; 0: none for that reason
  int64_t keep_best = 0;   // so many with the smallest metric; 0: none for that reason
  CheckpointMetric metric = CheckpointMetric::kHeldOutLoss;
};
Retention retention_of(const CheckpointPlan& plan);
struct RatedStep {
  int64_t step = 0;
  std::optional<double> metric;
};
// Steps that no rule keeps, newest first. `committed`: newest first.
std::vector<int64_t> steps_to_retire(std::span<const RatedStep> committed, const Retention& rule);

// Committed checkpoints of steps up to `newest` without the `refused` ones, newest first.
std::vector<RatedStep> rated_checkpoints(const std::string& directory, int64_t newest, CheckpointMetric metric,
                                         const std::set<int64_t>& refused = {});
// Removes what the rule does not keep of them. Returns a line for each that could not be removed.
std::vector<std::string> retire_checkpoints(const std::string& directory, int64_t newest, const Retention& rule,
                                            const std::set<int64_t>& refused = {});

}  // namespace distsetup
