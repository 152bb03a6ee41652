// FSDP over a model without a policy that wraps its blocks: all parameters are one unit. And what is gathered where no policy of
// precision says its type.
#include <catch2/catch.hpp>

#include "planner/frameworks/memory.h"
#include "planner/time/step.h"
#include "support/presets.h"

namespace distsetup {
namespace {

Setup fsdp(Framework framework) {
  Setup s;
  s.model.num_layers = 16;
  s.model.hidden = 1024;
  s.model.feed_forward = 4096;
  s.model.num_heads = s.model.num_kv_heads = 16;
  s.model.head_size = 64;
  s.model.vocabulary = 32000;
  s.model.gated_mlp = false;
  s.gpu = find_gpu(presets(), "a10")->gpu;
  s.gpus_per_node = 1;
  s.nodes = s.dp_shard = 4;
  s.nic_kind = "ethernet";
  s.nic_bytes_per_s = 3e9;
  s.framework = framework;
  s.sharding = Sharding::kZero3;
  s.program = "unknown";
  s.sequence_length = 512;
  s.parameter_dtype = s.gradient_dtype = s.reduce_dtype = s.state_dtype = Dtype::kF32;
  s.optimizer_implementation = OptimizerImplementation::kFused;
  return s;
}

Setup with(Setup s, UnitWrapping wrapping) {
  s.software.wrapping = wrapping;
  return s;
}

int64_t allocated(const Setup& s) { return replay_memory(s).allocated_bytes; }

}  // namespace

TEST_CASE("one unit of all parameters is gathered before forward and reduced after backward, beside nothing") {
  for (const Framework framework : {Framework::kFsdp1, Framework::kFsdp2}) {
    const Setup blocks = fsdp(framework), whole = with(blocks, UnitWrapping::kWhole);
    const TimeEstimate one = estimate_time(whole);
    // 201M parameters of blocks and 66M around them: 2 bytes to gather and 4 to reduce, three quarters of them from other nodes.
    const double bytes = 0.75 * 6 * 267e6;
    CHECK(one.communication_exposed_s > bytes / blocks.nic_bytes_per_s);
    CHECK(one.communication_exposed_s < 1.3 * bytes / blocks.nic_bytes_per_s);
    Setup fast = blocks;  // where blocks hide most of it
    fast.gpu = find_gpu(presets(), "a100_sxm_80")->gpu;
    fast.gpus_per_node = 4;
    fast.nodes = 1;
    fast.micro_batch = 16;
    CHECK(estimate_time(with(fast, UnitWrapping::kWhole)).communication_exposed_s > 2 * estimate_time(fast).communication_exposed_s);
  }
}

TEST_CASE("one unit keeps all parameters gathered, and all gradients beside a vector of them") {
  for (const Framework framework : {Framework::kFsdp1, Framework::kFsdp2}) {
    const Setup blocks = fsdp(framework), whole = with(blocks, UnitWrapping::kWhole);
    constexpr int64_t kOfBlocks = 201'000'000;
    CHECK(allocated(whole) - allocated(blocks) > 2 * kOfBlocks);
    CHECK(simulate_memory(whole).allocated_bytes == Approx(allocated(whole)).epsilon(0.02));
    Setup alone = whole, alone_by_blocks = blocks;  // one rank gathers nothing
    alone.dp_shard = alone.nodes = alone_by_blocks.dp_shard = alone_by_blocks.nodes = 1;
    CHECK(allocated(alone) == allocated(alone_by_blocks));
  }
}

TEST_CASE("under no_sync the whole gradients of one unit stay until the last micro-batch") {
  Setup s = with(fsdp(Framework::kFsdp1), UnitWrapping::kWhole);
  s.gradient_accumulation = 4;
  const int64_t reduced = allocated(s);
  s.software.accumulates_whole = true;
  CHECK(allocated(s) > reduced);
}

TEST_CASE("without a policy of precision FSDP gathers parameters as they are stored") {
  Setup s = fsdp(Framework::kFsdp1);
  const double cast_s = estimate_time(s).communication_exposed_s;
  const int64_t cast = allocated(s);
  s.software.gathers_as_stored = true;
  CHECK(estimate_time(s).communication_exposed_s > 1.3 * cast_s);  // 8 + 4 bytes a parameter where there were 4 + 4
  CHECK(allocated(s) > cast);
  s.parameter_dtype = Dtype::kBf16;
  s.gradient_dtype = s.reduce_dtype = s.state_dtype = Dtype::kBf16;
  Setup policy = s;
  policy.software.gathers_as_stored = false;
  CHECK(allocated(s) == allocated(policy));
  CHECK(estimate_time(s).step_s == estimate_time(policy).step_s);
}

}  // namespace distsetup
