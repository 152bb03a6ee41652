#include "planner/report/need.h"

#include <algorithm>
#include <cmath>

#include "planner/report/uncertainty.h"
#include "planner/time/embedded_calibration.h"

namespace distsetup {
namespace {

constexpr double kPrecision = 1.0 / 128;

bool comes_through(Setup& setup, int64_t device_bytes) {
  setup.gpu.usable_memory_bytes = device_bytes;
  return !replay_memory(setup).ran_out;
}

// Sharded 4-bit weights leave block inputs and their gradients between gathers, and how they lie decides: under FSDP1 FMSA-072 ran out
// where the replay comes through, FMSA-070 took 10 % more than replayed. No row shows another framework to be better.
bool gives_cached_blocks_back(const Setup& s) { return s.finetune != Finetune::kQlora || s.traits().never_shards; }

}  // namespace

MemoryNeed replay_need(const Setup& setup) {
  Setup device = setup;
  device.gpu.usable_memory_bytes = 0;  // unlimited
  MemoryNeed need;
  need.memory = replay_memory(device);
  const MemoryEstimate& free = need.memory;
  need.bytes = free.device_bytes;
  if (!gives_cached_blocks_back(setup)) return need;
  const auto step = static_cast<int64_t>(kPrecision * static_cast<double>(free.device_bytes)) + 1;
  // What is allocated at once cannot be given back; a little more is usually enough.
  int64_t too_small = free.device_bytes - free.reserved_bytes + free.allocated_bytes - 1;
  if (need.bytes - too_small > step && comes_through(device, too_small + step)) need.bytes = too_small + step;
  while (need.bytes - too_small > step) {
    const int64_t middle = too_small + (need.bytes - too_small) / 2;
    (comes_through(device, middle) ? need.bytes : too_small) = middle;
  }
  return need;
}

Spread need_spread(const Setup& setup, double need_bytes, const Calibration& residuals) {
  constexpr double kLeast = 0.003;  // what is read from a screen
  const Interval of = interval_of(setup, Predicted::kAllocated, need_bytes, 0.9, residuals);
  // Between what is allocated (FQL-011, 012 ran on 4 % less than they take with room) and more than what is replayed.
  const Spread least = gives_cached_blocks_back(setup) ? Spread{kLeast, kLeast} : Spread{0.12, 0.05};
  return {std::max(least.below, std::log(need_bytes / of.low)), std::max(least.above, std::log(of.high / need_bytes)),
          is_unseen(setup, Predicted::kAllocated, residuals)};
}

Interval taken_interval(const Setup& setup, const MemoryEstimate& unconstrained, const Interval& need, const Calibration& residuals) {
  const auto reserved = static_cast<double>(unconstrained.reserved_bytes), device = static_cast<double>(unconstrained.device_bytes);
  const Interval of = interval_of(setup, Predicted::kReserved, reserved, 0.9, residuals);
  return {std::max(need.low, of.low + device - reserved), std::max(need.high, of.high + device - reserved)};
}

double fit_probability(const Setup& setup, double need_bytes, const Calibration& residuals) {
  const auto capacity = static_cast<double>(setup.gpu.usable_memory_bytes);
  if (static_cast<double>(bound_bytes(setup) + setup.gpu.context_bytes) > capacity) return 0;
  return chance_to_fit(need_bytes, capacity, need_spread(setup, need_bytes, residuals));
}

double fit_probability(const Setup& setup, double need_bytes) { return fit_probability(setup, need_bytes, embedded_calibration()); }

}  // namespace distsetup
