// What a framework refuses (validate) is not in the space that is searched; pinned, it is an error with the framework's reason.
#include <algorithm>
#include <catch2/catch.hpp>

#include "model/presets.h"
#include "planner/resolve/resolve.h"
#include "planner/search/answer.h"
#include "planner/search/space.h"
#include "support/presets.h"

using namespace distsetup;

namespace {

Problem ruled_problem(std::vector<std::pair<std::string, std::string>> flags) {
  flags.insert(flags.begin(), {{"gpus", "8"}, {"nodes", "1"}, {"global-batch", "64"}});
  Spec spec;
  for (const auto& [flag, value] : flags) {
    INFO(flag << " " << value);
    REQUIRE_FALSE(has_error(set_flag(spec, flag, std::string_view(value), {"test", 0, 0})));
  }
  Result<Problem> problem = resolve(spec, presets(), {});
  INFO(format_diagnostics(problem.diagnostics));
  REQUIRE(problem.ok());
  return *problem;
}

}  // namespace

TEST_CASE("trainer rules: DeepSpeed offloads parameters under zero3 alone") {
  const Problem free =
      ruled_problem({{"trainer", "deepspeed"}, {"model", "llama3_8b"}, {"gpu", "a100_sxm_80"}, {"offload-parameters", "host"}});
  Diagnostics why;
  const std::vector<Choice> choices = legal_choices(free, 1, &why);
  CHECK(why.empty());
  REQUIRE_FALSE(choices.empty());
  CHECK(std::all_of(choices.begin(), choices.end(), [](const Choice& c) { return c.sharding == Sharding::kZero3; }));

  const Problem pinned = ruled_problem({{"trainer", "deepspeed"},
                                        {"model", "llama3_8b"},
                                        {"gpu", "a100_sxm_80"},
                                        {"offload-parameters", "host"},
                                        {"sharding", "zero2"}});
  CHECK(legal_choices(pinned, 1, &why).empty());
  REQUIRE_FALSE(why.empty());
  CHECK(why.front().severity == Severity::kError);
  CHECK(why.front().message == "DeepSpeed offloads parameters under zero3 alone");
  Diagnostics said;
  CHECK_FALSE(solve(pinned, said, Shortfall::kFind).has_value());
  CHECK(said == why);
}

TEST_CASE("trainer rules: copies of an unsharded optimizer hold one set of experts together") {
  const Problem problem =
      ruled_problem({{"trainer", "megatron"}, {"model", "mixtral_8x7b"}, {"gpu", "h200_sxm"}, {"sharding", "ddp"}, {"ep", "8"}});
  CHECK_FALSE(legal_choices(problem, 1).empty());
}
