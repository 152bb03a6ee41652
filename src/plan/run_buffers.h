// The buffers of a list that live as long as the run; the same in every phase.
#pragma once
#include <map>
#include <vector>

#include "plan/schedule_writer.h"

namespace distsetup {

struct RunBuffers {
  int master = -1, gradient = -1, loss = -1, sumsq = -1;
  std::vector<int> states;             // the optimizer's
  int frozen = -1, quantized = -1;     // -1: nothing is
  int device_shard = -1;               // what units are gathered of, where that is not the master
  int replica = -1;                    // of all units
  std::map<int, int> shared_replicas;  // of each shared unit
};

struct RunBufferOptions {
  bool has_replica = false, has_device_shard = false;
  bool parameters_on_host = false;  // what units are gathered of, and what is frozen
};
RunBuffers make_run_buffers(ScheduleWriter& writer, const RunBufferOptions& options);

}  // namespace distsetup
