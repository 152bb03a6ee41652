#include "base/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <string_view>

extern char** environ;

#include "base/clock.h"

namespace distsetup {
namespace {

// Both ends are closed in a program that is started.
struct Pipe {
  int from = -1, to = -1;
  bool open() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return false;
    from = ends[0];
    to = ends[1];
    return true;
  }
  void close() {
    for (int* end : {&from, &to}) {
      if (*end >= 0) ::close(*end);
      *end = -1;
    }
  }
  int keep_from() { return std::exchange(from, -1); }
};

std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& variables) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const bool is_replaced =
        std::any_of(variables.begin(), variables.end(), [name](const auto& variable) { return variable.first == name; });
    if (!is_replaced) environment.emplace_back(text);
  }
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  return environment;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// What the child needs, made before the fork: between fork and exec a process that had several threads may not allocate.
struct ReadyToStart {
  std::vector<std::string> words, environment;
  std::vector<char*> word_pointers, environment_pointers;
  explicit ReadyToStart(const Spawn& what) : words(what.words), environment(environment_with(what.variables)) {
    word_pointers = pointers_to(words);
    environment_pointers = pointers_to(environment);
  }
};

// In the child. Returns only when it fails, with errno set.
void become_program(const Spawn& what, const ReadyToStart& ready, int output, int errors) {
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing < 0 || ::dup2(nothing, 0) < 0 || ::dup2(output, 1) < 0 || ::dup2(errors >= 0 ? errors : nothing, 2) < 0) return;
  if (!what.directory.empty() && ::chdir(what.directory.c_str()) != 0) return;
  ::signal(SIGPIPE, SIG_DFL);
  if (what.signals.has_value()) ::sigprocmask(SIG_SETMASK, &*what.signals, nullptr);
  // Only a name is searched for: with a path execvpe() would hand a file that is no program to a shell.
  const auto start = ready.words[0].find('/') == std::string::npos ? ::execvpe : ::execve;
  start(ready.word_pointers[0], ready.word_pointers.data(), ready.environment_pointers.data());
}

// In the child.
void settle_child(const Spawn& what, pid_t parent) {
  if (what.outlives_us) {
    ::setsid();
    return;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // we ended between fork and prctl
  if (what.leads_group) ::setpgid(0, 0);
}

}  // namespace

pid_t spawn_copy(const std::function<int()>& work) {
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid != 0) return pid;
  settle_child({}, parent);
  ::_exit(work());
}

Spawned spawn(const Spawn& what) {
  Pipe output, errors, report;  // a start that fails is reported; a start that succeeds closes the pipe
  const bool is_apart = what.errors == Spawn::Errors::kApart;
  Spawned child;
  const ReadyToStart ready(what);
  if (what.output_path.empty())
    output.open();
  else
    output.to = ::open(what.output_path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (output.to >= 0 && (!is_apart || errors.open()) && report.open()) {
    const pid_t parent = ::getpid();
    child.pid = ::fork();
    if (child.pid == 0) {
      settle_child(what, parent);
      become_program(what, ready, output.to, what.errors == Spawn::Errors::kWithOutput ? output.to : errors.to);
      const int failure = errno;
      [[maybe_unused]] const ssize_t told = ::write(report.to, &failure, sizeof(failure));
      ::_exit(127);
    }
  }
  if (child.pid < 0) child.failure = errno;
  if (child.pid > 0) {
    ::close(std::exchange(report.to, -1));
    ssize_t told = 0;
    do told = ::read(report.from, &child.failure, sizeof(child.failure));
    while (told < 0 && errno == EINTR);
    if (told <= 0) child.failure = 0;
    if (child.failure != 0) ::waitpid(std::exchange(child.pid, -1), nullptr, 0);
  }
  if (child.failure == 0) {
    if (what.leads_group) ::setpgid(child.pid, child.pid);  // whichever of us comes first
    child.output = output.keep_from();
    child.errors = errors.keep_from();
  }
  for (Pipe* pipe : {&output, &errors, &report}) pipe->close();
  return child;
}

Said run_program(const std::vector<std::string>& words, double limit_s, const std::string& directory, Spawn::Errors errors) {
  Said said;
  Spawn what;
  what.words = words;
  what.directory = directory;
  what.errors = errors;
  const Spawned child = spawn(what);
  if (child.failure != 0) return said;
  said.started = true;
  const double until_s = now_s() + limit_s;
  std::array<char, 4096> buffer{};
  while (true) {
    pollfd ready = {child.output, POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(std::max(0.0, until_s - now_s()) * 1000)) == 0) {
      ::kill(child.pid, SIGKILL);
      break;
    }
    const ssize_t got = ::read(child.output, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    said.text.append(buffer.data(), static_cast<size_t>(got));
  }
  ::close(child.output);
  int status = 0;
  ::waitpid(child.pid, &status, 0);
  said.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return said;
}

Said follow_program(const std::vector<std::string>& words, const std::function<bool(std::string_view line)>& each) {
  Said said;
  Spawn what;
  what.words = words;
  const Spawned child = spawn(what);
  if (child.failure != 0) return said;
  said.started = true;
  std::string pending;
  std::array<char, 4096> buffer{};
  std::array<pollfd, 2> open = {pollfd{child.output, POLLIN, 0}, pollfd{child.errors, POLLIN, 0}};
  bool goes_on = true;
  while (goes_on && (open[0].fd >= 0 || open[1].fd >= 0)) {
    if (::poll(open.data(), open.size(), -1) < 0 && errno != EINTR) break;
    for (pollfd& one : open) {
      if (one.fd < 0 || one.revents == 0) continue;
      const ssize_t got = ::read(one.fd, buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        one.fd = -1;
        continue;
      }
      (&one == open.data() ? pending : said.text).append(buffer.data(), static_cast<size_t>(got));
    }
    size_t begin = 0;
    for (size_t end = pending.find('\n'); goes_on && end != std::string::npos; end = pending.find('\n', begin)) {
      goes_on = each(std::string_view(pending).substr(begin, end - begin));
      begin = end + 1;
    }
    pending.erase(0, begin);
  }
  if (!goes_on) ::kill(child.pid, SIGTERM);
  ::close(child.output);
  ::close(child.errors);
  int status = 0;
  ::waitpid(child.pid, &status, 0);
  said.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return said;
}

}  // namespace distsetup
