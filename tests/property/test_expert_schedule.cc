// Lists of plans whose ranks share experts: every small one, and what breaks them. No torch.
#include <fmt/format.h>

#include <array>
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "plan/check_job.h"
#include "plan/compile_schedule.h"
#include "plan/expand.h"
#include "plan/layout_ranges.h"
#include "plan/plan_json.h"
#include "plan/schedule_text.h"
#include "planner/native/simulate.h"
#include "support/broken_jobs.h"
#include "support/random_plan.h"
#include "support/schedule_rules.h"
#include "support/seed.h"

namespace distsetup {
namespace {

// Two layers with experts around a dense one.
Geometry expert_geometry() {
  Geometry g = tiny_geometry(3);
  g.family = "qwen2_moe";
  g.num_experts = 8, g.experts_per_token = 2, g.expert_feed_forward = 24, g.shared_feed_forward = 16;
  g.expert_layer = {true, false, true};
  g.qkv_bias = g.shared_expert_gate = true;
  g.router_loss = 0.02;
  return g;
}

struct SharedMesh {
  Sharding sharding;
  int replicate, shard, cp, ep, tp = 1, pp = 1;
};
const std::vector<SharedMesh>& meshes() {
  using enum Sharding;
  static const std::vector<SharedMesh> all = [] {
    std::vector<SharedMesh> found = {
        {kDdp, 1, 2, 1, 2}, {kDdp, 2, 2, 1, 2}, {kDdp, 1, 1, 2, 2}, {kDdp, 2, 2, 2, 4}, {kDdp, 1, 8, 1, 8}};
    for (const Sharding sharding : {kZero1, kZero2, kZero3})
      for (const auto& [replicate, shard, cp, ep] : {std::array{1, 2, 1, 2},
                                                     {1, 4, 1, 2},
                                                     {1, 4, 1, 4},
                                                     {2, 2, 1, 2},
                                                     {1, 2, 2, 2},
                                                     {1, 2, 2, 4},
                                                     {2, 4, 1, 2},
                                                     {1, 3, 2, 2},
                                                     {1, 8, 1, 8}})
        found.push_back({sharding, replicate, shard, cp, ep});
    found.insert(found.end(), {{kDdp, 1, 1, 1, 2, 2}, {kDdp, 2, 2, 1, 4, 2}, {kDdp, 1, 2, 1, 2, 1, 2}, {kDdp, 1, 1, 1, 2, 2, 2}});
    for (const Sharding sharding : {kZero1, kZero2, kZero3})
      for (const auto& [shard, cp, ep, tp, pp] : {std::array{1, 1, 1, 2, 1},
                                                  {2, 1, 1, 2, 1},
                                                  {2, 1, 2, 2, 1},
                                                  {2, 1, 4, 2, 1},
                                                  {1, 2, 4, 2, 1},
                                                  {2, 2, 2, 2, 1},
                                                  {2, 1, 2, 1, 2},
                                                  {4, 1, 2, 1, 2},
                                                  {2, 1, 4, 2, 2},
                                                  {1, 1, 1, 2, 3}})
        found.push_back({sharding, 1, shard, cp, ep, tp, pp});
    return found;
  }();
  return all;
}

Plan shared_plan(const SharedMesh& m, int64_t accumulation = 2, Recompute recompute = Recompute::kNone, Dtype compute = Dtype::kF32,
                 bool reshard = true) {
  Plan plan = make_test_plan(expert_geometry(), {.sharding = m.sharding,
                                                 .dp_replicate = m.replicate,
                                                 .dp_shard = m.shard,
                                                 .recompute = recompute,
                                                 .every_k = recompute == Recompute::kEveryK ? 2 : 0,
                                                 .accumulation = accumulation,
                                                 .compute = compute,
                                                 .reshard = reshard,
                                                 .tp = m.tp,
                                                 .cp = m.cp,
                                                 .pp = m.pp});
  plan.mesh.ep = m.ep;
  return plan;
}

std::string text(const Plan& plan) { return fmt::format("{} ep {}", describe(plan), plan.mesh.ep); }

TEST_CASE("every small plan whose ranks share experts obeys every rule, of a list and of a job", "[all]") {
  int plans = 0;
  for (const SharedMesh& m : meshes())
    for (const int64_t accumulation : {1, 2, 3})
      for (const Recompute recompute :
           {Recompute::kNone, Recompute::kSelective, Recompute::kKeepAttention, Recompute::kFull, Recompute::kEveryK})
        for (const Dtype compute : {Dtype::kF32, Dtype::kBf16})
          for (const bool reshard : {true, false}) {
            if (!reshard && (m.sharding != Sharding::kZero3 || m.pp > 1)) continue;
            if (accumulation == 3 && recompute != Recompute::kFull) continue;
            const Plan plan = shared_plan(m, accumulation, recompute, compute, reshard);
            INFO(text(plan));
            REQUIRE(broken_rule(plan) == "");
            if (compute == Dtype::kF32) REQUIRE(fmt::format("{}", fmt::join(check_job(plan), "\n")) == "");
            ++plans;
          }
  CHECK(plans > 500);
}

TEST_CASE("a list of ranks that share experts with one instruction broken is caught by check_job") {
  INFO("DISTSETUP_SEED=" << test_seed());
  std::mt19937_64 random(test_seed());
  std::array<int, kNumBreaks> tried{};
  for (int round = 0; round < num_rounds(600); ++round) {
    const SharedMesh& m = meshes()[random() % meshes().size()];
    if (m.ep == 8) continue;
    const Plan plan = shared_plan(m, 1 + static_cast<int64_t>(random() % 2), static_cast<Recompute>(random() % 3),
                                  random() % 2 == 0 ? Dtype::kF32 : Dtype::kBf16);
    const Schedule list = compile_schedule(plan, Phase::kStep), good = compile_expanded(plan, Phase::kStep);
    const int at = static_cast<int>(random() % list.instructions.size());
    const Break how = static_cast<Break>(random() % kNumBreaks);
    const bool on_one_rank = random() % 2 == 0;
    Schedule bad = list;
    if (!apply(how, bad, good, at, plan)) continue;
    ++tried[static_cast<size_t>(how)];
    INFO("break " << static_cast<int>(how) << " of " << format_instruction(list, at) << (on_one_rank ? " on one rank" : "") << " in "
                  << text(plan));
    REQUIRE(is_caught_anywhere(plan, bad, on_one_rank));
  }
  for (const int n : tried) CHECK(n > 0);
}

TEST_CASE("a program that sends rows of experts otherwise on one rank is caught by check_job") {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
    const Plan plan = shared_plan({Sharding::kZero3, 1, 4, 1, 2}, 1, recompute);
    CHECK(changed_exchanges(plan, Group::kEp, Group::kExpertData) >= 2 * (4 + 3));  // of two layers: forward, backward
  }
}

TEST_CASE("what routers have chosen, not taken from a message or not put into one, is caught by check_job") {
  int messages = 0;
  for (const SharedMesh& m :
       {SharedMesh{Sharding::kDdp, 1, 1, 1, 2, 2, 2}, {Sharding::kZero2, 1, 2, 1, 2, 1, 2}, {Sharding::kZero3, 1, 1, 1, 1, 2, 3}}) {
    const Plan plan = shared_plan(m);
    for (int stage = 0; stage < plan.mesh.pp; ++stage) {
      const Schedule good = compile_expanded(plan, Phase::kStep, stage);
      for (size_t at = 0; at < good.instructions.size(); ++at)
        for (int StageTensors::*const which : {&StageTensors::routes_in, &StageTensors::routes_out}) {
          if (good.instructions[at].stage.*which < 0) continue;
          ++messages;
          Schedule bad = good;
          bad.instructions[at].stage.*which = -1;
          INFO(format_instruction(good, static_cast<int>(at)) << " in " << text(plan));
          CHECK(is_caught(plan, bad, /*on_one_rank=*/false));
        }
    }
  }
  CHECK(messages == 2 * (4 + 4 + 8));  // of two micro-batches: out and in, between stages, there and back
}

TEST_CASE("the gradient norm takes every element of shared experts and of all else once") {
  for (const SharedMesh& m : meshes()) {
    const Plan plan = shared_plan(m);
    INFO(text(plan));
    int64_t normed = 0, decayed = 0;
    for (const int rank : group_members(plan.mesh, state_group(plan.mesh, m.sharding), 0)) {
      const Coordinates at = coordinates(plan.mesh, rank);
      const Layout layout = make_layout(plan, at.pp);
      for (const ElementRange& r : norm_ranges(layout, at)) normed += r.size();
      int64_t own = 0, end = 0;
      for (const DecayRange& r : decay_ranges(layout, at)) {
        CHECK(r.begin >= end);  // no element twice
        own += r.end - r.begin, end = r.end;
      }
      decayed += own;
    }
    const int64_t numel = make_layout(plan).numel;
    const bool has_copies = m.sharding == Sharding::kDdp && m.shard * m.cp > 1;  // of what is no expert
    CHECK(normed == numel);
    CHECK(decayed >= numel);
    CHECK(has_copies == (decayed > numel));
  }
}

Schedule fullest_stage(const Plan& plan) {
  Schedule fullest = compile_expanded(plan, Phase::kStep);
  const auto bytes = [](const Schedule& s) { return s.live_peak_bytes + run_bytes(s); };
  for (int stage = 1; stage < plan.mesh.pp; ++stage)
    if (Schedule other = compile_expanded(plan, Phase::kStep, stage); bytes(other) > bytes(fullest)) fullest = std::move(other);
  return fullest;
}

TEST_CASE("simulate's bytes of ranks that share experts are the expanded list's, and bounds are below") {
  for (const SharedMesh& m : meshes()) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kKeepAttention, Recompute::kFull}) {
      Plan plan = shared_plan(m, 2, recompute, recompute == Recompute::kNone ? Dtype::kBf16 : Dtype::kF32);
      plan.hardware.peak_flops_per_s = plan.hardware.memory_bytes_per_s = 1e11;
      plan.hardware.gemm_efficiency = plan.hardware.attention_efficiency = 0.5;
      INFO(text(plan));
      REQUIRE(!has_error(validate(plan)));
      const Schedule expanded = fullest_stage(plan);
      for (const double transfer_bytes_per_s : {1e11, 1e6}) {  // in a step that computes, and in one that waits for transfers
        plan.hardware.link_bytes_per_s = plan.hardware.network_bytes_per_s = transfer_bytes_per_s;
        SimulationCache cache;
        const Simulation s = simulate(plan, cache);
        CHECK(s.live_peak_bytes == expanded.live_peak_bytes);
        CHECK(s.run_bytes == run_bytes(expanded));
        const StepBound least = bound(plan, cache);
        CHECK(states_bound_bytes(plan) <= least.allocated_bytes);
        CHECK(least.allocated_bytes <= s.allocated_bytes());
        CHECK(least.step_s <= s.time.step_s);
        CHECK(least.step_s > 0);
      }
    }
  }
}

TEST_CASE("plans without shared experts compile to what they did, and a plan with them goes through plan.json") {
  const Plan plan = shared_plan({Sharding::kZero2, 1, 4, 1, 2});
  Plan alone = plan;
  alone.mesh.ep = 1;
  CHECK(schedule_digest(alone) != schedule_digest(plan));
  const std::string json = dump_json(to_json(plan));
  const Result<Plan> back = plan_from_json(json, "plan.json");
  REQUIRE(back.ok());
  CHECK(*back == plan);
  // Groups: ranks in a row share experts; those as far apart have the same.
  CHECK(group_members(plan.mesh, Group::kEp, 2) == std::vector<int>{2, 3});
  CHECK(group_members(plan.mesh, Group::kExpertData, 2) == std::vector<int>{0, 2});
  CHECK(group_index(plan.mesh, Group::kEp, coordinates(plan.mesh, 3)) == 1);
  CHECK(group_index(plan.mesh, Group::kExpertData, coordinates(plan.mesh, 3)) == 1);
}

}  // namespace
}  // namespace distsetup
