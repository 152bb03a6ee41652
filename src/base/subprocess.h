// Starting other processes, without a shell between: the one place that forks.
#pragma once
#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace distsetup {

struct Spawn {
  std::vector<std::string> words;                              // words[0]: the program, looked up on PATH when it has no '/'
  std::vector<std::pair<std::string, std::string>> variables;  // over our environment
  std::string directory;                                       // "" = here
  enum class Errors { kApart, kWithOutput, kDropped };
  Errors errors = Errors::kApart;   // where its standard error goes
  bool leads_group = false;         // a process group of its own
  bool outlives_us = false;         // a session of its own, and it goes on when we end; `errors`: kDropped, `output_path` is given
  std::string output_path;          // where its output is appended, in place of a pipe; "": a pipe
  std::optional<sigset_t> signals;  // its signal mask; absent: ours
};

// A process that runs. `output` and `errors` are the ends to read from, to be closed by the caller; -1: there is none.
struct Spawned {
  pid_t pid = -1;
  int output = -1, errors = -1;
  int failure = 0;  // errno when it could not be started: then all else is -1
};

// Standard input is /dev/null. The process is killed when we (the thread that called this) end, unless it outlives us.
Spawned spawn(const Spawn& what);

// This program once more, as a second process that does `work` and nothing else; its exit code is what `work` returns. -1: no process.
pid_t spawn_copy(const std::function<int()>& work);

struct Said {
  bool started = false;  // false: no such program
  int code = 0;          // 128 + signal when it was killed
  std::string text;      // as it came
};

// Runs a program to its end, or kills it after `limit_s`. `errors`: kWithOutput or kDropped.
Said run_program(const std::vector<std::string>& words, double limit_s = 30, const std::string& directory = "",
                 Spawn::Errors errors = Spawn::Errors::kWithOutput);

// Runs a program to its end. `each` gets every line of its standard output as it comes; false: that is enough, the program is killed.
// `text` is what it wrote to standard error.
Said follow_program(const std::vector<std::string>& words, const std::function<bool(std::string_view line)>& each);

}  // namespace distsetup
