// Intervals widen with the level, come from the narrowest class that has residuals, and decide the verdict at their 99 % ends.
#include <catch2/catch.hpp>
#include <cmath>

#include "model/presets.h"
#include "planner/uncertainty.h"

namespace distsetup {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;

Setup setup_of(Framework framework) {
  Setup s;
  s.framework = framework;
  s.program = "torchtitan_eager";
  s.gpu.usable_memory_bytes = 80 * kGib;
  s.gpu.context_bytes = kGib;
  return s;
}

Calibration residuals_of(const std::string& residual_class, double low, double high) {
  Calibration c;
  for (const char* quantity : {"device", "allocated"}) {
    c.constants["residual." + std::string(quantity) + "." + residual_class + ".low"] = low;
    c.constants["residual." + std::string(quantity) + "." + residual_class + ".high"] = high;
  }
  return c;
}

MemoryEstimate memory_of(double allocated_gib, double device_gib) {
  MemoryEstimate m;
  m.allocated_bytes = static_cast<int64_t>(allocated_gib * static_cast<double>(kGib));
  m.device_bytes = static_cast<int64_t>(device_gib * static_cast<double>(kGib));
  return m;
}

}  // namespace

TEST_CASE("uncertainty: the narrowest class with residuals decides") {
  const Setup s = setup_of(Framework::kFsdp2);
  REQUIRE(residual_classes(s).front() == "fsdp2.torchtitan_eager.full.data");  // with the kind of mesh
  Calibration c = residuals_of("all", -0.3, 0.3);
  CHECK(interval_of(s, Predicted::kDevice, 100, 0.9, c).high == Approx(100 * std::exp(0.3)));
  c.constants.merge(residuals_of("fsdp2.torchtitan_eager.full", -0.1, 0.1).constants);
  CHECK(interval_of(s, Predicted::kDevice, 100, 0.9, c).high == Approx(100 * std::exp(0.1)));
  c.constants.merge(residuals_of("fsdp2.torchtitan_eager.full.data", -0.02, 0.04).constants);
  const Interval i = interval_of(s, Predicted::kDevice, 100, 0.9, c);
  CHECK(i.low == Approx(100 * std::exp(-0.02)));
  CHECK(i.high == Approx(100 * std::exp(0.04)));
  CHECK(interval_of(setup_of(Framework::kFsdp1), Predicted::kDevice, 100, 0.9, c).high == Approx(100 * std::exp(0.3)));
}

TEST_CASE("uncertainty: a higher level is a wider interval") {
  const Setup s = setup_of(Framework::kMegatron);
  const Calibration c = residuals_of("all", -0.05, 0.05);
  double half = 0;
  for (const double level : {0.5, 0.8, 0.9, 0.95, 0.99}) {
    const Interval i = interval_of(s, Predicted::kAllocated, 1, level, c);
    CHECK(i.high - i.low > half);
    half = i.high - i.low;
  }
}

TEST_CASE("uncertainty: the verdict reads the 99 percent ends") {
  const Setup s = setup_of(Framework::kFsdp2);
  const Calibration c = residuals_of("all", -0.05, 0.05);  // at 99 %: 8.1 % up, 7.5 % down
  CHECK(verdict_of(s, memory_of(60, 73), c) == Verdict::kFits);
  CHECK(verdict_of(s, memory_of(60, 75), c) == Verdict::kTight);
  CHECK(verdict_of(s, memory_of(84, 90), c) == Verdict::kTight);
  CHECK(verdict_of(s, memory_of(87, 90), c) == Verdict::kDoesNotFit);
  MemoryEstimate failed = memory_of(60, 70);
  failed.ran_out = true;  // an allocation failed although the sum is small
  CHECK(verdict_of(s, failed, c) == Verdict::kTight);
}

TEST_CASE("uncertainty: the built-in residuals are ordered") {
  for (const auto& [name, value] : embedded_calibration().constants) {
    if (!name.starts_with("residual.") || !name.ends_with(".low")) continue;
    INFO(name);
    const std::string stem = name.substr(0, name.size() - 4);
    CHECK(value < embedded_calibration().at(stem + ".high"));
    CHECK(embedded_calibration().at(stem + ".n") >= 6);
  }
}

TEST_CASE("uncertainty: what is tight by its interval fits when its replay survives a smaller GPU") {
  static const Presets presets = *load_presets();
  Setup s;
  s.model = *find_model(presets, "llama3_8b");
  s.gpu = find_gpu(presets, "h100_sxm")->gpu;
  s.dp_shard = 8;
  s.sequence_length = 4096;
  s.gpu.usable_memory_bytes = 1000 * kGib;
  const MemoryEstimate free = replay_memory(s);
  REQUIRE(free.reserved_bytes > free.allocated_bytes * 103 / 100);  // cached blocks that can go back
  const auto verdict = [&](int64_t usable, double allocated_error) {
    Calibration c = residuals_of("all", -0.3, 0.3);
    c.constants["residual.allocated.all.low"] = -allocated_error;
    c.constants["residual.allocated.all.high"] = allocated_error;
    s.gpu.usable_memory_bytes = usable;
    const MemoryEstimate memory = replay_memory(s);
    REQUIRE(verdict_of(s, memory, c) == Verdict::kTight);
    return replayed_verdict_of(s, memory, c);
  };
  CHECK(verdict(free.device_bytes, 0.005) == Verdict::kFits);
  CHECK(verdict(free.device_bytes, 0.3) == Verdict::kTight);
  CHECK(verdict(free.device_bytes - free.reserved_bytes + free.allocated_bytes, 0.005) == Verdict::kTight);
  s.finetune = Finetune::kQlora;
  CHECK(verdict(free.device_bytes, 0.005) == Verdict::kTight);
}

}  // namespace distsetup
