// See failure.h.
#include "runtime/monitor/failure.h"

#include <fmt/format.h>

#include <new>

#include "runtime/device/file_memory.h"

namespace distsetup {

Failure failure_of(const std::exception_ptr& thrown, bool is_meeting) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Failure& failure) {
    return failure;
  } catch (const CommunicationError& failure) {
    return {is_meeting ? kExitBadEnvironment : kExitPeer, failure.what()};
  } catch (const OffloadFolderError& failure) {
    return {kExitBadEnvironment, failure.what()};
  } catch (const std::bad_alloc&) {
    return {kExitFailed, "out of memory"};
  } catch (const std::exception& failure) {
    const std::string what = failure.what();
    return {kExitFailed, what.substr(0, what.find('\n'))};
  }
}

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
