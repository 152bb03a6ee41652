// dies_with(text, action): runs `action` in a child process and says whether it aborted with `text` in its stderr.
#pragma once
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>
#include <string_view>

namespace distsetup {

inline bool dies_with(std::string_view text, const std::function<void()>& action) {
  int pipe_fds[2];
  if (::pipe(pipe_fds) != 0) return false;
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit no_core = {0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    std::signal(SIGABRT, SIG_DFL);  // not the test framework's handler
    ::dup2(pipe_fds[1], STDERR_FILENO);
    ::close(pipe_fds[0]);
    ::close(pipe_fds[1]);
    action();
    ::_exit(0);
  }
  ::close(pipe_fds[1]);
  std::string output;
  char chunk[4096];
  for (ssize_t n = 0; (n = ::read(pipe_fds[0], chunk, sizeof(chunk))) > 0;) output.append(chunk, static_cast<size_t>(n));
  ::close(pipe_fds[0]);
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return false;
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && output.find(text) != std::string::npos;
}

}  // namespace distsetup
