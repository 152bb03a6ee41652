// Memory of one run, at three depths. Each trainer has a model of its own behind them (traits.h).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "planner/frameworks/setup.h"

namespace distsetup {

struct MemoryEstimate {
  int64_t allocated_bytes = 0;        // largest over the step, on the fullest rank
  int64_t reserved_bytes = 0;         // 0: not replayed
  int64_t device_bytes = 0;           // reserved, context, libraries, communicators; 0: not replayed
  std::vector<MemoryTerm> terms;      // sum to allocated_bytes
  std::vector<PhaseMemory> by_phase;  // load | forward | loss | backward | optimizer | evaluate | save
  std::string peak_phase;
  int64_t host_bytes_per_node = 0;
  int64_t checkpoint_bytes = 0;  // one checkpoint, all ranks
  bool ran_out = false;          // replay: an allocation failed at the capacity of the GPU also after cached blocks were returned
};

// States alone, in closed form; never above simulate_memory (<= 100 ns).
int64_t bound_bytes(const Setup& setup);
// Allocated bytes by phase (<= 20 us; pipelines <= 200 us).
MemoryEstimate simulate_memory(const Setup& setup);
// The same, and reserved and device bytes: every allocation of two steps through a model of PyTorch's caching allocator (<= 3 ms).
MemoryEstimate replay_memory(const Setup& setup);

}  // namespace distsetup
