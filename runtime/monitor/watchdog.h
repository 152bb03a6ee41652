// Says who a run waits for, while it still waits: each rank leaves in the store, every now and then, which instruction it is at and
// how many operations each of its communicators has begun. A rank that waits for half of the time limit of collectives prints one
// line: in what, and which ranks have not come; rank 0 prints the roll call of all ranks, too. Once for each wait. The run itself is
// not touched: it ends by the time limit, as ever. Two threads: one looks and prints, the other talks to the store, which does not
// answer while rank 0 is stopped.
#pragma once
#include <memory>
#include <string>

#include "runtime/comm/watched.h"

namespace distsetup {

class Watchdog {
 public:
  // Collective. `inner` outlives it.
  Watchdog(Communicator& inner, const Mesh& mesh, int64_t timeout_s);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  Communicator& communicator();          // to be used in place of inner
  Progress& progress();                  // for the engine
  void enter(const std::string& phase);  // "training step 12"

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace distsetup
