// What is really allocated, op by op, against the list: run buffers class by class, one arena, and for library operations the bytes of
// the workspace table. Anything else is an undeclared allocation.
#include <set>

#include "plan/expand.h"
#include "plan/workspace.h"
#include "runtime/comm/tracing.h"
#include "runtime/device/cpu_device.h"
#include "runtime/engine/arena_guard.h"
#include "runtime/engine/threads.h"
#include "runtime/tiny.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using namespace tiny;

int64_t buffer_bytes(const Schedule& s, BufferClass which) {
  int64_t sum = 0;
  for (const Buffer& b : s.buffers) {
    if (b.lifetime == BufferLifetime::kRun && b.buffer_class == which) sum += b.bytes;
  }
  return sum;
}

TinyOptions sized(int64_t sequence_length, int64_t hidden) {
  TinyOptions o;
  o.geometry.hidden = hidden;
  o.geometry.num_heads = 4;
  o.geometry.num_kv_heads = 2;
  o.geometry.head_size = hidden / 4;
  o.geometry.feed_forward = 3 * hidden;
  o.geometry.vocabulary = 256;
  o.geometry.tied_embeddings = true;
  o.geometry.qkv_bias = true;
  o.geometry.qk_norm = hidden > 64;
  o.sequence_length = sequence_length;
  o.global_batch = 2;
  return o;
}

TEST_CASE("run buffers and arena are allocated to the byte, ops allocate their workspace and nothing else", "[memory]") {
  install_meter();
  set_compute_threads(1);
  const auto precision = GENERATE(Dtype::kF32, Dtype::kBf16);
  const auto [sequence_length, hidden] = GENERATE(table<int64_t, int64_t>({{12, 40}, {96, 64}, {256, 128}, {1024, 64}}));
  const auto recompute = GENERATE(Recompute::kNone, Recompute::kFull);
  const int64_t accumulation = GENERATE(1, 2);
  TinyOptions o = sized(sequence_length, hidden);
  o.chunked_loss = recompute == Recompute::kFull;
  o.precision = precision;
  o.recompute = recompute;
  o.accumulation = accumulation;
  INFO(name(precision) << " S " << sequence_length << " h " << hidden << " recompute " << name(recompute) << " accumulation "
                       << accumulation);
  const Plan plan = tiny_plan(o);
  const auto device = make_cpu_device();
  const auto self = make_self_communicator(plan.mesh);
  const MeterReading before = read_meter();
  Engine engine(plan, *device, *self, {.metered_steps = 2});
  engine.initialize_parameters();
  engine.load();
  const Schedule& list = engine.schedule(Phase::kStep);
  const Batch batch = global_batch(plan, 0);
  for (int s = 0; s < 2; ++s) {
    const StepStats stats = engine.step({batch.ids, batch.targets, batch.valid, 1e-3});
    std::vector<int64_t> measured(list.steps.size(), 0);
    for (const StepAllocation& a : stats.allocations) measured[size_t(a.step)] = std::max(measured[size_t(a.step)], a.peak_bytes);
    for (size_t n = 0; n < list.steps.size(); ++n) {
      const int64_t table = workspace_bytes(list.steps[n], list, Accelerator::kCpu);
      INFO("step " << n << " " << list.steps[n].op << " of unit " << list.steps[n].unit);
      if (precision == Dtype::kF32)
        CHECK(measured[n] == table);
      else
        CHECK(measured[n] <= table);
      if (table == 0) CHECK(measured[n] == 0);
    }
    CHECK(std::any_of(stats.allocations.begin(), stats.allocations.end(), [](const StepAllocation& a) { return a.peak_bytes > 0; }));
  }
  const MemoryReport report = engine.memory();
  for (int c = 0; c < kNumBufferClasses; ++c) {
    INFO(name(BufferClass(c)));
    CHECK(report.metered_bytes[size_t(c)] - before.live_by_tag[size_t(c)] == buffer_bytes(list, BufferClass(c)));
    CHECK(report.run_bytes[size_t(c)] == buffer_bytes(list, BufferClass(c)));
  }
  CHECK(report.metered_bytes[Device::kArenaTag] - before.live_by_tag[Device::kArenaTag] == list.arena_bytes);
  CHECK(report.metered_bytes[Device::kUndeclaredTag] == before.live_by_tag[Device::kUndeclaredTag]);
  CHECK(report.peak_instruction_bytes <= report.metered_peak_bytes - before.live_bytes);
}

TEST_CASE("the peak is at the instruction that the list predicts", "[memory]") {
  install_meter();
  set_compute_threads(1);
  const auto recompute = GENERATE(Recompute::kNone, Recompute::kSelective, Recompute::kKeepAttention, Recompute::kFull);
  TinyOptions o = sized(128, 64);
  o.recompute = recompute;
  const Plan plan = tiny_plan(o);
  const auto device = make_cpu_device();
  const auto self = make_self_communicator(plan.mesh);
  Engine engine(plan, *device, *self, {.metered_steps = 2});
  engine.initialize_parameters();
  engine.load();
  const Batch batch = global_batch(plan, 0);
  engine.step({batch.ids, batch.targets, batch.valid, 1e-3});
  const Schedule& list = engine.schedule(Phase::kStep);
  int64_t peak = 0;
  std::string where;
  for (size_t n = 0; n < list.steps.size(); ++n) {
    const Instruction& i = list.instructions[size_t(list.steps[n].instruction)];
    const int64_t bytes = run_bytes(list) + list.live_bytes[n] + workspace_bytes(list.steps[n], list, Accelerator::kCpu);
    if (bytes <= peak) continue;
    peak = bytes;
    where = std::string(name(i.op)) + " " + std::to_string(i.unit) + "/" + list.steps[n].op + " micro-batch " +
            std::to_string(i.micro_batch);
  }
  CHECK(engine.memory().peak_instruction == where);
  CHECK(engine.memory().peak_instruction_bytes == peak);
}

TEST_CASE("every phase of a step has a peak of its own, as the plan has it, from its first step on", "[memory]") {
  install_meter();
  set_compute_threads(1);
  TinyOptions o = sized(128, 64);
  const Plan plan = tiny_plan(o);
  const auto device = make_cpu_device();
  const auto self = make_self_communicator(plan.mesh);
  Engine engine(plan, *device, *self, {.metered_steps = 1});
  engine.initialize_parameters();
  engine.load();
  CHECK(engine.memory().phase_bytes.empty());
  const Batch batch = global_batch(plan, 0);
  engine.step({batch.ids, batch.targets, batch.valid, 1e-3});
  const Schedule& list = engine.schedule(Phase::kStep);
  std::map<std::string, int64_t> expected;
  for (size_t n = 0; n < list.steps.size(); ++n) {
    int64_t& most = expected[list.instructions[size_t(list.steps[n].instruction)].phase];
    most = std::max(most, run_bytes(list) + list.live_bytes[n] + workspace_bytes(list.steps[n], list, Accelerator::kCpu));
  }
  const MemoryReport report = engine.memory();
  CHECK(report.phase_bytes == expected);
  CHECK(expected.size() >= 4);
  CHECK(report.phase_bytes.at("optimizer") < report.phase_bytes.at("backward"));
  CHECK(engine.peak_bytes() == report.metered_peak_bytes);
  CHECK(engine.peak_bytes() >= report.phase_bytes.at("backward"));
}

TEST_CASE("an allocation that nobody declared is seen", "[memory]") {
  install_meter();
  const auto device = make_cpu_device();
  const MeterReading before = read_meter();
  reset_meter_peak();
  {
    const auto block = device->allocate(1000, Device::kArenaTag);
    const auto other = device->allocate(77, int(BufferClass::kGradient));
    CHECK(reinterpret_cast<uintptr_t>(block->data()) % 64 == 0);
    const MeterReading now = read_meter();
    CHECK(now.live_bytes - before.live_bytes == 1077);
    CHECK(now.live_by_tag[Device::kArenaTag] - before.live_by_tag[Device::kArenaTag] == 1000);
    CHECK(now.live_by_tag[size_t(BufferClass::kGradient)] - before.live_by_tag[size_t(BufferClass::kGradient)] == 77);
    CHECK(now.num_allocations - before.num_allocations == 2);
  }
  CHECK(read_meter().live_bytes == before.live_bytes);
  CHECK(read_meter().peak_bytes - before.live_bytes == 1077);
}

#ifdef DISTSETUP_GUARDS_ARENAS
TEST_CASE("under AddressSanitizer bytes of the arena are open while their buffer is alive, and at no other time", "[memory]") {
  const auto recompute = GENERATE(Recompute::kNone, Recompute::kFull);
  TinyOptions o = sized(12, 40);
  o.recompute = recompute;
  o.accumulation = 2;
  const Plan plan = tiny_plan(o);
  const std::vector<Buffer> buffers = compile_expanded(plan, Phase::kStep, 0).buffers;
  bool is_step = false;
  int64_t num_closed = 0;       // what ops read or write while it should be open
  std::set<const void*> spans;  // where that lies in the arena
  EngineOptions options;
  options.watch = [&](const Step& step, const Call& call) {
    if (!is_step) return;
    const auto look = [&](const std::vector<View>& views, const std::vector<Argument>& arguments) {
      for (size_t i = 0; i < views.size(); ++i) {
        const int64_t n = num_bytes(arguments[i]);
        if (n > 0 && __asan_region_is_poisoned(arguments[i].data, size_t(n)) != nullptr) ++num_closed;
        if (n > 0 && buffers[size_t(views[i].buffer)].lifetime != BufferLifetime::kRun) spans.insert(arguments[i].data);
      }
    };
    look(step.reads, call.reads);
    look(step.writes, call.writes);
  };
  const auto device = make_cpu_device();
  const auto self = make_self_communicator(plan.mesh);
  Engine engine(plan, *device, *self, options);
  engine.initialize_parameters();
  engine.load();
  const Batch batch = rank_batch(plan, global_batch(plan, 0), 0);
  is_step = true;
  engine.step({batch.ids, batch.targets, batch.valid, 0.0, batch.reference, batch.positions});
  CHECK(num_closed == 0);
  CHECK(spans.size() > 10);
  int64_t num_open = 0;
  for (const void* data : spans) num_open += __asan_address_is_poisoned(data) == 0;
  CHECK(num_open == 0);
}
#endif

}  // namespace
}  // namespace distsetup
