// Device bytes also have an offset: what libraries load into the device beside context and communicators, in GiB.
// A class stores two numbers per quantity: log(measured / predicted) at the 5th and the 95th percentile of its held-out rows. Other
// levels scale both as a normal distribution's tails do.
#include "planner/uncertainty.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace distsetup {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;

std::string_view framework_name(Framework framework) {
  switch (framework) {
    case Framework::kDdp: return "ddp";
    case Framework::kFsdp1: return "fsdp1";
    case Framework::kFsdp2: return "fsdp2";
    case Framework::kDeepspeed: return "deepspeed";
    case Framework::kMegatron: return "megatron";
  }
  CHECK(false, "framework", static_cast<int>(framework));
  return "";
}

// z of a two-sided interval: 0.9 -> 1.645. Between the tabulated levels linear in the level.
double two_sided_z(double level) {
  constexpr double kLevels[] = {0.5, 0.68, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999};
  constexpr double kZ[] = {0.674, 0.994, 1.282, 1.645, 1.960, 2.326, 2.576, 2.807, 3.291};
  if (level <= kLevels[0]) return kZ[0] * level / kLevels[0];
  for (size_t i = 1; i < std::size(kLevels); ++i) {
    if (level <= kLevels[i]) return kZ[i - 1] + (kZ[i] - kZ[i - 1]) * (level - kLevels[i - 1]) / (kLevels[i] - kLevels[i - 1]);
  }
  return kZ[std::size(kZ) - 1];
}

}  // namespace

std::string_view name(Predicted quantity) {
  switch (quantity) {
    case Predicted::kAllocated: return "allocated";
    case Predicted::kReserved: return "reserved";
    case Predicted::kDevice: return "device";
    case Predicted::kTokensPerSecond: return "tokens_per_s_per_gpu";
  }
  CHECK(false, "quantity", static_cast<int>(quantity));
  return "";
}

namespace {

// What a prediction has to get right beside the program: runs that differ in it differ in how well they are predicted.
std::string_view shape_name(const Setup& s) {
  if (s.software.traced) return "traced";
  if (s.pp > 1) return "pipeline";
  if (s.tp > 1) return "tensor";
  if (s.cp > 1) return "context";
  if (!(s.offload == OffloadPlan{})) return "offload";
  return s.compute == Compute::kF8 ? "low_precision" : "data";
}

}  // namespace

std::vector<std::string> residual_classes(const Setup& s) {
  const std::string_view framework = framework_name(s.framework);
  const std::string_view finetune = s.finetune == Finetune::kFull ? "full" : "adapter";
  const std::string program = fmt::format("{}.{}.{}", framework, s.program, finetune);
  return {fmt::format("{}.{}", program, shape_name(s)), program, fmt::format("{}.any.{}", framework, finetune), "all"};
}

Interval interval_of(const Setup& setup, Predicted quantity, double predicted, double level, const Calibration& residuals) {
  const auto prefix = [](Predicted q, const std::string& one) { return fmt::format("residual.{}.{}", name(q), one); };
  // Device bytes are reserved bytes and constants: few sources print them, so a class that has none borrows.
  std::vector<Predicted> quantities = {quantity};
  if (quantity == Predicted::kDevice) quantities = {Predicted::kDevice, Predicted::kReserved, Predicted::kAllocated};
  double low = quantity == Predicted::kTokensPerSecond ? -0.2 : -0.1, high = -low;
  for (const std::string& one : residual_classes(setup)) {
    const auto found = std::find_if(quantities.begin(), quantities.end(),
                                    [&](Predicted q) { return residuals.constants.contains(prefix(q, one) + ".low"); });
    if (found == quantities.end()) continue;
    low = residuals.at(prefix(*found, one) + ".low");
    high = residuals.at(prefix(*found, one) + ".high");
    if (quantity == Predicted::kDevice) predicted += residuals.get(prefix(*found, one) + ".offset_gib", 0) * kGib;
    break;
  }
  const double middle = (low + high) / 2, half = (high - low) / 2 * two_sided_z(level) / two_sided_z(0.9);
  return {predicted * std::exp(middle - half), predicted * std::exp(middle + half)};
}

Interval interval_of(const Setup& setup, Predicted quantity, double predicted, double level) {
  return interval_of(setup, quantity, predicted, level, embedded_calibration());
}

Verdict verdict_of(const Setup& setup, const MemoryEstimate& memory, const Calibration& residuals) {
  const auto usable = static_cast<double>(setup.gpu.usable_memory_bytes);
  // A replay that failed stops before its peak: what the run would have asked for is the simulation's.
  const int64_t asked_bytes =
      memory.ran_out ? std::max(memory.allocated_bytes, simulate_memory(setup).allocated_bytes) : memory.allocated_bytes;
  const auto allocated = static_cast<double>(asked_bytes + setup.gpu.context_bytes);
  const double device = memory.device_bytes > 0 ? static_cast<double>(memory.device_bytes) : allocated;
  const Interval of_device = interval_of(setup, Predicted::kDevice, device, 0.99, residuals);
  if (!memory.ran_out && std::max(of_device.high, allocated) <= usable) return Verdict::kFits;
  // Cached blocks are returned when memory runs out: what cannot fit is what is allocated, not what is reserved.
  const Interval of_allocated = interval_of(setup, Predicted::kAllocated, static_cast<double>(asked_bytes), 0.99, residuals);
  return of_allocated.low + static_cast<double>(setup.gpu.context_bytes) > usable ? Verdict::kDoesNotFit : Verdict::kTight;
}

Verdict verdict_of(const Setup& setup, const MemoryEstimate& memory) { return verdict_of(setup, memory, embedded_calibration()); }

Verdict replayed_verdict_of(const Setup& setup, const MemoryEstimate& memory, const Calibration& residuals) {
  const Verdict verdict = verdict_of(setup, memory, residuals);
  if (verdict != Verdict::kTight || memory.ran_out || memory.allocated_bytes <= 0 || setup.finetune == Finetune::kQlora)
    return verdict;
  const auto asked = static_cast<double>(memory.allocated_bytes);
  const Interval of_allocated = interval_of(setup, Predicted::kAllocated, asked, 0.99, residuals);
  Setup scarce = setup;
  scarce.gpu.usable_memory_bytes =
      static_cast<int64_t>(static_cast<double>(setup.gpu.usable_memory_bytes) * std::min(1.0, asked / of_allocated.high));
  return replay_memory(scarce).ran_out ? Verdict::kTight : Verdict::kFits;
}

Verdict replayed_verdict_of(const Setup& setup, const MemoryEstimate& memory) {
  return replayed_verdict_of(setup, memory, embedded_calibration());
}

}  // namespace distsetup
