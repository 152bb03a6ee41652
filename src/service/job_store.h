// Jobs, their transitions and artifacts in the store. Every change of a state is a compare-and-set with its transition in the same
// transaction. Throws StoreFailure.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "service/database.h"
#include "service/job_record.h"

namespace distsetup {

class JobStore {
 public:
  explicit JobStore(Database& database) : database_(database) {}

  enum class Added { kYes, kDuplicate, kFull };
  // As queued, at the end of the queue. `most_open`: so many may wait or run.
  Added add(JobRecord job, int64_t most_open);
  std::optional<JobRecord> find(const std::string& id);
  std::vector<JobRecord> all(int64_t most = -1);                          // the newest first; below 0: all
  std::vector<JobRecord> in_states(const std::vector<JobState>& states);  // in the order of the queue
  std::map<JobState, int64_t> count_by_state();
  int64_t position(const JobRecord& job);  // jobs that go before a queued one

  // Changes the state if it still is `job.state` of this attempt, and writes the record's other fields. False: it has changed
  // meanwhile, and nothing was written.
  bool move(const JobRecord& job, JobState to, const std::string& reason);
  bool move(const JobRecord& job, JobState to) { return move(job, to, ""); }
  // Other fields than the state, while the state and the attempt are those of `job`.
  bool update(const JobRecord& job);
  // Of a job that is not final yet.
  bool ask_to_cancel(const std::string& id);

  std::vector<JobTransition> transitions(const std::string& id);
  void put_artifacts(const std::string& id, const std::vector<JobArtifact>& artifacts);
  std::vector<JobArtifact> artifacts(const std::string& id);
  std::vector<std::string> finished_before(TimeMs at);
  bool remove_finished(const std::string& id);

 private:
  Database& database_;
};

}  // namespace distsetup
