// An accumulation without a batch: accelerate's file gives it, and the script the rest. How many sequences a step has is then open.
#include <algorithm>
#include <catch2/catch.hpp>

#include "planner/search/space.h"
#include "support/problems.h"

using namespace distsetup;

namespace {

std::vector<int64_t> micro_batches(Flags flags) {
  flags.insert(flags.end(), {{"model", "8B"}, {"gpus", "8"}, {"nodes", "1"}, {"trainer", "deepspeed"}, {"sharding", "zero2"}});
  const Result<Problem> problem = resolved(flags);
  REQUIRE(problem.ok());
  std::vector<int64_t> out;
  for (const Choice& one : legal_choices(*problem, 1)) out.push_back(one.micro_batch);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

TEST_CASE("open batch: an accumulation alone leaves smaller micro-batches than the usual batch has", "[search]") {
  const std::vector<int64_t> open = micro_batches({{"gradient-accumulation", "1"}, {"cp", "1"}});
  CHECK(open == std::vector<int64_t>{1, 2, 4, 8, 16, 32});  // at most 256 sequences of 8 ranks
}

TEST_CASE("open batch: a batch that is asked for is kept", "[search]") {
  CHECK(micro_batches({{"gradient-accumulation", "1"}, {"cp", "1"}, {"global-batch", "256"}}) == std::vector<int64_t>{32});
  CHECK(micro_batches({{"gradient-accumulation", "1"}, {"cp", "1"}, {"micro-batch", "2"}}) == std::vector<int64_t>{2});
}
