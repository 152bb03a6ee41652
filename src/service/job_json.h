// A job as JSON: what /v1/post-training/job/status answers, and what the page shows. The shape is in README.md of this folder.
#pragma once
#include "base/json_fwd.h"
#include "service/job_record.h"
#include "service/service.h"

namespace distsetup {

// What reads `status`: Llama Stack's clients know no "queued" and read "scheduled" in its place; the short routes have it.
enum class StatusWords { kLlamaStack, kShort };
// kWhole has plan, measured and losses, which are read from the job's folder.
enum class JobDetail { kLine, kWhole };

Json job_json(Service& service, const JobRecord& job, JobDetail detail, StatusWords words = StatusWords::kLlamaStack);
// {"jobs": [kLine of each, newest first], "counts": {state: n}, "devices": {...}, "settings": {...}}: the page's overview.
Json queue_json(Service& service, int64_t most);
// Of a job that has ended those of the store, else what is on the disk now.
std::vector<JobArtifact> job_artifacts(Service& service, const JobRecord& job);
Json checkpoints_json(Service& service, const JobRecord& job);

}  // namespace distsetup
