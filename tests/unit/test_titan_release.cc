// A plan for torchtitan has the switches of the release that its target writes for: those that a measured run of that day gets.
#include <catch2/catch.hpp>

#include "model/presets.h"
#include "planner/resolve/releases.h"
#include "planner/search/framework_setup.h"
#include "support/presets.h"
#include "support/problems.h"

using namespace distsetup;

TEST_CASE("torchtitan: a plan is predicted as the release that its target writes for") {
  const auto setup = [&](const Flags& more) {
    Flags flags = {{"model", "8B"}, {"gpus", "8"}, {"nodes", "1"}, {"trainer", "fsdp2"}, {"compile", "true"}};
    flags.insert(flags.end(), more.begin(), more.end());
    const Result<Problem> problem = resolved(flags);
    INFO(format_diagnostics(problem.diagnostics));
    REQUIRE(problem.ok());
    return base_setup(*problem, 1);
  };
  const Setup newest = setup({}), older = setup({{"launch-target", "torchtitan-0.2"}}),
              other = setup({{"launch-target", "accelerate-fsdp2"}});
  CHECK(newest.software.name == "torchtitan 0.3.0");
  CHECK(newest.software.released == 202608);
  CHECK(newest.software.online_softmax);
  CHECK(newest.software.expandable_segments);
  CHECK(newest.software.wrapping == UnitWrapping::kAllApart);
  CHECK_FALSE(newest.software.last_block_stays_gathered);
  CHECK(newest.loss == loss_of_release(newest, built_in_releases("torchtitan"), 20260819));
  CHECK(older.software.name == "torchtitan 0.2.2");
  CHECK(older.software.released == 202602);
  CHECK(older.loss == LossHead::kCompiled);
  CHECK(older.software.online_softmax);
  CHECK(other.loss == LossHead::kEager);
  // The same switches as a measured run of that day gets.
  Setup row = older;
  row.software = {};
  set_release(row, built_in_releases("torchtitan"), 20260220);
  row.software.name = older.software.name;
  CHECK(row.software == older.software);
  CHECK(row.loss == older.loss);
}

TEST_CASE("torchtitan: each model's list of op-selective recomputation names all-to-alls from a day of its own") {
  const auto recomputed = [](const char* model, int day) {
    Setup s;
    s.model = *find_model(presets(), model);
    s.program = "torchtitan_compiled";
    set_release(s, built_in_releases("torchtitan"), day);
    return s.software.exchanges_recomputed;
  };
  CHECK(recomputed("deepseek_v2_lite", 20250905));
  CHECK_FALSE(recomputed("deepseek_v2_lite", 20250906));
  CHECK(recomputed("qwen3_30b_a3b", 20251213));
  CHECK_FALSE(recomputed("qwen3_30b_a3b", 20260323));
}
