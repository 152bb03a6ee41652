// What a run checks and says before its first step: the plan, the place for its files, the checkpoint it goes on from.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "runtime/comm/communicator.h"
#include "runtime/data/corpus.h"
#include "runtime/run_lock.h"
#include "weights/manifest.h"

namespace distsetup {

struct TrainingPlan {
  Plan plan;
  std::string digest;     // of plan.json's bytes
  std::string directory;  // of plan.json, "" = the working directory; what plan.data.root is relative to
  std::string output;     // metrics.jsonl, report.json
  std::string checkpoint_directory;
  bool is_asked = false;  // made here from flags
};

// Throws Failure (kExitBadPlan): unreadable, corrupt, of another version, for another trainer, does not fit, no steps, this trainer
// compiles another schedule than the one that was predicted, or check_job finds it broken. `output` empty: plan.json's directory.
TrainingPlan read_training_plan(const std::string& plan_path, const std::string& output);

// The same for the text of a plan that was made here and now: data and checkpoints lie where it says, seen from the working directory;
// `output` empty: the directory of checkpoints.
TrainingPlan asked_training_plan(const std::string& text, const std::string& output);

// Makes the directory of checkpoints and takes its lock; a plan that was made from flags is written into the output directory, as seen
// from there. Errors (kUnwritableFile): it cannot be made or written to, has no room for one checkpoint, or another run has it.
Diagnostics prepare_run(const TrainingPlan& training, RunLock& lock);

// The newest valid checkpoint; why newer ones are none.
std::optional<CheckpointMetadata> newest_checkpoint(const std::string& directory, std::vector<std::string>& refused);

// A run of which nothing is left to do: every step is done, or its patience is lost.
bool is_finished(const CheckpointMetadata& newest, const Plan& plan);
std::string finished_text(const CheckpointMetadata& newest, const TrainingPlan& training);
// Throws Failure when the checkpoint at `path` belongs to another run: other data, sequence length or seed.
void check_resume(const CheckpointMetadata& metadata, const std::string& path, const Corpus& corpus, const Plan& plan);

// Throws Failure when what is frozen is not what the checkpoint at `path` was trained beside: the source has changed.
void check_frozen(const std::string& stored, const std::string& found, const std::string& path, const Plan& plan);

// At the end of a run that trains adapters: rank 0 writes a folder that PEFT reads, beside the metrics. Every rank calls it; throws
// Failure. Returns the folder; "": there are no adapters.
std::string write_adapter(Communicator& communicator, const TrainingPlan& training, const std::string& checkpoint);

// What a dry run checks of the place where training begins: check_resume() where there is a checkpoint, else published weights, if the
// plan names any. Throws Failure.
void check_start(const TrainingPlan& training, const std::optional<CheckpointMetadata>& newest, const Corpus& corpus);

// The resolved table with predictions.
std::string start_text(const TrainingPlan& training, const Corpus& corpus, const std::optional<CheckpointMetadata>& newest,
                       const std::string& device);

}  // namespace distsetup
