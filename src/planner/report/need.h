// What a run of another trainer needs of its device: less than what it takes where there is room, because PyTorch's allocator gives
// cached blocks back before it gives up. The need decides; what it takes is information.
#pragma once
#include "planner/frameworks/memory.h"
#include "planner/frameworks/setup.h"
#include "planner/report/verdict.h"
#include "planner/time/calibration.h"

namespace distsetup {

struct MemoryNeed {
  int64_t bytes = 0;      // the smallest device on which the replay comes through, to 1 %
  MemoryEstimate memory;  // replayed with room: its device_bytes are what the run takes unconstrained
};

// Replays on ever smaller devices (a handful of replays).
MemoryNeed replay_need(const Setup& setup);

// How far the need can be wrong: as what is allocated, which the allocator cannot give back.
Spread need_spread(const Setup& setup, double need_bytes, const Calibration& residuals);

// Where lies what the run takes where there is room: what the allocator reserves is in doubt, by measured runs' errors of it; context
// and communicators are not. Neither end is below that of `need`, the interval of what it needs.
Interval taken_interval(const Setup& setup, const MemoryEstimate& unconstrained, const Interval& need, const Calibration& residuals);

// On the setup's GPU. States are counted exactly: where they alone are too large, nothing fits.
double fit_probability(const Setup& setup, double need_bytes, const Calibration& residuals);
double fit_probability(const Setup& setup, double need_bytes);  // the built-in residuals

}  // namespace distsetup
