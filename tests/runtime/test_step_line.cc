// What a person at a terminal sees of a step, and what evaluations make of losses that are not finite.
#include <catch2/catch.hpp>
#include <cmath>

#include "base/json.h"
#include "runtime/monitor/evaluations.h"
#include "runtime/monitor/failure.h"
#include "runtime/monitor/step_guard.h"
#include "runtime/monitor/step_line.h"

using namespace distsetup;

namespace {

std::string text(int columns) {
  Plan plan;
  plan.train.steps = 200;
  plan.time.step_s = 0.5;
  plan.memory.peak_allocated_bytes = 3 << 20;
  StepFacts facts;
  facts.step = 12;
  facts.learning_rate = 3e-4;
  facts.valid_tokens = 1024;
  facts.step_s = 0.25;
  StepStats stats;
  stats.loss = 2.5;
  stats.gradient_norm = 1.25;
  return step_text(facts, stats, plan, {90, 2 << 20, 0.875}, columns);
}

}  // namespace

TEST_CASE("step line: elsewhere than on a terminal it has all of the step") {
  CHECK(text(0) ==
        "step     12  loss 2.5000  lr 3.00e-04  grad norm 1.250  4,096 tokens/s  250.0 ms (predicted 500.0 ms)  1 m 30 s left\n");
}

TEST_CASE("step line: a terminal's line has what fits, the most important first, and never wraps") {
  CHECK(text(40) == "step 12/200  loss 2.5000  4,096 tokens/s\n");
  CHECK(text(60) == "step 12/200  loss 2.5000  4,096 tokens/s  1 m 30 s left\n");
  CHECK(text(200) ==
        "step 12/200  loss 2.5000  4,096 tokens/s  1 m 30 s left  2.0 of 3.0 MiB  goodput 88 %  "
        "250.0 ms (predicted 500.0 ms)  grad norm 1.250  lr 3.00e-04\n");
  CHECK(text(80) == "step 12/200  loss 2.5000  4,096 tokens/s  1 m 30 s left  2.0 of 3.0 MiB\n");
  for (int columns = 1; columns < 200; ++columns) CHECK(text(columns).size() <= static_cast<size_t>(columns) + 1);
}

TEST_CASE("step line: metrics.jsonl has the peak so far, and of a metered step the memory by phase") {
  StepFacts facts;
  facts.step = 3;
  facts.step_s = 0.5;
  facts.peak_bytes = 12345;
  const Json memory = {{"held_bytes", 5}, {"phases", {{{"phase", "forward"}, {"measured_bytes", 7}}}}};
  const Json metered = step_line(facts, {}, {}, memory), plain = step_line(facts, {}, {}, nullptr);
  CHECK(metered["peak_bytes"] == 12345);
  CHECK(metered["memory"] == memory);
  CHECK(plain["peak_bytes"] == 12345);
  CHECK_FALSE(plain.contains("memory"));
  facts.peak_bytes = 0;  // no meter
  CHECK_FALSE(step_line(facts, {}, {}, nullptr).contains("peak_bytes"));
}

TEST_CASE("step line: the last step and every so many have one") {
  CHECK(has_line(200, 200, 7));
  CHECK(has_line(14, 200, 7));
  CHECK_FALSE(has_line(15, 200, 7));
  CHECK(has_line(4, 200, 0));
  CHECK_FALSE(has_line(5, 200, 0));
  CHECK(has_line(5, 60, 0));
}

TEST_CASE("evaluations: a loss that is not finite is never the best, and counts as no smaller") {
  Evaluations evaluations;
  evaluations.add(0, NAN);
  CHECK(evaluations.has(0));
  CHECK_FALSE(evaluations.loss().has_value());
  CHECK_FALSE(evaluations.record().has_value());
  evaluations.add(5, 3.0);
  evaluations.add(10, INFINITY);
  evaluations.add(15, NAN);
  REQUIRE(evaluations.record().has_value());
  CHECK(*evaluations.record() == HeldOutRecord{3.0, 2});
  CHECK(lost_patience(evaluations.record(), 2));
  CHECK(evaluations.curve().size() == 1);
  CheckpointMetadata metadata;
  metadata.step = 15;
  evaluations.describe(metadata);
  CHECK_FALSE(metadata.held_out_loss.has_value());
  evaluations.add(20, 2.0);
  CHECK(*evaluations.record() == HeldOutRecord{2.0, 0});
  CHECK(evaluation_line(20, 2.0) == Json({{"kind", "evaluation"}, {"step", 20}, {"held_out_loss", 2.0}}));
  CHECK(evaluation_line(15, NAN) == Json({{"kind", "evaluation"}, {"step", 15}, {"not_finite", "the held-out loss is nan"}}));
}

TEST_CASE("evaluations: their line on a terminal is short") {
  CHECK(evaluation_text(5, 3.0, 0) == "step      5  held-out loss 3.0000\n");
  CHECK(evaluation_text(5, 3.0, 40) == "step 5  held-out loss 3.0000\n");
  CHECK(evaluation_text(5, NAN, 20) == "step 5  held-out los\n");
}

TEST_CASE("evaluations: one that is not finite ends the run, unless such steps are skipped") {
  GuardPlan plan;
  CHECK_NOTHROW(check_evaluation(1.0, plan));
  CHECK_THROWS_AS(check_evaluation(NAN, plan), Failure);
  plan.on_nan = kSkip;
  CHECK_NOTHROW(check_evaluation(NAN, plan));
}
