// The files of a job: DATA/jobs/ID/.
//   request.json, provider.yaml   what was asked, and the service's configuration at that moment
//   job.json                      what was found when it was planned (JobFacts)
//   set/, plan.json               token ids and the plan that is run
//   metrics.jsonl, report.json    the trainer's
//   log                           lines of all attempts: time, stream, text
//   lock                          held by its keeper as long as that lives
//   attempt_N/                    commands.json, keeper.json, progress.json, result.json
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "service/job_record.h"

namespace distsetup {

// What is known of a job since it was asked for; job.json.
struct JobFacts {
  int64_t epochs = 1, steps_per_epoch = 0, steps = 0, num_rows = 0;
  int64_t retry_delay_s = 5;
  std::string model_folder;    // absolute; "": a preset
  std::string checkpoint_dir;  // relative to the job's folder
  std::string identifier;      // of the final model: <model>-fsdp-dpo-<epochs>
  std::string strategy;        // as the configuration names it: FULL_SHARD
  std::string backend;         // nccl, gloo; "": one process
  int64_t held_out_one_in = 0;
  bool has_validation = false;  // kValidationFile is held out whole
  bool trains_prompts = false;
  bool is_packed = false, is_capped = false;  // several samples in a row; an epoch has at most max_steps_per_epoch steps
  int64_t longest_prompt = 0;                 // tokens of a preference pair's prompt that stay, the last; 0: all
  std::string prompt_format;                  // words around prompts, for `distsetup data prepare`; "": none
  int64_t log_every = 0;                      // steps between two lines of the log; 0: a hundred lines
  int64_t tune_steps = 0;                     // of each run of hyperparam_search_config; 0: nothing is searched
  std::vector<std::string> plan_words;        // of `distsetup plan`, in the job's folder
  Json plan;                                  // as README.md has it
  Json json() const;
  static JobFacts from(const Json& json);
};

class JobFolder {
 public:
  JobFolder(const std::string& data_folder, const std::string& id) : path_(data_folder + "/jobs/" + id) {}
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string attempt(int64_t number) const { return path_ + "/attempt_" + std::to_string(number); }
  std::string checkpoints(const JobFacts& facts) const { return file(facts.checkpoint_dir); }
  std::optional<JobFacts> facts() const;

 private:
  std::string path_;
};

// The one with the smallest loss on held-out rows, of equal ones the newest; where none was measured, the newest; null: there is none.
// What `distsetup checkpoint export --best` takes.
const JobArtifact* best_of(const std::vector<JobArtifact>& checkpoints);

// A file of JSON; null: it is not there, or is none.
Json read_json(const std::string& path);

struct KeeperResult {
  int exit_code = 0;
  std::string phase;    // that ended last
  std::string message;  // its last line of error
  bool is_stopped = false;
  TimeMs ended_ms = 0;
};
std::optional<KeeperResult> keeper_result(const JobFolder& folder, int64_t attempt);
std::string keeper_phase(const JobFolder& folder, int64_t attempt);  // "": not begun

// Committed checkpoints on the disk, in the order of their steps.
std::vector<JobArtifact> checkpoints_on_disk(const JobFolder& folder, const JobFacts& facts, const std::string& finetuned_model);

}  // namespace distsetup
