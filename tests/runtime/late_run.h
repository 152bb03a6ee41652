// A run whose streams do everything late and in random order (adversarial.h).
#pragma once
#include <string>

#include "runtime/adversarial.h"
#include "runtime/tiny.h"

namespace distsetup::tiny {

struct LateRun {
  RunResult result;
  std::string error;
  int64_t num_orders = 0;   // waits and follows of rank 0
  int64_t num_replays = 0;  // and recordings that it has done again
};
// `ignored`: the order between streams that rank 0's device leaves out.
inline LateRun train_late(const Plan& plan, int64_t steps, uint64_t seed, int64_t ignored = -1) {
  LateRun out;
  MeetingPlace place;
  try {
    run_ranks(plan.mesh, [&](Communicator& control) {
      const bool first = control.rank() == 0;
      AdversarialDevice device(seed + uint64_t(control.rank()) * 1000, first ? ignored : -1);
      AdversarialCommunicator communicator(plan.mesh, place, device.streams(), control);
      train_rank(plan, steps, {.poison = true}, communicator, device, out.result);
      device.synchronize();
      if (first) out.num_orders = device.num_orders(), out.num_replays = device.num_replays();
    });
  } catch (const std::exception& error) {
    out.error = error.what();
  }
  return out;
}

}  // namespace distsetup::tiny
