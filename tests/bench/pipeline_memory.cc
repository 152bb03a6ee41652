// What one prediction costs: Megatron pipelines and ZeRO, by arithmetic and through the allocator. Targets: simulate 20 us, 200 us
// with pipelines; replay 3 ms; the bound 100 ns.
#include <benchmark/benchmark.h>

#include "model/presets.h"
#include "planner/frameworks/memory.h"

using namespace distsetup;

namespace {

Setup megatron(const char* model, int tp, int pp, int virtual_stages) {
  static const Presets presets = *load_presets();
  Setup s;
  s.framework = Framework::kMegatron;
  s.program = "megatron_te";
  s.model = *find_model(presets, model);
  s.gpu = find_gpu(presets, "h100_sxm")->gpu;
  s.gpus_per_node = 8;
  s.sharding = Sharding::kZero1;
  s.parameter_dtype = Dtype::kBf16;
  s.master_copy = true;
  s.tp = tp;
  s.pp = pp;
  s.virtual_stages = virtual_stages;
  s.dp_shard = 8;
  s.gradient_accumulation = 64;
  return s;
}

Setup zero3(const char* model) {
  Setup s = megatron(model, 1, 1, 1);
  s.framework = Framework::kDeepspeed;
  s.program = "hf_eager";
  s.sharding = Sharding::kZero3;
  s.recompute = ActivationRecompute::kFull;
  return s;
}

void bound_memory(benchmark::State& state, const Setup& setup) {
  for (auto _ : state) benchmark::DoNotOptimize(bound_bytes(setup));
}
void simulated(benchmark::State& state, const Setup& setup) {
  for (auto _ : state) benchmark::DoNotOptimize(simulate_memory(setup));
}
void replayed(benchmark::State& state, const Setup& setup) {
  for (auto _ : state) benchmark::DoNotOptimize(replay_memory(setup));
}

}  // namespace

BENCHMARK_CAPTURE(bound_memory, megatron_70b, megatron("llama3_70b", 8, 8, 1));
BENCHMARK_CAPTURE(bound_memory, megatron_deepseek_v3, megatron("deepseek_v3", 1, 16, 1));
BENCHMARK_CAPTURE(simulated, megatron_8b, megatron("llama3_8b", 2, 1, 1));
BENCHMARK_CAPTURE(simulated, megatron_70b_pp8, megatron("llama3_70b", 8, 8, 1));
BENCHMARK_CAPTURE(simulated, megatron_405b_pp16_v2, megatron("llama3.1_405b", 8, 16, 2));
BENCHMARK_CAPTURE(simulated, zero3_8b, zero3("llama3_8b"));
BENCHMARK_CAPTURE(replayed, megatron_70b_pp8, megatron("llama3_70b", 8, 8, 1));
BENCHMARK_CAPTURE(replayed, megatron_405b_pp16_v2, megatron("llama3.1_405b", 8, 16, 2));
BENCHMARK_CAPTURE(replayed, zero3_8b, zero3("llama3_8b"));
