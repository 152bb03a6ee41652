#include "predict.h"

#include "base/check.h"
#include "planner/frameworks/memory.h"
#include "planner/time/step.h"

namespace distsetup::accuracy {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;

}  // namespace

double Prediction::of(Metric metric) const {
  switch (metric) {
    case Metric::kAllocated: return allocated_gib;
    case Metric::kReserved: return reserved_gib;
    case Metric::kDevice: return device_gib;
    case Metric::kTokensPerSecond: return tokens_per_s_per_gpu;
  }
  CHECK(false, "metric", static_cast<int>(metric));
  return 0;
}

Prediction predict_memory(const Setup& setup) {
  const MemoryEstimate m = replay_memory(setup);
  Prediction p;
  // A replay that failed stops before its peak.
  p.allocated_gib = static_cast<double>(m.ran_out ? simulate_memory(setup).allocated_bytes : m.allocated_bytes) / kGib;
  p.reserved_gib = static_cast<double>(m.reserved_bytes) / kGib;
  p.device_gib = static_cast<double>(m.device_bytes) / kGib;
  p.ran_out = m.ran_out;
  return p;
}

double predict_tokens_per_s_per_gpu(const Setup& setup, const Calibration& calibration) {
  return estimate_time(setup, calibration).tokens_per_s_per_gpu;
}

}  // namespace distsetup::accuracy
