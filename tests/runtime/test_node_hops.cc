// Reductions in two hops, within nodes and across: as one hop does, and with what the plan says goes over the network.
#include <atomic>

#include "plan/check_job.h"
#include "plan/compile_schedule.h"
#include "plan/expand.h"
#include "plan/node_reduction.h"
#include "runtime/as_one_rank.h"
#include "runtime/engine/node_hops.h"
#include "runtime/expert_cases.h"
#include "runtime/late_run.h"
#include "support/seed.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using namespace tiny;

struct NodeCase {
  const char* name;
  int nodes;
  Sharding sharding;
  int replicate, shard, tp = 1, cp = 1, ep = 1, in_flight = 1;
};

TinyOptions options_of(const NodeCase& c) {
  TinyOptions o;
  o.nodes = c.nodes;
  o.sharding = c.sharding;
  o.replicate = c.replicate, o.shard = c.shard, o.tp = c.tp, o.cp = c.cp, o.ep = c.ep;
  o.reductions_in_flight = c.in_flight;
  o.accumulation = 2;
  o.global_batch = 16;
  o.steps = 8;
  if (c.tp > 1) o.geometry.num_heads = 4, o.geometry.num_kv_heads = 2, o.geometry.feed_forward = 38;
  if (c.ep > 1) o.geometry = expert_geometry("glm4"), o.geometry.feed_forward = 38;
  return o;
}

int64_t count_hops(const Plan& plan, Hop hop) {
  int64_t count = 0;
  for (const Instruction& i : compile_schedule(plan, Phase::kStep).instructions)
    count += i.op == InstructionOp::kReduceScatter && i.hop == hop;
  return count;
}

TEST_CASE("gradients reduced within nodes and then across them train as one rank does", "[hops]") {
  const auto c = GENERATE(values<NodeCase>({{"zero3, 2 nodes of 2", 2, Sharding::kZero3, 1, 4},
                                            {"zero2, 2 nodes of 2", 2, Sharding::kZero2, 1, 4},
                                            {"zero1, 2 nodes of 2", 2, Sharding::kZero1, 1, 4},
                                            {"zero3, 4 nodes of 2", 4, Sharding::kZero3, 1, 8},
                                            {"zero3, 2 nodes of 4", 2, Sharding::kZero3, 1, 8, 1, 1, 1, 2},
                                            {"hybrid over 2 nodes each", 4, Sharding::kZero3, 2, 4},
                                            {"tp 2 inside nodes of 4", 2, Sharding::kZero3, 1, 4, 2},
                                            {"cp 2 inside nodes of 2", 2, Sharding::kZero3, 1, 2, 1, 2},
                                            {"ep 2 inside nodes of 4", 2, Sharding::kZero3, 1, 8, 1, 1, 2}}));
  INFO(c.name);
  const TinyOptions o = options_of(c);
  CHECK(count_hops(tiny_plan(o), Hop::kAcrossNodes) > 0);
  CHECK(count_hops(tiny_plan(o), Hop::kAcrossNodes) == count_hops(tiny_plan(o), Hop::kWithinNode));
  check_as_one_rank(o, {Recompute::kFull});
}

TEST_CASE("a plan with nodes of one rank, or one node, takes one hop", "[hops]") {
  const auto c = GENERATE(values<NodeCase>({{"a rank on each node", 4, Sharding::kZero3, 1, 4},
                                            {"one node", 1, Sharding::kZero3, 1, 4},
                                            {"shards inside nodes", 2, Sharding::kZero3, 2, 2},
                                            {"ddp", 2, Sharding::kDdp, 4, 1}}));
  INFO(c.name);
  const Plan plan = tiny_plan(options_of(c));
  CHECK(count_hops(plan, Hop::kWithinNode) == 0);
  CHECK((count_hops(plan, Hop::kOnly) > 0) == (c.sharding != Sharding::kDdp));
}

TEST_CASE("bf16 in two hops is as near to fp32 as in one, and a rerun with poison changes no bit", "[hops]") {
  TinyOptions o = options_of({"", 2, Sharding::kZero3, 1, 4});
  const RunResult fp32 = train(tiny_plan(o), 8);
  o.precision = Dtype::kBf16;
  const RunResult two = train(tiny_plan(o), 8);
  CHECK(train(tiny_plan(o), 8, {.poison = true}) == two);
  o.nodes = 1;
  const RunResult one = train(tiny_plan(o), 8);
  CHECK(difference(two.losses, one.losses) < 2e-3);
  CHECK(two.losses.back() == Approx(fp32.losses.back()).epsilon(0.01));
}

TEST_CASE("the optimizer on the host, LoRA and fp16 take two hops too", "[hops]") {
  TinyOptions o = options_of({"", 2, Sharding::kZero3, 1, 4});
  Plan plan = tiny_plan(o);
  SECTION("optimizer on the host") {
    plan.offload.optimizer = OffloadPlace::kHost;
    plan.host = {0, 2e10, 1e10};
  }
  SECTION("LoRA") {
    o.rank = 2, o.targets = {"q_proj", "v_proj"};
    plan = tiny_plan(o);
  }
  SECTION("fp16") {
    plan.precision.compute = Dtype::kF16;
    plan.precision.loss_scale.fixed = 256;
  }
  REQUIRE(check_job(plan) == std::vector<std::string>{});
  Plan flat = plan;
  flat.strategy.hierarchical_reduction = false;
  const RunResult two = train(plan, 4), one = train(flat, 4);
  CHECK(difference(two.losses, one.losses) < (plan.precision.compute == Dtype::kF16 ? 1e-2 : 1e-5));
  CHECK(train(plan, 4, {.poison = true}) == two);
}

TEST_CASE("two hops on streams in any order that events allow train as the CPU does", "[hops][streams]") {
  const auto c = GENERATE(
      values<NodeCase>({{"zero3", 2, Sharding::kZero3, 1, 4}, {"zero2, 2 in flight", 2, Sharding::kZero2, 1, 4, 1, 1, 1, 2}}));
  TinyOptions o = options_of(c);
  o.precision = GENERATE(Dtype::kF32, Dtype::kBf16);
  const Plan plan = tiny_plan(o);
  const uint64_t seed = test_seed();
  INFO(c.name << " " << name(o.precision) << ", DISTSETUP_SEED=" << seed);
  const RunResult expected = train(plan, 3);
  const LateRun late = train_late(plan, 3, seed), again = train_late(plan, 3, seed + 1);
  REQUIRE(late.error == "");
  CHECK(late.result == again.result);
  CHECK(difference(late.result.losses, expected.losses) < 1e-3);  // Gloo adds the loss of four ranks in an order of its own
}

// Whole numbers: their sums are exact in any order.
TEST_CASE("two hops bring every rank the sum of its own chunk, and move what the plan says", "[hops]") {
  const auto shape = GENERATE(table<int, int>({{4, 2}, {6, 3}, {6, 2}, {8, 4}, {12, 3}}));
  const int size = std::get<0>(shape), together = std::get<1>(shape);
  INFO(size << " ranks, " << together << " on a node");
  TinyOptions o;
  o.sharding = Sharding::kZero3;
  o.shard = size, o.nodes = size / together;
  o.global_batch = size;
  const Plan plan = tiny_plan(o);
  const Schedule list = compile_expanded(plan, Phase::kStep);
  std::atomic<int> wrong = 0, checked = 0;
  run_ranks(plan.mesh, [&](Communicator& communicator) {
    const auto device = make_cpu_device();
    const Coordinates at = coordinates(plan.mesh, communicator.rank());
    const UnitLayout& unit = list.layout->units[1];
    const int64_t chunk = unit.shard_numel;
    const auto value = [&](int rank, int64_t element) { return float((rank * 7 + element * 3) % 101); };
    std::vector<float> full(size_t(chunk * size)), received(full.size()), sums(size_t(chunk * (size / together))), last(sums.size());
    std::vector<float> target(size_t(chunk), 1);
    for (size_t e = 0; e < full.size(); ++e) full[e] = value(communicator.rank(), int64_t(e));
    const auto argument = [](std::vector<float>& of) { return Argument{of.data(), {int64_t(of.size())}, Dtype::kF32}; };
    Instruction i;
    i.unit = 1, i.group = unit.shard_group, i.node_ranks = together;
    for (const Hop hop : {Hop::kWithinNode, Hop::kAcrossNodes}) {
      const bool is_within = hop == Hop::kWithinNode;
      i.hop = hop;
      Call move, add;
      move.reads = {argument(is_within ? full : sums)};
      move.writes = {argument(is_within ? received : last)};
      start_hop(i, move, communicator)->wait();
      add.reads = {argument(is_within ? full : sums), argument(is_within ? received : last)};
      add.writes = {argument(is_within ? sums : target)};
      accumulate_hop(i, add, *list.layout, at, device->kernels());
    }
    const ElementRange own = owned_range(unit, communicator.rank());
    for (int64_t e = own.begin; e < own.end; ++e) {
      float expected = 0;
      for (int rank = 0; rank < size; ++rank) expected += value(rank, e);
      wrong += target[size_t(e - own.begin)] != expected;
      ++checked;
    }
  });
  CHECK(wrong == 0);
  CHECK(checked == list.layout->units[1].numel);
  for (const Instruction& i : list.instructions) {
    if (i.op != InstructionOp::kReduceScatter) continue;
    const int64_t chunk = list.layout->units[size_t(i.unit)].shard_numel;
    CHECK(i.bytes == chunk * 4 * (i.hop == Hop::kAcrossNodes ? size / together : size));
    CHECK(list.buffers[size_t(i.allocates[0])].bytes ==
          chunk * 4 * (i.hop == Hop::kAcrossNodes ? size / together - 1 : (together - 1) * (size / together)));
  }
}

}  // namespace
}  // namespace distsetup
