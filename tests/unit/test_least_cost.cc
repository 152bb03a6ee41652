// The goal of least cost: one loop over machines and numbers of nodes, around the same solve() for every trainer.
#include <catch2/catch.hpp>

#include "model/presets.h"
#include "planner/resolve/resolve.h"
#include "planner/search/goal.h"
#include "planner/search/make_plan.h"
#include "support/problems.h"

using namespace distsetup;

namespace {

Problem problem_of(const Flags& flags) {
  const Result<Problem> problem = resolved(flags);
  INFO(format_diagnostics(problem.diagnostics));
  REQUIRE(problem.ok());
  return *problem;
}

double usd_per_token(const Plan& plan) { return plan.hardware.price_usd_per_gpu_hour / plan.time.tokens_per_s_per_gpu; }

}  // namespace

TEST_CASE("least cost: no number of nodes that was tried is cheaper than the answer") {
  for (const char* trainer : {"megatron", "fsdp2"}) {
    INFO(trainer);
    Problem problem = problem_of({{"model", "13B"}, {"trainer", trainer}, {"gpu", "h100"}, {"gpus", "8"}, {"price", "2.5"}});
    problem.goal = Goal::kMinCost;
    problem.node_counts = {1, 2, 4};
    const Result<Plan> best = make_plan_for_goal(problem);
    REQUIRE(best.ok());
    REQUIRE(best->verdict == Verdict::kFits);
    for (const int nodes : problem.node_counts) {
      if (nodes > 4 * best->hardware.nodes) break;
      Problem one = problem;
      one.goal = Goal::kThroughput;
      one.node_counts = {nodes};
      const Result<Plan> plan = make_plan(one);
      if (!plan.ok() || plan->verdict != Verdict::kFits) continue;
      INFO(nodes << " nodes");
      CHECK(usd_per_token(*best) <= usd_per_token(*plan) * (1 + 1e-6));
    }
  }
}

TEST_CASE("least cost: the smallest that fits stays the smallest") {
  const Problem fastest = problem_of({{"model", "8B"}, {"trainer", "fsdp2"}});
  Problem cheapest = fastest;
  cheapest.goal = Goal::kMinCost;
  const std::vector<SmallestFit> expected = smallest_that_fits(fastest), found = smallest_that_fits(cheapest);
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    INFO(found[i].gpu);
    CHECK(found[i].nodes == expected[i].nodes);
  }
}
