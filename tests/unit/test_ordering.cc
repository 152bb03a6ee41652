#include "plan/ordering.h"

#include <catch2/catch.hpp>

#include "plan/compile_schedule.h"
#include "plan/expand.h"
#include "support/random_plan.h"

namespace distsetup {
namespace {

Schedule step_of(const PlanChoice& choice) { return compile_expanded(make_test_plan(tiny_geometry(4), choice), Phase::kStep, 0); }

TEST_CASE("what gives bytes back waits for all that still uses them, also where nothing takes them later") {
  for (const Sharding sharding : {Sharding::kZero1, Sharding::kZero3}) {
    PlanChoice choice;
    choice.sharding = sharding;
    choice.dp_shard = 2;
    choice.optimizer_on_host = true;
    const Schedule whole = step_of(choice);
    REQUIRE(check_order(whole, Coordinates{}).empty());
    int num_dropped = 0;
    for (size_t i = 0; i < whole.instructions.size(); ++i) {
      if (whole.instructions[i].op != InstructionOp::kFree || whole.instructions[i].waits.empty()) continue;
      Schedule broken = whole;
      broken.instructions[i].waits.clear();
      INFO("instruction " << i);
      const std::vector<std::string> found = check_order(broken, Coordinates{});
      REQUIRE_FALSE(found.empty());
      CHECK(found.front().find("gives back") != std::string::npos);
      ++num_dropped;
    }
    CHECK(num_dropped > 0);
  }
}

}  // namespace
}  // namespace distsetup
