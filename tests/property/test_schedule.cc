// Rules that hold for every schedule: thousands of random plans and every plan with at most 4 ranks, 3 units
// and 3 micro-batches. No torch.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <set>

#include "plan/compile_schedule.h"
#include "plan/expand.h"
#include "plan/invariants.h"
#include "plan/live.h"
#include "plan/schedule.h"
#include "plan/schedule_text.h"
#include "support/property.h"
#include "support/random_plan.h"

namespace distsetup {
namespace {

std::string describe(const Plan& p) {
  return fmt::format("{} dp {}x{} acc {} mb {} recompute {} k {} {} reshard {} prefetch {} L {} tied {} bias {} qk {}",
                     name(p.strategy.sharding), p.mesh.dp_replicate, p.mesh.dp_shard, p.gradient_accumulation, p.micro_batch,
                     name(p.recompute.policy), p.recompute.every_k, name(p.precision.compute), p.strategy.reshard_after_forward,
                     p.strategy.prefetch, p.model.num_layers, p.model.tied_embeddings, p.model.qkv_bias, p.model.qk_norm);
}

// Both levels agree to the byte, instruction by instruction.
std::string level_difference(const Schedule& s, const std::vector<InstructionLive>& live) {
  int64_t peak = 0;
  for (size_t i = 0; i < s.instructions.size(); ++i) {
    int64_t largest = 0;
    for (int n = 0; n < s.instructions[i].num_steps; ++n) largest = std::max(largest, s.live_bytes[s.instructions[i].first_step + n]);
    if (largest != live[i].peak_bytes) {
      return fmt::format("instruction {} {}: {} bytes of its steps, {} as a whole", i, format_instruction(s, static_cast<int>(i)),
                         largest, live[i].peak_bytes);
    }
    peak = std::max(peak, largest);
  }
  return peak == s.live_peak_bytes ? "" : fmt::format("the peak is {} and said to be {}", peak, s.live_peak_bytes);
}

// The first rule that a schedule of this plan breaks, empty when there is none.
std::string broken_rule(const Plan& plan) {
  if (has_error(validate(plan))) return "the plan is not valid";
  for (const Phase phase : {Phase::kLoad, Phase::kStep, Phase::kEvaluate, Phase::kSave}) {
    Schedule s = compile_schedule(plan, phase);
    const auto broken = [&](const std::string& rule) { return fmt::format("{}: {}\n{}", name(phase), rule, format_schedule(s)); };
    if (const auto rules = check_invariants(plan, s); !rules.empty()) return broken(rules.front());
    const std::vector<InstructionLive> live = walk_live(s);
    expand(s);
    if (const auto rules = check_invariants(plan, s); !rules.empty()) return broken(rules.front());
    if (const std::string difference = level_difference(s, live); !difference.empty()) return broken(difference);
    if (s.arena_bytes < s.live_peak_bytes) return broken("the arena is smaller than what lives in it");
    if (s.arena_bytes > s.live_peak_bytes + s.live_peak_bytes / 4 + 4096) return broken("the arena is a quarter too large");
    // States alone: master, gradient and moments in fp32 over the shard ranks.
    if (phase == Phase::kStep && run_bytes(s) < 16 * s.layout.numel / plan.mesh.dp_shard) return broken("states are missing");
  }
  return "";
}

TEST_CASE("random plans obey every schedule rule") {
  check_property(5000, [] {
    Draw random;
    const Geometry geometry = random_geometry(random);
    const PlanChoice choice = random_choice(random);
    const Plan plan = make_test_plan(geometry, choice, 1 + random() % 20);
    RC_LOG() << describe(plan);
    const std::string broken = broken_rule(plan);
    RC_ASSERT(broken == "");
  });
}

TEST_CASE("every plan with at most 4 ranks, 3 units and 3 micro-batches obeys every schedule rule") {
  int plans = 0;
  for (const Sharding sharding : {Sharding::kDdp, Sharding::kZero1, Sharding::kZero2, Sharding::kZero3})
    for (int shard = 1; shard <= 4; ++shard)
      for (int replicate = 1; shard * replicate <= 4; ++replicate)
        for (const int64_t accumulation : {1, 2, 3})
          for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull})
            for (const Dtype compute : {Dtype::kF32, Dtype::kBf16})
              for (const bool tied : {false, true})
                for (const bool reshard : {true, false}) {
                  if (sharding == Sharding::kDdp && shard > 1) continue;
                  if (!reshard && sharding != Sharding::kZero3) continue;
                  Geometry g = tiny_geometry(1);
                  g.tied_embeddings = tied;
                  const Plan plan =
                      make_test_plan(g, {sharding, replicate, shard, recompute, 0, accumulation, 1, compute, reshard, 1}, 4);
                  INFO(describe(plan));
                  REQUIRE(broken_rule(plan) == "");
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

// A mutant is a schedule with one instruction dropped or doubled.
Schedule mutant_of(const Schedule& good, int at, bool drops) {
  Schedule bad = good;
  Segment* home = nullptr;
  for (Segment& g : bad.segments)
    if (at >= g.first_instruction && at < g.first_instruction + g.num_instructions) home = &g;
  if (drops)
    bad.instructions.erase(bad.instructions.begin() + at);
  else
    bad.instructions.insert(bad.instructions.begin() + at, bad.instructions[at]);
  home->num_instructions += drops ? -1 : 1;
  for (Segment& g : bad.segments)
    if (&g > home) g.first_instruction += drops ? -1 : 1;
  return bad;
}

TEST_CASE("mutated schedules are caught or mean the same") {
  check_property(2000, [] {
    Draw random;
    const Geometry geometry = random_geometry(random);
    const Plan plan = make_test_plan(geometry, random_choice(random), 4);
    const Schedule good = compile_schedule(plan, Phase::kStep);
    const int at = static_cast<int>(random() % good.instructions.size());
    const InstructionOp op = good.instructions[at].op;
    RC_PRE(op != InstructionOp::kZero && op != InstructionOp::kWait);
    const bool drops = random() % 2 == 0;
    RC_LOG() << (drops ? "drop" : "double") << " of " << format_instruction(good, at) << " in " << describe(plan);
    // A cast or gather that is doubled fills the same chunk with the same bytes, a norm or a sum taken twice over the same input
    // is the only exception that must be caught elsewhere (trace and parity): everything else breaks a rule here.
    bool is_caught = false;
    try {
      is_caught = !check_invariants(plan, mutant_of(good, at, drops)).empty();
    } catch (...) {
      is_caught = true;
    }
    RC_ASSERT(is_caught);
  });
}

}  // namespace
}  // namespace distsetup
