// Intervals widen with the level, come from the narrowest class that has residuals, and decide the verdict with what a run needs.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "model/presets.h"
#include "planner/frameworks/memory.h"
#include "planner/report/need.h"
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

TEST_CASE("uncertainty: a prediction is inside its interval, also where all that was measured lies on one side") {
  const Setup s = setup_of(Framework::kFsdp2);
  const Interval above = interval_of(s, Predicted::kAllocated, 100, 0.9, residuals_of("fsdp2.torchtitan_eager.full", 0.05, 0.2));
  CHECK(above.low == 100);
  CHECK(above.high == Approx(100 * std::exp(0.2)));
  const Interval below = interval_of(s, Predicted::kAllocated, 100, 0.9, residuals_of("fsdp2.torchtitan_eager.full", -0.2, -0.05));
  CHECK(below.high == 100);
}

TEST_CASE("uncertainty: code that nothing was fitted to is as sure as other code bases were") {
  Setup s = setup_of(Framework::kFsdp2);
  s.software.name = "somebody's trainer";
  Calibration c = residuals_of("fsdp2.torchtitan_eager.full", -0.02, 0.02);
  c.constants["unseen.memory.any.below"] = 0.05;
  c.constants["unseen.memory.any.above"] = 0.1;
  c.constants["unseen.memory.experts.above"] = 0.2;
  const auto high = [&] { return interval_of(s, Predicted::kAllocated, 100, 0.9, c).high; };
  CHECK(interval_of(s, Predicted::kAllocated, 100, 0.9, c).low == Approx(100 * std::exp(-0.05)));
  CHECK(high() == Approx(100 * std::exp(0.1)));
  CHECK(need_spread(s, 100, c).is_heavy);
  s.model.num_experts = 8;
  CHECK(high() == Approx(100 * std::exp(std::hypot(0.1, 0.2))));
  s.model.num_experts = 0;
  // Once all of it is measured, its own class says more.
  for (const Feature& feature : features(s)) c.constants["measured.memory." + feature.key] = 1;
  CHECK(high() == Approx(100 * std::exp(0.02)));
  CHECK_FALSE(need_spread(s, 100, c).is_heavy);
  // And where one thing is not, it is no surer than unseen code.
  s.cp = 2;
  CHECK(high() == Approx(100 * std::exp(0.1)));
  c.constants["residual.allocated.fsdp2.torchtitan_eager.full.high"] = 0.3;
  CHECK(high() == Approx(100 * std::exp(0.3)));
}

TEST_CASE("uncertainty: code that nobody has read is less sure, by a factor on each side, than code that was read") {
  Setup s = setup_of(Framework::kFsdp2);
  s.software.name = "somebody's trainer";
  Calibration c;
  c.constants = {{"unseen.memory.any.below", 0.05},
                 {"unseen.memory.any.above", 0.1},
                 {"unseen.memory.experts.above", 0.2},
                 {"unseen.memory.own_script.above", 0.3},
                 {"unseen.memory.first_sight.below", 3},
                 {"unseen.memory.first_sight.above", 2},
                 {"unseen.memory.first_sight_offloading.above", 4}};
  const auto above = [&] { return unseen_spread(s, Predicted::kAllocated, c).above; };
  CHECK(is_at_first_sight(s, Predicted::kAllocated, c));
  CHECK(unseen_spread(s, Predicted::kAllocated, c).below == Approx(0.15));
  CHECK(above() == Approx(0.2));
  // What a host does is less sure.
  s.offload.optimizer = OffloadPlace::kHost;
  CHECK(above() == Approx(0.4));
  CHECK(unseen_spread(s, Predicted::kAllocated, c).below == Approx(0.15));
  s.offload = {};
  s.model.num_experts = 8;
  CHECK(above() == Approx(std::hypot(0.2, 0.4)));
  s.model.num_experts = 0;
  // What no program lists is as doubtful once the script was read.
  s.program = "unknown";
  CHECK(above() == Approx(std::hypot(0.2, 0.3)));
  s.program = "torchtitan_eager";
  // A plan that names no code base may mean one that was read.
  s.software.is_assumed = true;
  CHECK(above() == Approx(0.1 * std::sqrt(2.5)));
  s.software.is_assumed = false;
  // Tokens/s have a factor of their own, code that was measured none, the bundled trainer neither.
  CHECK(unseen_spread(s, Predicted::kTokensPerSecond, c).above == 0);
  c.constants["measured.memory." + features(s).front().key] = 1;
  CHECK_FALSE(is_at_first_sight(s, Predicted::kAllocated, c));
  CHECK(above() == Approx(0.1));
  s.software.name = "the bundled trainer";
  CHECK_FALSE(is_at_first_sight(s, Predicted::kAllocated, c));
  // Every built-in factor says that first sights err by more.
  for (const char* group : {"memory", "time"}) {
    for (const char* side : {"below", "above"}) {
      const double any = embedded_calibration().at(fmt::format("unseen.{}.first_sight.{}", group, side));
      CHECK(any > 1);
      CHECK(embedded_calibration().at(fmt::format("unseen.{}.first_sight_offloading.{}", group, side)) >= any);
    }
  }
}

TEST_CASE("uncertainty: what is not measured is named with what it adds") {
  Setup s = setup_of(Framework::kMegatron);
  s.program = "megatron_te";
  s.software.name = "Megatron-LM";
  s.gpu.name = "h100_sxm";
  s.tp = 2;
  CHECK(distance_reasons(s).empty());
  s.software.name = "somebody's trainer";
  s.model.num_experts = 8;
  const std::vector<std::string> reasons = distance_reasons(s);
  REQUIRE(reasons.size() >= 2);
  CHECK(reasons[0].starts_with("no measured run of somebody's trainer: as other code bases show, memory ±"));
  CHECK(reasons[1].starts_with("less sure there with experts: "));
  // A plan for a trainer alone may run another code base of the same kind.
  s.software.name = "Megatron-LM";
  s.model.num_experts = 0;
  s.software.is_assumed = true;
  REQUIRE_FALSE(distance_reasons(s).empty());
  CHECK(
      distance_reasons(s)[0].starts_with("no --launch-target says that it is Megatron-LM and not another: as other code bases show"));
  // One code base above Transformers' Trainer is measured, which says little of the scripts of others.
  Setup script = setup_of(Framework::kFsdp1);
  script.software.name = "transformers 5, torch 2.9";
  REQUIRE_FALSE(distance_reasons(script).empty());
  CHECK(distance_reasons(script)[0].starts_with("no measured run of transformers 5, torch 2.9"));
}

TEST_CASE("verdict: the probability is that of the interval, and nothing else decides") {
  const Spread spread{0.05, 0.1};
  const Interval of = interval_90(60, spread);
  CHECK(chance_to_fit(60, of.high, spread) == Approx(0.95).margin(1e-4));
  CHECK(chance_to_fit(60, 60, spread) == Approx(0.5));
  CHECK(chance_to_fit(60, of.low, spread) == Approx(0.05).margin(1e-4));
  double before = 0;
  for (double capacity = 50; capacity < 80; capacity += 0.5) {
    const double now = chance_to_fit(60, capacity, spread);
    CHECK(now >= before);
    before = now;
    if (verdict_of(now) == Verdict::kFits) CHECK(of.high <= capacity);
    if (verdict_of(now) == Verdict::kDoesNotFit) CHECK(capacity < 60);
  }
  // Unseen code bases: the same interval, and more beyond it.
  const Spread heavy{0.05, 0.1, true};
  CHECK(chance_to_fit(60, of.high, heavy) == Approx(0.95).margin(1e-4));
  CHECK(chance_to_fit(60, of.low, heavy) == Approx(0.05).margin(1e-4));
  CHECK(chance_to_fit(60, 60 * std::exp(0.2), heavy) < chance_to_fit(60, 60 * std::exp(0.2), spread));
  CHECK(chance_to_fit(60, 60 * std::exp(-0.2), heavy) > 0.002);
  CHECK(chance_to_fit(60, 60, {}) == 1);  // known to the byte
  CHECK(chance_to_fit(60, 59.9, {}) == 0);
  CHECK(verdict_of(0.98) == Verdict::kFits);
  CHECK(verdict_of(0.979) == Verdict::kTight);
  CHECK(verdict_of(0.201) == Verdict::kTight);
  CHECK(verdict_of(0.2) == Verdict::kDoesNotFit);
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

TEST_CASE("need: what cannot be given back, whatever the device has") {
  Setup s;
  s.model = *find_model(presets(), "llama3_8b");
  s.gpu = find_gpu(presets(), "h100_sxm")->gpu;
  s.dp_shard = 8;
  s.sequence_length = 4096;
  const MemoryNeed need = replay_need(s);
  const int64_t outside = need.memory.device_bytes - need.memory.reserved_bytes;
  REQUIRE(need.memory.reserved_bytes > need.memory.allocated_bytes * 103 / 100);  // cached blocks that can go back
  CHECK(need.bytes >= need.memory.allocated_bytes + outside);
  CHECK(need.bytes < need.memory.device_bytes);
  s.gpu.usable_memory_bytes = need.bytes;
  CHECK_FALSE(replay_memory(s).ran_out);
  CHECK(replay_need(s).bytes == need.bytes);
  s.gpu.usable_memory_bytes = need.memory.allocated_bytes + outside - kGib / 64;
  CHECK(replay_memory(s).ran_out);
  // It decides: a GPU that is smaller than what the run takes with room is enough.
  const Calibration c = residuals_of("fsdp2.torchtitan_eager.full", -0.005, 0.005);
  s.gpu.usable_memory_bytes = need.memory.device_bytes - kGib / 64;
  CHECK(verdict_of(fit_probability(s, static_cast<double>(need.bytes), c)) == Verdict::kFits);
  s.gpu.usable_memory_bytes = bound_bytes(s);
  CHECK(fit_probability(s, static_cast<double>(need.bytes), c) == 0);
}

TEST_CASE("need: what a run takes where there is room is as sure as what allocators reserve, and no less than it needs") {
  Setup s;
  s.model = *find_model(presets(), "llama3_8b");
  s.gpu = find_gpu(presets(), "h100_sxm")->gpu;
  s.dp_shard = 8;
  s.sequence_length = 4096;
  const MemoryEstimate free = replay_memory(s);
  const auto reserved = static_cast<double>(free.reserved_bytes), device = static_cast<double>(free.device_bytes);
  Calibration c;
  c.constants["residual.reserved.fsdp2.torchtitan_eager.full.low"] = -0.1;
  c.constants["residual.reserved.fsdp2.torchtitan_eager.full.high"] = 0.2;
  const double share = uncertain_share(s, Predicted::kReserved, reserved);
  const Interval taken = taken_interval(s, free, {}, c);
  CHECK(taken.low == Approx(device - reserved + reserved * std::exp(-0.1 * share)));
  CHECK(taken.high == Approx(device - reserved + reserved * std::exp(0.2 * share)));
  const Interval above = taken_interval(s, free, {0.99 * device, 2 * device}, c);
  CHECK(above.low == Approx(0.99 * device));
  CHECK(above.high == Approx(2 * device));
}

TEST_CASE("uncertainty: a script whose operations no program lists is less sure, and not by what stand-ins missed") {
  Setup s;
  s.model = *find_model(presets(), "qwen2.5_7b");
  s.program = "hf_eager";
  const auto width = [&](Predicted quantity) {
    const Spread spread = unseen_spread(s, quantity, embedded_calibration());
    return spread.below + spread.above;
  };
  const double memory = width(Predicted::kReserved), time = width(Predicted::kTokensPerSecond);
  s.program = "unknown";
  CHECK(width(Predicted::kReserved) > 1.05 * memory);
  CHECK(width(Predicted::kTokensPerSecond) > 1.3 * time);
  const std::vector<Difficulty> all = difficulties(s, Predicted::kTokensPerSecond);
  CHECK(std::none_of(all.begin(), all.end(), [](const Difficulty& one) { return one.key == "other_layers" || one.key == "unnamed"; }));
}

TEST_CASE("need: DeepSpeed's run does not come through on less than it allocates") {
  Setup s;
  s.model = *find_model(presets(), "qwen2.5_7b");
  s.gpu = find_gpu(presets(), "a100_sxm_40")->gpu;
  s.framework = Framework::kDeepspeed;
  s.program = "hf_eager";
  s.dp_shard = 8;
  s.micro_batch = 2;
  s.recompute = ActivationRecompute::kFull;
  s.parameter_dtype = s.gradient_dtype = s.reduce_dtype = Dtype::kBf16;
  s.master_copy = true;
  const int64_t allocated = simulate_memory(s).allocated_bytes;
  s.gpu.usable_memory_bytes = allocated;  // and nothing for the context
  CHECK(replay_memory(s).ran_out);
}

}  // namespace distsetup
