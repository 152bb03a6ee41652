// Rules that hold for every schedule: thousands of random plans (the seed is printed) and every plan with at most 4 ranks, 3 units
// and 3 micro-batches. No torch.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <set>

#include "plan/live.h"
#include "plan/schedule.h"
#include "support/random_plan.h"
#include "support/seed.h"

namespace distsetup {
namespace {

std::string describe(const Plan& p) {
  return fmt::format("{} dp {}x{} acc {} mb {} recompute {} k {} {} reshard {} prefetch {} L {} tied {} bias {} qk {}",
                     name(p.strategy.sharding), p.mesh.dp_replicate, p.mesh.dp_shard, p.gradient_accumulation, p.micro_batch,
                     name(p.recompute.policy), p.recompute.every_k, name(p.precision.compute), p.strategy.reshard_after_forward,
                     p.strategy.prefetch, p.model.num_layers, p.model.tied_embeddings, p.model.qkv_bias, p.model.qk_norm);
}

void check_everything(const Plan& plan) {
  INFO(describe(plan));
  REQUIRE_FALSE(has_error(validate(plan)));
  for (const Phase phase : {Phase::kLoad, Phase::kStep, Phase::kEvaluate, Phase::kSave}) {
    INFO(name(phase));
    Schedule s = compile_schedule(plan, phase);
    const std::vector<std::string> unit_level = check_invariants(plan, s);
    if (!unit_level.empty()) FAIL(unit_level.front() << "\n" << format_schedule(s));
    const std::vector<InstructionLive> live = walk_live(s);
    expand(s);
    const std::vector<std::string> op_level = check_invariants(plan, s);
    if (!op_level.empty()) FAIL(op_level.front() << "\n" << format_schedule(s));
    // Both levels agree to the byte, instruction by instruction.
    int64_t peak = 0;
    for (size_t i = 0; i < s.instructions.size(); ++i) {
      int64_t largest = 0;
      for (int n = 0; n < s.instructions[i].num_steps; ++n)
        largest = std::max(largest, s.live_bytes[s.instructions[i].first_step + n]);
      INFO("instruction " << i << " " << format_instruction(s, static_cast<int>(i)));
      REQUIRE(largest == live[i].peak_bytes);
      peak = std::max(peak, largest);
    }
    REQUIRE(peak == s.live_peak_bytes);
    REQUIRE(s.arena_bytes >= s.live_peak_bytes);
    REQUIRE(s.arena_bytes <= s.live_peak_bytes + s.live_peak_bytes / 4 + 4096);
    // States alone: master, gradient and moments in fp32 over the shard ranks.
    if (phase == Phase::kStep) REQUIRE(run_bytes(s) >= 16 * s.layout.numel / plan.mesh.dp_shard);
  }
}

TEST_CASE("random plans obey every schedule rule") {
  const uint64_t seed = test_seed();
  WARN("seed " << seed << " (DISTSETUP_SEED repeats it)");
  std::mt19937_64 random(seed);
  for (int i = 0; i < 5000; ++i) check_everything(make_test_plan(random_geometry(random), random_choice(random), 1 + random() % 20));
}

TEST_CASE("every plan with at most 4 ranks, 3 units and 3 micro-batches obeys every schedule rule") {
  int plans = 0;
  for (const Sharding sharding : {Sharding::kDdp, Sharding::kZero1, Sharding::kZero2, Sharding::kZero3})
    for (int shard = 1; shard <= 4; ++shard)
      for (int replicate = 1; shard * replicate <= 4; ++replicate)
        for (const int64_t accumulation : {1, 2, 3})
          for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull})
            for (const Precision compute : {Precision::kF32, Precision::kBf16})
              for (const bool tied : {false, true})
                for (const bool reshard : {true, false}) {
                  if (sharding == Sharding::kDdp && shard > 1) continue;
                  if (!reshard && sharding != Sharding::kZero3) continue;
                  Geometry g = tiny_geometry(1);
                  g.tied_embeddings = tied;
                  check_everything(
                      make_test_plan(g, {sharding, replicate, shard, recompute, 0, accumulation, 1, compute, reshard, 1}, 4));
                  ++plans;
                }
  CHECK(plans > 500);
}

TEST_CASE("ranks of a group issue the same collectives in the same order") {
  // One list serves every rank: what differs between ranks is only the own chunk, named by the coordinate. So the order per
  // communicator is the order in the list; here each group sees a non-empty, repeatable sequence.
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

// A mutant is a schedule with one thing broken: an instruction dropped, doubled or swapped with its neighbour, a wait or a free moved.
TEST_CASE("mutated schedules are caught or mean the same") {
  const uint64_t seed = test_seed();
  WARN("seed " << seed << " (DISTSETUP_SEED repeats it)");
  std::mt19937_64 random(seed);
  int caught = 0, total = 0;
  std::vector<std::string> missed;
  while (total < 2000) {
    const Plan plan = make_test_plan(random_geometry(random), random_choice(random), 4);
    const Schedule good = compile_schedule(plan, Phase::kStep);
    Schedule bad = good;
    const int at = static_cast<int>(random() % bad.instructions.size());
    const InstructionOp op = bad.instructions[at].op;
    if (op == InstructionOp::kZero || op == InstructionOp::kWait) continue;
    Segment* home = nullptr;
    for (Segment& g : bad.segments)
      if (at >= g.first_instruction && at < g.first_instruction + g.num_instructions) home = &g;
    const int kind = static_cast<int>(random() % 2);
    if (kind == 0)
      bad.instructions.erase(bad.instructions.begin() + at);
    else
      bad.instructions.insert(bad.instructions.begin() + at, bad.instructions[at]);
    home->num_instructions += kind == 0 ? -1 : 1;
    for (Segment& g : bad.segments)
      if (&g > home) g.first_instruction += kind == 0 ? -1 : 1;
    ++total;
    // A cast or gather that is doubled fills the same chunk with the same bytes, a norm or a sum taken twice over the same input
    // is the only exception that must be caught elsewhere (trace and parity): everything else breaks a rule here.
    std::vector<std::string> broken;
    try {
      broken = check_invariants(plan, bad);
    } catch (...) {
      broken = {"threw"};
    }
    if (!broken.empty()) {
      ++caught;
      continue;
    }
    missed.push_back(fmt::format("{} of {} in {}", kind == 0 ? "drop" : "double", format_instruction(good, at), describe(plan)));
  }
  for (size_t i = 0; i < std::min<size_t>(missed.size(), 10); ++i) WARN(missed[i]);
  CHECK(caught == total);
}

}  // namespace
}  // namespace distsetup
