#include "service/job_queue.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>

#include "base/clock.h"
#include "base/file.h"
#include "base/own_program.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "service/free_port.h"
#include "service/job_log.h"
#include "service/launcher.h"
#include "service/processes.h"
#include "service/slurm_job.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;
constexpr double kNodeSilence_s = 10;
constexpr double kTurn_s = 0.25, kKeeperStart_s = 10, kForget_s = 60, kSweep_s = 60, kAskSlurm_s = 2, kPortKept_s = 60;
constexpr TimeMs kPatience_ms = 5000;  // a keeper gets so long beyond the grace, then its session is killed
constexpr int kLongestBackoff = 10;    // doublings

std::string keeper_key(const JobRecord& job) { return job.id + " " + std::to_string(job.attempt); }

bool is_keeper_known(const JobFolder& folder, int64_t attempt) {
  std::error_code failure;
  return fs::exists(folder.attempt(attempt) + "/keeper.json", failure);
}

// Afterwards no keeper can begin this attempt.
bool forbid_attempt(const JobFolder& folder, int64_t attempt) {
  std::error_code failure;
  fs::create_directories(folder.attempt(attempt), failure);
  const OpenFile file(::open((folder.attempt(attempt) + "/keeper.json").c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  return file.is_open();
}

// Of an attempt after which the job waited again: others were not its fault.
bool is_failure(const std::string& reason) {
  return !reason.starts_with("the service was stopped") && !reason.starts_with("its keeper was killed, job");
}

bool is_config_mistake(int code) { return code == 2 || code == 3 || code == 4; }

}  // namespace

JobVerdict judge_attempt(const KeeperResult& result, int64_t last_step, int64_t steps, bool is_cancel_asked) {
  const bool is_done = result.exit_code == 0 && !result.is_stopped;
  if (is_done && last_step > 0) return {JobState::kCompleted, "", false};
  if (is_cancel_asked) return {JobState::kCancelled, fmt::format("cancelled at step {} of {}", last_step, steps), false};
  if (result.is_stopped) return {JobState::kQueued, fmt::format("the service was stopped at step {} of {}", last_step, steps), true};
  if (is_done) return {JobState::kFailed, "it ended without an optimizer step", false};
  std::string reason = fmt::format("{}: exit code {}", result.phase.empty() ? "keeper" : result.phase, result.exit_code);
  if (!result.message.empty()) reason += ": " + result.message;
  return {JobState::kFailed, reason, !is_config_mistake(result.exit_code)};
}

JobQueue::~JobQueue() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
}

void JobQueue::start() {
  for (const JobRecord& job : service_.jobs->in_states({JobState::kScheduled, JobState::kInProgress}))
    service_.log->write(LogLevel::kInfo, "job_adopted", {{"job_uuid", job.id}, {"attempt", job.attempt}, {"pid", job.pid}});
  thread_ = std::thread([this] { loop(); });
}

void JobQueue::notify() {
  const std::lock_guard lock(mutex_);
  is_woken_ = true;
  wake_.notify_all();
}

void JobQueue::loop() {
  std::unique_lock lock(mutex_);
  while (!is_ending_) {
    is_woken_ = false;
    lock.unlock();
    try {
      turn();
    } catch (const std::exception& failure) {  // a full disk; the next turn tries again
      service_.log->write(LogLevel::kError, "queue_failed", {{"reason", failure.what()}});
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
    lock.lock();
    wake_.wait_for(lock, std::chrono::duration<double>(kTurn_s), [this] { return is_woken_ || is_ending_; });
  }
}

void JobQueue::turn() {
  std::erase_if(children_, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
  settle_cancelled();
  for (JobRecord& job : service_.jobs->in_states({JobState::kScheduled, JobState::kInProgress})) watch(std::move(job));
  if (!service_.is_stopping) begin_waiting();
  if (now_s() - forgot_s_ > kForget_s) forget_old();
  if (service_.settings.launcher == LauncherKind::kSlurm && now_s() - swept_s_ > kSweep_s) sweep_slurm();
}

void JobQueue::settle_cancelled() {
  for (JobRecord& job : service_.jobs->in_states({JobState::kQueued})) {
    if (!job.is_cancel_asked) continue;
    job.completed_ms = wall_clock_ms();
    if (service_.jobs->move(job, JobState::kCancelled, "cancelled before it started"))
      service_.log->write(LogLevel::kInfo, "job_cancelled", {{"job_uuid", job.id}});
  }
}

void JobQueue::watch(JobRecord job) {
  const JobFolder folder(service_.settings.data_folder, job.id);
  const bool is_held = is_lock_held(folder.file("lock"));
  if (!is_held) {
    if (const std::optional<KeeperResult> result = keeper_result(folder, job.attempt)) return finish(std::move(job), *result);
    if (is_keeper_known(folder, job.attempt)) {
      if (service_.settings.launcher == LauncherKind::kSlurm && !settle_slurm(job)) return;
      KeeperResult lost;
      lost.exit_code = 128 + SIGKILL;
      lost.message = "its keeper was killed";
      lost.is_stopped = false;
      return finish(std::move(job), lost);
    }
    if (job.is_cancel_asked && forbid_attempt(folder, job.attempt)) {
      KeeperResult none;
      none.is_stopped = true;
      return finish(std::move(job), none);
    }
    const auto spawned = spawned_s_.find(keeper_key(job));
    if (spawned == spawned_s_.end() || now_s() - spawned->second > kKeeperStart_s) start_keeper(job);
    return;
  }
  if (!is_keeper_known(folder, job.attempt)) return;  // it has just begun
  const Json keeper = read_json(folder.attempt(job.attempt) + "/keeper.json");
  const auto pid = keeper.is_object() ? keeper.value("pid", 0) : 0;
  const int64_t started = keeper.is_object() ? keeper.value("started", int64_t{0}) : 0;
  bool is_changed = job.pid != pid;
  job.pid = pid;
  job.pid_started = started;
  if (job.state == JobState::kScheduled && !keeper_phase(folder, job.attempt).empty()) {
    if (job.started_ms == 0) job.started_ms = wall_clock_ms();
    if (service_.jobs->move(job, JobState::kInProgress))
      service_.log->write(LogLevel::kInfo, "job_in_progress", {{"job_uuid", job.id}, {"pid", pid}});
    return;
  }
  if (job.is_cancel_asked && is_same_process(pid, started)) {
    const TimeMs now = wall_clock_ms();
    if (job.kill_ms == 0) {
      ::kill(pid, SIGTERM);
      job.kill_ms = now + static_cast<TimeMs>(service_.settings.grace_s * 1000) + kPatience_ms;
      is_changed = true;
    } else if (now > job.kill_ms) {
      signal_session(pid, SIGKILL);
    }
  }
  if (is_changed) service_.jobs->update(job);
}

// Of a job without its keeper: is it over for SLURM, too? A job that is still there gets another keeper, which waits for it.
bool JobQueue::settle_slurm(JobRecord job) {
  if (now_s() - asked_slurm_s_ < kAskSlurm_s) return false;
  asked_slurm_s_ = now_s();
  const std::optional<std::vector<SlurmJob>> there = own_slurm_jobs();
  if (!there) return false;
  const std::string folder = JobFolder(service_.settings.data_folder, job.id).path();
  const auto found = std::find_if(there->begin(), there->end(), [&folder](const SlurmJob& one) { return one.folder == folder; });
  if (found == there->end()) return true;
  const std::string devices = job.devices, reason = fmt::format("its keeper was killed, job {} of SLURM goes on", found->number);
  if (!service_.jobs->move(job, JobState::kQueued, reason)) return false;
  service_.log->write(LogLevel::kWarning, "slurm_job_adopted", {{"job_uuid", job.id}, {"number", found->number}});
  if (std::optional<JobRecord> now = service_.jobs->find(job.id)) begin(std::move(*now), devices);
  return false;
}

// Jobs of SLURM that work in a folder of ours and whose job has ended, by a cancel that did not reach them.
void JobQueue::sweep_slurm() {
  swept_s_ = now_s();
  const std::string root = service_.settings.data_folder + "/jobs/";
  for (const SlurmJob& one : own_slurm_jobs().value_or(std::vector<SlurmJob>{})) {
    if (!one.folder.starts_with(root)) continue;
    const std::string id = one.folder.substr(root.size());
    const std::optional<JobRecord> job = service_.jobs->find(id);
    if (!is_valid_id(id) || (job && !is_final(job->state))) continue;
    if (cancel_slurm_job(one.number))
      service_.log->write(LogLevel::kWarning, "slurm_job_cancelled",
                          {{"job_uuid", id}, {"number", one.number}, {"reason", job ? "its job has ended" : "there is no such job"}});
  }
}

void JobQueue::finish(JobRecord job, const KeeperResult& result) {
  const JobFolder folder(service_.settings.data_folder, job.id);
  const std::optional<JobFacts> known = folder.facts();
  const JobFacts facts = known.value_or(JobFacts{});
  std::vector<JobArtifact> artifacts = checkpoints_on_disk(folder, facts, job.finetuned_model);
  const int64_t last_step = artifacts.empty() ? 0 : artifacts.back().step;
  JobVerdict verdict = judge_attempt(result, last_step, facts.steps, job.is_cancel_asked);
  job.devices.clear();
  job.pid = 0;
  job.kill_ms = 0;
  const TimeMs now = wall_clock_ms();
  if (verdict.state == JobState::kFailed && verdict.may_be_retried) {
    int64_t failures = 0;
    for (const JobTransition& one : service_.jobs->transitions(job.id))
      failures += one.to == JobState::kQueued && one.from != JobState::kQueued && is_failure(one.reason) ? 1 : 0;
    if (failures < job.max_retries) {
      verdict.state = JobState::kQueued;
      const auto doubled = int64_t{1} << std::min<int64_t>(failures, kLongestBackoff);
      job.not_before_ms = now + facts.retry_delay_s * 1000 * doubled;
    }
  }
  if (verdict.state == JobState::kCompleted) {
    JobArtifact model;
    model.identifier = facts.identifier;
    model.path = folder.file(final_model_folder(service_.settings, facts));
    model.kind = "model";
    model.created_ms = now;
    if (const JobArtifact* best = best_of(artifacts)) {
      model.step = best->step;
      model.epoch = best->epoch;
      model.train_loss = best->train_loss;
      model.validation_loss = best->validation_loss;
    }
    std::error_code failure;
    if (fs::is_directory(model.path, failure)) artifacts.push_back(std::move(model));
  }
  if (is_final(verdict.state)) job.completed_ms = now;
  if (verdict.state != JobState::kQueued) service_.jobs->put_artifacts(job.id, artifacts);
  if (!service_.jobs->move(job, verdict.state, verdict.reason)) return;
  service_.log->write(
      verdict.state == JobState::kFailed ? LogLevel::kWarning : LogLevel::kInfo, "job_ended",
      {{"job_uuid", job.id}, {"state", job_state_name(verdict.state)}, {"reason", verdict.reason}, {"step", last_step}});
  if (!verdict.reason.empty()) JobLog(folder.file("log")).add("service", verdict.reason);
}

std::vector<std::string> JobQueue::free_devices() {
  std::set<std::string> taken;
  for (const JobRecord& job : service_.jobs->in_states({JobState::kScheduled, JobState::kInProgress})) {
    for (const std::string& one : split_words(job.devices, ',')) taken.insert(one);
  }
  std::vector<std::string> out;
  for (const std::string& one : service_.settings.devices) {
    if (!taken.contains(one)) out.push_back(one);
  }
  return out;
}

void JobQueue::begin_waiting() {
  const ServiceSettings& settings = service_.settings;
  const auto num_open = static_cast<int64_t>(service_.jobs->in_states({JobState::kScheduled, JobState::kInProgress}).size());
  int64_t places = settings.max_concurrent_jobs - num_open;
  if (places <= 0) return;
  if (settings.launcher == LauncherKind::kNodes && !service_.nodes.are_all_here(settings.nodes, now_s(), kNodeSilence_s)) return;
  const TimeMs now = wall_clock_ms();
  for (JobRecord& job : service_.jobs->in_states({JobState::kQueued})) {
    if (places <= 0) return;
    if (job.not_before_ms > now || job.is_cancel_asked) continue;
    std::string devices;
    if (settings.device == "cuda" && settings.launcher != LauncherKind::kSlurm) {
      const std::vector<std::string> free = free_devices();
      if (static_cast<int64_t>(free.size()) < job.ranks_per_node) return;  // in order: nobody overtakes
      for (int64_t i = 0; i < job.ranks_per_node; ++i) devices += (i == 0 ? "" : ",") + free[static_cast<size_t>(i)];
    }
    begin(std::move(job), devices);
    --places;
  }
}

void JobQueue::begin(JobRecord job, const std::string& devices) {
  ++job.attempt;
  job.devices = devices;
  job.scheduled_ms = wall_clock_ms();
  job.not_before_ms = 0;
  if (!service_.jobs->move(job, JobState::kScheduled)) return;
  job.state = JobState::kScheduled;
  start_keeper(job);
}

void JobQueue::start_keeper(const JobRecord& job) {
  const JobFolder folder(service_.settings.data_folder, job.id);
  const std::optional<JobFacts> facts = folder.facts();
  const std::string attempt = folder.attempt(job.attempt);
  std::error_code failure;
  fs::create_directories(attempt, failure);
  spawned_s_[keeper_key(job)] = now_s();
  if (!facts || failure) {
    KeeperResult none;
    none.exit_code = failure ? 1 : 3;
    none.message = failure ? fmt::format("'{}' cannot be made", attempt) : "job.json is not there";
    if (forbid_attempt(folder, job.attempt)) finish(job, none);
    return;
  }
  const auto just_given = [this](int port) {
    const auto given = port_given_s_.find(port);
    return given != port_given_s_.end() && now_s() - given->second < kPortKept_s;
  };
  const int port = job.num_nodes > 1 ? free_port_from(service_.settings.master_port, just_given) : 0;
  port_given_s_[port] = now_s();
  if (job.num_nodes > 1)
    (void)write_file_atomic(attempt + "/rendezvous.json", Json{{"master_port", port}}.dump() + "\n", Overwrite::kForce);
  const Json orders = keeper_orders(service_.settings, job, *facts, port).json();
  const Result<Written> written = write_file_atomic(attempt + "/commands.json", orders.dump(1) + "\n", Overwrite::kForce);
  if (!written.ok()) {
    service_.log->write(LogLevel::kError, "job_not_started", {{"job_uuid", job.id}, {"reason", written.diagnostics[0].message}});
    return;  // tried again
  }
  Spawn what;
  what.words = {own_program().string(), "--keep", folder.path(), std::to_string(job.attempt)};
  what.directory = folder.path();
  what.errors = Spawn::Errors::kWithOutput;
  what.outlives_us = true;
  what.output_path = attempt + "/keeper.log";
  sigset_t none;
  sigemptyset(&none);
  what.signals = none;
  const Spawned keeper = spawn(what);
  if (keeper.failure != 0) {
    service_.log->write(LogLevel::kError, "job_not_started", {{"job_uuid", job.id}, {"reason", errno_text(keeper.failure)}});
    return;
  }
  children_.push_back(keeper.pid);
  service_.log->write(LogLevel::kInfo, "job_started",
                      {{"job_uuid", job.id}, {"attempt", job.attempt}, {"pid", keeper.pid}, {"devices", job.devices}});
}

void JobQueue::forget_old() {
  forgot_s_ = now_s();
  if (service_.settings.keep_jobs_days <= 0) return;
  const auto age_ms = static_cast<TimeMs>(service_.settings.keep_jobs_days * 24 * 3600 * 1000);
  for (const std::string& id : service_.jobs->finished_before(wall_clock_ms() - age_ms)) {
    std::error_code failure;
    fs::remove_all(JobFolder(service_.settings.data_folder, id).path(), failure);
    if (!failure && service_.jobs->remove_finished(id)) service_.log->write(LogLevel::kInfo, "job_forgotten", {{"job_uuid", id}});
  }
}

void JobQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (!service_.settings.leaves_jobs) stop_running();
}

void JobQueue::stop_running() {
  const double until_s = now_s() + service_.settings.grace_s + static_cast<double>(kPatience_ms) / 1000;
  std::set<std::string> told;
  while (true) {
    const std::vector<JobRecord> running = service_.jobs->in_states({JobState::kScheduled, JobState::kInProgress});
    if (running.empty()) return;
    for (const JobRecord& job : running) {
      const JobFolder folder(service_.settings.data_folder, job.id);
      const Json keeper = read_json(folder.attempt(job.attempt) + "/keeper.json");
      const pid_t pid = keeper.is_object() ? keeper.value("pid", 0) : 0;
      const bool is_alive = pid > 0 && is_same_process(pid, keeper.value("started", int64_t{0}));
      if (is_alive && told.insert(job.id).second) ::kill(pid, SIGTERM);
      if (is_alive && now_s() > until_s) signal_session(pid, SIGKILL);
      if (is_alive || is_lock_held(folder.file("lock"))) continue;
      if (const std::optional<KeeperResult> result = keeper_result(folder, job.attempt)) {
        finish(job, *result);
      } else {
        KeeperResult none;  // killed, or never begun
        none.is_stopped = true;
        (void)forbid_attempt(folder, job.attempt);
        finish(job, none);
      }
    }
    std::erase_if(children_, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
    if (now_s() > until_s + 10) return;  // the next start finds them
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace distsetup
