// Spawning, watching and ending the ranks of one node. One thread: poll() over the ranks' pipes and a signalfd.
// - Lines: a pipe per rank and stream; only whole lines are written, each with its prefix, so ranks never mix inside a line.
// - First failure: ranks die of each other within milliseconds, so the order of reaping alone does not tell the cause. A death by a
//   signal that we did not send comes before an exit code, an exit code before kExitPeerFailed; within a kind the first reaped counts.
// - Each rank leads its own process group: a Ctrl-C of the terminal reaches only us, and what a rank started ends with it.
// Leaves out: restarts (the job's owner restarts; the trainer resumes by itself) and other nodes.
#include "cli/launch/local_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/clock.h"
#include "base/file.h"
#include "base/subprocess.h"
#include "cli/launch/line_stream.h"
#include "cli/line/terminal.h"

namespace distsetup {
namespace {

constexpr double kSettle_s = 0.25;  // after a first failure: others that fail by themselves show the cause better
constexpr std::array<std::pair<int, const char*>, 16> kSignalNames = {{{SIGHUP, "SIGHUP"},
                                                                       {SIGINT, "SIGINT"},
                                                                       {SIGQUIT, "SIGQUIT"},
                                                                       {SIGILL, "SIGILL"},
                                                                       {SIGTRAP, "SIGTRAP"},
                                                                       {SIGABRT, "SIGABRT"},
                                                                       {SIGBUS, "SIGBUS"},
                                                                       {SIGFPE, "SIGFPE"},
                                                                       {SIGKILL, "SIGKILL"},
                                                                       {SIGUSR1, "SIGUSR1"},
                                                                       {SIGSEGV, "SIGSEGV"},
                                                                       {SIGUSR2, "SIGUSR2"},
                                                                       {SIGPIPE, "SIGPIPE"},
                                                                       {SIGALRM, "SIGALRM"},
                                                                       {SIGTERM, "SIGTERM"},
                                                                       {SIGXCPU, "SIGXCPU"}}};

struct Child {
  pid_t pid = -1;
  bool running = false;
  std::array<LineStream, 2> streams;
};

// Empty, or why it could not be started.
std::string start(const RankCommand& command, const sigset_t& mask, Child& child) {
  Spawn what;
  what.words = command.arguments;
  what.variables = command.variables;
  what.leads_group = true;
  what.signals = mask;
  const Spawned started = spawn(what);
  if (started.failure != 0) return errno_text(started.failure);
  child.pid = started.pid;
  child.running = true;
  const std::string prefix = rank_prefix(command.rank);
  child.streams[0] = {started.output, 1, prefix, {}, {}};
  child.streams[1] = {started.errors, 2, prefix, {}, {}};
  for (const LineStream& stream : child.streams) ::fcntl(stream.fd, F_SETFL, O_NONBLOCK);
  return "";
}

int severity(const RankEnd& end) {
  if (!end.failed()) return -1;
  if (end.after_stop) return 0;
  if (end.by_signal) return 3;
  return end.number == kExitPeerFailed ? 1 : 2;
}

class LocalRanks {
 public:
  LocalRanks(const std::vector<RankCommand>& commands, double grace_s) : commands_(commands), grace_s_(grace_s) {
    sigemptyset(&watched_);
    for (int number : {SIGCHLD, SIGINT, SIGTERM, SIGUSR1, SIGHUP}) sigaddset(&watched_, number);
    ::sigprocmask(SIG_BLOCK, &watched_, &old_mask_);
    old_pipe_ = ::signal(SIGPIPE, SIG_IGN);
    signal_fd_ = ::signalfd(-1, &watched_, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~LocalRanks() {
    ::close(signal_fd_);
    ::signal(SIGPIPE, old_pipe_);
    ::sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
  }

  RunEnd run() {
    children_.resize(commands_.size());
    for (size_t i = 0; i < commands_.size() && result_.start_error.empty(); ++i) {
      const std::string why = start(commands_[i], old_mask_, children_[i]);
      if (why.empty()) continue;
      result_.start_error = fmt::format("rank {}: '{}' cannot be started, {}", commands_[i].rank, commands_[i].arguments[0], why);
      kill_at_s_ = now_s();
    }
    while (num_running() > 0 || any_open()) step();
    for (size_t i = 0; i < result_.ends.size(); ++i) {
      const int best = result_.first_failure < 0 ? -1 : severity(result_.ends[static_cast<size_t>(result_.first_failure)]);
      if (severity(result_.ends[i]) > best) result_.first_failure = static_cast<int>(i);
    }
    return std::move(result_);
  }

 private:
  int num_running() const {
    return static_cast<int>(std::count_if(children_.begin(), children_.end(), [](const Child& c) { return c.running; }));
  }
  // Output of a process that outlived its rank does not hold us up.
  bool any_open() {
    if (num_running() > 0) return true;
    for (Child& child : children_) {
      for (LineStream& stream : child.streams) finish(stream);
    }
    return false;
  }

  void send(int number) {
    for (const Child& child : children_) {
      if (child.running) ::kill(-child.pid, number);
    }
  }
  void stop_at(double at_s) {
    if (stop_at_s_ < 0 && !stopped_) stop_at_s_ = at_s;
  }

  void step() {
    std::vector<pollfd> fds = {{signal_fd_, POLLIN, 0}};
    std::vector<LineStream*> streams = {nullptr};
    for (Child& child : children_) {
      for (LineStream& stream : child.streams) {
        if (stream.fd < 0) continue;
        fds.push_back({stream.fd, POLLIN, 0});
        streams.push_back(&stream);
      }
    }
    ::poll(fds.data(), fds.size(), stop_at_s_ >= 0 || kill_at_s_ >= 0 ? 20 : 1000);
    for (size_t i = 1; i < fds.size(); ++i) {
      if (fds[i].revents != 0 && !drain(*streams[i]) && !output_closed_) {
        output_closed_ = true;  // `launch | head`: nobody listens any more
        stop_at(now_s());
      }
    }
    signalfd_siginfo info;
    while (::read(signal_fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) on_signal(static_cast<int>(info.ssi_signo));
    reap();
    const double now = now_s();
    if (stop_at_s_ >= 0 && now >= stop_at_s_) {
      stop_at_s_ = -1;
      stopped_ = true;
      send(SIGTERM);
      if (kill_at_s_ < 0) kill_at_s_ = now + grace_s_;
    }
    if (kill_at_s_ >= 0 && now >= kill_at_s_) {
      stopped_ = true;
      kill_at_s_ = now + 1;
      send(SIGKILL);
    }
  }

  void on_signal(int number) {
    if (number == SIGCHLD) return;
    if (number == SIGUSR1) {
      if (result_.interrupted_by == 0) result_.interrupted_by = number;
      send(SIGUSR1);
      return;
    }
    if (number == SIGINT && ++num_interrupts_ > 1) {
      kill_at_s_ = now_s();
      return;
    }
    if (result_.interrupted_by == 0 || number == SIGINT) result_.interrupted_by = number;
    if (number == SIGINT) {
      write_all(2, "distsetup: interrupted, the ranks checkpoint at the next step and end; press Ctrl-C again to kill them at once\n");
    }
    send(SIGTERM);  // the ranks save and end by themselves: no SIGKILL behind it
  }

  void reap() {
    for (size_t i = 0; i < children_.size(); ++i) {
      Child& child = children_[i];
      int status = 0;
      if (!child.running || ::waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
      child.running = false;
      ::kill(-child.pid, SIGKILL);  // what it left behind in its group
      for (LineStream& stream : child.streams) drain(stream);
      RankEnd end;
      end.rank = commands_[i].rank;
      end.pid = child.pid;
      end.by_signal = WIFSIGNALED(status);
      end.number = end.by_signal ? WTERMSIG(status) : WEXITSTATUS(status);
      end.after_stop = stopped_;
      end.last_error_line = child.streams[1].pending.empty() ? child.streams[1].last_line : child.streams[1].pending;
      if (end.failed()) stop_at(now_s() + kSettle_s);
      result_.ends.push_back(std::move(end));
    }
  }

  const std::vector<RankCommand>& commands_;
  const double grace_s_;
  sigset_t watched_ = {}, old_mask_ = {};
  sighandler_t old_pipe_ = SIG_DFL;
  int signal_fd_ = -1;
  std::vector<Child> children_;
  RunEnd result_;
  double stop_at_s_ = -1, kill_at_s_ = -1;  // -1 = not planned
  bool stopped_ = false;                    // SIGTERM was sent because of a failure
  bool output_closed_ = false;
  int num_interrupts_ = 0;
};

}  // namespace

RunEnd run_local_ranks(const std::vector<RankCommand>& commands, double grace_s) { return LocalRanks(commands, grace_s).run(); }

std::string rank_prefix(int rank) { return fmt::format("[rank {}] ", rank); }

std::string signal_name(int number) {
  for (const auto& known : kSignalNames) {
    if (known.first == number) return known.second;
  }
  return fmt::format("signal {}", number);
}

}  // namespace distsetup
