// Processes that are not our children, by what /proc says of them.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace distsetup {

struct ProcessFacts {
  pid_t pid = 0, session = 0;
  char state = 0;       // 'Z': it has ended and nobody has asked how
  int64_t started = 0;  // clock ticks after the machine's start
};

std::optional<ProcessFacts> process_facts(pid_t pid);    // nothing: there is none
bool is_same_process(pid_t pid, int64_t started);        // and it has not ended
std::vector<pid_t> processes_of_session(pid_t session);  // that have not ended
void signal_session(pid_t session, int number);          // each of them

// A lock that a process holds as long as it lives, seen by others without taking it. The file descriptor is not closed.
std::optional<int> take_lock(const std::string& path);  // nothing: somebody holds it, or the file cannot be made
bool is_lock_held(const std::string& path);

}  // namespace distsetup
