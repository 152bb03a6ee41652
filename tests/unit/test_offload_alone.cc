// One GPU with a host beside it: which stages it is planned with.
#include <catch2/catch.hpp>
#include <set>

#include "planner/search/space.h"
#include "support/problems.h"

using namespace distsetup;

namespace {

Flags on_one_gpu(const std::string& trainer) {
  return {{"model", "llama3.1_70b"}, {"trainer", trainer}, {"gpu", "h100_sxm"}, {"nodes", "1"}, {"gpus", "1"}, {"global-batch", "4"}};
}

std::set<Sharding> shardings_of(Flags flags, const Flags& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  const Result<Problem> problem = resolved(flags);
  INFO(format_diagnostics(problem.diagnostics));
  REQUIRE(problem.ok());
  std::set<Sharding> out;
  for (const Choice& choice : legal_choices(*problem, 1)) out.insert(choice.sharding);
  return out;
}

}  // namespace

TEST_CASE("one GPU with a host: the stages that differ there are looked at, no others") {
  const Flags optimizer = {{"offload-optimizer", "host"}}, both = {{"offload-optimizer", "host"}, {"offload-parameters", "host"}};
  using S = Sharding;
  CHECK(shardings_of(on_one_gpu("deepspeed"), {}) == std::set{S::kDdp});
  CHECK(shardings_of(on_one_gpu("deepspeed"), optimizer) == std::set{S::kZero1, S::kZero2});
  CHECK(shardings_of(on_one_gpu("deepspeed"), {{"offload-optimizer", "nvme"}}) == std::set{S::kZero3});
  CHECK(shardings_of(on_one_gpu("deepspeed"), both) == std::set{S::kZero3});
  CHECK(shardings_of(on_one_gpu("fsdp2"), {}) == std::set{S::kZero2});
  CHECK(shardings_of(on_one_gpu("fsdp2"), both) == std::set{S::kZero3});
  CHECK(shardings_of(on_one_gpu("fsdp1"), both) == std::set{S::kDdp});  // NO_SHARD
}
