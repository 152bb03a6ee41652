#include "codegen/job/job_ending.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/diagnostic_codes.h"
#include "base/quantity.h"

namespace distsetup {
namespace {

constexpr int64_t kDefaultTimeLimit_s = 24 * 3600;
constexpr int kShortestLead_s = 120, kLongestLead_s = 65535;  // the longest is sbatch's own
// Of one node to shared storage when the site says nothing; deliberately low (a single NFS stream on 10 Gb/s Ethernet).
constexpr double kAssumedCheckpointRate_bytes_per_s = 1e9;

// Absent: twice one step and one checkpoint of a node's share, by the plan's own prediction.
int lead_of(JobCheck& check, const JobValues& settings, const Plan* plan, int64_t limit_s) {
  if (const std::optional<int> given = settings.number("signal_lead_s")) return *given;
  const std::string checkpoint_rate = settings.text("checkpoint_rate");
  double rate = kAssumedCheckpointRate_bytes_per_s;
  if (!checkpoint_rate.empty()) {
    const Result<double> given = parse_bytes_per_s(checkpoint_rate, check.at);
    append(check.diagnostics, given.diagnostics);
    if (!given.ok() || !(*given > 0)) return kShortestLead_s;
    rate = *given;
  }
  if (plan == nullptr || plan->time.step_s <= 0) return kShortestLead_s;
  const double share_bytes = static_cast<double>(plan->memory.checkpoint_bytes) / plan->hardware.nodes;
  const double save_s = share_bytes / rate;
  const int64_t seconds = static_cast<int64_t>(std::ceil(2 * (plan->time.step_s + save_s) / 10)) * 10;
  check.set("job.lead_text",
            Json::array({fmt::format("2 × (a step of {} + {} of checkpoint per node at {:.3g} GB/s{}: {}), at least {} s",
                                     format_duration(plan->time.step_s), format_bytes(static_cast<int64_t>(share_bytes)), rate / 1e9,
                                     checkpoint_rate.empty() ? ", assumed" : "", format_duration(save_s), kShortestLead_s)}));
  const int64_t longest = std::min<int64_t>(kLongestLead_s, limit_s / 2);
  if (seconds > longest) check.set("job.lead_wanted", seconds);
  return static_cast<int>(std::min(std::max<int64_t>(seconds, kShortestLead_s), std::max<int64_t>(longest, 1)));
}

}  // namespace

int64_t put_time_limit(JobCheck& check, const JobOptions& options) {
  const std::string longest_job = options.settings.text("longest_job");
  const int64_t longest_s = longest_job.empty() ? 0 : check.duration_s(longest_job);
  int64_t limit_s = longest_s > 0 ? std::min(longest_s, kDefaultTimeLimit_s) : kDefaultTimeLimit_s;
  if (!options.time_limit.empty()) {
    limit_s = check.duration_s(options.time_limit);
    if (longest_s > 0 && limit_s > longest_s) {
      check.fail(
          code::kOutOfRange,
          fmt::format("a time limit of {}, the site's longest job is {}", format_slurm_time(limit_s), format_slurm_time(longest_s)),
          fmt::format("--time-limit {}, and --requeue to go on in the next job", format_slurm_time(longest_s)));
    }
    check.set("job.time_limit_s", limit_s);
  }
  check.set("job.time_limit", format_slurm_time(limit_s));
  const int64_t minutes = (limit_s + 59) / 60;
  check.set("job.time_limit_hm", fmt::format("{}:{:02}", minutes / 60, minutes % 60));
  return limit_s;
}

// A step warned by SLURM itself gets USR1 in every process. With requeue the batch shell has to know as well, so it is warned
// (B:) and passes the signal on.
void put_ending(JobCheck& check, const JobValues& settings, const Plan* plan, int64_t limit_s) {
  const bool requeues = settings.is_on("requeue");
  const int lead_s = lead_of(check, settings, plan, limit_s);
  if (lead_s < 0 || lead_s > kLongestLead_s) {
    return check.fail(code::kOutOfRange, fmt::format("--signal-lead {}, expected 0 to {} seconds", lead_s, kLongestLead_s));
  }
  if (lead_s >= limit_s && limit_s > 0) {
    check.fail(code::kConflict, fmt::format("the warning to save comes {} s before the end of a job of {} s", lead_s, limit_s),
               "a longer --time-limit, or a shorter --signal-lead");
  }
  if (lead_s > 0) check.set("job.signal", fmt::format("{}USR1@{}", requeues ? "B:" : "", lead_s));
  if (requeues && lead_s == 0) {
    check.fail(code::kConflict, "--requeue without a warning before the time limit would lose the work since the last checkpoint",
               "give --signal-lead 120");
  }
  if (!requeues) return;
  const int restarts = settings.number("max_restarts").value_or(0);
  if (restarts < 1) check.fail(code::kOutOfRange, fmt::format("--max-restarts {}, expected at least 1", restarts));
  check.set("job.open_mode", "append");
}

}  // namespace distsetup
