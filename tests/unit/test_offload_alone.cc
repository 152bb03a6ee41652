// One GPU with a host beside it: which stages it is planned with, and what a plan is chosen by where the host has too little memory.
#include <catch2/catch.hpp>
#include <set>

#include "planner/search/make_plan.h"
#include "planner/search/space.h"
#include "support/problems.h"

using namespace distsetup;

namespace {

constexpr int64_t kGib = int64_t{1} << 30;

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

TEST_CASE("a host that is too small for every plan: the mesh is the one that a larger host would get") {
  // torchtune's full fine-tuning of 70B on eight cards of 24 GB (pytorch/torchtune issue 1871): the host's 500 GB were too few.
  const Flags flags = {{"model", "llama3.1_70b"},
                       {"trainer", "fsdp2"},
                       {"gpu", "rtx_4090"},
                       {"nodes", "1"},
                       {"gpus", "8"},
                       {"sequence-length", "1024"},
                       {"global-batch", "16"},
                       {"recompute", "full"},
                       {"master-dtype", "bf16"},
                       {"offload-optimizer", "host"},
                       {"offload-parameters", "host"}};
  const auto planned = [&](const char* host, const Flags& more = {}) {
    Flags all = flags;
    all.emplace_back("host-memory", host);
    all.insert(all.end(), more.begin(), more.end());
    const Result<Problem> problem = resolved(all);
    INFO(format_diagnostics(problem.diagnostics));
    REQUIRE(problem.ok());
    const Result<Plan> plan = make_plan(*problem);
    REQUIRE(plan.ok());
    return *plan;
  };
  const Plan small = planned("500GB"), large = planned("2TB");
  CHECK(small.verdict == Verdict::kDoesNotFit);
  CHECK(small.memory.fit_probability == 0);
  CHECK(large.verdict == Verdict::kFits);
  CHECK(small.mesh == large.mesh);
  CHECK(small.memory.device_bytes == large.memory.device_bytes);
  // As it ran, with two samples a card: "the GPU memory usage peaks at around 14GB per card, but the system RAM usage quickly reaches
  // 500GB".
  const Plan ran = planned("500GB", {{"tp", "1"}, {"cp", "1"}, {"micro-batch", "2"}});
  CHECK(ran.memory.device_bytes > 12 * kGib);
  CHECK(ran.memory.device_bytes < 15 * kGib);
  CHECK(ran.memory.host_bytes_per_node > 500 * kGib);
}
