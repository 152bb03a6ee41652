// The optimizer on the host (src/plan/host_writer.h): every bit is that of the run whose optimizer is the device's, on any mesh; each
// place has the bytes that its list says; an order or a copy that is missing shows.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <numeric>

#include "plan/check_job.h"
#include "plan/compile_schedule.h"
#include "plan/expand.h"
#include "plan/host_writer.h"
#include "plan/invariants.h"
#include "plan/schedule_text.h"
#include "planner/native/simulate.h"
#include "runtime/device/file_memory.h"
#include "runtime/device/meter.h"
#include "runtime/engine/threads.h"
#include "runtime/expert_cases.h"
#include "runtime/late_run.h"
#include "runtime/monitor/report.h"
#include "runtime/monitor/stage_memory.h"
#include "runtime/tiny.h"
#include "support/seed.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using namespace tiny;

struct Way {
  const char* name;
  Sharding sharding;
  int replicate = 1, shard = 1, tp = 1, cp = 1;
  bool reshard = true;
  int pp = 1, chunks = 1;
};
TinyOptions options_of(const Way& way, int64_t accumulation, Dtype precision) {
  TinyOptions o;
  o.sharding = way.sharding;
  o.replicate = way.replicate, o.shard = way.shard, o.tp = way.tp, o.cp = way.cp;
  o.reshard = way.reshard;
  o.pp = way.pp, o.chunks = way.chunks;
  if (way.pp > 1) o.geometry.num_layers = std::max(3, way.pp * way.chunks);
  if (way.tp > 1) o.geometry.num_heads = o.geometry.num_kv_heads = 2, o.geometry.hidden = 20, o.geometry.feed_forward = 38;
  if (way.tp == 1) o.geometry.tied_embeddings = o.geometry.qk_norm = true;
  o.accumulation = accumulation;
  o.precision = precision;
  o.global_batch = 16;
  return o;
}
Plan offloaded(Plan plan, OffloadPlace place) {
  plan.offload.optimizer = place;
  return plan;
}
Plan on_host(Plan plan) { return offloaded(std::move(plan), OffloadPlace::kHost); }
Plan on_disk(Plan plan) { return offloaded(std::move(plan), OffloadPlace::kNvme); }
// Everything on the host; zero1 and zero2, whose devices have all parameters, have none of them there.
Plan from_host(Plan plan) {
  plan = on_host(std::move(plan));
  if (plan.strategy.sharding == Sharding::kDdp || plan.strategy.sharding == Sharding::kZero3)
    plan.offload.parameters = OffloadPlace::kHost;
  return plan;
}
const std::string kHere = std::filesystem::current_path().string();  // of the build: a disk, whatever /tmp is
const std::vector<Way> kWays = {{"one rank", Sharding::kDdp},
                                {"zero3 alone", Sharding::kZero3},
                                {"ddp", Sharding::kDdp, 2},
                                {"zero1", Sharding::kZero1, 1, 2},
                                {"zero2", Sharding::kZero2, 1, 4},
                                {"zero3", Sharding::kZero3, 1, 2},
                                {"zero3 of 4, kept", Sharding::kZero3, 1, 4, 1, 1, false},
                                {"hybrid", Sharding::kZero3, 2, 2},
                                {"hybrid zero1", Sharding::kZero1, 2, 2},
                                {"tp", Sharding::kZero3, 1, 2, 2},
                                {"cp", Sharding::kZero2, 1, 1, 1, 2},
                                {"pp", Sharding::kDdp, 1, 1, 1, 1, true, 2},
                                {"pp of 2 chunks, zero1", Sharding::kZero1, 1, 2, 1, 1, true, 2, 2},
                                {"pp of 4, ddp", Sharding::kDdp, 2, 1, 1, 1, true, 4},
                                {"pp, zero2", Sharding::kZero2, 1, 2, 1, 1, true, 2},
                                {"pp, hybrid", Sharding::kZero3, 2, 2, 1, 1, true, 2},
                                {"pp, tp", Sharding::kZero3, 1, 1, 2, 1, true, 2}};

// With what the optimizer keeps, of all ranks.
struct Trained {
  RunResult result;
  std::vector<std::vector<float>> states;
  bool operator==(const Trained&) const = default;
};
Trained trained(const Plan& plan, int64_t steps, EngineOptions options = {}) {
  Trained out;
  out.states.resize(size_t(plan.mesh.world()));
  run_ranks(plan.mesh, [&](Communicator& communicator) {
    const auto device = make_cpu_device();
    Engine engine(plan, *device, communicator, options);
    engine.initialize_parameters();
    engine.load();
    for (int64_t s = 0; s < steps; ++s) {
      const Batch batch = rank_batch(plan, global_batch(plan, s), data_index(plan.mesh, communicator.rank()));
      const StepStats stats =
          engine.step({batch.ids, batch.targets, batch.valid, learning_rate(plan.train, s), batch.reference, batch.positions});
      if (communicator.rank() != 0) continue;
      out.result.losses.push_back(stats.loss);
      out.result.norms.push_back(stats.gradient_norm);
    }
    const Batch batch = rank_batch(plan, global_batch(plan, 1000), data_index(plan.mesh, communicator.rank()));
    const double held_out = engine.evaluate({batch.ids, batch.targets, batch.valid, batch.reference, batch.positions});
    if (communicator.rank() == 0) out.result.held_out = held_out;
    std::vector<float>& mine = out.states[size_t(communicator.rank())];
    for (const StateValues& state : engine.optimizer_states()) mine.insert(mine.end(), state.values.begin(), state.values.end());
    if (!engine.writes_checkpoint()) return;
    collect(plan.model, engine, engine.master(), out.result.parameters);
    collect(plan.model, engine, engine.gradient(), out.result.gradients);
  });
  return out;
}

void check_as_without(const Plan& moved, const Trained& without) {
  INFO(offload_words(moved.offload));
  REQUIRE(check_job(moved) == std::vector<std::string>{});
  CHECK(trained(moved, 3) == without);
  CHECK(trained(moved, 3, {.poison = true}) == without);
}

// What the report of a run says of every rank's place: as planned, to the byte. `change`: of what a rank has measured.
void check_report(const Plan& plan, const std::function<void(MemoryReport&, int rank)>& change = {},
                  const std::function<void(const MemoryReport&)>& look = {}) {
  std::vector<std::vector<Comparison>> of(size_t(plan.mesh.world()));
  run_ranks(plan.mesh, [&](Communicator& communicator) {
    const auto device = make_cpu_device();
    const Engine engine(plan, *device, communicator, {.offload_folder = kHere});
    MemoryReport own = engine.memory();
    own.metered_peak_bytes = 0;  // of all threads
    if (change) change(own, communicator.rank());
    const MemoryReport report = memory_as_planned(communicator, plan, own);
    if (look) look(report);
    of[size_t(communicator.rank())] = compare(plan, report, {});
  });
  for (const std::vector<Comparison>& rows : of) {
    CHECK(rows.size() >= 5);
    for (const Comparison& row : rows) {
      INFO(row.what);
      CHECK(row.measured == row.predicted);
    }
  }
}

TEST_CASE("offload: every bit is that of the run without, on every mesh", "[offload][nightly][all]") {
  const Way way = GENERATE(from_range(kWays));
  const int64_t accumulation = GENERATE(1, 2, 4);
  static int number = 0;
  if (!is_taken(number++, 2)) return;
  const Dtype precision = accumulation == 2 ? Dtype::kF32 : accumulation == 4 ? Dtype::kBf16 : way.tp > 1 ? Dtype::kF16 : Dtype::kF32;
  TinyOptions o = options_of(way, accumulation, precision);
  INFO(way.name << ", accumulation " << accumulation << ", " << name(precision));
  const Plan plan = tiny_plan(o);
  REQUIRE(check_job(on_host(plan)) == std::vector<std::string>{});
  const Trained expected = trained(plan, 4);
  CHECK(trained(on_host(plan), 4) == expected);
  if (accumulation != 2) CHECK(trained(on_disk(plan), 4, {.offload_folder = kHere}) == expected);
  REQUIRE(check_job(from_host(plan)) == std::vector<std::string>{});
  CHECK(trained(from_host(plan), 4) == expected);
  o.recompute = Recompute::kFull;
  const std::vector<double> losses = train(tiny_plan(o), 4).losses;
  CHECK(trained(on_host(tiny_plan(o)), 4, {.poison = true}).result.losses == losses);
  CHECK(trained(from_host(tiny_plan(o)), 4, {.poison = true}).result.losses == losses);
}

TEST_CASE("offload: experts that ranks share, and those of tensor-parallel ranks", "[offload][nightly][all]") {
  struct ExpertWay {
    const char* name;
    Sharding sharding;
    int replicate, shard, tp, cp, pp, ep;
  };
  const auto way = GENERATE(
      ExpertWay{"ddp over 2", Sharding::kDdp, 1, 2, 1, 1, 1, 2}, ExpertWay{"ddp, 2 copies", Sharding::kDdp, 2, 2, 1, 1, 1, 2},
      ExpertWay{"zero1 over 4", Sharding::kZero1, 1, 4, 1, 1, 1, 2}, ExpertWay{"zero2 over 4", Sharding::kZero2, 1, 4, 1, 1, 1, 4},
      ExpertWay{"zero3 over 4", Sharding::kZero3, 1, 4, 1, 1, 1, 2}, ExpertWay{"hybrid", Sharding::kZero3, 2, 2, 1, 1, 1, 2},
      ExpertWay{"cp", Sharding::kZero3, 1, 1, 1, 2, 1, 2}, ExpertWay{"tp", Sharding::kZero3, 1, 2, 2, 1, 1, 1},
      ExpertWay{"tp x ep", Sharding::kZero2, 1, 2, 2, 1, 1, 4}, ExpertWay{"pp", Sharding::kZero3, 1, 2, 1, 1, 2, 2});
  const int64_t accumulation = GENERATE(1, 2);
  static int number = 0;
  if (!is_taken(number++, 2)) return;
  TinyOptions o;
  o.geometry = expert_geometry("mixtral");
  o.geometry.num_experts = 8, o.geometry.feed_forward = 38;
  o.sharding = way.sharding, o.replicate = way.replicate, o.shard = way.shard, o.tp = way.tp, o.cp = way.cp, o.pp = way.pp;
  o.ep = way.ep;
  o.accumulation = accumulation;
  o.precision = accumulation == 1 ? Dtype::kF32 : Dtype::kBf16;
  INFO(way.name << ", ep " << way.ep << ", accumulation " << accumulation);
  const Plan plan = tiny_plan(o);
  REQUIRE(validate(plan).empty());
  const Trained expected = trained(plan, 3);
  check_as_without(on_host(plan), expected);
  check_as_without(from_host(plan), expected);
  CHECK(trained(on_disk(plan), 3, {.offload_folder = kHere}) == expected);
}

TEST_CASE("offload: corrections of routers move on the host and on a disk as on a device", "[offload]") {
  const auto [sharding, shard, ep, pp] =
      GENERATE(std::tuple(Sharding::kDdp, 1, 1, 1), std::tuple(Sharding::kZero3, 2, 2, 1), std::tuple(Sharding::kZero1, 2, 1, 2));
  TinyOptions o;
  o.geometry = expert_geometry("glm4");
  o.sharding = sharding, o.shard = shard, o.ep = ep, o.pp = pp, o.accumulation = 2;
  Plan plan = tiny_plan(o);
  plan.train.optimizer = pp == 1 ? "adamw" : "adamw_8bit";  // unit by unit, and all at once
  REQUIRE(plan.model.router_bias_rate > 0);
  const Trained expected = trained(plan, 3);
  Plan without = plan;
  without.model.router_bias_rate = 0;
  CHECK(trained(without, 3).result.parameters != expected.result.parameters);
  check_as_without(on_host(plan), expected);
  check_as_without(from_host(plan), expected);
  CHECK(trained(on_disk(plan), 3, {.offload_folder = kHere}) == expected);
}

TEST_CASE("offload: every optimizer of elements has the same bits on the host", "[offload]") {
  Plan plan = tiny_plan(options_of({"zero3", Sharding::kZero3, 1, 2}, 2, Dtype::kBf16));
  plan.train.optimizer = GENERATE(as<std::string>(), "sgd", "lion", "adamw_8bit");
  plan.train.momentum = plan.train.optimizer == "sgd" ? 0.9 : 0;
  INFO(plan.train.optimizer);
  const Trained expected = trained(plan, 4);
  CHECK(trained(on_host(plan), 4) == expected);
  CHECK(trained(on_disk(plan), 4, {.offload_folder = kHere}) == expected);
}

TEST_CASE("offload: Adafactor and Muon have the same bits on the host and on its disk, whoever has the rows", "[offload]") {
  const Way way = GENERATE(Way{"one rank", Sharding::kDdp}, Way{"ddp", Sharding::kDdp, 2}, Way{"zero1", Sharding::kZero1, 1, 2},
                           Way{"zero3 of 4", Sharding::kZero3, 1, 4}, Way{"hybrid", Sharding::kZero3, 2, 2},
                           Way{"cp", Sharding::kZero2, 1, 1, 1, 2}, Way{"pp, zero2", Sharding::kZero2, 1, 2, 1, 1, true, 2});
  INFO(way.name);
  Plan plan = tiny_plan(options_of(way, 2, Dtype::kBf16));
  plan.train.optimizer = GENERATE(as<std::string>(), kAdafactor, kMuon);
  plan.train.momentum = 0.9;
  INFO(plan.train.optimizer);
  const Trained expected = trained(plan, 3);
  check_as_without(on_host(plan), expected);
  check_as_without(from_host(plan), expected);
  CHECK(trained(on_disk(plan), 3, {.offload_folder = kHere}) == expected);
  for (Plan moved : {on_host(plan), from_host(plan), on_disk(plan)}) {
    finish(moved);
    check_report(moved);
  }
}

TEST_CASE("offload: adapters, and a reference that runs in the step", "[offload]") {
  const bool has_pairs = GENERATE(false, true);
  TinyOptions o = options_of({"zero3", Sharding::kZero3, 1, 2}, 2, Dtype::kBf16);
  o.rank = 3, o.targets = {"q_proj", "down_proj"};
  if (has_pairs) o.preference = PreferencePlan{}, o.preference->reference = "shared";
  CHECK(trained(on_host(tiny_plan(o)), 3) == trained(tiny_plan(o), 3));
}

TEST_CASE("offload: what is frozen comes from the host, whole or sharded, beside an optimizer on either side", "[offload][all]") {
  const Way way = GENERATE(Way{"one rank", Sharding::kDdp}, Way{"ddp", Sharding::kDdp, 2}, Way{"zero3", Sharding::kZero3, 1, 2},
                           Way{"hybrid", Sharding::kZero3, 2, 2}, Way{"tp", Sharding::kZero3, 1, 2, 2},
                           Way{"pp", Sharding::kZero3, 1, 2, 1, 1, true, 2});
  const std::string reference = GENERATE(as<std::string>(), "", "shared", "sharded");
  TinyOptions o = options_of(way, 2, way.tp > 1 ? Dtype::kF32 : Dtype::kBf16);
  o.rank = 3, o.targets = {"q_proj", "down_proj"};
  o.quantized = reference.empty() && way.tp == 1;
  if (!reference.empty()) o.preference = PreferencePlan{}, o.preference->reference = reference;
  INFO(way.name << ", reference '" << reference << "'");
  const Plan plan = tiny_plan(o);
  Plan moved = plan;
  moved.offload.parameters = OffloadPlace::kHost;
  const Trained expected = trained(plan, 3);
  for (const OffloadPlace optimizer : {OffloadPlace::kNone, OffloadPlace::kHost}) {
    moved.offload.optimizer = optimizer;
    check_as_without(moved, expected);
    const Schedule list = compile_expanded(moved, Phase::kStep);
    for (const Buffer& b : list.buffers)
      if (holds_frozen(b) || b.name == kDeviceShard) CHECK(b.place == Place::kHostPinned);
  }
}

// Activations alone, and then everything that can be.
std::vector<Plan> with_activations(const Plan& plan) {
  Plan alone = plan;
  alone.offload.activations = OffloadPlace::kHost;
  if (!offload_problem(on_host(plan)).message.empty()) return {alone};
  Plan all = from_host(plan);
  all.offload.activations = OffloadPlace::kHost;
  return {alone, all};
}

// Of what forward keeps in blocks that move, the most that is on the device at once, in bytes; and on the host.
std::pair<int64_t, int64_t> most_kept(const Schedule& list) {
  std::vector<int64_t> device(list.steps.size() + 1), host = device;
  for (const Buffer& b : list.buffers) {
    if (b.first_step < 0 || b.overlay_of >= 0 || b.buffer_class != BufferClass::kActivation) continue;
    std::vector<int64_t>& of = is_on_device(b) ? device : host;
    of[size_t(b.first_step)] += aligned(b.bytes), of[size_t(b.last_step) + 1] -= aligned(b.bytes);
  }
  for (std::vector<int64_t>* of : {&device, &host}) std::partial_sum(of->begin(), of->end(), of->begin());
  return {*std::max_element(device.begin(), device.end()), *std::max_element(host.begin(), host.end())};
}

TEST_CASE("offload: activations wait on the host, on every mesh and with every recomputation", "[offload][nightly][all]") {
  const Way way = GENERATE(from_range(kWays));
  const Recompute recompute = GENERATE(Recompute::kNone, Recompute::kKeepAttention, Recompute::kEveryK, Recompute::kFull);
  static int number = 0;
  if (!is_taken(number++, 3)) return;
  const int64_t accumulation = recompute == Recompute::kNone || way.pp > 1 ? 4 : 1;  // a pipeline has several under way
  TinyOptions o = options_of(way, accumulation, recompute == Recompute::kFull ? Dtype::kBf16 : Dtype::kF32);
  o.recompute = recompute;
  o.geometry.num_layers = 5;
  INFO(way.name << ", recompute " << name(recompute));
  const Plan plan = tiny_plan(o);
  const Trained expected = trained(plan, 3);
  for (const Plan& moved : with_activations(plan)) {
    check_as_without(moved, expected);
    INFO(offload_words(moved.offload));
    const auto [device, host] = most_kept(compile_expanded(moved, Phase::kStep));
    const auto [before, none] = most_kept(compile_expanded(plan, Phase::kStep));
    CHECK(none == 0);
    CHECK(device < before);
    if (way.pp > 1) {  // of several micro-batches, of a part of the blocks
      CHECK(host > 0);
      continue;
    }
    const int64_t input = plan.micro_batch * o.sequence_length / way.cp / way.tp * o.geometry.hidden * size_bytes(o.precision);
    const int64_t num_moved = o.geometry.num_layers - 1;
    CHECK((recompute == Recompute::kFull ? host == num_moved * aligned(input) : host > num_moved * aligned(input)));
  }
}

TEST_CASE("offload: activations of adapters, pairs, packed rows, chunks of logits and experts", "[offload][all]") {
  const std::string kind =
      GENERATE(as<std::string>(), "adapters", "top layers", "pairs", "reference", "packed", "chunked", "experts", "shared experts");
  const int pp = GENERATE(1, 2);
  TinyOptions o = options_of({"zero3", Sharding::kZero3, 1, 2, 1, 1, true, pp}, 2, Dtype::kBf16);
  o.geometry.num_layers = 4;
  if (kind == "adapters" || kind == "reference") o.rank = 3, o.targets = {"q_proj", "down_proj"}, o.quantized = kind == "adapters";
  if (kind == "top layers") o.trainable = {".*layers.[23].*", ".*lm_head.*"}, o.geometry.tied_embeddings = false;
  if (kind == "pairs" || kind == "reference") o.preference = PreferencePlan{};
  if (kind == "reference") o.preference->reference = "shared";
  o.packed = kind == "packed";
  o.chunked_loss = kind == "chunked";
  if (kind.ends_with("experts")) o.geometry = expert_geometry("mixtral"), o.geometry.num_layers = 4, o.ep = kind == "experts" ? 1 : 2;
  INFO(kind << ", pp " << pp);
  const Plan plan = tiny_plan(o);
  REQUIRE(validate(plan).empty());
  const Trained expected = trained(plan, 3);
  for (const Plan& moved : with_activations(plan)) check_as_without(moved, expected);
}

TEST_CASE("offload: device and host have the bytes that the list says", "[offload]") {
  install_meter();
  set_compute_threads(1);
  const Way way = GENERATE(Way{"one rank", Sharding::kDdp}, Way{"zero3 alone", Sharding::kZero3});
  const OffloadPlace place = GENERATE(OffloadPlace::kHost, OffloadPlace::kNvme);
  const Plan plan = tiny_plan(options_of(way, GENERATE(1, 2), Dtype::kBf16));
  Plan moved = offloaded(plan, place);
  const bool has_parameters = GENERATE(false, true);
  if (has_parameters) moved.offload.parameters = moved.offload.activations = OffloadPlace::kHost;
  const auto device = make_cpu_device();
  const auto self = make_self_communicator(plan.mesh);
  const MeterReading before = read_meter();
  Engine engine(moved, *device, *self, {.metered_steps = 1, .offload_folder = kHere});
  engine.initialize_parameters();
  engine.load();
  const Batch batch = global_batch(moved, 0);
  engine.step({batch.ids, batch.targets, batch.valid, 1e-3});
  const Schedule& list = engine.schedule(Phase::kStep);
  const MemoryReport report = engine.memory();
  int64_t host_arena = 0, states = 0;
  for (const Phase phase : {Phase::kLoad, Phase::kStep, Phase::kEvaluate})
    host_arena = std::max(host_arena, compile_expanded(moved, phase).host_arena_bytes);
  const int64_t expected = host_bytes(list) - list.host_arena_bytes + host_arena;
  CHECK(report.host_bytes == expected);
  CHECK(report.metered_bytes[Device::kHostTag] - before.live_by_tag[Device::kHostTag] == expected);
  for (int c = 0; c < kNumBufferClasses; ++c) {
    INFO(name(BufferClass(c)));
    CHECK(report.metered_bytes[size_t(c)] - before.live_by_tag[size_t(c)] == run_bytes(list, BufferClass(c)));
    CHECK(report.run_bytes[size_t(c)] == run_bytes(list, BufferClass(c)));
  }
  CHECK(report.metered_bytes[Device::kArenaTag] - before.live_by_tag[Device::kArenaTag] == list.arena_bytes);
  CHECK(report.metered_bytes[Device::kUndeclaredTag] == before.live_by_tag[Device::kUndeclaredTag]);
  // Master, gradient and two moments have left the device.
  states = 16 * list.layout->shard_numel;
  CHECK(run_bytes(compile_expanded(plan, Phase::kStep)) - run_bytes(list) >=
        states - 8 - (way.sharding == Sharding::kZero3 ? 2 * list.layout->shard_numel : 0));
  const bool is_on_disk = place == OffloadPlace::kNvme;  // all of them but the gradient
  CHECK(expected > (is_on_disk ? states / 4 : states));
  CHECK((!is_on_disk || has_parameters || expected < states));
  CHECK(report.disk_bytes == disk_bytes(list));
  CHECK(report.disk_bytes == (is_on_disk ? 12 * list.layout->shard_numel : 0));
  Plan predicted = moved;
  finish(predicted);
  CHECK(predicted.host.host_bytes == report.host_bytes);
  CHECK(predicted.host.disk_bytes == report.disk_bytes);
  CHECK(predicted.memory.disk_bytes_per_node == report.disk_bytes);
}

TEST_CASE("offload: the stages of a pipeline have what their lists say on the host, and the plan says the most", "[offload]") {
  Plan plan = from_host(tiny_plan(options_of({"pp", Sharding::kZero3, 1, 2, 1, 1, true, 2}, 4, Dtype::kBf16)));
  plan.offload.activations = OffloadPlace::kHost;
  std::vector<int64_t> by_rank(size_t(plan.mesh.world()));
  run_ranks(plan.mesh, [&](Communicator& communicator) {
    const auto device = make_cpu_device();
    const Engine engine(plan, *device, communicator);
    by_rank[size_t(communicator.rank())] = engine.memory().host_bytes;
  });
  CHECK(by_rank.front() != by_rank.back());  // more micro-batches are under way on the first stage, the last has the head
  Plan predicted = plan;
  finish(predicted);
  CHECK(predicted.host.host_bytes == *std::max_element(by_rank.begin(), by_rank.end()));
  for (int rank = 0; rank < plan.mesh.world(); ++rank) {
    const auto stage = size_t(coordinates(plan.mesh, rank).pp);
    CHECK(predicted.memory.by_rank_class.at(stage).host_bytes == by_rank[size_t(rank)]);
  }
}

TEST_CASE("offload: what a pipeline reports is of the stage, and of the host, that the plan's bytes are of", "[offload]") {
  const bool moves = GENERATE(false, true);
  const int64_t vocabulary = GENERATE(16, 4000);  // so large that the head's stage is the fullest
  TinyOptions o = options_of({"pp", Sharding::kZero3, 1, 2, 1, 1, true, 2}, 4, Dtype::kBf16);
  o.geometry.vocabulary = vocabulary, o.geometry.tied_embeddings = false;
  Plan plan = moves ? on_disk(tiny_plan(o)) : tiny_plan(o);
  if (moves) plan.offload.activations = OffloadPlace::kHost;
  finish(plan);
  CHECK(fullest_stage(plan) == (vocabulary > 16));
  check_report(
      plan,
      [](MemoryReport& own, int rank) {
        own.peak_instruction = "Forward " + std::to_string(rank);
        own.phase_bytes = {{"forward", rank}};
      },
      [&plan](const MemoryReport& report) {
        const int64_t rank = report.phase_bytes.at("forward");
        CHECK(report.peak_instruction == "Forward " + std::to_string(rank));
        CHECK(coordinates(plan.mesh, int(rank)).pp == fullest_stage(plan));
      });
}

TEST_CASE("offload: a file of a disk is zeros, has no name, and says why it cannot be", "[offload]") {
  const std::filesystem::path folder = std::filesystem::path(kHere) / ("offload_" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  {
    const FileMemory memory(folder.string(), 100'000);
    auto* const bytes = static_cast<unsigned char*>(memory.data());
    CHECK(std::all_of(bytes, bytes + 100'000, [](unsigned char b) { return b == 0; }));
    std::fill_n(bytes, 100'000, 7);
    memory.is_done(0, 100'000);
    memory.will_need(90'000, 100'000);  // as far as it goes
    CHECK(std::all_of(bytes, bytes + 100'000, [](unsigned char b) { return b == 7; }));
    CHECK(std::filesystem::is_empty(folder));
    CHECK(FileMemory(folder.string(), 0).num_bytes() == 0);
  }
  const auto problem = [](const std::string& where, int64_t num_bytes) -> std::string {
    try {
      const FileMemory memory(where, num_bytes);
      return "";
    } catch (const std::runtime_error& error) {
      return error.what();
    }
  };
  CHECK_THAT(problem(folder.string(), int64_t{1} << 60),
             Catch::Contains("no room for 1.0 EiB") && Catch::Contains("--offload-folder"));
  CHECK_THAT(problem((folder / "none").string(), 10), Catch::Contains("No such file or directory"));
  if (std::filesystem::is_directory("/dev/shm")) CHECK_THAT(problem("/dev/shm", 10), Catch::Contains("that is memory (tmpfs)"));
  CHECK(std::filesystem::is_empty(folder));
  std::filesystem::remove(folder);
}

TEST_CASE("offload: streams in any order that events allow copy and train as the CPU does", "[offload][all]") {
  const Way way = GENERATE(Way{"one rank", Sharding::kDdp}, Way{"ddp", Sharding::kDdp, 2}, Way{"zero1", Sharding::kZero1, 1, 2},
                           Way{"zero3", Sharding::kZero3, 1, 2}, Way{"pp", Sharding::kZero2, 1, 2, 1, 1, true, 2});
  Plan plan = on_host(tiny_plan(options_of(way, 2, GENERATE(Dtype::kF32, Dtype::kBf16))));
  plan.train.optimizer = GENERATE(as<std::string>(), "adamw", kAdafactor, kMuon);
  if (plan.train.optimizer != kMuon && GENERATE(false, true)) plan = with_activations(plan).back();
  const RunResult expected = train(plan, 3);
  const uint64_t seed = test_seed();
  INFO(way.name << ", DISTSETUP_SEED=" << seed);
  for (uint64_t n = 0; n < uint64_t(num_rounds(2)); ++n) {
    const LateRun late = train_late(plan, 3, seed + n);
    REQUIRE(late.error == "");
    CHECK(late.result == expected);
  }
}

// What is wrong with a list, as far as the checks see it.
std::vector<std::string> broken(const Plan& plan, const Schedule& list) {
  std::vector<Schedule> others;  // of the other stages
  for (int stage = 0; stage < plan.mesh.pp; ++stage) others.push_back(compile_expanded(plan, Phase::kStep, stage));
  std::vector<const Schedule*> by_rank;
  for (int rank = 0; rank < plan.mesh.world(); ++rank) {
    const int stage = coordinates(plan.mesh, rank).pp;
    by_rank.push_back(stage == list.layout->stage ? &list : &others[size_t(stage)]);
  }
  return check_job(plan, by_rank);
}

TEST_CASE("offload: a list that lacks a copy, a wait or a step, or frees too early, is refused", "[offload]") {
  const Way way = GENERATE(Way{"one rank", Sharding::kDdp}, Way{"ddp", Sharding::kDdp, 2}, Way{"zero2", Sharding::kZero2, 1, 2},
                           Way{"zero3", Sharding::kZero3, 1, 2}, Way{"pp", Sharding::kZero2, 1, 2, 1, 1, true, 2});
  const int64_t accumulation = GENERATE(1, 2);
  Plan plan = on_host(tiny_plan(options_of(way, accumulation, Dtype::kBf16)));
  plan.train.optimizer = GENERATE(as<std::string>(), "adamw", kAdafactor, kMuon);
  if (plan.train.optimizer != kMuon && GENERATE(false, true)) plan = with_activations(plan).back();
  const int stage = GENERATE(0, 1);
  if (stage >= way.pp) return;
  const Schedule good = compile_expanded(plan, Phase::kStep, stage);
  REQUIRE(broken(plan, good).empty());
  int64_t num_mutants = 0;
  for (int i = 0; i < int(good.instructions.size()); ++i) {
    const Instruction& was = good.instructions[size_t(i)];
    const bool is_of_host = was.stream == Stream::kHost || was.stream == Stream::kToHost || was.stream == Stream::kToDevice ||
                            was.op == InstructionOp::kFree;
    INFO(way.name << ", accumulation " << accumulation << ", stage " << stage << ": " << format_instruction(good, i));
    for (size_t w = 0; w < was.waits.size(); ++w) {  // a wait is left out
      if (!is_of_host && was.op != InstructionOp::kAllGather) continue;
      Schedule bad = good;
      std::vector<int>& waits = bad.instructions[size_t(i)].waits;
      waits.erase(waits.begin() + long(w));
      ++num_mutants;
      CHECK_FALSE(broken(plan, bad).empty());
    }
    if (!is_of_host) continue;
    Schedule bad = compile_schedule(plan, Phase::kStep, stage);  // the whole instruction is left out
    bad.instructions.erase(bad.instructions.begin() + i);
    for (Segment& g : bad.segments) {
      if (i < g.first_instruction)
        --g.first_instruction;
      else if (i < g.first_instruction + g.num_instructions)
        --g.num_instructions;
    }
    bool is_caught = false;  // some lists are so broken that they cannot be expanded
    for (const std::string& message : check_invariants(plan, bad)) is_caught = is_caught || !message.empty();
    ++num_mutants;
    CHECK(is_caught);
  }
  // What a copy reads is freed before the copy is done.
  for (int b = 0; b < int(good.buffers.size()); ++b) {
    const Buffer& buffer = good.buffers[size_t(b)];
    if (buffer.lifetime == BufferLifetime::kRun || buffer.overlay_of >= 0) continue;
    const char kind = buffer.name[0];
    const bool is_activation = !is_on_device(buffer) && buffer.buffer_class == BufferClass::kActivation;
    if ((kind != 'D' && kind != 'H' && kind != 'U' && !is_activation) || buffer.last_step - buffer.first_step < 1) continue;
    Schedule bad = good;
    bad.buffers[size_t(b)].last_step = buffer.first_step;
    INFO("'" << buffer.name << "' lives one step");
    ++num_mutants;
    CHECK_FALSE(broken(plan, bad).empty());
  }
  CHECK(num_mutants > 20);
}

TEST_CASE("offload: what the host cannot do is refused by name", "[offload]") {
  const auto refusal = [](Plan plan) {
    const Diagnostics said = validate(plan);
    return said.empty() ? std::string() : said.front().message;
  };
  Plan plan = on_host(tiny_plan(options_of({"one rank", Sharding::kDdp}, 1, Dtype::kF32)));
  CHECK(refusal(plan).empty());
  for (const std::string_view optimizer : {kMuon, kAdafactor}) {
    plan.train.optimizer = optimizer;
    CHECK(refusal(plan).empty());
  }
  plan.train.optimizer = "adamw";
  plan.offload.optimizer = OffloadPlace::kNvme;
  CHECK(refusal(plan).empty());
  plan.offload.activations = OffloadPlace::kHost;
  CHECK(refusal(plan).empty());
  plan.offload.activations = OffloadPlace::kNvme;
  CHECK(refusal(plan).find("on a disk, the plan says activations") != std::string::npos);
  plan.offload = {};
  plan.offload.parameters = OffloadPlace::kHost;
  CHECK(refusal(plan).find("the plan has the optimizer on the device") != std::string::npos);
  plan.offload.optimizer = OffloadPlace::kNvme;
  CHECK(refusal(plan).empty());
  plan.offload.parameters = OffloadPlace::kNvme;
  CHECK(refusal(plan).find("on a disk, the plan says parameters") != std::string::npos);
  CHECK(refusal(from_host(tiny_plan(options_of({"zero2", Sharding::kZero2, 1, 2}, 1, Dtype::kF32)))).empty());
  plan = from_host(tiny_plan(options_of({"zero3", Sharding::kZero3, 1, 2}, 1, Dtype::kF32)));
  plan.strategy.sharding = Sharding::kZero1;
  CHECK(refusal(plan).find("zero1 has all of them on each device") != std::string::npos);
}

}  // namespace
}  // namespace distsetup
