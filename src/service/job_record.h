// A job as the store keeps it, and the states it goes through: queued -> scheduled -> in_progress -> completed | failed | cancelled.
// From scheduled and in_progress a job may go back to queued, for another attempt. A final state never changes.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distsetup {

enum class JobState { kQueued, kScheduled, kInProgress, kCompleted, kFailed, kCancelled };

std::string_view job_state_name(JobState state);  // "in_progress"
std::optional<JobState> job_state_from(std::string_view name);
bool is_final(JobState state);
bool may_become(JobState from, JobState to);

// Milliseconds since 1970, UTC; 0: not yet.
using TimeMs = int64_t;
TimeMs wall_clock_ms();
std::string utc_text(TimeMs at);  // "2026-11-24T13:24:45.123Z"

struct JobRecord {
  std::string id;      // job_uuid
  std::string method;  // "dpo", "sft"
  std::string model;   // as the request names it
  std::string finetuned_model;
  std::string dataset_id;
  JobState state = JobState::kQueued;
  int64_t sequence = 0;  // in the order of arrival
  int64_t priority = 0;  // the larger goes first
  int64_t attempt = 0;   // 0: never started
  int64_t max_retries = 0;
  int64_t num_nodes = 1, ranks_per_node = 1;
  std::string devices;      // GPUs of this machine that it has, "2,3"; "": none
  pid_t pid = 0;            // of its keeper
  int64_t pid_started = 0;  // as /proc has it: another process with that number is not ours
  bool is_cancel_asked = false;
  std::string reason;  // why it failed, was cancelled, or waits again
  TimeMs created_ms = 0, scheduled_ms = 0, started_ms = 0, completed_ms = 0;
  TimeMs not_before_ms = 0;  // a retry waits until then
  TimeMs kill_ms = 0;        // when a cancelled job is killed
  bool operator==(const JobRecord&) const = default;
};

struct JobTransition {
  JobState from = JobState::kQueued, to = JobState::kQueued;
  TimeMs at_ms = 0;
  int64_t attempt = 0;
  std::string reason;
};

struct JobArtifact {
  std::string identifier, path;  // path: absolute
  std::string kind;              // "checkpoint", "model", "adapter"
  TimeMs created_ms = 0;
  int64_t step = 0, epoch = 0;
  std::optional<double> train_loss, validation_loss;
};

// [A-Za-z0-9._-]{1,128}, and neither "." nor "..": an id is the name of a folder.
bool is_valid_id(std::string_view text);
inline constexpr char kIdPattern[] = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$";

}  // namespace distsetup
