// Slow networks: what NCCL's sockets reach of Ethernet, and which part of DeepSpeed's reduction nothing runs beside.
#include <catch2/catch.hpp>
#include <cmath>

#include "model/presets.h"
#include "planner/time/constants.h"
#include "planner/time/embedded_calibration.h"
#include "planner/time/reduction.h"
#include "planner/time/step.h"
#include "support/problems.h"

using namespace distsetup;

namespace {

// Nodes of one A10 each, with a GPT of 0.5B parameters.
Setup small_nodes(Framework framework, Sharding sharding, double nic_gbits, int nodes = 4) {
  Setup s;
  const Result<Geometry> geometry = find_model(presets(), "qwen2.5_0.5b");
  const Result<GpuChoice> choice = find_gpu(presets(), "a10");
  REQUIRE(geometry.ok());
  REQUIRE(choice.ok());
  s.model = *geometry;
  s.gpu = choice->gpu;
  s.nodes = nodes, s.gpus_per_node = 1, s.dp_shard = nodes;
  s.nic_kind = "ethernet", s.nic_bytes_per_s = nic_gbits * 1e9 / 8;
  s.framework = framework, s.sharding = sharding;
  s.program = "hf_eager";
  s.parameter_dtype = s.gradient_dtype = s.reduce_dtype = Dtype::kBf16;
  s.master_copy = true;
  s.sequence_length = 1024;
  s.software.released = 202506;
  return s;
}

Fabric fabric_of(const Setup& s) { return time_constants(s, embedded_calibration()).fabric; }
double step_s(const Setup& s) { return estimate_time(s).step_s; }

}  // namespace

TEST_CASE("sockets reach a slow card's rate and what two threads copy of a fast one's", "[time][network]") {
  const auto reached = [](double gbits) { return fabric_of(small_nodes(Framework::kDdp, Sharding::kDdp, gbits)).nic_bytes_per_s; };
  CHECK(reached(10) > 0.9 * 10e9 / 8);
  CHECK(reached(25) > 0.9 * 25e9 / 8);
  CHECK(reached(100) < 0.5 * 100e9 / 8);
  CHECK(reached(100) == reached(50));  // both copy as fast as they can
  CHECK(reached(200) == 2 * reached(100));

  Setup shared = small_nodes(Framework::kDdp, Sharding::kDdp, 100);
  shared.nodes = 1, shared.gpus_per_node = 4;
  CHECK(fabric_of(shared).nic_bytes_per_s == reached(100) / 4);
}

TEST_CASE("cards with RDMA reach what they did, however fast they are", "[time][network]") {
  Setup slow = small_nodes(Framework::kDdp, Sharding::kDdp, 25), fast = small_nodes(Framework::kDdp, Sharding::kDdp, 400);
  slow.nic_kind = fast.nic_kind = "roce";
  CHECK(fabric_of(slow).nic_bytes_per_s * 16 == fabric_of(fast).nic_bytes_per_s);
  CHECK(fabric_of(slow).nic_half_bytes == fabric_of(fast).nic_half_bytes);
}

TEST_CASE("a message over sockets waits the same time on every card", "[time][network]") {
  const auto start_s = [](double gbits) {
    const Fabric f = fabric_of(small_nodes(Framework::kDdp, Sharding::kDdp, gbits));
    return f.nic_half_bytes / f.nic_bytes_per_s;
  };
  CHECK(start_s(10) < 1e-3);
  CHECK(std::abs(start_s(10) - start_s(100)) < 1e-9);
}

TEST_CASE("DeepSpeed reduces beside backward what fills a bucket", "[time][network]") {
  for (const Sharding sharding : {Sharding::kZero2, Sharding::kZero3}) {
    Setup s = small_nodes(Framework::kDeepspeed, sharding, 25);
    s.sequence_length = 16384;  // backward takes longer than the reduction
    const double all = 4.9e8;   // fewer than 5e8
    CHECK(in_last_bucket(s, all) == all);
    CHECK(in_last_bucket(s, 7e9) == 5e8);
    const double whole = step_s(s);
    s.reduce_bucket_elements = 20'000'000;
    CHECK(in_last_bucket(s, all) == 2e7);
    CHECK(step_s(s) < 0.99 * whole);
  }
}

TEST_CASE("other trainers have no such bucket", "[time][network]") {
  Setup s = small_nodes(Framework::kFsdp2, Sharding::kZero3, 25);
  const double before = step_s(s);
  CHECK(in_last_bucket(s, 7e9) == 0);
  s.reduce_bucket_elements = 20'000'000;
  CHECK(step_s(s) == before);
}

TEST_CASE("DeepSpeed's stage 2 sums whole buckets on every rank from 2024 on", "[time][network]") {
  Setup s = small_nodes(Framework::kDeepspeed, Sharding::kZero2, 25);
  const double now = step_s(s);
  s.software.released = 202312;
  const double then = step_s(s);
  const double bytes = 2 * 4.9e8, apart = bytes * 3 / 4 / (25e9 / 8);  // once more around four ranks
  CHECK(now - then > 0.8 * apart);
  CHECK(now - then < 1.3 * apart);

  s = small_nodes(Framework::kDeepspeed, Sharding::kZero3, 25);  // a part goes to its rank alone
  const double shards_now = step_s(s);
  s.software.released = 202312;
  CHECK(step_s(s) > 0.9 * shards_now);
}

TEST_CASE("a plan counts on the buckets that its configuration asks for", "[time][network]") {
  const auto bucket = [](const char* trainer) {
    Result<Problem> problem = resolved({{"model", "llama3_8b"}, {"trainer", trainer}, {"gpu", "h100_sxm"}, {"gpus", "8"}});
    INFO(format_diagnostics(problem.diagnostics));
    REQUIRE(problem.ok());
    return problem->setup.reduce_bucket_elements;
  };
  CHECK(bucket("deepspeed") == 4096 * 4096);  // templates/deepspeed/keys.yaml: derived.hidden_squared
  CHECK(bucket("fsdp2") == 0);
}
