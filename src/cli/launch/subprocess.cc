#include "cli/launch/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace distsetup {
namespace {

constexpr int kNotStarted = 127;

[[noreturn]] void become_program(const std::vector<std::string>& words, const std::string& directory, int output) {
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (nothing >= 0) ::dup2(nothing, 0);
  ::dup2(output, 1);
  ::dup2(output, 2);
  if (!directory.empty() && ::chdir(directory.c_str()) != 0) ::_exit(kNotStarted);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  ::_exit(kNotStarted);
}

}  // namespace

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Said run_program(const std::vector<std::string>& words, double limit_s, const std::string& directory) {
  Said said;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return said;
  const pid_t pid = ::fork();
  if (pid == 0) become_program(words, directory, ends[1]);
  ::close(ends[1]);
  const double until = now_s() + limit_s;
  char buffer[4096];
  while (pid > 0) {
    pollfd ready = {ends[0], POLLIN, 0};
    const int wait_ms = static_cast<int>(std::max(0.0, until - now_s()) * 1000);
    if (::poll(&ready, 1, wait_ms) == 0) {
      ::kill(pid, SIGKILL);
      break;
    }
    const ssize_t got = ::read(ends[0], buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    said.text.append(buffer, static_cast<size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  if (pid > 0) ::waitpid(pid, &status, 0);
  said.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  said.started = pid > 0 && !(said.code == kNotStarted && said.text.empty());
  return said;
}

}  // namespace distsetup
