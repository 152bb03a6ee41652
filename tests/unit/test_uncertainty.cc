// Intervals widen with the level, come from the narrowest class that has residuals, and decide the verdict at their 99 % ends.
#include <catch2/catch.hpp>
#include <cmath>

#include "model/presets.h"
#include "planner/frameworks/memory.h"
#include "planner/report/uncertainty.h"
#include "planner/report/verdict.h"
#include "planner/time/embedded_calibration.h"
#include "support/presets.h"

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
  const double wider = widening("all");
  CHECK(wider > 1);
  CHECK(widening("any.any.full.data.segments") == wider);
  CHECK(widening("any.torchtitan_eager.full.data") == 1);
  Calibration c = residuals_of("all", -0.3, 0.3);
  CHECK(interval_of(s, Predicted::kDevice, 100, 0.9, c).high == Approx(100 * std::exp(0.3 * wider)));
  c.constants.merge(residuals_of("any.torchtitan_eager.full.data.segments", -0.1, 0.1).constants);
  CHECK(interval_of(s, Predicted::kDevice, 100, 0.9, c).high == Approx(100 * std::exp(0.1)));
  c.constants.merge(residuals_of("fsdp2.torchtitan_eager.full.data.segments", -0.02, 0.04).constants);
  const Interval i = interval_of(s, Predicted::kDevice, 100, 0.9, c);
  CHECK(i.low == Approx(100 * std::exp(-0.02)));
  CHECK(i.high == Approx(100 * std::exp(0.04)));
  // The same program under another framework is nearer than anything else.
  CHECK(interval_of(setup_of(Framework::kFsdp1), Predicted::kDevice, 100, 0.9, c).high == Approx(100 * std::exp(0.1)));
  Setup other = s;
  other.program = "hf_eager";
  CHECK(interval_of(other, Predicted::kDevice, 100, 0.9, c).high == Approx(100 * std::exp(0.3 * wider)));
}

TEST_CASE("uncertainty: a kind of memory that no source prints borrows from the nearest") {
  const Setup s = setup_of(Framework::kFsdp2);
  const auto with = [](Calibration& c, const char* quantity, const char* residual_class, double half) {
    c.constants[std::string("residual.") + quantity + "." + residual_class + ".low"] = -half;
    c.constants[std::string("residual.") + quantity + "." + residual_class + ".high"] = half;
  };
  Calibration c;
  with(c, "allocated", "any.any.full.data.segments", 0.01);
  with(c, "reserved", "fsdp2.torchtitan_eager.full.data.segments", 0.2);
  // Not what other programs show of the same kind, but what this one shows of another.
  CHECK(interval_of(s, Predicted::kAllocated, 100, 0.9, c).high == Approx(100 * std::exp(0.2)));
  CHECK(interval_of(s, Predicted::kDevice, 100, 0.9, c).high == Approx(100 * std::exp(0.2)));
  // Live bytes do not depend on the allocator: the program's other classes come before its reserved bytes.
  with(c, "allocated", "any.torchtitan_eager.full.data", 0.03);
  CHECK(interval_of(s, Predicted::kAllocated, 100, 0.9, c).high == Approx(100 * std::exp(0.03)));
  CHECK(interval_of(s, Predicted::kReserved, 100, 0.9, c).high == Approx(100 * std::exp(0.2)));
}

TEST_CASE("uncertainty: parameters and states are not in doubt") {
  Setup s = setup_of(Framework::kFsdp2);
  s.model = *find_model(presets(), "llama3_8b");
  s.dp_shard = 8;
  const auto bound = static_cast<double>(bound_bytes(s));
  CHECK(uncertain_share(s, Predicted::kReserved, 4 * bound) == Approx(0.75));
  CHECK(uncertain_share(s, Predicted::kReserved, bound) == Approx(0.1));  // never certain
  CHECK(uncertain_share(s, Predicted::kTokensPerSecond, 4 * bound) == 1);
  const Calibration c = residuals_of("fsdp2.torchtitan_eager.full", -0.2, 0.2);
  CHECK(interval_of(s, Predicted::kAllocated, 4 * bound, 0.9, c).high == Approx(4 * bound * std::exp(0.75 * 0.2)));
}

TEST_CASE("uncertainty: a class of memory is what makes the error physically different") {
  Setup s = setup_of(Framework::kFsdp2);
  const auto front = [&] { return residual_classes(s, Predicted::kReserved).front(); };
  CHECK(front() == "fsdp2.torchtitan_eager.full.data.segments.plain.cuda");
  s.tp = 2;
  s.software.released = 202403;
  CHECK(front() == "fsdp2.torchtitan_eager.full.tensor.record_stream.plain.cuda");
  s.software.released = 202412;
  CHECK(front() == "fsdp2.torchtitan_eager.full.tensor.segments.plain.cuda");
  s.tp = 1;
  s.software.expandable_segments = true;
  CHECK(front() == "fsdp2.torchtitan_eager.full.data.expandable.plain.cuda");
  s.sample_lengths.mean = 300;
  CHECK(front() == "fsdp2.torchtitan_eager.full.data.unlike_lengths.plain.cuda");
  s.sample_lengths = {};
  s.fp8 = Fp8Recipe::kNvfp4;
  s.gpu.name = "b200";
  CHECK(front() == "fsdp2.torchtitan_eager.full.data.expandable.four_bit.blackwell");
  s.fp8 = Fp8Recipe::kNone;
  s.finetune = Finetune::kQlora;
  s.frozen_dtype = Dtype::kNf4Double;
  CHECK(front() == "fsdp2.torchtitan_eager.adapter.data.expandable.four_bit.blackwell");
  s.frozen_dtype = Dtype::kInt8;
  s.tp = 2;
  CHECK(front() == "fsdp2.torchtitan_eager.adapter.tensor.expandable.integer.blackwell");
  // Speed does not depend on the allocator.
  CHECK(residual_classes(s, Predicted::kTokensPerSecond).front() == "fsdp2.torchtitan_eager.adapter.tensor");
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
  const Calibration c = residuals_of("fsdp2.torchtitan_eager.full", -0.05, 0.05);  // at 99 %: 8.1 % up, 7.5 % down
  CHECK(verdict_of(needed_bytes(s, memory_of(60, 73), c), s.gpu.usable_memory_bytes) == Verdict::kFits);
  CHECK(verdict_of(needed_bytes(s, memory_of(60, 75), c), s.gpu.usable_memory_bytes) == Verdict::kTight);
  CHECK(verdict_of(needed_bytes(s, memory_of(84, 90), c), s.gpu.usable_memory_bytes) == Verdict::kTight);
  CHECK(verdict_of(needed_bytes(s, memory_of(87, 90), c), s.gpu.usable_memory_bytes) == Verdict::kDoesNotFit);
  MemoryEstimate failed = memory_of(60, 70);
  failed.ran_out = true;  // an allocation failed although the sum is small
  CHECK(verdict_of(needed_bytes(s, failed, c), s.gpu.usable_memory_bytes) == Verdict::kTight);
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
  Setup s;
  s.model = *find_model(presets(), "llama3_8b");
  s.gpu = find_gpu(presets(), "h100_sxm")->gpu;
  s.dp_shard = 8;
  s.sequence_length = 4096;
  s.gpu.usable_memory_bytes = 1000 * kGib;
  const MemoryEstimate free = replay_memory(s);
  REQUIRE(free.reserved_bytes > free.allocated_bytes * 103 / 100);  // cached blocks that can go back
  const auto verdict = [&](int64_t usable, double allocated_error) {
    Calibration c = residuals_of("fsdp2.torchtitan_eager.full", -0.3, 0.3);
    c.constants["residual.allocated.fsdp2.torchtitan_eager.full.low"] = -allocated_error;
    c.constants["residual.allocated.fsdp2.torchtitan_eager.full.high"] = allocated_error;
    s.gpu.usable_memory_bytes = usable;
    const MemoryEstimate memory = replay_memory(s);
    REQUIRE(verdict_of(needed_bytes(s, memory, c), s.gpu.usable_memory_bytes) == Verdict::kTight);
    return replayed_verdict_of(s, memory, c);
  };
  CHECK(verdict(free.device_bytes, 0.005) == Verdict::kFits);
  CHECK(verdict(free.device_bytes, 0.3) == Verdict::kTight);
  CHECK(verdict(free.device_bytes - free.reserved_bytes + free.allocated_bytes, 0.005) == Verdict::kTight);
}

}  // namespace distsetup
