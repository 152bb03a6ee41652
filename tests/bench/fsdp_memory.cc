// What one prediction of FSDP's memory costs: states alone, live bytes from three blocks, and two whole steps through the allocator.
// Targets: bound 100 ns, simulate 20 us, replay 3 ms for 32 layers.
#include <benchmark/benchmark.h>

#include "model/presets.h"
#include "planner/frameworks/memory.h"

using namespace distsetup;

namespace {

Setup fsdp(Framework framework, const char* program, ActivationRecompute recompute) {
  static const Presets presets = *load_presets();
  Setup s;
  s.framework = framework;
  s.program = program;
  s.model = *find_model(presets, "llama3_8b");
  s.gpu = find_gpu(presets, "h100_sxm")->gpu;
  s.gpus_per_node = 8;
  s.dp_shard = 8;
  s.sequence_length = 8192;
  s.recompute = recompute;
  return s;
}

void bound_fsdp_memory(benchmark::State& state, const Setup& setup) {
  for (auto _ : state) benchmark::DoNotOptimize(bound_bytes(setup));
}
void simulate_fsdp_memory(benchmark::State& state, const Setup& setup) {
  for (auto _ : state) benchmark::DoNotOptimize(simulate_memory(setup));
}
void replay_fsdp_memory(benchmark::State& state, const Setup& setup) {
  for (auto _ : state) benchmark::DoNotOptimize(replay_memory(setup));
}

}  // namespace

BENCHMARK_CAPTURE(bound_fsdp_memory, fsdp2_llama3_8b_selective,
                  fsdp(Framework::kFsdp2, "torchtitan_eager", ActivationRecompute::kOpSelective));
BENCHMARK_CAPTURE(simulate_fsdp_memory, fsdp2_llama3_8b_selective,
                  fsdp(Framework::kFsdp2, "torchtitan_eager", ActivationRecompute::kOpSelective));
BENCHMARK_CAPTURE(simulate_fsdp_memory, fsdp1_llama3_8b_full, fsdp(Framework::kFsdp1, "hf_eager", ActivationRecompute::kFull));
BENCHMARK_CAPTURE(replay_fsdp_memory, fsdp2_llama3_8b_selective,
                  fsdp(Framework::kFsdp2, "torchtitan_eager", ActivationRecompute::kOpSelective))
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(replay_fsdp_memory, fsdp1_llama3_8b_full, fsdp(Framework::kFsdp1, "hf_eager", ActivationRecompute::kFull))
    ->Unit(benchmark::kMillisecond);
