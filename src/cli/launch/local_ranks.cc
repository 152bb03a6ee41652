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
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/file.h"
#include "cli/launch/subprocess.h"

extern char** environ;

namespace distsetup {
namespace {

constexpr size_t kLongestLine = 1 << 16;  // longer ones are cut into several
constexpr double kSettle_s = 0.25;        // after a first failure: others that fail by themselves show the cause better
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

struct LineStream {
  int fd = -1;  // read end; -1 = closed
  int to = 1;   // our stdout or stderr
  std::string prefix;
  std::string pending;
  std::string last_line;
};

struct Child {
  pid_t pid = -1;
  bool running = false;
  std::array<LineStream, 2> streams;
};

// False when the reader of our output has gone.
bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      pollfd ready = {fd, POLLOUT, 0};
      ::poll(&ready, 1, 1000);
      continue;
    }
    if (n < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool write_lines(LineStream& stream, bool at_end) {
  std::string out;
  size_t begin = 0;
  while (begin < stream.pending.size()) {
    size_t end = stream.pending.find('\n', begin);
    if (end == std::string::npos) {
      if (!at_end && stream.pending.size() - begin < kLongestLine) break;
      end = std::min(stream.pending.size(), begin + kLongestLine);
    }
    const std::string_view line = std::string_view(stream.pending).substr(begin, end - begin);
    if (!line.empty()) stream.last_line = line;
    out += stream.prefix;
    out += line;
    out += '\n';
    begin = end < stream.pending.size() && stream.pending[end] == '\n' ? end + 1 : end;
  }
  stream.pending.erase(0, begin);
  return out.empty() || write_all(stream.to, out);
}

// Everything that can be read now. False when our own output is closed.
bool drain(LineStream& stream) {
  bool open = true;
  char chunk[65536];
  while (stream.fd >= 0) {
    const ssize_t n = ::read(stream.fd, chunk, sizeof(chunk));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) {
      ::close(stream.fd);
      stream.fd = -1;
      open = write_lines(stream, true) && open;
      break;
    }
    stream.pending.append(chunk, static_cast<size_t>(n));
    open = write_lines(stream, false) && open;
  }
  return open;
}

[[noreturn]] void become(const RankCommand& command, pid_t parent, int out, int err, const sigset_t& mask, int report) {
  const auto give_up = [report] {
    const int number = errno;
    [[maybe_unused]] const ssize_t n = ::write(report, &number, sizeof(number));
    ::_exit(127);
  };
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the launcher died between fork and prctl
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (nothing < 0 || ::dup2(nothing, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(err, 2) < 0) give_up();
  ::signal(SIGPIPE, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const bool replaced = std::any_of(command.variables.begin(), command.variables.end(), [text](const auto& variable) {
      return text.size() > variable.first.size() && text[variable.first.size()] == '=' &&
             text.substr(0, variable.first.size()) == variable.first;
    });
    if (!replaced) environment.emplace_back(text);
  }
  for (const auto& variable : command.variables) environment.push_back(variable.first + "=" + variable.second);
  std::vector<char*> argv, envp;
  for (const std::string& argument : command.arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  for (const std::string& entry : environment) envp.push_back(const_cast<char*>(entry.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  ::execve(argv[0], argv.data(), envp.data());
  give_up();
  ::_exit(127);
}

// Empty, or why it could not be started.
std::string start(const RankCommand& command, const sigset_t& mask, Child& child) {
  int out[2], err[2], report[2];
  if (::pipe2(out, O_CLOEXEC) != 0) return errno_text(errno);
  if (::pipe2(err, O_CLOEXEC) != 0) return errno_text(errno);
  if (::pipe2(report, O_CLOEXEC) != 0) return errno_text(errno);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) become(command, parent, out[1], err[1], mask, report[1]);
  const int fork_error = errno;
  for (int fd : {out[1], err[1], report[1]}) ::close(fd);
  int number = 0;
  const ssize_t told = pid > 0 ? ::read(report[0], &number, sizeof(number)) : 0;  // closed by a successful exec
  ::close(report[0]);
  if (pid < 0 || told > 0) {
    ::close(out[0]);
    ::close(err[0]);
    if (pid > 0) ::waitpid(pid, nullptr, 0);
    return errno_text(pid < 0 ? fork_error : number);
  }
  ::setpgid(pid, pid);
  child.pid = pid;
  child.running = true;
  const std::string prefix = fmt::format("[rank {}] ", command.rank);
  child.streams[0] = {out[0], 1, prefix, {}, {}};
  child.streams[1] = {err[0], 2, prefix, {}, {}};
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
      for (LineStream& stream : child.streams) {
        drain(stream);
        write_lines(stream, true);
        if (stream.fd >= 0) ::close(stream.fd);
        stream.fd = -1;
      }
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

std::string signal_name(int number) {
  for (const auto& known : kSignalNames) {
    if (known.first == number) return known.second;
  }
  return fmt::format("signal {}", number);
}

}  // namespace distsetup
