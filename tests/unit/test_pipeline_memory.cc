// Megatron and DeepSpeed against runs whose allocated bytes are published per rank, and what each choice does to the bytes.
// Figures: MooreThreads/SimuMax v1.2, docs/b200/b200_release_v1.2_summary.json (8 x B200, Megatron-Core core_r0.14, Transformer Engine
// 2.11, torch 2.10; torch.cuda.max_memory_allocated of the fullest rank).
#include <catch2/catch.hpp>
#include <numeric>
#include <string>

#include "base/quantity.h"
#include "model/count.h"
#include "model/presets.h"
#include "planner/frameworks/libraries.h"
#include "planner/frameworks/memory.h"
#include "planner/frameworks/stages.h"
#include "planner/frameworks/validate.h"
#include "support/presets.h"

using namespace distsetup;

namespace {

Setup b200(const std::string& model, int64_t layers) {
  Setup s;
  s.model = *find_model(presets(), model);
  s.model.num_layers = layers;
  s.model.expert_layer.resize(s.model.num_experts > 0 ? static_cast<size_t>(layers) : 0);
  s.gpu = find_gpu(presets(), "b200")->gpu;
  s.gpus_per_node = 8;
  s.framework = Framework::kMegatron;
  s.sharding = Sharding::kZero1;
  s.program = "megatron_te";
  s.loss = LossHead::kFusedKernel;
  s.cp_method = CpMethod::kUlysses;
  s.gradient_accumulation = 4;
  s.parameter_dtype = Dtype::kBf16;
  s.master_copy = true;
  return s;
}

Setup zero(Sharding sharding, int ranks) {
  Setup s;
  s.model = *find_model(presets(), "llama2_7b");
  s.gpu = find_gpu(presets(), "a100_sxm_80")->gpu;
  s.gpus_per_node = 8;
  s.framework = Framework::kDeepspeed;
  s.program = "hf_eager";
  s.sharding = sharding;
  s.dp_shard = ranks;
  s.sequence_length = 2048;
  s.recompute = ActivationRecompute::kFull;
  s.parameter_dtype = s.gradient_dtype = s.reduce_dtype = Dtype::kBf16;
  s.master_copy = true;
  return s;
}

void check_measured(const Setup& s, double gib) {
  const MemoryEstimate estimate = simulate_memory(s);
  CHECK(static_cast<double>(estimate.allocated_bytes) / kGiB == Approx(gib).epsilon(0.001));
  int64_t sum = 0;
  for (const MemoryTerm& term : estimate.terms) sum += term.bytes_at_peak;
  CHECK(sum == estimate.allocated_bytes);
}

const MemoryTerm* term_of(const MemoryEstimate& estimate, std::string_view name) {
  for (const MemoryTerm& term : estimate.terms) {
    if (term.buffer_class == name) return &term;
  }
  return nullptr;
}

}  // namespace

TEST_CASE("megatron memory: dense runs of the B200 table to a thousandth") {
  Setup s = b200("llama3_70b", 12);
  s.pp = 2;
  s.dp_shard = 4;
  check_measured(s, 66.5520);
  s.pp = 1;
  s.tp = 2;
  check_measured(s, 60.6801);
  s.tp = 8;
  s.dp_shard = 1;
  check_measured(s, 28.2865);
}

TEST_CASE("megatron memory: a context-parallel run of 131072 tokens") {
  Setup s = b200("llama3_70b", 12);
  s.tp = 2;
  s.cp = 4;
  s.sequence_length = 131072;
  check_measured(s, 112.6679);
}

TEST_CASE("megatron memory: runs with experts and latent attention") {
  Setup s = b200("deepseek_v3", 4);
  s.model.expert_layer = {false, true, true, true};
  s.ep = s.dp_shard = 8;
  check_measured(s, 104.3006);
  s.ep = s.dp_shard = 4;
  s.pp = 2;
  check_measured(s, 114.0019);
}

TEST_CASE("megatron memory: reserved bytes of the B200 table to five percent") {
  Setup s = b200("llama3_70b", 12);
  s.tp = 2;
  s.dp_shard = 4;
  const MemoryEstimate estimate = replay_memory(s);
  CHECK(static_cast<double>(estimate.reserved_bytes) / kGiB == Approx(62.5254).epsilon(0.05));
  CHECK(estimate.device_bytes == estimate.reserved_bytes + s.gpu.context_bytes + communicator_bytes(s));
  CHECK_FALSE(estimate.ran_out);
}

TEST_CASE("megatron memory: a rank that cannot hold its share runs out") {
  Setup s = b200("llama3.1_405b", 126);
  s.tp = 8;
  s.sequence_length = 8192;
  CHECK(replay_memory(s).ran_out);
}

TEST_CASE("megatron memory: recomputation keeps less") {
  Setup s = b200("llama3_8b", 32);
  s.dp_shard = 8;
  s.pp = 1;
  const auto bytes = [&] { return simulate_memory(s).allocated_bytes; };
  const int64_t plain = bytes();
  s.recompute_modules = {"mlp"};
  const int64_t mlp = bytes();
  s.recompute_modules.clear();
  s.recompute = ActivationRecompute::kFull;
  s.recompute_layers = 16;
  const int64_t half = bytes();
  s.recompute_layers = 0;
  const int64_t full = bytes();
  CHECK(mlp < plain);
  CHECK(half < plain);
  CHECK(full < half);
  // 32 layers keep their input instead of everything: 8h + 2(a + 2kv)d + 2ad + 6f + 4a bytes a token less 2h.
  const int64_t T = s.tokens(), h = 4096, saved = 8 * h + 2 * 48 * 128 + 2 * 32 * 128 + 6 * 14336 + 4 * 32;
  CHECK(plain - full <= 32 * T * (saved - 2 * h));
  CHECK(plain - full > 30 * T * (saved - 2 * h));
}

TEST_CASE("megatron memory: pipelines hold as many micro-batches as their order says") {
  Setup s = b200("llama3_8b", 32);
  s.pp = 4;
  s.gradient_accumulation = 16;
  CHECK(pipeline_stages(s)[0].in_flight == 4);
  CHECK(pipeline_stages(s)[3].in_flight == 1);
  s.virtual_stages = 2;
  CHECK(pipeline_stages(s)[0].in_flight == 11);  // 2(4 - 1) + (2 - 1)4 + 1 chunks of half the layers
  s.virtual_stages = 1;
  s.pipeline_order = PipelineOrder::kGpipe;
  CHECK(pipeline_stages(s)[0].in_flight == 16);
  s.model.num_layers = 30;  // the embedding and the head each take a layer's place
  CHECK(pipeline_stages(s)[0].num_layers == 7);
  CHECK(pipeline_stages(s)[1].num_layers == 8);
  CHECK(pipeline_stages(s)[3].num_layers == 7);
}

TEST_CASE("megatron memory: parameters of all stages and ranks are the model's") {
  for (const char* model : {"llama3_8b", "llama3_70b", "mixtral_8x7b", "deepseek_v2", "qwen3_30b_a3b"}) {
    INFO(model);
    Setup s = b200(model, find_model(presets(), model)->num_layers);
    s.model = *find_model(presets(), model);
    const LifetimeProgram& program = lifetime_program(s);
    s.model.vocabulary = (s.model.vocabulary + 127) / 128 * 128;
    const LayerSymbols symbols = layer_symbols(s, program);
    const StageParts parts = stage_parts(s, program);
    const StageElements elements = stage_elements(s, parts, symbols, pipeline_stages(s)[0]);
    CHECK(elements.dense + elements.expert == count_parameters(s.model).total);
  }
}

TEST_CASE("deepspeed memory: parameters follow the stage") {
  const int64_t n = count_parameters(zero(Sharding::kZero1, 8).model).total;
  const auto parameter = [](const Setup& s) { return term_of(simulate_memory(s), "parameter shard")->bytes_at_peak; };
  CHECK(parameter(zero(Sharding::kZero1, 8)) == 2 * n);
  CHECK(parameter(zero(Sharding::kZero2, 8)) == 2 * n);
  CHECK(static_cast<double>(parameter(zero(Sharding::kZero3, 8))) == Approx(2.0 * static_cast<double>(n) / 8).epsilon(0.01));
  CHECK(term_of(simulate_memory(zero(Sharding::kZero1, 8)), "optimizer state")->bytes_at_peak == 12 * n / 8);
}

TEST_CASE("deepspeed memory: a higher stage holds less on many ranks, and buckets can make stage 3 hold more on few elements") {
  const auto bytes = [](Sharding sharding, int ranks) { return simulate_memory(zero(sharding, ranks)).allocated_bytes; };
  CHECK(bytes(Sharding::kDdp, 64) > bytes(Sharding::kZero1, 64));
  CHECK(bytes(Sharding::kZero1, 64) > bytes(Sharding::kZero2, 64));
  CHECK(bytes(Sharding::kZero2, 64) > bytes(Sharding::kZero3, 64));
}

TEST_CASE("deepspeed memory: a buffer for gradients has the elements that were asked for, however few the model has") {
  const auto more = [](Setup s) {  // of 500 million elements than of 200 million; the model has 135 million
    s.model = *find_model(presets(), "smollm_135m");
    s.sequence_length = 128;
    s.reduce_bucket_elements = 500'000'000;
    const int64_t large = simulate_memory(s).allocated_bytes;
    s.reduce_bucket_elements = 200'000'000;
    return large - simulate_memory(s).allocated_bytes;
  };
  CHECK(more(zero(Sharding::kZero1, 8)) == 2 * 2 * 300'000'000LL);  // two that take turns
  CHECK(more(zero(Sharding::kZero2, 8)) == 2 * 2 * 300'000'000LL);
  CHECK(more(zero(Sharding::kZero3, 8)) == 2 * 300'000'000LL);
  CHECK(more(zero(Sharding::kZero1, 1)) == 0);  // nothing to reduce
  CHECK(more(zero(Sharding::kDdp, 8)) == 0);
  Setup pipeline = zero(Sharding::kZero1, 8);
  pipeline.pp = 2;
  pipeline.dp_shard = 4;
  CHECK(more(pipeline) == 0);  // made after backward
}

TEST_CASE("deepspeed memory: offload moves states to pinned host memory in powers of two") {
  Setup s = zero(Sharding::kZero3, 8);
  const MemoryEstimate on_gpu = simulate_memory(s);
  s.offload.optimizer = OffloadPlace::kHost;
  const MemoryEstimate offloaded = simulate_memory(s);
  CHECK(offloaded.allocated_bytes < on_gpu.allocated_bytes);
  CHECK(on_gpu.host_bytes_per_node == 0);
  const double n = static_cast<double>(count_parameters(s.model).total);
  CHECK(static_cast<double>(offloaded.host_bytes_per_node) >= 18 * n);  // master, its gradient, moments, 16-bit copies
  CHECK(static_cast<double>(offloaded.host_bytes_per_node) <= 28 * n);
  s.offload.parameters = OffloadPlace::kHost;
  CHECK(simulate_memory(s).allocated_bytes < offloaded.allocated_bytes);
  s.model = *find_model(presets(), "llama2_70b");  // more than one sub-group of 1e9 elements on a rank
  const int64_t in_memory = simulate_memory(s).host_bytes_per_node;
  s.offload.optimizer = OffloadPlace::kNvme;
  CHECK(simulate_memory(s).host_bytes_per_node < in_memory);
  CHECK(pinned_bytes(3 << 20) == 4 << 20);
}

TEST_CASE("deepspeed memory: adapters train a sliver and keep the base in the frozen type") {
  Setup s = zero(Sharding::kZero2, 4);
  s.finetune = Finetune::kLora;
  s.lora.rank = 64;
  s.lora.query = s.lora.key = s.lora.value = s.lora.output = s.lora.gate = s.lora.up = s.lora.down = true;
  const MemoryEstimate lora = simulate_memory(s);
  CHECK(term_of(lora, "optimizer state")->bytes_at_peak < 12 * 200'000'000LL / 4);
  s.finetune = Finetune::kQlora;
  s.frozen_dtype = Dtype::kNf4Double;
  CHECK(simulate_memory(s).allocated_bytes < lora.allocated_bytes);
}

TEST_CASE("deepspeed memory: a checkpoint holds 16-bit parameters, master and moments") {
  const Setup s = zero(Sharding::kZero2, 8);
  const int64_t n = count_parameters(s.model).total;
  CHECK(simulate_memory(s).checkpoint_bytes == 14 * n);
}

TEST_CASE("pipeline memory: activations on the host leave two layers on the GPU") {
  Setup s = zero(Sharding::kZero3, 8);
  s.sequence_length = 131072;
  s.loss = LossHead::kLiger;
  const MemoryEstimate kept = simulate_memory(s);
  s.offload.activations = OffloadPlace::kHost;
  const MemoryEstimate offloaded = simulate_memory(s);
  // Of 32 inputs of 2 bytes each, 30 move.
  CHECK(kept.allocated_bytes - offloaded.allocated_bytes == 30 * 2 * 4096 * s.tokens());
  CHECK(offloaded.host_bytes_per_node == 8 * 30 * pinned_bytes(2 * 4096 * s.tokens()));
  const int64_t reserved = replay_memory(s).reserved_bytes;
  s.offload.activations = OffloadPlace::kNone;
  CHECK(reserved < replay_memory(s).reserved_bytes);
}

TEST_CASE("megatron memory: a frozen reference is a second copy of the parameters") {
  Setup s = b200("llama3_8b", 32);
  s.dp_shard = 8;
  const int64_t alone = term_of(simulate_memory(s), "parameter shard")->bytes_at_peak;
  s.frozen_reference = true;
  CHECK(term_of(simulate_memory(s), "parameter shard")->bytes_at_peak == 2 * alone);
}

TEST_CASE("setup: what a trainer cannot run is named") {
  const auto says = [](const Setup& s, std::string_view part) {
    for (const Diagnostic& diagnostic : validate(s)) {
      if (diagnostic.message.find(part) != std::string::npos) return true;
    }
    return false;
  };
  Setup s = b200("llama3_70b", 80);
  s.tp = 8;
  s.pp = 8;
  s.gradient_accumulation = 8;
  CHECK(validate(s).empty());
  s.virtual_stages = 5;
  CHECK(validate(s).empty());
  s.virtual_stages = 20;
  CHECK(says(s, "160 are more than the 80 layers"));
  s.virtual_stages = 1;
  s.tp = 3;
  CHECK(says(s, "heads = 64 does not divide by tp = 3"));
  s.tp = 8;
  s.recompute_modules = {"mpl"};
  CHECK(says(s, "unknown recompute module 'mpl'"));
  Setup z = zero(Sharding::kZero3, 8);
  CHECK(validate(z).empty());
  z.pp = 2;
  CHECK(says(z, "DeepSpeed's pipelines take stage 0 or 1"));
  z.pp = 1;
  z.program = "hf_eagre";
  CHECK(says(z, "unknown program 'hf_eagre'"));
  z = zero(Sharding::kZero2, 8);
  z.offload.parameters = OffloadPlace::kHost;
  CHECK(says(z, "offloads parameters under zero3"));
}

TEST_CASE("megatron_gpt: a layer saves what Korthikanti et al. count") {  // arXiv 2205.05198, table 2: s b h (...) bytes per layer
  Setup s;
  s.model = *find_model(presets(), "gpt2_xl");
  s.framework = Framework::kMegatron;
  s.program = "megatron_gpt";
  s.flash_attention = false;
  s.model.num_heads = s.model.num_kv_heads = 16;
  s.model.hidden = 2048;
  s.model.head_size = 128;
  s.model.feed_forward = 8192;
  s.sequence_length = 2048;
  s.micro_batch = 2;
  const double sbh = 2048.0 * 2 * 2048, scores = 5.0 * 16 * 2048 / 2048;  // 5as/h
  const auto saved = [&](ModuleSet dropped) {
    const LifetimeProgram& program = lifetime_program(s);
    const LayerSymbols symbols = layer_symbols(s, program);
    const PartBytes attention = evaluate(*program.find("grouped"), symbols, dropped),
                    mlp = evaluate(*program.find("dense"), symbols, dropped);
    return static_cast<double>(attention.kept + mlp.kept) / sbh;
  };
  s.sequence_parallel = false;
  CHECK(saved(0) == Approx(34 + scores));
  s.tp = 8;
  CHECK(saved(0) == Approx(10 + (24 + scores) / 8));
  s.sequence_parallel = true;
  CHECK(saved(0) == Approx((34 + scores) / 8));
  CHECK(saved(recompute_module("core_attn")) == Approx(34.0 / 8));
  CHECK(saved(kWholeLayer) == Approx(2.0 / 8));
  s.flash_attention = true;  // no scores, and nothing in their place
  CHECK(saved(0) == Approx(34.0 / 8));
}
