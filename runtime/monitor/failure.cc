// See failure.h.
#include "runtime/monitor/failure.h"

#include <fmt/format.h>

namespace distsetup {

void throw_on_error(const Diagnostics& found, int exit_code) {
  int num_errors = 0;
  const Diagnostic* first = nullptr;
  for (const Diagnostic& diagnostic : found) {
    if (diagnostic.severity != Severity::kError) continue;
    ++num_errors;
    if (first == nullptr) first = &diagnostic;
  }
  if (first == nullptr) return;
  const std::string more = num_errors > 1 ? fmt::format(" (and {} more)", num_errors - 1) : "";
  throw Failure(exit_code, first->message + more, first->help);
}

void agree(Communicator& communicator, const Diagnostics& mine, int exit_code) {
  double num_failed = has_error(mine) ? 1 : 0;
  communicator.control_sum(&num_failed, 1);
  throw_on_error(mine, exit_code);
  if (num_failed > 0) {
    throw Failure(kExitPeer,
                  fmt::format("stopped, because {} of {} ranks failed here", static_cast<int64_t>(num_failed), communicator.world()));
  }
}

}  // namespace distsetup
