// What one prediction of the bundled trainer costs: its bound; the step's schedule compiled, walked and timed, as search does it
// (programs known) and from nothing; and the chosen plan with every buffer. Targets: bound 100 ns, simulate 20 us.
#include <benchmark/benchmark.h>

#include "model/presets.h"
#include "planner/native/simulate.h"
#include "planner/resolve/hardware_facts.h"

using namespace distsetup;

namespace {

Plan native(const char* model, int nodes, Recompute recompute) {
  static const Presets presets = *load_presets();
  Plan p;
  p.model = *find_model(presets, model);
  p.hardware = make_hardware_plan(find_gpu(presets, "h100_sxm")->gpu, nullptr, 8, Dtype::kBf16);
  p.hardware.nodes = nodes;
  p.mesh.dp_shard = 8 * nodes;
  p.gradient_accumulation = 4;
  p.recompute.policy = recompute;
  p.recompute.dropped = dropped_tensors(p.model, recompute);
  p.train.global_batch = p.gradient_accumulation * p.mesh.dp_shard;
  return p;
}

void bound_native(benchmark::State& state, const Plan& plan) {
  SimulationCache cache;
  for (auto _ : state) benchmark::DoNotOptimize(bound(plan, cache));
}
void simulate_native(benchmark::State& state, const Plan& plan) {
  SimulationCache cache;
  for (auto _ : state) benchmark::DoNotOptimize(simulate(plan, cache));
}
void simulate_native_afresh(benchmark::State& state, const Plan& plan) {
  for (auto _ : state) benchmark::DoNotOptimize(simulate(plan));
}
void finish_native(benchmark::State& state, const Plan& plan) {
  for (auto _ : state) {
    Plan one = plan;
    finish(one);
    benchmark::DoNotOptimize(one);
  }
}

}  // namespace

BENCHMARK_CAPTURE(bound_native, llama3_70b, native("llama3_70b", 16, Recompute::kFull));
BENCHMARK_CAPTURE(simulate_native, llama3_8b, native("llama3_8b", 1, Recompute::kSelective));
BENCHMARK_CAPTURE(simulate_native, llama3_70b, native("llama3_70b", 16, Recompute::kFull));
BENCHMARK_CAPTURE(simulate_native_afresh, llama3_8b, native("llama3_8b", 1, Recompute::kSelective));
BENCHMARK_CAPTURE(finish_native, llama3_8b, native("llama3_8b", 1, Recompute::kSelective))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(finish_native, llama3_70b, native("llama3_70b", 16, Recompute::kFull))->Unit(benchmark::kMillisecond);
