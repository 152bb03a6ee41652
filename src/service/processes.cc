#include "service/processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/file.h"

namespace distsetup {

std::optional<ProcessFacts> process_facts(pid_t pid) {
  const Result<std::string> text = read_file("/proc/" + std::to_string(pid) + "/stat");
  if (!text.ok()) return std::nullopt;
  // "pid (name) state ppid pgrp session …": the name may have blanks and parentheses; the 22nd field is the start.
  const size_t name_end = text->rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  ProcessFacts facts;
  facts.pid = pid;
  long long started = 0;
  int session = 0;
  const int read =
      std::sscanf(text->c_str() + name_end + 1, " %c %*d %*d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %lld",
                  &facts.state, &session, &started);
  if (read != 3) return std::nullopt;
  facts.session = session;
  facts.started = started;
  return facts;
}

bool is_same_process(pid_t pid, int64_t started) {
  if (pid <= 0) return false;
  const std::optional<ProcessFacts> facts = process_facts(pid);
  return facts && facts->started == started && facts->state != 'Z' && facts->state != 'X';
}

std::vector<pid_t> processes_of_session(pid_t session) {
  std::vector<pid_t> out;
  DIR* folder = ::opendir("/proc");
  if (folder == nullptr) return out;
  while (const dirent* entry = ::readdir(folder)) {
    char* end = nullptr;
    const long pid = std::strtol(entry->d_name, &end, 10);
    if (pid <= 0 || *end != 0) continue;
    const std::optional<ProcessFacts> facts = process_facts(static_cast<pid_t>(pid));
    if (facts && facts->session == session && facts->state != 'Z' && facts->state != 'X') out.push_back(facts->pid);
  }
  ::closedir(folder);
  return out;
}

void signal_session(pid_t session, int number) {
  for (const pid_t pid : processes_of_session(session)) ::kill(pid, number);
}

std::optional<int> take_lock(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return std::nullopt;
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(fd, F_OFD_SETLK, &whole) == 0) return fd;
  ::close(fd);
  return std::nullopt;
}

bool is_lock_held(const std::string& path) {
  const OpenFile file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.is_open()) return false;
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return ::fcntl(file.fd(), F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
}

}  // namespace distsetup
