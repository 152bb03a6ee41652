// Engines of hand-written kernels, GeForce, and the bundled trainer's libraries: what sets them apart from PyTorch's trainers.
#include <catch2/catch.hpp>

#include "model/presets.h"
#include "plan/communicators.h"
#include "planner/frameworks/memory.h"
#include "planner/report/uncertainty.h"
#include "planner/resolve/hardware_facts.h"
#include "planner/time/constants.h"
#include "planner/time/step.h"

namespace distsetup {
namespace {

// LLM.Q's first benchmark on one RTX 4090: 16 sequences of 1024 tokens, everything in bf16.
Setup lean_setup() {
  static const Presets presets = *load_presets();
  Setup s;
  s.model = *find_model(presets, "qwen2.5_0.5b");
  s.gpu = find_gpu(presets, "rtx_4090")->gpu;
  s.framework = Framework::kLean;
  s.program = "hand_written";
  s.sharding = Sharding::kDdp;
  s.sequence_length = 1024;
  s.micro_batch = 16;
  s.gradient_accumulation = 32;
  s.parameter_dtype = s.gradient_dtype = s.state_dtype = s.reduce_dtype = Dtype::kBf16;
  s.loss = LossHead::kFusedKernel;
  s.loss_chunks = 16;
  return s;
}

int64_t allocated(const Setup& s) { return simulate_memory(s).allocated_bytes; }
double speed(const Setup& s) { return estimate_time(s).tokens_per_s_per_gpu; }

TEST_CASE("lean engine: what is dropped, chunked or sent to the host is not on the device") {
  const Setup s = lean_setup();
  const auto with = [&](auto change) {
    Setup changed = s;
    change(changed);
    return allocated(changed);
  };
  CHECK(with([](Setup& c) { c.recompute_modules = {"swiglu"}; }) < allocated(s));
  CHECK(with([](Setup& c) { c.recompute_modules = {"ffn", "norm"}; }) < with([](Setup& c) { c.recompute_modules = {"ffn"}; }));
  CHECK(with([](Setup& c) { c.recompute = ActivationRecompute::kFull; }) < with([](Setup& c) {
          c.recompute_modules = {"ffn", "att"};
        }));
  CHECK(with([](Setup& c) { c.loss_chunks = 1; }) > allocated(s));
  CHECK(with([](Setup& c) { c.offload.optimizer = OffloadPlace::kHost; }) < allocated(s));
  CHECK(with([](Setup& c) { c.offload.activations = OffloadPlace::kHost; }) < allocated(s));
  CHECK(with([](Setup& c) { c.host_gradients = true; }) < allocated(s));
}

TEST_CASE("lean engine: terms sum to what is allocated, and a smaller device runs out") {
  Setup s = lean_setup();
  const MemoryEstimate m = replay_memory(s);
  int64_t sum = 0;
  for (const MemoryTerm& term : m.terms) sum += term.bytes_at_peak;
  CHECK(sum == m.allocated_bytes);
  CHECK_FALSE(m.ran_out);
  s.gpu.usable_memory_bytes = m.device_bytes - 1;
  CHECK(replay_memory(s).ran_out);
}

TEST_CASE("lean engine: faster than the same model eager, slower with parts recomputed, 8 bits faster than 16") {
  const Setup s = lean_setup();
  Setup eager = s;
  eager.framework = Framework::kDdp;
  eager.program = "hf_eager";
  CHECK(speed(s) > 1.2 * speed(eager));
  Setup again = s;
  again.recompute_modules = {"ffn"};
  CHECK(speed(again) < speed(s));
  Setup low = s;
  low.fp8 = Fp8Recipe::kTensorwise;
  low.compute = Dtype::kF8;
  CHECK(speed(low) > speed(s));
  // LLM.Q, benchmarks/4090x1.md: 39,846 tokens/s.
  CHECK(speed(s) > 0.8 * 39846);
  CHECK(speed(s) < 1.2 * 39846);
}

TEST_CASE("Blackwell of GeForce and RTX PRO is not the data centre's") {
  static const Presets presets = *load_presets();
  const auto generation = [&](const char* gpu) { return gpu_generation(find_gpu(presets, gpu)->gpu); };
  CHECK(generation("b200") == GpuGeneration::kBlackwell);
  for (const char* gpu : {"rtx_5090", "rtx_5060_ti", "rtx_pro_6000"}) CHECK(generation(gpu) == GpuGeneration::kBlackwellRtx);
  CHECK(generation("titan_rtx") == GpuGeneration::kTuring);
}

TEST_CASE("the bundled trainer opens a communicator for gathers, reductions, copies, and two kinds of sums") {
  Mesh mesh;
  CHECK(num_communicators(mesh) == 0);
  mesh.dp_shard = 8;
  CHECK(num_communicators(mesh) == 3);
  mesh.dp_replicate = 2;
  CHECK(num_communicators(mesh) == 5);
  mesh.dp_shard = 1;
  CHECK(num_communicators(mesh) == 2);
  mesh.cp = 4;  // its own gathers and reductions; sharded with dp_shard, or a copy under ddp
  CHECK(num_communicators(mesh) == 7);
  CHECK(num_communicators(mesh, Sharding::kDdp) == 4);
  // Ranks that share experts send them rows both ways, and those with the same experts gather and reduce them. Groups of the same
  // ranks share a communicator: with tp 2 and ep 2 these are the ranks of tp, and those that split all else.
  mesh = {.dp_shard = 8, .ep = 2};
  CHECK(num_communicators(mesh) == 7);
  mesh.ep = 8;
  CHECK(num_communicators(mesh) == 5);
  mesh = {.dp_shard = 4, .tp = 2};
  CHECK(num_communicators(mesh) == 8);
  mesh.ep = 2;
  CHECK(num_communicators(mesh) == 8);
  mesh.ep = 4;
  CHECK(num_communicators(mesh) == 12);
}

TEST_CASE("a script of one's own is as sure as unseen code") {
  Setup s = lean_setup();
  s.framework = Framework::kFsdp2;
  s.program = kUnknownProgram;
  CHECK(residual_classes(s, Predicted::kTokensPerSecond) == std::vector<std::string>{"unknown"});
  s.program = "unknown_compiled";
  s.compiled = true;
  CHECK(residual_classes(s, Predicted::kTokensPerSecond) == std::vector<std::string>{"unknown"});
  CHECK(estimate_time(s).step_s > 0);
  const Interval speed = interval_of(s, Predicted::kTokensPerSecond, 1000, 0.9), bytes = interval_of(s, Predicted::kDevice, 1e9, 0.9);
  CHECK(speed.low < 750);
  CHECK(speed.high > 1250);
  CHECK(bytes.low < 0.87e9);  // left-out code bases took 15 % less or 17 % more at the edges
  CHECK(bytes.high > 1.16e9);
}

}  // namespace
}  // namespace distsetup
