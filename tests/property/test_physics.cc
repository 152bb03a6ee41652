// What no fit may break, over the presets: same die and more bandwidth is not slower, more of anything does not need less memory, a
// quantised base is not larger than a 16-bit one, nobody reaches the peak.
#include <algorithm>
#include <catch2/catch.hpp>

#include "model/presets.h"
#include "planner/frameworks/memory.h"
#include "planner/time/step.h"
#include "support/presets.h"

using namespace distsetup;

namespace {

Setup setup_of(Framework framework, const char* program, const char* model, const char* gpu) {
  Setup s;
  s.framework = framework;
  s.program = program;
  s.model = *find_model(presets(), model);
  s.gpu = find_gpu(presets(), gpu)->gpu;
  s.gpus_per_node = s.dp_shard = 8;
  s.gradient_accumulation = 4;
  s.parameter_dtype = s.gradient_dtype = s.state_dtype = s.reduce_dtype = Dtype::kF32;
  s.compiled = s.program == "torchtitan_compiled";
  s.recompute = ActivationRecompute::kFull;
  if (framework == Framework::kMegatron || framework == Framework::kDeepspeed) {
    s.parameter_dtype = Dtype::kBf16;
    s.master_copy = true;
    s.sharding = framework == Framework::kMegatron ? Sharding::kZero1 : Sharding::kZero3;
  }
  if (s.program == "megatron_te") s.fused_norm = s.fused_rope = true;
  return s;
}

std::vector<Setup> of_all_trainers(const char* model, const char* gpu) {
  return {setup_of(Framework::kFsdp2, "torchtitan_compiled", model, gpu), setup_of(Framework::kFsdp2, "torchtitan_eager", model, gpu),
          setup_of(Framework::kFsdp1, "hf_eager", model, gpu), setup_of(Framework::kDeepspeed, "hf_eager", model, gpu),
          setup_of(Framework::kMegatron, "megatron_te", model, gpu)};
}

double tokens(const Setup& s) { return estimate_time(s).tokens_per_s_per_gpu; }
int64_t bytes(const Setup& s) { return simulate_memory(s).allocated_bytes; }

}  // namespace

TEST_CASE("physics: the same die with more bandwidth is not slower") {
  const std::pair<const char*, const char*> pairs[] = {
      {"h100_sxm", "h200_sxm"}, {"a100_sxm_40", "a100_sxm_80"}, {"a100_pcie_40", "a100_pcie_80"}};
  for (const auto& [less, more] : pairs) {
    for (const char* model : {"llama3.2_1b", "llama3_8b", "llama3_70b"}) {
      const std::vector<Setup> a = of_all_trainers(model, less), b = of_all_trainers(model, more);
      for (size_t i = 0; i < a.size(); ++i) {
        INFO(model << " with " << a[i].program << ": " << less << " and " << more);
        CHECK(tokens(b[i]) >= tokens(a[i]) * 0.999);
      }
    }
  }
}

TEST_CASE("physics: nobody reaches three quarters of the peak") {
  for (const std::string& gpu : preset_ids(presets(), "gpus")) {
    if (gpu == "cpu") continue;
    for (const char* model : {"llama3.2_1b", "llama3_8b", "llama3_70b"}) {
      for (Setup s : of_all_trainers(model, gpu.c_str())) {
        for (const bool bare : {false, true}) {
          if (bare) s.recompute = ActivationRecompute::kNone;
          if (s.gpu.peak_bf16_flops_per_s <= 0) continue;
          INFO(model << " with " << s.program << " on " << gpu);
          // A card of 2025 multiplies faster than its data sheet says: it is measured at 1.04 of it.
          CHECK(estimate_time(s).mfu < 0.75 * std::max(1.0, s.gpu.gemm_efficiency));
        }
      }
    }
  }
}

TEST_CASE("physics: more to hold needs more memory, more ranks need less each") {
  for (const Setup& base : of_all_trainers("llama3_8b", "h100_sxm")) {
    INFO(base.program << " under " << base.traits().id);
    for (const bool full : {true, false}) {
      Setup s = base;
      s.recompute = full ? ActivationRecompute::kFull : ActivationRecompute::kNone;
      const auto grows_with = [&s](int64_t& size, std::initializer_list<int64_t> values) {
        const int64_t usual = size;
        int64_t before = 0;
        for (const int64_t value : values) {
          size = value;
          CHECK(bytes(s) >= before);
          before = bytes(s);
        }
        size = usual;
      };
      s.micro_batch = 1;
      s.sequence_length = 4096;
      s.model.num_layers = 32;
      grows_with(s.micro_batch, {1, 2, 3, 4, 8});
      grows_with(s.sequence_length, {512, 1024, 4096, 8192, 32768});
      grows_with(s.model.num_layers, {8, 16, 32, 64});
      int64_t before = INT64_MAX;
      for (const int ranks : {2, 4, 8, 16, 64}) {
        s.dp_shard = ranks;
        s.nodes = std::max(1, ranks / 8);
        CHECK(bytes(s) <= before);
        before = bytes(s);
      }
    }
  }
}

TEST_CASE("physics: a quantised base is not larger than a 16-bit one") {
  for (const char* model : {"llama3.2_1b", "llama2_13b", "llama3_70b"}) {
    for (const Framework framework : {Framework::kFsdp1, Framework::kFsdp2, Framework::kDdp, Framework::kDeepspeed}) {
      Setup s = setup_of(framework, "hf_eager", model, "h100_sxm");
      s.finetune = Finetune::kLora;
      s.lora = {16, true, true, true, true, true, true, true, Dtype::kF32, 0};
      s.parameter_dtype = s.frozen_dtype = Dtype::kBf16;
      if (framework == Framework::kDdp) {
        s.sharding = Sharding::kDdp;
        std::swap(s.dp_shard, s.dp_replicate);
      }
      const int64_t whole = bytes(s);
      s.finetune = Finetune::kQlora;
      for (const Dtype stored : {Dtype::kNf4, Dtype::kNf4Double, Dtype::kInt4, Dtype::kInt8}) {
        s.frozen_dtype = stored;
        INFO(model << " under " << s.traits().id << " in " << name(stored));
        CHECK(bytes(s) <= whole);
      }
    }
  }
}

TEST_CASE("physics: a bound is below what is simulated, and that below what is replayed") {
  for (const char* model : {"llama3.2_1b", "llama3_8b", "qwen2.5_7b"}) {
    for (const Setup& s : of_all_trainers(model, "h200_sxm")) {
      INFO(model << " with " << s.program << " under " << s.traits().id);
      const MemoryEstimate replayed = replay_memory(s);
      CHECK(bound_bytes(s) <= bytes(s));
      CHECK(static_cast<double>(bytes(s)) <= 1.02 * static_cast<double>(replayed.reserved_bytes));
      CHECK(replayed.allocated_bytes <= replayed.reserved_bytes);
    }
  }
}
