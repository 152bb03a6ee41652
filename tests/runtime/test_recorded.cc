// Micro-batches that are recorded once and replayed train as those that the host issues one by one: on a device whose streams do
// everything late and in random order, with poisoned memory. A recording there keeps its calls with the numbers that they had, as a
// CUDA graph does: what changes from step to step must lie on the device.
#include "plan/recorded_step.h"

#include <cstring>

#include "runtime/late_run.h"
#include "support/seed.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using namespace tiny;

constexpr int64_t kSteps = 5;  // the first two run plainly

struct RecordedCase {
  const char* name;
  Sharding sharding;
  int replicate, shard, tp = 1, cp = 1;
  int64_t accumulation = 1;
  Dtype precision = Dtype::kF32;
};

Plan plan_of(const RecordedCase& c) {
  TinyOptions o;
  o.sharding = c.sharding, o.replicate = c.replicate, o.shard = c.shard, o.tp = c.tp, o.cp = c.cp;
  o.accumulation = c.accumulation;
  o.precision = c.precision;
  o.global_batch = 4 * c.accumulation * c.replicate * c.shard;
  o.recompute = c.accumulation > 1 ? Recompute::kSelective : Recompute::kNone;
  if (c.tp > 1) o.geometry.num_heads = 4, o.geometry.num_kv_heads = 2, o.geometry.feed_forward = 38;
  return tiny_plan(o);
}

// Bit for bit: what overflows is not equal to itself.
template <class E>
bool has_same_bits(const std::vector<E>& a, const std::vector<E>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(E)) == 0;
}
bool has_same_bits(const RunResult& a, const RunResult& b) {
  const auto all = [](const auto& x, const auto& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const auto& p, const auto& q) { return has_same_bits(p, q); });
  };
  return has_same_bits(a.losses, b.losses) && has_same_bits(a.norms, b.norms) && a.held_out == b.held_out &&
         all(a.parameters, b.parameters) && all(a.gradients, b.gradients);
}

void check_recorded(Plan plan) {
  const uint64_t seed = test_seed();
  INFO("DISTSETUP_SEED=" << seed);
  const LateRun plain = train_late(plan, kSteps, seed);
  REQUIRE(plain.error == "");
  CHECK(plain.num_replays == 0);
  plan.train.cuda_graphs = true;
  const LateRun replayed = train_late(plan, kSteps, seed + 1);
  REQUIRE(replayed.error == "");
  CHECK(replayed.num_replays == (kSteps - 2) * plan.gradient_accumulation);
  CHECK(has_same_bits(replayed.result, plain.result));
  CHECK(plain.result.losses.front() != plain.result.losses.back());
}

TEST_CASE("recorded micro-batches train as plain ones under every sharding and axis", "[recorded][streams]") {
  const auto c = GENERATE(values<RecordedCase>({{"one rank", Sharding::kDdp, 1, 1},
                                                {"ddp", Sharding::kDdp, 2, 1, 1, 1, 2},
                                                {"zero1", Sharding::kZero1, 1, 2, 1, 1, 3},
                                                {"zero2, bf16", Sharding::kZero2, 1, 2, 1, 1, 2, Dtype::kBf16},
                                                {"zero3", Sharding::kZero3, 1, 2, 1, 1, 1},
                                                {"zero3, 5 micro-batches, bf16", Sharding::kZero3, 1, 2, 1, 1, 5, Dtype::kBf16},
                                                {"hybrid", Sharding::kZero3, 2, 2, 1, 1, 2},
                                                {"tp", Sharding::kZero3, 1, 2, 2, 1, 1},
                                                {"cp", Sharding::kZero3, 1, 1, 1, 2, 2}}));
  INFO(c.name);
  check_recorded(plan_of(c));
}

TEST_CASE("recorded micro-batches train as plain ones with every optimizer", "[recorded][streams]") {
  Plan plan = plan_of({"", Sharding::kZero3, 1, 2, 1, 1, 2});
  plan.train.optimizer = GENERATE(as<std::string>(), "sgd", "lion", "adamw_8bit", "adafactor", "muon");
  INFO(plan.train.optimizer);
  check_recorded(plan);
}

TEST_CASE("recorded micro-batches train as plain ones where the scale of the loss changes", "[recorded][streams]") {
  Plan plan = plan_of({"", Sharding::kZero3, 1, 2, 1, 1, 2, Dtype::kF16});
  plan.precision.loss_scale.initial_power = 22, plan.precision.loss_scale.hysteresis = 1;  // overflows until it has fallen
  check_recorded(plan);
}

TEST_CASE("recorded micro-batches train as plain ones in two hops, with adapters, with logits in chunks", "[recorded][streams]") {
  TinyOptions o;
  o.sharding = Sharding::kZero3, o.shard = 2, o.accumulation = 2, o.global_batch = 16;
  SECTION("two hops") { o.shard = 4, o.nodes = 2; }
  SECTION("adapters beside nf4") {
    o.geometry.hidden = 64, o.geometry.num_heads = 4, o.geometry.head_size = 16, o.geometry.feed_forward = 64;
    o.rank = 2, o.targets = {"q_proj", "v_proj"}, o.quantized = true;
  }
  SECTION("chunked logits and reductions in flight") { o.chunked_loss = true, o.reductions_in_flight = 3; }
  check_recorded(tiny_plan(o));
}

TEST_CASE("evaluation between replays changes nothing", "[recorded][streams]") {
  Plan plan = plan_of({"", Sharding::kZero3, 1, 2, 1, 1, 2});
  const auto losses = [&plan](uint64_t seed) {
    std::vector<double> out;
    MeetingPlace place;
    run_ranks(plan.mesh, [&](Communicator& control) {
      AdversarialDevice device(seed + uint64_t(control.rank()));
      AdversarialCommunicator communicator(plan.mesh, place, device.streams(), control);
      Engine engine(plan, device, communicator, {.poison = true});
      engine.initialize_parameters();
      engine.load();
      const int index = data_index(plan.mesh, communicator.rank());
      for (int64_t s = 0; s < kSteps; ++s) {
        const Batch batch = rank_batch(plan, global_batch(plan, s), index),
                    unseen = rank_batch(plan, global_batch(plan, 100 + s), index);
        const StepStats stats = engine.step({batch.ids, batch.targets, batch.valid, 1e-2});
        const double held_out = engine.evaluate({unseen.ids, unseen.targets, unseen.valid});
        if (communicator.rank() == 0) out.push_back(stats.loss), out.push_back(held_out), out.push_back(stats.gradient_norm);
      }
      device.synchronize();
    });
    return out;
  };
  const std::vector<double> plain = losses(3);
  plan.train.cuda_graphs = true;
  CHECK(losses(4) == plain);
}

TEST_CASE("a recording refuses what a CUDA graph cannot hold", "[recorded]") {
  AdversarialDevice device(1);
  int number = 0;
  device.begin_recording();
  CHECK_THROWS_AS(device.copy_to_device(&number, &number, sizeof(number)), std::logic_error);
  CHECK_THROWS_AS(device.copy_to_host(&number, &number, sizeof(number)), std::logic_error);
  device.end_recording();
}

TEST_CASE("an order between streams that a recording leaves out shows", "[recorded][streams]") {
  Plan plan = plan_of({"", Sharding::kZero3, 1, 2});
  plan.train.cuda_graphs = true;
  const uint64_t seed = test_seed();
  INFO("DISTSETUP_SEED=" << seed);
  const LateRun good = train_late(plan, 3, seed);
  REQUIRE(good.error == "");
  REQUIRE(good.num_replays == 1);
  int tried = 0, seen = 0;
  for (int64_t left_out = good.num_orders / 2; left_out < good.num_orders; ++left_out) {  // of the third step, most of them
    ++tried;
    for (uint64_t n = 0; n < 4; ++n) {
      const LateRun bad = train_late(plan, 3, seed + 10 * n, left_out);
      if (bad.error == "" && bad.result == good.result) continue;
      ++seen;
      break;
    }
  }
  WARN(seen << " of " << tried << " show");
  CHECK(seen > 2);  // others are there twice
}

TEST_CASE("a device that cannot record refuses a plan with recordings", "[recorded]") {
  Plan plan = plan_of({"", Sharding::kDdp, 1, 1});
  plan.train.cuda_graphs = true;
  const auto device = make_cpu_device();
  const auto self = make_self_communicator(plan.mesh);
  CHECK_THROWS_WITH(Engine(plan, *device, *self), Catch::Contains("CUDA graphs"));
}

TEST_CASE("plans whose steps cannot be recorded are refused by name", "[recorded]") {
  Plan plan = plan_of({"", Sharding::kZero3, 1, 2});
  CHECK(recording_problem(plan).empty());
  Plan other = plan;
  other.mesh.pp = 2;
  CHECK(recording_problem(other).find("stages") != std::string::npos);
  other = plan;
  other.model.num_experts = 4;
  CHECK(recording_problem(other).find("expert") != std::string::npos);
  other = plan;
  other.data.packing = true;
  CHECK(recording_problem(other).find("documents") != std::string::npos);
  other = plan;
  other.offload.optimizer = OffloadPlace::kHost;
  CHECK(recording_problem(other).find("offloaded") != std::string::npos);
}

}  // namespace
}  // namespace distsetup
