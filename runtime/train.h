// One rank of a training run, from plan.json to report.json. Reads the plan and nothing else about what to do (flags in its place go
// to the planner beside it, whose plan is executed); the one thing it decides is which committed checkpoint to go on from: the newest
// that is valid.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace distsetup {

struct TrainOptions {
  std::string plan_path;           // --plan
  std::vector<std::string> flags;  // of the run, in place of a plan (ask_plan.h)
  std::string output_dir;          // --output; empty: plan.json's directory, with flags the directory of checkpoints
  int64_t log_every = 0;           // --log-interval: steps between lines; 0: a hundred lines a run
  bool dry_run = false;            // --dry-run: everything up to the first step, nothing written, no other rank needed
  int64_t stop_after = 0;          // --stop-after: checkpoint and end after so many steps of this process; 0 = not
  bool poison = false;             // --poison: freed ranges are NaN (EngineOptions::poison)
  std::string trace_path;          // --trace: collectives as issued, a JSON line per step; ranks > 0 append ".rank<r>"
  int64_t first_profiled_step = 0, last_profiled_step = 0;  // --profile FIRST:LAST: when each op of these steps ran
  bool tensorboard = false;                                 // --tensorboard: the metrics as events, too, in output_dir/tensorboard
  std::string metrics_address;                              // --metrics-address: rank 0 answers GET /metrics there
  int num_threads = 0;                                      // --threads; 0: cores / ranks on this host
  std::string offload_folder;  // --offload-folder: of a local disk, for what the plan keeps there; empty: $TMPDIR, else /tmp
};

// Exit codes: 0 done, stopped by a signal after a checkpoint, or nothing left to do · 1 failed · 3 plan unreadable, corrupt, not for
// this trainer · 5 environment or data not usable · 6 a peer failed. A failure is one line on stderr: `rank R on HOST, PHASE, what`.
int run_training(const TrainOptions& options);

}  // namespace distsetup
