// The queue: one thread that starts jobs in their order, watches the ones that run, and settles how they ended. What it knows is in
// the store and in the jobs' folders, so that a server that was killed goes on where it was.
#pragma once
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "service/job_folder.h"
#include "service/service.h"

namespace distsetup {

// What an attempt that ended comes to.
struct JobVerdict {
  JobState state = JobState::kFailed;
  std::string reason;
  bool may_be_retried = false;
};
// `last_step`: of the newest committed checkpoint; 0: there is none.
JobVerdict judge_attempt(const KeeperResult& result, int64_t last_step, int64_t steps, bool is_cancel_asked);

class JobQueue {
 public:
  explicit JobQueue(Service& service) : service_(service) {}
  ~JobQueue();
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;
  void start();
  void notify();  // there is something to do
  // Ends the thread. Jobs are stopped as by a cancel, and wait in the queue for the next start; with leave_jobs they go on.
  void stop();
  std::vector<std::string> free_devices();

 private:
  void loop();
  void turn();
  void settle_cancelled();
  void watch(JobRecord job);
  bool settle_slurm(JobRecord job);
  void sweep_slurm();
  void finish(JobRecord job, const KeeperResult& result);
  void begin_waiting();
  void begin(JobRecord job, const std::string& devices);
  void start_keeper(const JobRecord& job);
  void stop_running();
  void forget_old();

  Service& service_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool is_woken_ = false, is_ending_ = false;
  std::map<std::string, double> spawned_s_;  // "id attempt": when we started its keeper
  std::map<int, double> port_given_s_;       // when a port was given to a job: its ranks listen there only later
  std::vector<pid_t> children_;              // keepers that this server started
  double forgot_s_ = 0, swept_s_ = 0, asked_slurm_s_ = 0;
};

}  // namespace distsetup
