// See signals.h.
#include "runtime/monitor/signals.h"

#include <signal.h>

#include <atomic>

namespace distsetup {
namespace {

std::atomic<int> caught = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a handler stores into it");

void on_signal(int number) {
  int none = 0;
  caught.compare_exchange_strong(none, number);
}

void catch_with(int number) {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  ::sigaction(number, &action, nullptr);
}

}  // namespace

void catch_early_signals() {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  catch_with(SIGUSR1);
}

void catch_stop_signals() {
  catch_with(SIGTERM);
  catch_with(SIGINT);
}

int stop_signal() { return caught; }

int agreed_stop_signal(Communicator& communicator) {
  double signals[2] = {stop_signal() != 0 ? 1.0 : 0.0, static_cast<double>(stop_signal())};
  communicator.control_sum(signals, 2);
  return signals[0] > 0 ? static_cast<int>(signals[1] / signals[0]) : 0;
}

}  // namespace distsetup
