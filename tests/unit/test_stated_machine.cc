// What is assumed or stated of nodes, their network and their drives is what a plan counts; and two choices of Megatron's that change
// its memory.
#include <catch2/catch.hpp>

#include <algorithm>

#include "planner/frameworks/memory.h"
#include "planner/frameworks/setup.h"
#include "planner/search/framework_setup.h"
#include "planner/search/space.h"
#include "planner/time/embedded_calibration.h"
#include "planner/time/step.h"
#include "support/problems.h"

namespace distsetup {
namespace {

Problem problem_of(Flags flags, const Flags& more = {}) {
  flags.insert(flags.end(), more.begin(), more.end());
  const Result<Problem> problem = resolved(flags);
  INFO(format_diagnostics(problem.diagnostics));
  REQUIRE(problem.ok());
  return *problem;
}

bool assumes(const Problem& problem, std::string_view text) {
  const std::vector<std::string>& all = problem.base.assumptions;
  return std::any_of(all.begin(), all.end(), [&](const std::string& one) { return one.find(text) != std::string::npos; });
}

double step_s(const Problem& problem) {
  Setup s = base_setup(problem, 2);
  s.sharding = Sharding::kZero3;
  s.dp_shard = 2 * s.gpus_per_node;
  s.recompute = ActivationRecompute::kFull;
  return estimate_time(s, time_constants(s, embedded_calibration())).step_s;
}

}  // namespace

TEST_CASE("network: what is assumed of nodes that no preset describes is what is counted") {
  const Flags common = {{"model", "1B"}, {"nodes", "2"}, {"gpus", "8"}, {"trainer", "fsdp2"}};
  for (const auto& [gpu, gbit_per_s, kind, words] :
       {std::tuple{"a40", "100", "roce", "network of 100 Gb/s per node, roce"},
        std::tuple{"rtx_3080", "25", "ethernet", "25 Gb/s per node, Ethernet without RDMA"}}) {
    const Problem assumed = problem_of(common, {{"gpu", gpu}});
    CHECK(assumes(assumed, words));
    const Problem stated = problem_of(common, {{"gpu", gpu}, {"network-bandwidth", gbit_per_s}, {"network-kind", kind}});
    CHECK_FALSE(assumes(stated, "network"));
    CHECK(assumed.base.hardware.network_bytes_per_s == stated.base.hardware.network_bytes_per_s);
    CHECK(assumed.base.hardware.nic_bytes_per_s == stated.base.hardware.nic_bytes_per_s);
    CHECK(step_s(assumed) == step_s(stated));
  }
  // GH200 are four to a node, with a card of 200 Gb/s for each.
  const Problem cray = problem_of({{"model", "1B"}, {"nodes", "2"}, {"gpu", "gh200_144"}, {"trainer", "fsdp2"}});
  CHECK(cray.base.hardware.gpus_per_node == 4);
  CHECK(cray.base.hardware.nic_bytes_per_s == 100e9);
}

TEST_CASE("network: a faster one is never slower, and 100 Gb/s need not be sockets") {
  const Flags common = {{"model", "1B"}, {"nodes", "2"}, {"gpus", "8"}, {"gpu", "a100_sxm_80"}, {"trainer", "fsdp2"}};
  for (const char* kind : {"ethernet", "roce", "infiniband", "efa"}) {
    double before = 1e300;
    for (const char* gbit_per_s : {"10", "25", "50", "100", "101", "200", "400", "800", "1600"}) {
      const double now = step_s(problem_of(common, {{"network-bandwidth", gbit_per_s}, {"network-kind", kind}}));
      INFO(kind << " at " << gbit_per_s);
      CHECK(now <= before);
      before = now;
    }
  }
  const Problem sockets = problem_of(common, {{"network-bandwidth", "100"}});
  CHECK(assumes(sockets, "Ethernet without RDMA"));
  CHECK(step_s(sockets) > 1.5 * step_s(problem_of(common, {{"network-bandwidth", "100"}, {"network-kind", "infiniband"}})));
}

TEST_CASE("NVMe: states and parameters move at the rate that is stated or assumed") {
  const Flags common = {{"model", "8B"},
                        {"nodes", "2"},
                        {"gpus", "2"},
                        {"gpu", "a100_pcie_40"},
                        {"trainer", "deepspeed"},
                        {"offload-optimizer", "nvme"},
                        {"offload-parameters", "nvme"}};
  const Problem assumed = problem_of(common);
  CHECK(assumes(assumed, "12 GB/s of NVMe per node"));
  const Problem slow = problem_of(common, {{"nvme-bandwidth", "3"}});
  CHECK_FALSE(assumes(slow, "NVMe"));
  CHECK(step_s(problem_of(common, {{"nvme-bandwidth", "12"}})) == step_s(assumed));
  // Twelve bytes a parameter down and up, two up twice, of half the parameters in each node.
  CHECK(step_s(slow) - step_s(assumed) > 0.8 * 28 * 8.03e9 / 2 * (1 / 3e9 - 1 / 12e9));
}

TEST_CASE("sharding that is asked for is over more than one rank, unless axes that are pinned take them all") {
  const Flags common = {{"model", "8B"}, {"nodes", "2"}, {"gpus", "8"}, {"trainer", "fsdp2"}, {"sharding", "zero3"}};
  const std::vector<Choice> free = legal_choices(problem_of(common), 2);
  REQUIRE_FALSE(free.empty());
  CHECK(std::all_of(free.begin(), free.end(), [](const Choice& c) { return c.dp_shard * c.cp > 1; }));
  CHECK_FALSE(legal_choices(problem_of(common, {{"tp", "8"}, {"pp", "2"}}), 2).empty());
}

// Megatron-LM, core/tensor_parallel/cross_entropy.py: an fp32 copy of the logits beside them, unless Transformer Engine's kernel
// writes the gradient over them (--cross-entropy-loss-fusion --cross-entropy-fusion-impl te).
TEST_CASE("megatron: the loss takes 2 bytes a logit in place, and 6 where it is not fused") {
  const auto bytes = [](const Flags& more) {
    const Problem problem =
        problem_of({{"model", "llama3.2_1b"}, {"nodes", "1"}, {"gpus", "8"}, {"trainer", "megatron"}, {"seq", "32768"}}, more);
    Setup s = base_setup(problem, 1);
    s.sharding = Sharding::kZero1;
    s.dp_shard = 8;
    s.micro_batch = 4;
    s.recompute = ActivationRecompute::kFull;
    return static_cast<double>(simulate_memory(s).allocated_bytes);
  };
  const double logits = 4 * 32768.0 * 128256;
  CHECK(bytes({{"loss-head", "eager"}}) - bytes({{"loss-head", "fused"}}) == Approx(4 * logits).epsilon(0.02));
  CHECK(bytes({}) == bytes({{"loss-head", "fused"}}));
}

// Megatron-LM's scripts of large models with experts: --tensor-model-parallel-size 2 --expert-model-parallel-size 8
// --expert-tensor-parallel-size 1 on one node.
TEST_CASE("megatron: whole experts lie on tensor ranks too") {
  const Flags common = {{"model", "qwen3_30b_a3b"}, {"nodes", "1"}, {"gpus", "8"}, {"trainer", "megatron"}, {"tp", "2"}};
  CHECK_FALSE(legal_choices(problem_of(common, {{"ep", "8"}}), 1).empty());
  CHECK(legal_choices(problem_of(common, {{"ep", "16"}}), 1).empty());
}

TEST_CASE("a pipeline whose stages the layers do not fill says so") {
  const Problem problem = problem_of({{"model", "gpt3_175b"},
                                      {"nodes", "16"},
                                      {"gpus", "8"},
                                      {"trainer", "megatron"},
                                      {"tp", "8"},
                                      {"pp", "8"},
                                      {"virtual-stages", "5"}});
  Diagnostics why;
  CHECK(legal_choices(problem, 16, &why).empty());
  REQUIRE_FALSE(why.empty());
  CHECK(why.front().message.find("96 layers do not divide by pp 8 × 5 virtual stages = 40") != std::string::npos);
}

// core/distributed/param_and_grad_buffer.py: gradients lie in the type in which they are reduced.
TEST_CASE("megatron: gradients that are reduced in bf16 are kept in bf16") {
  const auto bytes = [](const Flags& more) {
    Setup s = base_setup(problem_of({{"model", "8B"}, {"nodes", "1"}, {"gpus", "8"}, {"trainer", "megatron"}}, more), 1);
    s.sharding = Sharding::kZero1;
    s.dp_shard = 8;
    s.recompute = ActivationRecompute::kFull;
    return static_cast<double>(simulate_memory(s).allocated_bytes);
  };
  CHECK(bytes({}) - bytes({{"reduce-dtype", "bf16"}}) > 1.7 * 8.03e9);  // less what the step takes elsewhere
}

}  // namespace distsetup
