#include "service/metrics_text.h"

#include <fmt/format.h>

#include <array>

#include "base/json.h"
#include "service/job_json.h"
#include "service/job_queue.h"

namespace distsetup {
namespace {

struct JobGauge {
  const char *name, *help, *section, *key;
};

// Of jobs that run; ids need no escaping (is_valid_id).
constexpr std::array<JobGauge, 4> kJobGauges = {
    {{"distsetup_job_step", "Optimizer steps of a running job.", "progress", "step"},
     {"distsetup_job_planned_steps", "Optimizer steps it was planned for.", "progress", "steps"},
     {"distsetup_job_step_seconds", "Mean duration of its steps.", "measured", "step_s"},
     {"distsetup_job_tokens_per_second", "Mean of its trained tokens per second.", "measured", "tokens_per_s"}}};

void family(std::string& text, const char* name, const char* type, const char* help) {
  text += fmt::format("# TYPE {0} {1}\n# HELP {0} {2}\n", name, type, help);
}

}  // namespace

std::string metrics_text(Service& service) {
  std::string text;
  family(text, "distsetup_service", "info", "The service.");
  text += fmt::format("distsetup_service_info{{version=\"{}\"}} 1\n", DISTSETUP_VERSION);
  family(text, "distsetup_jobs", "gauge", "Jobs by state.");
  const std::map<JobState, int64_t> counts = service.jobs->count_by_state();
  for (const JobState state : {JobState::kQueued, JobState::kScheduled, JobState::kInProgress, JobState::kCompleted, JobState::kFailed,
                               JobState::kCancelled}) {
    const auto found = counts.find(state);
    text += fmt::format("distsetup_jobs{{state=\"{}\"}} {}\n", job_state_name(state), found == counts.end() ? 0 : found->second);
  }
  family(text, "distsetup_devices", "gauge", "GPUs that jobs may have.");
  text += fmt::format("distsetup_devices {}\n", service.settings.devices.size());
  family(text, "distsetup_devices_free", "gauge", "GPUs that no job has.");
  text += fmt::format("distsetup_devices_free {}\n", service.queue->free_devices().size());
  family(text, "distsetup_requests", "counter", "Requests answered.");
  text += fmt::format("distsetup_requests_total {}\n", service.counters.requests.load());
  family(text, "distsetup_requests_refused", "counter", "Of these with 4xx.");
  text += fmt::format("distsetup_requests_refused_total {}\n", service.counters.refused.load());
  family(text, "distsetup_requests_failed", "counter", "Of these with 5xx.");
  text += fmt::format("distsetup_requests_failed_total {}\n", service.counters.failed.load());
  family(text, "distsetup_event_streams", "gauge", "Event streams that are open.");
  text += fmt::format("distsetup_event_streams {}\n", service.counters.streams.load());
  std::vector<Json> running;
  for (const JobRecord& job : service.jobs->in_states({JobState::kInProgress}))
    running.push_back(job_json(service, job, JobDetail::kWhole));
  for (const JobGauge& gauge : kJobGauges) {
    family(text, gauge.name, "gauge", gauge.help);
    for (const Json& job : running) {
      const Json& section = job[gauge.section];
      if (section.is_object() && section[gauge.key].is_number())
        text += fmt::format("{}{{job_uuid=\"{}\"}} {}\n", gauge.name, job["job_uuid"].get<std::string>(), section[gauge.key].dump());
    }
  }
  return text + "# EOF\n";
}

}  // namespace distsetup
