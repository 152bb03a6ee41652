// Random setups of Megatron and DeepSpeed: states alone never exceed the prediction, its terms add up, and what can only need less
// (more ranks that share states, more tensor parallelism, shorter sequences) never needs more.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <initializer_list>

#include "model/presets.h"
#include "planner/frameworks/memory.h"
#include "support/property.h"
#include "support/seed.h"

using namespace distsetup;

namespace {

struct SetupDraw {
  const Presets& presets;
  Draw random = {};
  template <class T>
  T of(std::initializer_list<T> values) {
    return values.begin()[random() % values.size()];
  }
  Setup setup() {
    Setup s;
    s.framework = of({Framework::kMegatron, Framework::kDeepspeed});
    const bool megatron = s.framework == Framework::kMegatron;
    s.program = megatron ? "megatron_te" : of({"hf_eager", "megatron_gpt"});
    s.model =
        *find_model(presets, megatron ? of({"llama3_8b", "llama3_70b", "qwen3_8b", "mixtral_8x7b", "deepseek_v3", "qwen3_30b_a3b"})
                                      : of({"llama2_7b", "llama2_13b", "llama3_70b", "mistral_7b", "gpt2_xl"}));
    s.gpu = find_gpu(presets, of({"h100_sxm", "a100_sxm_80", "b200"}))->gpu;
    s.gpus_per_node = 8;
    s.tp = of({1, 2, 4, 8});
    if (s.program == "hf_eager") s.tp = 1;
    s.pp = of({1, 1, 2, 4});
    s.cp = of({1, 1, 2, 4});
    s.dp_shard = of({1, 2, 4, 8, 64});
    s.dp_replicate = of({1, 1, 2});
    if (megatron && s.model.num_experts > 0) s.ep = of({1, 2, 4, 8});
    while (s.ep > s.dp_shard * s.cp) s.ep /= 2;
    s.virtual_stages = s.pp > 1 ? of({1, 2}) : 1;
    s.sequence_parallel = megatron;
    s.sequence_length = of<int64_t>({2048, 4096, 8192, 32768});
    s.micro_batch = of<int64_t>({1, 2, 4});
    s.gradient_accumulation = of<int64_t>({1, 4, 16});
    s.sharding = of({Sharding::kDdp, Sharding::kZero1, Sharding::kZero2, Sharding::kZero3});
    if (!megatron && s.pp > 1) s.sharding = of({Sharding::kDdp, Sharding::kZero1});  // DeepSpeed's pipelines take no other stage
    s.recompute = of({ActivationRecompute::kNone, ActivationRecompute::kAttentionOnly, ActivationRecompute::kFull});
    s.cp_method = of({CpMethod::kRing, CpMethod::kAllGather, CpMethod::kUlysses});
    s.loss = of({LossHead::kEager, LossHead::kFusedKernel, LossHead::kVocabularyParallel, LossHead::kHfShift});
    s.parameter_dtype = Dtype::kBf16;
    s.gradient_dtype = of({Dtype::kBf16, Dtype::kF32});
    s.master_copy = true;
    s.compute = of({Dtype::kBf16, Dtype::kBf16, Dtype::kF8});
    if (!megatron) s.compute = Dtype::kBf16;
    s.offload.optimizer = of({OffloadPlace::kNone, OffloadPlace::kNone, OffloadPlace::kHost});
    return s;
  }
};

std::string described(const Setup& s) {
  return fmt::format("{} tp {} pp {} cp {} dp {} ep {} sharding {} program {} S {}", s.model.name, s.tp, s.pp, s.cp, s.dp_shard, s.ep,
                     static_cast<int>(s.sharding), s.program, s.sequence_length);
}

}  // namespace

TEST_CASE("pipeline memory: the bound is never above the prediction and the terms add up") {
  const Presets presets = *load_presets();
  check_property(10000, [&presets] {
    const Setup s = SetupDraw{presets}.setup();
    RC_LOG() << described(s);
    const MemoryEstimate estimate = simulate_memory(s);
    int64_t sum = 0;
    for (const MemoryTerm& term : estimate.terms) sum += term.bytes_at_peak;
    RC_ASSERT(bound_bytes(s) <= estimate.allocated_bytes);
    RC_ASSERT(sum == estimate.allocated_bytes);
    int64_t phases = 0;
    for (const PhaseMemory& phase : estimate.by_phase) {
      if (phase.phase != "load") phases = std::max(phases, phase.allocated_bytes);
    }
    RC_ASSERT(phases == estimate.allocated_bytes);
  });
}

TEST_CASE("pipeline memory: more sharing ranks or tensor parallelism or shorter sequences never need more") {
  const Presets presets = *load_presets();
  check_property(3000, [&presets] {
    const Setup s = SetupDraw{presets}.setup();
    RC_LOG() << described(s);
    const int64_t bytes = simulate_memory(s).allocated_bytes;
    if (s.dp_shard * s.cp > 1) {  // the second rank brings the buckets
      Setup more = s;
      more.dp_shard *= 2;
      RC_ASSERT(simulate_memory(more).allocated_bytes <= bytes);
    }
    Setup shorter = s;
    shorter.sequence_length /= 2;
    RC_ASSERT(simulate_memory(shorter).allocated_bytes <= bytes);
    if (s.tp > 1 && s.tp < 8) {
      Setup wider = s;
      wider.tp *= 2;
      RC_ASSERT(simulate_memory(wider).allocated_bytes <= bytes);
    }
  });
}
