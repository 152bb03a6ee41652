#include "service/keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/subprocess.h"
#include "service/http_message.h"
#include "service/job_folder.h"
#include "service/job_log.h"
#include "service/processes.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;
constexpr double kLockWait_s = 3, kResultWait_s = 300;

struct KeptStream {
  int fd = -1;
  const char* name = "out";
  std::string pending;
};

struct KeptProcess {
  pid_t pid = -1;
  bool is_running = false;
  int exit_code = 0;
  std::array<KeptStream, 2> streams;
};

class Keeper {
 public:
  Keeper(const std::string& folder, long attempt, KeeperOrders orders)
      : folder_(folder),
        attempt_folder_(folder + "/attempt_" + std::to_string(attempt)),
        orders_(std::move(orders)),
        log_(folder + "/log") {
    sigemptyset(&watched_);
    for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&watched_, number);
    ::sigprocmask(SIG_BLOCK, &watched_, &old_mask_);
    ::signal(SIGPIPE, SIG_IGN);
    signal_fd_ = ::signalfd(-1, &watched_, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~Keeper() { ::close(signal_fd_); }
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  KeeperResult run() {
    KeeperResult result;
    for (const KeeperPhase& phase : orders_.phases) {
      std::error_code failure;
      if (!phase.made.empty() && fs::exists(folder_ + "/" + phase.made, failure)) continue;
      result.phase = phase.name;
      if (!phase.made_as.empty() && phase.made_as != phase.made) fs::remove_all(folder_ + "/" + phase.made_as, failure);
      write_state("progress.json", {{"phase", phase.name}, {"since_ms", wall_clock_ms()}});
      result.exit_code = run_phase(phase);
      result.message = last_error_;
      result.is_stopped = is_stopped_;
      if (result.exit_code != 0 || is_stopped_) break;
      if (!phase.made_as.empty() && phase.made_as != phase.made)
        fs::rename(folder_ + "/" + phase.made_as, folder_ + "/" + phase.made, failure);
      if (failure) {
        result.exit_code = 1;
        result.message = fmt::format("'{}' cannot be renamed, {}", phase.made_as, errno_text(failure.value()));
        break;
      }
    }
    result.ended_ms = wall_clock_ms();
    return result;
  }

 private:
  void write_state(const char* name, const Json& json) {
    (void)write_file_atomic(attempt_folder_ + "/" + name, dump_json(json), Overwrite::kForce);
  }

  int run_phase(const KeeperPhase& phase) {
    last_error_.clear();
    has_error_line_ = false;
    processes_ = std::vector<KeptProcess>(phase.commands.size());
    for (size_t i = 0; i < phase.commands.size(); ++i) {
      Spawn what;
      what.words = phase.commands[i];
      what.variables = orders_.variables;
      what.directory = folder_;
      what.leads_group = true;
      what.signals = old_mask_;
      const Spawned started = spawn(what);
      if (started.failure != 0) {
        last_error_ = fmt::format("'{}' cannot be started, {}", what.words[0], errno_text(started.failure));
        log_.add("service", last_error_);
        stop(phase);
        kill_at_s_ = now_s();
        processes_[i].exit_code = 1;
        continue;
      }
      KeptProcess& process = processes_[i];
      process.pid = started.pid;
      process.is_running = true;
      process.streams = {KeptStream{started.output, "out", ""}, KeptStream{started.errors, "error", ""}};
      for (const KeptStream& stream : process.streams) ::fcntl(stream.fd, F_SETFL, O_NONBLOCK);
    }
    while (is_any_running()) turn(phase);
    int code = 0;
    for (KeptProcess& process : processes_) {
      for (KeptStream& stream : process.streams) drain(stream, true);
      if (code == 0) code = process.exit_code;
    }
    return code;
  }

  bool is_any_running() const {
    for (const KeptProcess& one : processes_) {
      if (one.is_running) return true;
    }
    return false;
  }

  void turn(const KeeperPhase& phase) {
    std::vector<pollfd> fds = {{signal_fd_, POLLIN, 0}};
    std::vector<KeptStream*> streams = {nullptr};
    for (KeptProcess& process : processes_) {
      for (KeptStream& stream : process.streams) {
        if (stream.fd < 0) continue;
        fds.push_back({stream.fd, POLLIN, 0});
        streams.push_back(&stream);
      }
    }
    ::poll(fds.data(), fds.size(), kill_at_s_ >= 0 ? 50 : 1000);
    for (size_t i = 1; i < fds.size(); ++i) {
      if (fds[i].revents != 0) drain(*streams[i], false);
    }
    signalfd_siginfo info;
    while (::read(signal_fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
      if (info.ssi_signo != SIGCHLD) stop(phase);
    }
    reap();
    if (kill_at_s_ >= 0 && now_s() >= kill_at_s_) {
      kill_at_s_ = now_s() + 1;
      for (const pid_t pid : processes_of_session(::getpid())) {
        if (pid != ::getpid()) ::kill(pid, SIGKILL);
      }
    }
  }

  void stop(const KeeperPhase& phase) {
    if (is_stopped_) return;
    is_stopped_ = true;
    log_.add("service", fmt::format("asked to stop: SIGTERM, after {:.0f} s SIGKILL", orders_.grace_s));
    if (!phase.stop_command.empty()) (void)run_program(phase.stop_command);
    for (const KeptProcess& process : processes_) {
      if (process.is_running) ::kill(-process.pid, SIGTERM);
    }
    kill_at_s_ = now_s() + orders_.grace_s;
  }

  void reap() {
    for (KeptProcess& process : processes_) {
      int status = 0;
      if (!process.is_running || ::waitpid(process.pid, &status, WNOHANG) != process.pid) continue;
      process.is_running = false;
      process.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      // One of several that fails takes the others along: they would wait for it.
      if (process.exit_code != 0 && kill_at_s_ < 0 && is_any_running()) {
        for (const KeptProcess& other : processes_) {
          if (other.is_running) ::kill(-other.pid, SIGTERM);
        }
        kill_at_s_ = now_s() + orders_.grace_s;
      }
    }
  }

  void drain(KeptStream& stream, bool is_last) {
    std::array<char, 65536> buffer{};
    ssize_t got = 0;
    while (stream.fd >= 0 && (got = ::read(stream.fd, buffer.data(), buffer.size())) != 0) {
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) break;
      stream.pending.append(buffer.data(), static_cast<size_t>(got));
      size_t begin = 0;
      for (size_t end = stream.pending.find('\n'); end != std::string::npos; end = stream.pending.find('\n', begin)) {
        add_line(stream.name, std::string_view(stream.pending).substr(begin, end - begin));
        begin = end + 1;
      }
      stream.pending.erase(0, begin);
    }
    if ((got == 0 || is_last) && stream.fd >= 0) {
      if (!stream.pending.empty()) add_line(stream.name, stream.pending);
      ::close(stream.fd);
      stream.fd = -1;
    }
  }

  void add_line(const char* stream, std::string_view text) {
    log_.add(stream, text);
    // The last line that says "error"; where none does, the last on standard error.
    const bool says_error = text.find("error") != std::string_view::npos;
    if (says_error || (!has_error_line_ && std::string_view(stream) == "error" && !text.empty()))
      last_error_ = std::string(text.substr(0, 1000));
    has_error_line_ = has_error_line_ || says_error;
  }

  std::string folder_, attempt_folder_;
  KeeperOrders orders_;
  JobLog log_;
  sigset_t watched_ = {}, old_mask_ = {};
  int signal_fd_ = -1;
  std::vector<KeptProcess> processes_;
  bool is_stopped_ = false;
  double kill_at_s_ = -1;  // -1: not planned
  std::string last_error_;
  bool has_error_line_ = false;
};

// Whoever starts a keeper may just look whether one is there.
bool hold_lock(const std::string& path) {
  const double until_s = now_s() + kLockWait_s;
  while (!take_lock(path)) {
    if (now_s() > until_s) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return true;
}

// Once only: an attempt that has begun is never begun again.
bool claim_attempt(const std::string& path) {
  const OpenFile file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.is_open()) return false;
  const std::optional<ProcessFacts> own = process_facts(::getpid());
  const std::string text = dump_json({{"pid", ::getpid()}, {"started", own ? own->started : 0}, {"at", utc_text(wall_clock_ms())}});
  return ::write(file.fd(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(file.fd()) == 0;
}

}  // namespace

Json KeeperOrders::json() const {
  Json out = {{"grace_s", grace_s}, {"variables", Json::object()}, {"phases", Json::array()}};
  for (const auto& [name, value] : variables) out["variables"][name] = value;
  for (const KeeperPhase& one : phases)
    out["phases"].push_back(
        {{"name", one.name}, {"commands", one.commands}, {"made_as", one.made_as}, {"made", one.made}, {"stop", one.stop_command}});
  return out;
}

KeeperOrders KeeperOrders::from(const Json& json) {
  KeeperOrders out;
  out.grace_s = json.value("grace_s", 30.0);
  const Json variables = json.value("variables", Json::object());
  for (const auto& [name, value] : variables.items()) out.variables.emplace_back(name, value.get<std::string>());
  for (const Json& one : json.value("phases", Json::array())) {
    out.phases.push_back({one.at("name"), one.at("commands"), one.value("made_as", ""), one.value("made", ""), one.at("stop")});
  }
  return out;
}

int run_keeper(const std::string& job_folder, long attempt) {
  const std::string attempt_folder = job_folder + "/attempt_" + std::to_string(attempt);
  const Json orders = read_json(attempt_folder + "/commands.json");
  if (!orders.is_object()) return 1;
  if (!hold_lock(job_folder + "/lock") || !claim_attempt(attempt_folder + "/keeper.json")) return 1;
  const KeeperResult result = Keeper(job_folder, attempt, KeeperOrders::from(orders)).run();
  const std::string text = compact_text({{"exit_code", result.exit_code},
                                         {"phase", result.phase},
                                         {"message", result.message},
                                         {"is_stopped", result.is_stopped},
                                         {"ended_ms", result.ended_ms}}) +
                           "\n";
  const double until_s = now_s() + kResultWait_s;
  while (!write_file_atomic(attempt_folder + "/result.json", text, Overwrite::kForce).ok()) {
    if (now_s() > until_s) return 1;  // a full disk: whoever finds the job without a result looks at its checkpoints
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  return 0;
}

}  // namespace distsetup
