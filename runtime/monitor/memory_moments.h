// What memory holds at moments of a run (its start, when it has trained, its end): of every rank its device's, of rank 0 its host's,
// too. Unlike the report's comparison this is no part of a prediction: it is what a service shows of a job.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "base/machine_memory.h"
#include "runtime/comm/communicator.h"

namespace distsetup {

struct RankMemoryNow {
  int local_rank = 0;
  int64_t allocated_bytes = 0, reserved_bytes = 0, max_allocated_bytes = 0;
};
struct MemoryMoment {
  std::string when;                   // start | trained | end
  std::vector<RankMemoryNow> ranks;   // by rank
  std::optional<MachineMemory> host;  // of rank 0; none: it is not known
};

// Collective. The most that was allocated at once counts from the last reset_meter_peak().
MemoryMoment memory_now(Communicator& communicator, const std::string& when, int local_rank);
Json moments_json(const std::vector<MemoryMoment>& moments);

}  // namespace distsetup
