// What Megatron's flags change: exact bytes that its own tests print (tests/functional_tests, golden values of 2026-08, a GPT of 64 M
// parameters on 8 H100), and which way experts' transfers, graphs and prediction layers move the time of a step.
#include <catch2/catch.hpp>

#include "model/count.h"
#include "model/presets.h"
#include "planner/frameworks/memory.h"
#include "planner/time/step.h"
#include "support/presets.h"

using namespace distsetup;

namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;

Setup small_gpt(int tp, int pp) {
  Setup s;
  Geometry& g = s.model;
  g.num_layers = 12;
  g.hidden = 512;
  g.num_heads = g.num_kv_heads = 8;
  g.head_size = 64;
  g.feed_forward = 2048;
  g.vocabulary = 50257;
  g.learned_positions = g.max_positions = 1024;
  g.tied_embeddings = g.qkv_bias = g.output_bias = g.mlp_bias = true;
  g.gated_mlp = false;
  g.norm = Norm::kLayer;
  s.gpu = find_gpu(presets(), "h100_sxm")->gpu;
  s.gpus_per_node = 8;
  s.framework = Framework::kMegatron;
  s.program = "megatron_te";
  s.sharding = Sharding::kZero1;
  s.parameter_dtype = Dtype::kBf16;
  s.master_copy = true;
  s.tp = tp;
  s.pp = pp;
  s.dp_shard = 8 / tp / pp;
  s.sequence_parallel = false;
  s.sequence_length = 1024;
  s.micro_batch = 4;
  s.gradient_accumulation = 32 / 4 / s.dp_shard;
  s.dropout = true;
  s.memory_stage = pp - 1;
  return s;
}

double allocated_gib(const Setup& s) { return static_cast<double>(simulate_memory(s).allocated_bytes) / kGib; }

Setup with_experts() {
  Setup s = small_gpt(1, 1);
  s.model = *find_model(presets(), "qwen3_30b_a3b");
  s.gpus_per_node = 8;
  s.nodes = 2;
  s.nic_kind = "infiniband";
  s.nic_bytes_per_s = 400e9;
  s.dp_shard = s.ep = 16;
  s.sequence_length = 4096;
  s.dropout = false;
  s.loss = LossHead::kFusedKernel;
  return s;
}

double step_s(const Setup& s) { return estimate_time(s).step_s; }

}  // namespace

TEST_CASE("megatron memory: its own tests of a small GPT, to two percent") {
  Setup s = small_gpt(1, 1);
  CHECK(allocated_gib(s) == Approx(2.507).epsilon(0.02));
  s.flash_attention = false;  // five bytes a score
  CHECK(allocated_gib(s) == Approx(4.380).epsilon(0.02));
  s = small_gpt(1, 4);
  s.sharding = Sharding::kDdp;
  s.virtual_stages = 3;
  CHECK(allocated_gib(s) == Approx(2.47).epsilon(0.02));
  s = small_gpt(2, 2);
  s.sharding = Sharding::kDdp;
  CHECK(allocated_gib(s) == Approx(1.33).epsilon(0.02));
  s.loss = LossHead::kCompiled;  // ten bytes a logit for six
  CHECK(allocated_gib(s) == Approx(1.71).epsilon(0.02));
}

TEST_CASE("megatron memory: a prediction layer holds a block, its loss, and a second embedding on a last stage") {
  Setup s = small_gpt(1, 2);
  const double without = allocated_gib(s);
  s.mtp_layers = 1;
  const double probabilities = 4.0 * 50304 * 4096 / kGib;
  CHECK(allocated_gib(s) > without + probabilities);
  CHECK(allocated_gib(s) < without + 2 * probabilities);
}

TEST_CASE("experts: rows sent once per rank, overlapped, or launched from a graph are never slower, uneven ones are") {
  Setup s = with_experts();
  const double collective = step_s(s);
  s.expert_dispatch = ExpertDispatch::kDirect;
  const double direct = step_s(s);
  CHECK(direct < collective);
  Setup overlapped = s, graphed = s, uneven = s;
  overlapped.overlap_experts = true;
  CHECK(step_s(overlapped) <= direct);
  graphed.graphed = 1;
  CHECK(step_s(graphed) <= direct);
  graphed.expert_imbalance = 1.5;
  uneven.graphed = 1;
  CHECK(step_s(graphed) > step_s(uneven));
}

TEST_CASE("experts: tensor ranks that split the sequence each send their part of it") {
  Setup s = with_experts();
  s.graphed = 1;
  s.nodes = 1;
  s.dp_shard = 8;
  s.ep = 8;
  const double whole = step_s(s);
  s.tp = 2;
  s.dp_shard = 4;
  s.sequence_parallel = true;
  s.gradient_accumulation *= 2;  // the same tokens
  CHECK(step_s(s) < 1.6 * whole);
}

TEST_CASE("experts: a latent shrinks their matrices, not the model's width") {
  Geometry g = *find_model(presets(), "nemotron3_super");
  CHECK(count_parameters(g).total == 120'360'099'840);
  g.expert_hidden = 0;
  CHECK(count_parameters(g).total > 450'000'000'000);
}

TEST_CASE("a state-space mixer keeps what it scanned beside what it multiplied") {
  Setup plain = small_gpt(1, 1);
  plain.model.tied_embeddings = false;
  Setup scans = plain;
  scans.model.scan_channels = 1024;
  const int64_t one = 2 * 1024 * plain.tokens(), layers = plain.model.num_layers;
  CHECK(simulate_memory(scans).allocated_bytes - simulate_memory(plain).allocated_bytes == layers * one);
  scans.model.global_layer_every = 4;  // three of four scan
  CHECK(simulate_memory(scans).allocated_bytes - simulate_memory(plain).allocated_bytes == layers * one * 3 / 4);
}
