// An accumulation without a batch: accelerate's file gives it, and the script the rest. How many sequences a step has is then open.
#include <algorithm>
#include <catch2/catch.hpp>

#include "planner/search/answer.h"
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

TEST_CASE("open batch: a step of one sequence over many GPUs is split further than is worth while elsewhere", "[search]") {
  const auto choices = [](const char* nodes, const char* batch, Diagnostics* why) {
    const Result<Problem> problem = resolved({{"model", "8B"}, {"nodes", nodes}, {"global-batch", batch}, {"trainer", "native"}});
    REQUIRE(problem.ok());
    return legal_choices(*problem, problem->node_counts.front(), why);
  };
  const std::vector<Choice> few = choices("4", "1", nullptr);
  REQUIRE_FALSE(few.empty());
  for (const Choice& one : few) CHECK(one.tp * one.cp == 32);
  const std::vector<Choice> usual = choices("4", "2", nullptr);  // where less leaves something, nothing else is looked at
  REQUIRE_FALSE(usual.empty());
  for (const Choice& one : usual) CHECK(4096 / one.cp >= kFewestContextTokens);
}

TEST_CASE("open batch: what leaves no mesh is said of what is pinned, not of axes that are free", "[search]") {
  const auto why = [](Flags flags) {
    flags.insert(flags.end(), {{"model", "8B"}, {"trainer", "deepspeed"}, {"nodes", "4"}});
    const Result<Problem> problem = resolved(flags);
    REQUIRE(problem.ok());
    Diagnostics said;
    CHECK(legal_choices(*problem, 4, &said).empty());
    REQUIRE_FALSE(said.empty());
    return said.front().message;
  };
  CHECK(why({{"global-batch", "1"}}) == "no mesh of 32 GPUs fits what is pinned: global batch 1");
  CHECK(why({{"global-batch", "1"}, {"tp", "1"}, {"cp", "1"}}).find("micro-batch × accumulation × 32") != std::string::npos);
}

TEST_CASE("a mesh that the bundled trainer does not run is refused with its own rule", "[search]") {
  const auto why = [](Flags flags) {
    flags.insert(flags.end(), {{"trainer", "native"}, {"nodes", "1"}, {"global-batch", "16"}, {"sequence-length", "1024"}});
    const Result<Problem> problem = resolved(flags);
    INFO(format_diagnostics(problem.diagnostics));
    REQUIRE(problem.ok());
    Diagnostics said;
    CHECK(legal_choices(*problem, 1, &said).empty());
    REQUIRE_FALSE(said.empty());
    return said.front().message + "; " + said.front().help;
  };
  const std::string ulysses =
      why({{"model", "8B"}, {"tp", "2"}, {"gpus", "16"}, {"gpu", "cpu"}, {"cp", "8"}, {"cp-method", "ulysses"}});
  CHECK(ulysses.find("ulysses over cp 8 does not divide the 4 key and value heads of a tensor-parallel rank; --cp-method "
                     "allgather") != std::string::npos);
  const std::string kept = why({{"model", "8B"}, {"pp", "2"}, {"sharding", "zero3"}, {"reshard-after-forward", "false"}});
  CHECK(kept.find("reshard_after_forward cannot be false") != std::string::npos);
  const std::string copies = why({{"model", "8B"}, {"gpus", "2"}, {"dp-replicate", "2"}, {"sharding", "zero1"}});
  CHECK(copies ==
        "dp_replicate 2 leaves one rank to each copy, and zero1 splits over several; --sharding ddp, or --dp-shard 1 for copies "
        "of which nothing is split");
  const std::string experts = why({{"model", "mixtral_8x7b"}, {"gpus", "4"}, {"tp", "2"}, {"ep", "1"}, {"sharding", "ddp"}});
  CHECK(experts.find("with ddp the ranks of dp_shard") != std::string::npos);
}

// One node may do, two are likely to, and more have no sequences to work on.
TEST_CASE("open batch: where none fits for sure the number of nodes is one that is likely to", "[search]") {
  const auto plan_on = [](const char* nodes) {
    const Result<Problem> problem = resolved({{"model", "8B"},
                                              {"trainer", "deepspeed"},
                                              {"sharding", "zero3"},
                                              {"gpu", "a100_sxm_40"},
                                              {"gpus", "8"},
                                              {"nodes", nodes},
                                              {"global-batch", "16"},
                                              {"micro-batch", "1"},
                                              {"sequence-length", "12288"},
                                              {"recompute", "full"},
                                              {"cp", "1"}});
    REQUIRE(problem.ok());
    Diagnostics why;
    std::optional<Plan> plan = solve(*problem, why, Shortfall::kFind);
    REQUIRE(plan.has_value());
    return *plan;
  };
  const Plan one = plan_on("1"), any = plan_on("auto");
  REQUIRE(one.verdict == Verdict::kTight);
  REQUIRE(one.memory.fit_probability < 0.8);
  CHECK(any.hardware.nodes == 2);
  CHECK(any.verdict == Verdict::kTight);
  CHECK(any.memory.fit_probability > 0.8);
}
