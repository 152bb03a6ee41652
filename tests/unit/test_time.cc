// The time model: single operations against published numbers, whole steps against what must hold for any trainer.
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "base/embedded.h"
#include "base/value_yaml.h"
#include "model/flops.h"
#include "model/presets.h"
#include "planner/time/attention.h"
#include "planner/time/collective.h"
#include "planner/time/context.h"
#include "planner/time/economics.h"
#include "planner/time/embedded_calibration.h"
#include "planner/time/gemm.h"
#include "planner/time/launch.h"
#include "planner/time/layer.h"
#include "planner/time/step.h"
#include "support/presets.h"

using namespace distsetup;

namespace {

Setup setup_of(const char* model, const char* gpu, int gpus) {
  Setup s;
  const Result<Geometry> geometry = find_model(presets(), model);
  const Result<GpuChoice> choice = find_gpu(presets(), gpu);
  REQUIRE(geometry.ok());
  REQUIRE(choice.ok());
  s.model = *geometry;
  s.gpu = choice->gpu;
  s.gpus_per_node = std::min(gpus, 8);
  s.nodes = std::max(1, gpus / 8);
  s.nic_kind = s.nodes > 1 ? "infiniband" : "";
  s.nic_bytes_per_s = s.nodes > 1 ? 400e9 : 0;
  s.dp_shard = gpus;
  s.software.released = 202506;
  return s;
}

double step_s(const Setup& s) { return estimate_time(s).step_s; }

std::vector<Setup> sample() {
  std::vector<Setup> all;
  all.push_back(setup_of("llama3.1_8b", "h100_sxm", 8));
  Setup pipeline = setup_of("llama3.1_70b", "h100_sxm", 64);
  pipeline.framework = Framework::kMegatron;
  pipeline.sharding = Sharding::kZero1;
  pipeline.tp = 4;
  pipeline.pp = 4;
  pipeline.virtual_stages = 5;
  pipeline.dp_shard = 4;
  pipeline.gradient_accumulation = 16;
  pipeline.program = "megatron_te";
  pipeline.loss = LossHead::kVocabularyParallel;
  all.push_back(pipeline);
  Setup uneven = setup_of("llama3.1_8b", "a100_sxm_80", 8);  // 34 places on 8 stages
  uneven.pp = 8;
  uneven.dp_shard = 1;
  uneven.sharding = Sharding::kDdp;
  uneven.gradient_accumulation = 16;
  all.push_back(uneven);
  Setup context = setup_of("llama3.1_8b", "a100_sxm_80", 16);
  context.cp = 4;
  context.dp_shard = 4;
  context.sequence_length = 32768;
  context.recompute = ActivationRecompute::kFull;
  all.push_back(context);
  Setup experts = setup_of("mixtral_8x7b", "b200", 8);
  experts.framework = Framework::kMegatron;
  experts.sharding = Sharding::kZero1;
  experts.ep = 8;
  all.push_back(experts);
  Setup latent = setup_of("deepseek_v2_lite", "h200_sxm", 8);
  latent.ep = 8;
  all.push_back(latent);
  Setup lora = setup_of("llama2_7b", "rtx_4090", 1);
  lora.framework = Framework::kDdp;
  lora.sharding = Sharding::kDdp;
  lora.finetune = Finetune::kQlora;
  lora.lora = {16, true, true, true, true, true, true, true};
  lora.frozen_dtype = Dtype::kNf4;
  all.push_back(lora);
  Setup offload = setup_of("llama2_13b", "v100_sxm_32", 8);
  offload.framework = Framework::kDeepspeed;
  offload.compute = Dtype::kF16;
  offload.offload.optimizer = OffloadPlace::kHost;
  all.push_back(offload);
  return all;
}

}  // namespace

TEST_CASE("gemm time: one tile more than the multiprocessors hold takes another wave") {
  GemmRate rate{1e15, 0, 0, 1e13, 0, 132, 1, GemmTiles::kOneSm};
  const double k = 8192, one_wave = gemm_s(rate, 128 * 132, 256, k, 2, 2), more = gemm_s(rate, 128 * 133, 256, k, 2, 2);
  CHECK(one_wave == Approx(2.0 * 128 * 132 * 256 * k / 1e15));
  CHECK(more / one_wave == Approx(5.0 / 4 / 0.8));  // five waves of half tiles at 0.8 beat two of whole ones
  CHECK(more > 1.5 * one_wave);
}

TEST_CASE("gemm time: a thin product is bound by memory and rows off 16 bytes run at the misaligned rate") {
  GemmRate rate{1e15, 0, 0, 2e12, 4e-6, 132, 0.25, GemmTiles::kOneSm};
  CHECK(gemm_s(rate, 16, 4096, 4096, 2, 2) == Approx(4e-6 + ((16.0 + 4096) * 4096 * 2 + 16.0 * 4096 * 2) / 2e12));
  CHECK(gemm_s(rate, 8192, 4096, 4100, 2, 2) > 3 * gemm_s(rate, 8192, 4096, 4096, 2, 2));
  // Of a weight's gradient the tokens are rows: 8,191 of them are as good as 8,192.
  CHECK(gemm_s(rate, 4096, 4096, 8191, 2, 2, SummedOver::kRows) < gemm_s(rate, 4096, 4096, 8192, 2, 2, SummedOver::kRows));
  rate.tiles = GemmTiles::kNoTensorCores;  // whose requirement it is
  CHECK(gemm_s(rate, 8192, 4096, 4100, 2, 2) < 1.1 * gemm_s(rate, 8192, 4096, 4096, 2, 2));
}

TEST_CASE("step time: torch.compile pads an odd vocabulary where the head is in its graph, and copies the logits for it") {
  Setup s = setup_of("gpt2", "h100_sxm", 1);
  s.program = "unknown_compiled";
  s.compiled = true;
  s.loss = LossHead::kCompiled;
  s.micro_batch = 16;
  s.sequence_length = 1024;
  const auto times = [&](int64_t vocabulary) {
    s.model.vocabulary = vocabulary;
    return step_s(s);
  };
  const double even = times(50304), odd = times(50257);
  CHECK(odd > even);
  CHECK(odd < 1.2 * even);
  s.compiled = false;
  s.program = "unknown";
  s.loss = LossHead::kEager;
  CHECK(times(50257) > 1.3 * times(50304));
}

TEST_CASE("attention FLOPs: causal half and a window counts its own positions and backward costs 2.5 forwards of work") {
  CHECK(mean_attended(8192, 0, false) == 4096);
  CHECK(mean_attended(8192, 4096, false) == 4096 * (1 - 0.25));
  CHECK(mean_attended(8192, 0, true) == 8192);
  CHECK(mean_attended(8192, 4096, true) == 4096 * (1 - 0.125));
  const AttentionShape shape{8192, 4096, 8192, 32, 128, 128};
  CHECK(attention_flops(shape) == 4.0 * 8192 * 4096 * 32 * 128);
  TimeConstants c;
  c.attention = {1e14, 1e14, 0, 1};
  CHECK(attention_backward_s(c, shape) == Approx(2.5 * attention_forward_s(c, shape)));
}

// NCCL src/graph/tuning.cc: ring LL 6.6 us + 0.6 us a hop on NVLink, 2.7 us between nodes; Simple 8.4 + 3.4 and 14.
TEST_CASE("collectives: latency of small messages is the published one") {
  Fabric f;
  f.link_bytes_per_s = 360e9;
  f.nic_bytes_per_s = 45e9;
  f.domain = 8;
  CHECK(all_gather_s(f, group_span(f, 8, 1), 8) == Approx(6.6e-6 + 7 * 0.6e-6).epsilon(0.001));
  CHECK(all_reduce_s(f, group_span(f, 8, 1), 8) == Approx(6.6e-6 + 14 * 0.6e-6).epsilon(0.001));
  CHECK(all_gather_s(f, group_span(f, 16, 1), 8) == Approx(6.6e-6 + 14 * 0.6e-6 + 2.7e-6).epsilon(0.001));
}

TEST_CASE("collectives: large messages move at the bus bandwidth") {
  Fabric f;
  f.link_bytes_per_s = 360e9;
  f.nvls_bytes_per_s = 480e9;
  f.nic_bytes_per_s = 45e9;
  f.domain = 8;
  const double bytes = 8e9;
  CHECK(all_gather_s(f, group_span(f, 8, 1), bytes) == Approx(bytes * 7 / 8 / 360e9).epsilon(0.01));
  CHECK(all_reduce_s(f, group_span(f, 8, 1), bytes) == Approx(2 * bytes * 7 / 8 / 480e9).epsilon(0.01));      // in the switch
  CHECK(all_gather_s(f, group_span(f, 64, 1), bytes) == Approx(bytes * 63 / 64 / (8 * 45e9)).epsilon(0.05));  // eight NICs a node
  CHECK(all_gather_s(f, group_span(f, 8, 8), bytes) == Approx(bytes * 7 / 8 / 45e9).epsilon(0.01));           // one NIC each
  CHECK(all_to_all_s(f, group_span(f, 8, 1), bytes) == Approx(bytes * 7 / 8 / 360e9).epsilon(0.01));
  CHECK(all_gather_s(f, group_span(f, 1, 1), bytes) == 0);
}

TEST_CASE("layer work: parameters of the split layer are the model's") {
  Setup s = setup_of("llama3.1_8b", "h100_sxm", 8);
  const TimeConstants c = time_constants(s, embedded_calibration());
  CHECK(layer_work(s, c, 0).parameters == 4096.0 * (4096 + 2 * 1024) + 4096.0 * 4096 + 3 * 4096.0 * 14336);
  s.tp = 4;
  s.dp_shard = 2;
  CHECK(layer_work(s, c, 0).parameters == (4096.0 * (4096 + 2 * 1024) + 4096.0 * 4096 + 3 * 4096.0 * 14336) / 4);
}

TEST_CASE("step time: its terms sum to it, and MFU counts the model's FLOPs") {
  for (const Setup& s : sample()) {
    INFO(s.model.name);
    const TimeEstimate t = estimate_time(s);
    CHECK(t.gemm_s + t.attention_s + t.elementwise_s + t.loss_s + t.recompute_s + t.communication_exposed_s + t.bubble_s +
              t.optimizer_s + t.offload_exposed_s + t.launch_s ==
          Approx(t.step_s));
    for (const double term : {t.gemm_s, t.attention_s, t.elementwise_s, t.loss_s, t.recompute_s, t.communication_exposed_s, t.bubble_s,
                              t.optimizer_s, t.offload_exposed_s, t.launch_s})
      CHECK((term >= 0 && std::isfinite(term)));
    const double peak = s.compute == Dtype::kF16 ? s.gpu.peak_fp16_flops_per_s : s.gpu.peak_bf16_flops_per_s;
    CHECK(t.mfu * peak == Approx(t.tokens_per_s_per_gpu * token_flops(s.model, s.sequence_length).train).epsilon(0.01));
    CHECK(t.tokens_per_s_per_gpu * t.step_s * s.world() == Approx(s.tokens_per_step()));
    if (s.finetune == Finetune::kFull) CHECK(t.hfu > t.mfu);
  }
}

TEST_CASE("step time: more work takes longer and better hardware does not") {
  for (const Setup& s : sample()) {
    INFO(s.model.name);
    const double base = step_s(s);
    Setup more = s;
    more.gradient_accumulation *= 2;
    CHECK(step_s(more) > base);
    more = s;
    more.micro_batch *= 2;
    CHECK(step_s(more) > base);
    more = s;
    more.sequence_length *= 2;
    CHECK(step_s(more) > base);
    more = s;
    more.recompute = ActivationRecompute::kFull;
    CHECK(step_s(more) >= base);
    more = s;
    more.gpu.memory_bytes_per_s *= 2;
    CHECK(step_s(more) < base);
    more = s;
    more.gpu.link.bytes_per_s *= 2;
    more.nic_bytes_per_s *= 2;
    CHECK(step_s(more) <= base);
    more = s;
    more.gpu.peak_bf16_flops_per_s *= 2;
    more.gpu.peak_fp16_flops_per_s *= 2;
    CHECK(step_s(more) < base);
  }
}

TEST_CASE("step time: throughput per GPU does not grow with the number of nodes") {
  double last = 1e300;
  for (const int gpus : {8, 16, 64, 256, 1024}) {
    const double now = estimate_time(setup_of("llama3.1_8b", "h100_sxm", gpus)).tokens_per_s_per_gpu;
    // Sharding over more ranks makes the optimizer's part smaller, which may buy back a little.
    CHECK(now < last * 1.03);
    last = std::min(last, now);
  }
}

TEST_CASE("step time: interleaved stages shrink the bubble and overlap hides tensor parallel transfers") {
  Setup s = sample()[1];
  const TimeEstimate interleaved = estimate_time(s);
  s.virtual_stages = 1;
  CHECK(estimate_time(s).bubble_s > 4 * interleaved.bubble_s);
  s.overlap_tp = true;
  CHECK(step_s(s) < estimate_time([&] {
                      Setup without = s;
                      without.overlap_tp = false;
                      return without;
                    }())
                        .step_s);
}

TEST_CASE("step time: a GPU without measured constants is predicted by its generation and datasheet") {
  Setup s = setup_of("llama3.1_8b", "h100_sxm", 8);
  s.gpu.name = "h123_new";
  const TimeEstimate t = estimate_time(s);
  CHECK(t.mfu > 0.2);
  CHECK(t.mfu < 0.7);
}

TEST_CASE("cost: days, GPU-hours and money of a run") {
  const RunCost cost = run_cost(15e12, 400, 16384, 2.5, 0.9);
  CHECK(cost.days == Approx(15e12 / (400.0 * 16384 * 0.9) / 86400));
  CHECK(cost.gpu_hours == Approx(cost.days * 24 * 16384));
  CHECK(cost.usd == Approx(cost.gpu_hours * 2.5));
  CHECK(cost.usd_per_million_tokens == Approx(cost.usd / 15e6));
  CHECK(run_cost(1e9, 400, 8, 0, 1).usd == 0);
}

TEST_CASE("checkpoint interval: Young's optimum with Daly's terms and a failing cluster saves every mean time between failures") {
  const double rate = failures_per_s(16384);
  CHECK(1 / rate / 3600 == Approx(54.0 * 24 / 419));  // Llama 3: one failure in about three hours
  const double interval = checkpoint_interval_s(60, rate);
  CHECK(interval == Approx(std::sqrt(2 * 60 / rate)).epsilon(0.06));
  const double best = goodput(interval, 60, 300, rate);
  CHECK(best > goodput(interval / 2, 60, 300, rate));
  CHECK(best > goodput(interval * 2, 60, 300, rate));
  CHECK(checkpoint_interval_s(60, 0) == 0);
  CHECK(checkpoint_interval_s(3600, 1.0 / 600) == 600);
}

TEST_CASE("step time: PyTorch without Tensor Float 32 computes fp32 outside the tensor cores") {
  Setup s = setup_of("llama3.1_8b", "a100_sxm_80", 8);
  const double half = estimate_time(s).gemm_s;
  s.compute = Dtype::kF32;
  CHECK(estimate_time(s).gemm_s > 8 * half);
}

TEST_CASE("step time: Tensor Float 32 puts fp32 products on the tensor cores of GPUs that have it, and nothing else") {
  const auto seconds = [](const char* gpu, Dtype compute, bool tf32) {
    Setup s = setup_of("llama3.1_8b", gpu, 8);
    s.compute = compute;
    s.software.tf32_products = tf32;
    return estimate_time(s);
  };
  const TimeEstimate with = seconds("a100_sxm_80", Dtype::kF32, true), without = seconds("a100_sxm_80", Dtype::kF32, false);
  CHECK(with.gemm_s < 0.25 * without.gemm_s);  // 156 of 19.5 TFLOP/s, less of the peak
  CHECK(with.gemm_s > 1.8 * seconds("a100_sxm_80", Dtype::kBf16, false).gemm_s);
  CHECK(with.elementwise_s == Approx(without.elementwise_s));
  CHECK(seconds("v100_sxm_32", Dtype::kF32, true).step_s == seconds("v100_sxm_32", Dtype::kF32, false).step_s);
  CHECK(seconds("a100_sxm_80", Dtype::kBf16, true).step_s == seconds("a100_sxm_80", Dtype::kBf16, false).step_s);
}

TEST_CASE("step time: Tensor Float 32 is not slower than fp32 where the vocabulary is odd and both have one rate") {
  const auto gemm_s = [](const char* gpu, bool tf32) {
    Setup s = setup_of("gpt2", gpu, 1);
    s.model.vocabulary = 50257;
    s.compute = Dtype::kF32;
    s.software.tf32_products = tf32;
    return estimate_time(s).gemm_s;
  };
  CHECK(gemm_s("rtx_3090", true) <= gemm_s("rtx_3090", false));
  CHECK(gemm_s("rtx_3090", true) > 0.5 * gemm_s("rtx_3090", false));
  CHECK(gemm_s("a100_sxm_80", true) < 0.6 * gemm_s("a100_sxm_80", false));
}

TEST_CASE("step time: fp8 speeds up layers on GPUs that have it, less where nothing fuses its casts") {
  Setup s = setup_of("llama3.1_70b", "h100_sxm", 64);
  s.compiled = true;
  s.loss = LossHead::kCompiled;
  const double half = step_s(s);
  s.fp8 = Fp8Recipe::kTensorwise;
  const double compiled = step_s(s);
  CHECK(compiled < half);
  s.compiled = false;
  s.loss = LossHead::kEager;
  CHECK(step_s(s) > compiled);
}

TEST_CASE("step time: sliding windows and documents shorter than the sequence spare attention alone") {
  Setup s = setup_of("llama3.1_8b", "h100_sxm", 8);
  s.sequence_length = 65536;
  const TimeEstimate whole = estimate_time(s);
  s.mean_sequence_fraction = 0.25;
  const TimeEstimate documents = estimate_time(s);
  CHECK(documents.attention_s < 0.4 * whole.attention_s);
  CHECK(documents.gemm_s == whole.gemm_s);
}

TEST_CASE("step time: a pipeline's last stage holds the head and not the embedding and sends half as often") {
  Setup s = setup_of("llama3.1_70b", "h100_sxm", 16);
  s.framework = Framework::kMegatron;
  s.program = "megatron_te";
  s.sharding = Sharding::kZero1;
  s.sequence_parallel = true;
  s.loss = LossHead::kVocabularyParallel;
  s.tp = 8;
  s.dp_shard = 2;
  s.gradient_accumulation = 16;
  TimeConstants c = time_constants(s, embedded_calibration());
  c.straggler = 0;
  const double whole = estimate_time(s, c).loss_s;
  s.dp_shard = 1;
  s.pp = 2;
  const TimeEstimate piped = estimate_time(s, c);
  const double tokens = 4096, hidden = 8192, vocabulary = 128256.0 / s.tp;
  CHECK(whole - piped.loss_s == Approx(16 * (8 * tokens * hidden + 8 * vocabulary * hidden) / c.memory_bytes_per_s));
  TimeConstants slow = c;  // the network between the two nodes carries the sends alone
  slow.fabric.nic_bytes_per_s = c.fabric.nic_bytes_per_s / 10;
  const TimeEstimate late = estimate_time(s, slow);
  const double send = 2 * tokens * hidden / s.tp * (1 / slow.fabric.nic_bytes_per_s - 1 / c.fabric.nic_bytes_per_s);
  CHECK(late.communication_exposed_s - piped.communication_exposed_s == Approx(16 * send));
  CHECK(late.bubble_s - piped.bubble_s == Approx(2 * send));
}

TEST_CASE("step time: what an op-selective list lacks is computed again and complex rotary positions keep their kernels") {
  Setup s = setup_of("llama3.1_8b", "b200", 8);
  s.compiled = true;
  s.program = "torchtitan_compiled";
  s.recompute = ActivationRecompute::kOpSelective;
  const TimeConstants c = time_constants(s, embedded_calibration());
  const TimeEstimate kept = estimate_time(s, c);
  s.software.attention_recomputed = true;
  const double layers = 32;
  const TimeEstimate again = estimate_time(s, c);
  CHECK(again.recompute_s - kept.recompute_s == Approx(layers * attention_forward_s(c, {4096, 2048, 4096, 32, 128, 128})));
  s.software.complex_rotary = true;
  const double moved = 16 * (32 + 8) * 128 * 4096 * layers;  // q and k, read and written more often; backward 1.5 times as much
  CHECK(estimate_time(s, c).elementwise_s - again.elementwise_s == Approx(2.5 * moved / c.memory_bytes_per_s));
}

TEST_CASE("step time: casts of block recipes cost what their kernels take, torchao's more than Transformer Engine's") {
  Setup s = setup_of("llama3.1_8b", "b200", 8);
  s.compiled = true;
  for (const Fp8Recipe recipe : {Fp8Recipe::kMxfp8, Fp8Recipe::kNvfp4}) {
    s.fp8 = recipe;
    s.framework = Framework::kFsdp2;
    const double torchao = time_constants(s, embedded_calibration()).cast_bytes;
    s.framework = Framework::kMegatron;
    CHECK(torchao > 1.5 * time_constants(s, embedded_calibration()).cast_bytes);
  }
}

TEST_CASE("context parallelism: PyTorch sends keys and values of all heads, and a compiled program waits for them") {
  Setup s = setup_of("llama3.1_8b", "h100_sxm", 16);
  s.cp = 16;
  s.dp_shard = 1;
  s.sequence_length = 131072;
  s.program = "torchtitan_eager";
  const TimeConstants c = time_constants(s, embedded_calibration());
  const ContextShape eager{8192, 32, 128, 128, true, false, 1e-3};
  ContextShape traced = eager;
  traced.traced = true;
  const GroupSpan nodes = group_span(c.fabric, 16, 1);
  const double keys = all_gather_s(c.fabric, nodes, 2.0 * 8192 * 32 * 256 * 16);
  CHECK(context_forward_s(c, nodes, traced).exposed_s == Approx(keys));
  CHECK(context_forward_s(c, nodes, eager).exposed_s == Approx(keys - 1e-3 / 16));
  CHECK(context_forward_s(c, nodes, traced).elementwise_s < context_forward_s(c, nodes, eager).elementwise_s);
  // Gradients of keys and values come back in fp32, a step at a time.
  CHECK(context_backward_s(c, nodes, traced).exposed_s == Approx(keys + 16 * send_s(c.fabric, nodes, 4.0 * 8192 * 32 * 256)));
  Setup grouped = s;
  grouped.model.num_kv_heads = 1;
  const double wire = estimate_time(s).communication_exposed_s;
  CHECK(estimate_time(grouped).communication_exposed_s > 0.9 * wire);  // repeated before they are sent
}

TEST_CASE("step time: what the host adds to the GPU is more than the longer of both and less than their sum") {
  CHECK(launch_exposed_s(0, 2, 2) == 0);
  CHECK(launch_exposed_s(3, 0, 2) == 3);
  CHECK(launch_exposed_s(3, 4, 2) == Approx(1));
  CHECK(launch_exposed_s(4, 3, 2) == Approx(2));
  CHECK(launch_exposed_s(3, 4, 1) == Approx(3));
  CHECK(launch_exposed_s(3, 4, 16) < 0.01);
  Setup s = setup_of("llama3.1_8b", "h100_sxm", 8);  // of few tokens: gathers bound how far the host runs ahead
  s.sequence_length = 2048;
  Setup graph = s;
  graph.software.traced = true;
  CHECK(step_s(graph) < step_s(s));
}

TEST_CASE("step time: heads that every tensor-parallel rank gets, and inputs gathered for each product, cost what they move") {
  Setup s = setup_of("qwen3_32b", "h100_sxm", 32);
  s.tp = 8;
  s.dp_shard = 4;
  s.sequence_length = 16384;  // enough for the GPU that the host is out of the way
  const auto with = [&](bool Software::*flag, int tp) {
    Setup more = s;
    more.tp = tp;
    more.dp_shard = 32 / tp;
    const double without = step_s(more);
    more.software.*flag = true;
    return step_s(more) / without;
  };
  CHECK(with(&Software::normed_heads_gathered, 8) > 1.05);
  CHECK(with(&Software::normed_heads_gathered, 1) == 1);
  CHECK(with(&Software::gathers_each_input, 8) > 1.02);
  CHECK(with(&Software::gathers_each_input, 1) == 1);
}

TEST_CASE("step time: keys and values of two sizes run in PyTorch's memory-efficient kernel, unless it is cuDNN's") {
  Setup s = setup_of("deepseek_v2_lite", "h100_sxm", 8);
  CHECK(attention_kernel(s) == AttentionKernel::kFlash1);
  s.software.released = 202606;  // torchtitan prefers cuDNN's
  CHECK(attention_kernel(s) == AttentionKernel::kCudnn);
  CHECK(attention_kernel(setup_of("llama3.1_8b", "h100_sxm", 8)) == AttentionKernel::kFlash2);
}

TEST_CASE("step time: fp32 adapters without autocast move their input and output once more for every operation that no cache holds") {
  Setup lora = setup_of("llama2_7b", "h100_sxm", 1);
  lora.framework = Framework::kDdp;
  lora.sharding = Sharding::kDdp;
  lora.program = "hf_eager";
  lora.finetune = Finetune::kLora;
  lora.frozen_dtype = Dtype::kBf16;
  lora.lora = {16, true, true, true, true, true, true, true};
  lora.lora.dtype = Dtype::kF32;
  lora.sequence_length = 8192;
  Setup cached = lora;
  cached.gpu.l2_bytes = int64_t{1} << 40;
  // 36 bytes an element of what an adapter reads and writes at the least, of seven matrices in 32 layers.
  const double moved = 36.0 * 32 * 8192 * (4 * 4096 + 3 * 4096.0);
  CHECK(step_s(lora) - step_s(cached) > moved / lora.gpu.memory_bytes_per_s);
  lora.autocast = cached.autocast = true;
  CHECK(step_s(lora) == step_s(cached));
}

TEST_CASE("step time: samples of different lengths are padded to the longest of their micro-batch") {
  Setup s = setup_of("llama3.1_8b", "h100_sxm", 8);
  s.sequence_length = 1024;
  s.micro_batch = 8;
  const TimeEstimate full = estimate_time(s);
  s.sample_lengths = {178, 126, 26, true};
  const TimeEstimate padded = estimate_time(s);
  CHECK(padded.step_s < full.step_s);
  s.padding_counted = false;
  CHECK(estimate_time(s).step_s == padded.step_s);
  CHECK(estimate_time(s).tokens_per_s_per_gpu < 0.6 * padded.tokens_per_s_per_gpu);
  s.sample_lengths.padded_to_whole = true;
  CHECK(estimate_time(s).step_s == Approx(full.step_s));
}

TEST_CASE("calibration: the table that the build made says what the files say") {
  Calibration read;
  int files = 0;
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.path.starts_with("presets/calibration/")) continue;
    INFO(file.path);
    const Result<Value> value = parse_yaml(file.text, file.path);
    REQUIRE(value.ok());
    Result<Calibration> part = calibration_from_value(*value);
    REQUIRE(part.ok());
    read.constants.merge(part->constants);
    ++files;
  }
  CHECK(files == 2);
  CHECK(embedded_calibration().constants == read.constants);
}
