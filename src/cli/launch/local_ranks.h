// The processes of one node as one thing: started together, their output merged line by line, ended together.
#pragma once
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace distsetup {

struct RankCommand {
  int rank = 0;                                                // prefix of its lines
  std::vector<std::string> arguments;                          // arguments[0] is the program's path
  std::vector<std::pair<std::string, std::string>> variables;  // added to our environment
};

struct RankEnd {
  int rank = 0;
  pid_t pid = 0;
  bool by_signal = false;
  int number = 0;               // exit code or signal
  bool after_stop = false;      // ended after we had asked it to
  std::string last_error_line;  // last non-empty line of its stderr
  bool failed() const { return by_signal || number != 0; }
};

struct RunEnd {
  std::vector<RankEnd> ends;  // in the order they were reaped
  int first_failure = -1;     // index into ends: the most likely cause; -1 = none
  int interrupted_by = 0;     // first signal forwarded: SIGINT, SIGTERM or SIGUSR1; 0 = none
  std::string start_error;    // a process could not be started: nothing runs any more
};

// Exit code of a rank that says "a peer failed, not I": never named as the cause when another rank failed too.
inline constexpr int kExitPeerFailed = 6;

// Starts all, waits for all. When one fails the others get SIGTERM and, `grace_s` later, SIGKILL. SIGINT and SIGTERM are passed on as
// SIGTERM, SIGUSR1 as it is; a second SIGINT kills at once. Ranks die with us (PR_SET_PDEATHSIG).
RunEnd run_local_ranks(const std::vector<RankCommand>& commands, double grace_s);

std::string rank_prefix(int rank);    // of each line: "[rank 0] "
std::string signal_name(int number);  // "SIGKILL", or "signal 77"

}  // namespace distsetup
