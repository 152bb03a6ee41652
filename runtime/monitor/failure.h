// How a rank's run ends early: one exception type with an exit code, caught once in train.cc, which prints `rank R on HOST, phase,
// what`. Ranks agree before they go on: a rank that failed tells the others through agree(), so that all end within seconds and only
// the cause prints a cause.
#pragma once
#include <exception>
#include <stdexcept>
#include <string>

#include "base/diagnostic.h"
#include "runtime/comm/communicator.h"

namespace distsetup {

// The product's exit codes, as far as a rank uses them.
inline constexpr int kExitDone = 0, kExitFailed = 1, kExitUsage = 2, kExitBadPlan = 3, kExitBadEnvironment = 5;
inline constexpr int kExitPeer = 6;  // not this rank's fault: `distsetup launch` never names such a rank when another failed too

class Failure : public std::runtime_error {
 public:
  Failure(int exit_code, const std::string& what, std::string help = "")
      : std::runtime_error(what), exit_code_(exit_code), help_(std::move(help)) {}
  int exit_code() const { return exit_code_; }
  const std::string& help() const { return help_; }

 private:
  int exit_code_;
  std::string help_;
};

// The first error among `found` as a Failure; none: does nothing.
void throw_on_error(const Diagnostics& found, int exit_code);

// What an exception of any kind means for a rank's exit. is_meeting: ranks have not found each other yet.
Failure failure_of(const std::exception_ptr& thrown, bool is_meeting);

// Collective. Throws on every rank when any rank has an error: its own message where there is one, else a Failure with kExitPeer.
void agree(Communicator& communicator, const Diagnostics& mine, int exit_code);

}  // namespace distsetup
