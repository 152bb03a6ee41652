// metrics.jsonl: one JSON object per line, append-only while a run goes on, readable meanwhile.
//   {"kind": "step", "step", "loss", "learning_rate", "gradient_norm", "tokens", "valid_tokens", "step_s", "tokens_per_s", "wait_s",
//   "peak_bytes"} peak_bytes: most that rank 0 had allocated at once so far. The first steps of a process, whose every op is metered,
//   have "memory", too: {"held_bytes", "comparison", "phases"}, rank 0's bytes by class and by phase, predicted and measured, as
//   report.json has them. Of a step that was skipped: "skipped", why; of a spike: "spike", the median it was compared with
//   (step_guard.h). A loss or a norm that is not finite is left out.
//   {"kind": "evaluation", "step", "held_out_loss"}; of a loss that is not finite "not_finite", what it is, in its place
// A run that resumes at step s first drops every line after s (and a line that a kill cut short): no step is there twice.
#pragma once
#include <string>

#include "base/diagnostic.h"
#include "base/json_fwd.h"
#include "runtime/monitor/event_file.h"

namespace distsetup {

class MetricsFile {
 public:
  MetricsFile() = default;
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  ~MetricsFile();
  // Opens for appending after `step`; returns how many lines were dropped. `events`: a folder for TensorBoard's file; "": none.
  Result<int64_t> open(const std::string& path, int64_t step, const std::string& events = "");
  // Errors (kUnwritableFile): disk full. CHECKs that steps of one kind ascend.
  Diagnostics write(const Json& line);

 private:
  std::string path_;
  int fd_ = -1;
  EventFile events_;
  int64_t last_step_ = -1, last_evaluation_ = -1;
};

}  // namespace distsetup
