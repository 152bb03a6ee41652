// What a named program says of time: whether blocks are compiled, and which of their operations are one kernel.
#include <catch2/catch.hpp>

#include "base/diagnostic_codes.h"
#include "planner/replay/built_in_programs.h"
#include "planner/replay/program_facts.h"
#include "planner/search/framework_setup.h"
#include "planner/time/step.h"
#include "support/problems.h"

using namespace distsetup;

namespace {

Setup planned(const std::string& trainer, const Flags& more) {
  Flags flags = {{"model", "8B"}, {"nodes", "1"}, {"trainer", trainer}};
  flags.insert(flags.end(), more.begin(), more.end());
  const Result<Problem> problem = resolved(flags);
  INFO(format_diagnostics(problem.diagnostics));
  REQUIRE(problem.ok());
  Choice choice;
  choice.dp_shard = 8;
  choice.recompute = Recompute::kFull;
  return setup_of(*problem, 1, choice);
}

double elementwise_s(const Setup& setup) { return estimate_time(setup).elementwise_s; }

}  // namespace

TEST_CASE("a program of compiled blocks is timed as compiled, as the trainer's own switch is") {
  const Setup named = planned("fsdp2", {{"program", "torchtitan_compiled"}}), compiled = planned("fsdp2", {{"compile", "true"}});
  REQUIRE(compiled.program == "torchtitan_compiled");
  CHECK(named.compiled);
  CHECK(estimate_time(named).step_s == estimate_time(compiled).step_s);
  CHECK(estimate_time(named).step_s < estimate_time(planned("fsdp2", {})).step_s);
  CHECK_FALSE(planned("fsdp2", {{"program", "litgpt_eager"}}).compiled);
  CHECK(planned("fsdp2", {{"program", "litgpt_compiled"}}).compiled);
}

TEST_CASE("a program of compiled blocks that shall not be compiled is a contradiction") {
  const Result<Problem> problem =
      resolved({{"model", "8B"}, {"trainer", "fsdp2"}, {"program", "torchtitan_compiled"}, {"compile", "false"}});
  REQUIRE(problem.diagnostics.size() == 1);
  CHECK(problem.diagnostics.front().code == code::kConflict);
}

TEST_CASE("fused kernels of a program move fewer bytes than the operations that they stand for") {
  const Setup eager = planned("fsdp1", {{"program", "hf_eager"}}), fused = planned("fsdp1", {{"program", "hf_fused"}});
  CHECK(replay::fused_kernels(fused).norm);
  CHECK(replay::fused_kernels(fused).activation);
  CHECK(replay::fused_kernels(fused).rotation);
  CHECK_FALSE(replay::fused_kernels(eager).norm);
  CHECK_FALSE(replay::fused_kernels(eager).rotation);
  CHECK(elementwise_s(fused) < 0.7 * elementwise_s(eager));
  // As the switches of the same kernels under the plain modules.
  Setup switched = eager;
  switched.fused_norm = switched.fused_rope = switched.fused_swiglu = true;
  CHECK(elementwise_s(fused) == Approx(elementwise_s(switched)));
  CHECK(replay::fused_kernels(switched).norm);
  // LitGPT lists copies and no rotation, beside norms of several kernels: not fused.
  CHECK_FALSE(replay::fused_kernels(planned("fsdp2", {{"program", "litgpt_eager"}})).rotation);
}
