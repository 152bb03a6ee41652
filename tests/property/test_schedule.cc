// Rules that hold for every schedule: thousands of random plans and every plan with at most 4 ranks, 3 units
// and 3 micro-batches. No torch.
#include <fmt/format.h>

#include <array>
#include <catch2/catch.hpp>
#include <set>

#include "plan/check_job.h"
#include "plan/compile_schedule.h"
#include "plan/expand.h"
#include "plan/invariants.h"
#include "plan/live.h"
#include "plan/schedule.h"
#include "plan/schedule_text.h"
#include "support/broken_jobs.h"
#include "support/broken_lists.h"
#include "support/broken_lists_property.h"
#include "support/property.h"
#include "support/random_plan.h"
#include "support/schedule_rules.h"

namespace distsetup {
namespace {

TEST_CASE("random plans obey every schedule rule") {
  check_property(2000, [] {
    Draw random;
    const Geometry geometry = random_geometry(random);
    const PlanChoice choice = random_choice(random);
    const Plan plan = make_test_plan(geometry, choice, shortest_sequence(choice) * (1 + random() % 20));
    RC_LOG() << describe(plan);
    const std::string broken = broken_rule(plan);
    RC_ASSERT(broken == "");
  });
}

TEST_CASE("every plan with at most 4 ranks, 3 units and 3 micro-batches obeys every schedule rule") {
  int plans = 0;
  for (const Sharding sharding : {Sharding::kDdp, Sharding::kZero1, Sharding::kZero2, Sharding::kZero3})
    for (int shard = 1; shard <= 4; ++shard)
      for (const auto& [replicate, cp, tp] : {std::array{1, 1, 1},
                                              {2, 1, 1},
                                              {3, 1, 1},
                                              {4, 1, 1},
                                              {1, 1, 2},
                                              {2, 1, 2},
                                              {1, 1, 4},
                                              {1, 2, 1},
                                              {2, 2, 1},
                                              {1, 2, 2},
                                              {1, 4, 1}})
        for (const int64_t accumulation : {1, 2, 3})
          for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kKeepAttention, Recompute::kFull})
            for (const Dtype compute : {Dtype::kF32, Dtype::kBf16})
              for (const bool tied : {false, true})
                for (const bool reshard : {true, false}) {
                  if (sharding == Sharding::kDdp && shard > 1) continue;
                  if (shard * replicate * cp * tp > 4) continue;
                  if (!reshard && sharding != Sharding::kZero3) continue;
                  Geometry g = tiny_geometry(1);
                  g.tied_embeddings = tied;
                  const Plan plan =
                      make_test_plan(g, {sharding, replicate, shard, recompute, 0, accumulation, 1, compute, reshard, 1, tp, cp}, 8);
                  INFO(describe(plan));
                  REQUIRE(broken_rule(plan) == "");
                  ++plans;
                }
  CHECK(plans > 500);
}

TEST_CASE("a hybrid list meets in three groups, the same each time it is compiled") {
  const Plan plan = make_test_plan(tiny_geometry(), {Sharding::kZero3, 2, 2, Recompute::kNone, 0, 2});
  const Schedule a = compile_schedule(plan, Phase::kStep), b = compile_schedule(plan, Phase::kStep);
  CHECK(canonical_text(a) == canonical_text(b));
  std::set<Group> groups;
  for (const Instruction& i : a.instructions)
    if (i.group != Group::kSelf) groups.insert(i.group);
  CHECK(groups == std::set<Group>{Group::kDpShard, Group::kDpReplicate, Group::kData});
}

TEST_CASE("accumulation beyond three micro-batches repeats one segment") {
  const Plan three = make_test_plan(tiny_geometry(), {Sharding::kZero2, 1, 2, Recompute::kNone, 0, 3});
  const Plan many = make_test_plan(tiny_geometry(), {Sharding::kZero2, 1, 2, Recompute::kNone, 0, 100});
  const Schedule a = compile_expanded(three, Phase::kStep), b = compile_expanded(many, Phase::kStep);
  CHECK(a.instructions.size() == b.instructions.size());
  CHECK(a.arena_bytes == b.arena_bytes);
  REQUIRE(b.segments.size() == 3);
  CHECK(b.segments[1].repeat == 98);
}

// --- check_job

TEST_CASE("a job of random ranks obeys every rule of jobs") {
  check_property(1000, [] {
    Draw random;
    const Geometry geometry = random_geometry(random);
    const Plan plan = make_test_plan(geometry, random_choice(random), kAnyCut);
    RC_LOG() << describe(plan);
    const std::vector<std::string> broken = check_job(plan);
    RC_ASSERT(fmt::format("{}", fmt::join(broken, "\n")) == "");
  });
}

TEST_CASE("a list with an instruction dropped or doubled breaks a rule of its own") {
  check_property(2000, [] {
    Draw random;
    const Geometry geometry = random_geometry(random);
    const Plan plan = make_test_plan(geometry, random_choice(random), kAnyCut);
    Schedule list = compile_schedule(plan, Phase::kStep, static_cast<int>(random() % plan.mesh.pp));
    assert_breaking_is_caught(plan, std::move(list), random);
  });
}

TEST_CASE("a list with one instruction broken, on one rank or on all, is caught by check_job", "[all]") {
  std::array<int, kNumBreaks> tried{};
  check_property(1200, [&tried] {
    Draw random;
    const Geometry geometry = random_geometry(random);
    const Plan plan = make_test_plan(geometry, random_choice(random), kAnyCut);
    const int stage = static_cast<int>(random() % plan.mesh.pp);
    const Schedule list = compile_schedule(plan, Phase::kStep, stage), good = compile_expanded(plan, Phase::kStep, stage);
    const int at = static_cast<int>(random() % list.instructions.size());
    const Break how = static_cast<Break>(random() % kNumBreaks);
    const bool on_one_rank = random() % 2 == 0;
    Schedule bad = list;
    RC_PRE(apply(how, bad, good, at, plan));
    RC_LOG() << "break " << static_cast<int>(how) << " of " << format_instruction(list, at) << (on_one_rank ? " on one rank" : "")
             << " of stage " << stage << " in " << describe(plan);
    ++tried[static_cast<int>(how)];
    RC_ASSERT(is_caught_anywhere(plan, bad, on_one_rank));
  });
  for (const int n : tried) CHECK(n > 0);
}

// Programs are written for all ranks: a list that came about otherwise may have exchanges of its own.
TEST_CASE("a program that exchanges something else on one rank is caught by check_job") {
  for (const CpMethod method : {CpMethod::kAllGather, CpMethod::kUlysses}) {
    const Plan plan = make_test_plan(tiny_geometry(), {.dp_shard = 2, .tp = 2, .cp = 2, .cp_method = method}, kAnyCut);
    INFO(name(method));
    CHECK(changed_exchanges(plan, Group::kCp, Group::kTp) > 10);
  }
}

TEST_CASE("tensor parallelism shards what it does not split over its ranks too") {
  const Plan plan = make_test_plan(tiny_geometry(), {.dp_shard = 2, .tp = 2});
  const Schedule s = compile_schedule(plan, Phase::kStep);
  const int shared = s.layout->shared_unit(0);
  REQUIRE(shared == 4);
  CHECK(s.layout->units[shared].shard_ranks == 4);
  CHECK(s.layout->units[shared].numel == 5 * 32);  // two norms of each block, one of the head
  std::set<Group> groups;
  for (const Instruction& i : s.instructions)
    if (i.group != Group::kSelf) groups.insert(i.group);
  CHECK(groups == std::set<Group>{Group::kDpShard, Group::kDpShard | Group::kTp, Group::kData});
}

// Each part's vectors are reduced when all layers of that part have run backward, and none with another part's.
TEST_CASE("interleaved stages reduce what tensor parallelism does not split part by part") {
  const Plan plan = make_test_plan(tiny_geometry(8), {.dp_shard = 2, .accumulation = 4, .tp = 2, .pp = 2, .chunks = 2});
  for (int stage = 0; stage < 2; ++stage) {
    const Schedule s = compile_schedule(plan, Phase::kStep, stage);
    const std::vector<UnitSpan> parts = stage_chunks(8, 2, 2, stage);
    std::map<int, int> reductions;
    for (const Instruction& i : s.instructions)
      if (i.op == InstructionOp::kReduceScatter && s.layout->is_shared(i.unit)) ++reductions[i.unit];
    CHECK(reductions == std::map<int, int>{{10, 4}, {11, 4}});  // once for each micro-batch
    for (size_t part = 0; part < 2; ++part) {
      for (int u = parts[part].first; u <= parts[part].last; ++u) CHECK(s.layout->shared_unit(u) == 10 + static_cast<int>(part));
    }
    CHECK(s.layout->units[10].numel == 4 * 32);                     // two norms of each of two layers
    CHECK(s.layout->units[11].numel == (stage == 0 ? 4 : 5) * 32);  // and the head's
  }
}

TEST_CASE("context parallelism shards over its ranks too, but for ddp, whose ranks are copies") {
  const auto groups_of = [](const Plan& plan) {
    std::set<Group> groups;
    const Schedule s = compile_schedule(plan, Phase::kStep);
    for (const Instruction& i : s.instructions)
      if (i.group != Group::kSelf) groups.insert(i.group);
    return groups;
  };
  const Group tokens = Group::kData | Group::kCp, shards = Group::kDpShard | Group::kCp;
  CHECK(groups_of(make_test_plan(tiny_geometry(), {.dp_replicate = 2, .dp_shard = 2, .cp = 2})) ==
        std::set<Group>{shards, Group::kDpReplicate, tokens});
  CHECK(groups_of(make_test_plan(tiny_geometry(), {.sharding = Sharding::kDdp, .dp_replicate = 2, .cp = 2})) ==
        std::set<Group>{Group::kDpReplicate | Group::kCp, tokens});
  CHECK(groups_of(make_test_plan(tiny_geometry(), {.dp_shard = 2, .tp = 2, .cp = 2})) ==
        std::set<Group>{shards, shards | Group::kTp, tokens});
}

TEST_CASE("as many reductions are in flight as the plan says, and the gradients wait for all") {
  const auto most = [](int asked) {
    const Plan plan = make_test_plan(tiny_geometry(6),
                                     {.sharding = Sharding::kZero3, .dp_shard = 2, .accumulation = 2, .reductions_in_flight = asked});
    int now = 0, seen = 0;
    for (const Instruction& i : compile_schedule(plan, Phase::kStep).instructions) {
      if (i.op == InstructionOp::kReduceScatter) seen = std::max(seen, ++now);
      if (i.op == InstructionOp::kAccumulate) --now;
      CHECK((i.op != InstructionOp::kGradNorm || now == 0));
    }
    return seen;
  };
  for (const int asked : {1, 2, 3, 8}) CHECK(most(asked) == asked);
}

TEST_CASE("a job of 512 ranks is checked in less than two seconds") {
  Geometry g = tiny_geometry(80);
  const Plan plan = make_test_plan(g, {Sharding::kZero3, 8, 64, Recompute::kFull, 0, 4, 1, Dtype::kBf16, true, 1}, 4);
  CHECK(check_job(plan).empty());
  const Plan split =
      make_test_plan(g, {.sharding = Sharding::kZero3, .dp_replicate = 2, .dp_shard = 32, .accumulation = 4, .tp = 8}, 8);
  CHECK(check_job(split).empty());
  const Plan shared =
      make_test_plan(g, {.sharding = Sharding::kZero3, .dp_replicate = 2, .dp_shard = 16, .accumulation = 4, .tp = 4, .cp = 4}, 32);
  CHECK(check_job(shared).empty());
}

}  // namespace
}  // namespace distsetup
