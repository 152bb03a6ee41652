// Plans for tests: small complete Plans of the native trainer, given or random (Random: std::mt19937_64, or Draw in a property).
#pragma once
#include <algorithm>
#include <array>
#include <random>
#include <string>

#include "plan/chunked_loss.h"
#include "plan/native_program.h"
#include "plan/pipeline.h"
#include "plan/plan.h"

namespace distsetup {

struct PlanChoice {
  Sharding sharding = Sharding::kZero3;
  int dp_replicate = 1, dp_shard = 1;
  Recompute recompute = Recompute::kNone;
  int every_k = 0;
  int64_t accumulation = 1, micro_batch = 1;
  Dtype compute = Dtype::kF32;
  bool reshard = true;
  int prefetch = 1;
  int tp = 1;  // the model gets as many times more heads and feed-forward elements
  int cp = 1;  // and, where these are exchanged, heads
  CpMethod cp_method = CpMethod::kAllGather;
  int pp = 1, chunks = 1;  // it gets a layer for each part at least, interleaved parts as many micro-batches as they divide
  bool pairs = false;      // learned from, and not tokens
  std::string optimizer = "adamw";
  bool optimizer_on_host = false, parameters_on_host = false, activations_on_host = false;
  int reductions_in_flight = 1;
  int nodes = 1;              // that the ranks lie on, where it divides them: gradients are reduced within each first
  bool chunked_loss = false;  // where a micro-batch has tokens for it
};

inline Geometry tiny_geometry(int64_t layers = 2) {
  Geometry g;
  g.name = "tiny";
  g.family = "llama";
  g.num_layers = layers;
  g.hidden = 32;
  g.num_heads = 4;
  g.num_kv_heads = 2;
  g.head_size = 8;
  g.feed_forward = 96;
  g.vocabulary = 256;
  g.max_positions = 128;
  return g;
}

inline Plan make_test_plan(const Geometry& geometry, const PlanChoice& c, int64_t sequence_length = 16) {
  Plan p;
  p.verdict = Verdict::kFits;
  p.model = geometry;
  p.hardware.gpu = "cpu";
  p.hardware.accelerator = Accelerator::kCpu;
  p.hardware.nodes = 1;
  p.model.num_heads *= c.tp, p.model.num_kv_heads *= c.tp, p.model.feed_forward *= c.tp;
  if (c.cp_method == CpMethod::kUlysses) p.model.num_heads *= c.cp, p.model.num_kv_heads *= c.cp;
  p.hardware.gpus_per_node = c.pp * c.dp_replicate * c.dp_shard * c.cp * c.tp;
  p.model.num_layers = std::max<int64_t>(p.model.num_layers, c.pp * c.chunks);
  p.mesh.pp = c.pp;
  p.strategy.virtual_stages = c.chunks;
  p.mesh.dp_replicate = c.dp_replicate;
  p.mesh.dp_shard = c.dp_shard;
  p.mesh.tp = c.tp;
  p.mesh.cp = c.cp;
  p.strategy.cp_method = name(c.cp_method);
  p.strategy.sequence_parallel = c.tp > 1;
  p.strategy.sharding = c.sharding;
  p.strategy.reshard_after_forward = c.reshard;
  p.strategy.prefetch = c.prefetch;
  p.strategy.reductions_in_flight = c.reductions_in_flight;
  if (p.mesh.world() % c.nodes == 0) p.hardware.nodes = c.nodes, p.hardware.gpus_per_node /= c.nodes;
  p.strategy.hierarchical_reduction = p.hardware.nodes > 1;
  p.micro_batch = c.micro_batch;
  const int64_t rounds = c.chunks > 1 ? pipeline_rounds(c.pp, c.accumulation) : 1;
  p.gradient_accumulation = c.accumulation / rounds * rounds;
  p.recompute = {c.recompute, c.every_k, dropped_tensors(geometry, c.recompute)};
  p.precision.compute = c.compute;
  p.train.sequence_length = sequence_length;
  if (c.pairs) p.train.method = kDpo;
  p.train.optimizer = c.optimizer;
  if (c.optimizer_on_host) p.offload.optimizer = OffloadPlace::kHost;
  if (c.parameters_on_host) p.offload.parameters = OffloadPlace::kHost;
  if (c.activations_on_host) p.offload.activations = OffloadPlace::kHost;
  if (p.offload != OffloadPlan{}) p.host = {0, 2e10, 1e10};
  if (c.chunked_loss && !c.pairs && c.micro_batch * sequence_length / c.cp >= kLossChunks) p.strategy.loss_head = kChunkedLoss;
  p.train.global_batch = c.micro_batch * p.gradient_accumulation * c.dp_replicate * c.dp_shard;
  return p;
}

inline constexpr int64_t kAnyCut = 48;  // a sequence that every random choice can cut
// The shortest sequence that a choice can cut: others are multiples of it.
inline int64_t shortest_sequence(const PlanChoice& c) { return c.tp * (c.cp > 1 ? 2 * c.cp : 1); }

template <class Random>
Geometry random_geometry(Random& random) {
  const auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  Geometry g = tiny_geometry(pick(1, 5));
  g.num_kv_heads = pick(1, 3);
  g.num_heads = g.num_kv_heads * pick(1, 3);
  g.head_size = 2 * pick(1, 10);
  g.hidden = pick(1, 70);
  g.feed_forward = pick(1, 130);
  g.vocabulary = pick(2, 300);
  g.tied_embeddings = pick(0, 1);
  g.qkv_bias = pick(0, 1);
  g.qk_norm = pick(0, 1);
  g.sliding_window = pick(0, 2) ? 0 : pick(1, 40);
  return g;
}

template <class Random>
PlanChoice random_choice(Random& random) {
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  PlanChoice c;
  c.sharding = static_cast<Sharding>(pick(0, 3));
  c.dp_replicate = pick(1, 3);
  c.dp_shard = c.sharding == Sharding::kDdp ? 1 : pick(1, 6);
  c.recompute = static_cast<Recompute>(pick(0, 4));
  c.every_k = c.recompute == Recompute::kEveryK ? pick(1, 3) : 0;
  c.accumulation = pick(1, 6);
  c.micro_batch = pick(1, 3);
  c.compute = pick(0, 1) ? Dtype::kBf16 : Dtype::kF32;
  c.reshard = c.sharding != Sharding::kZero3 || pick(0, 2) > 0;
  c.prefetch = pick(0, 3);
  c.reductions_in_flight = pick(1, 3);
  c.nodes = pick(1, 3);
  c.tp = 1 << pick(0, 2);
  c.cp = pick(0, 1) ? 1 : pick(2, 4);
  if (c.cp > 1) c.dp_replicate = std::min(c.dp_replicate, 2), c.dp_shard = std::min(c.dp_shard, 3), c.tp = std::min(c.tp, 2);
  c.cp_method = pick(0, 1) ? CpMethod::kUlysses : CpMethod::kAllGather;
  c.pairs = pick(0, 4) == 0;
  if (c.tp == 1) c.optimizer = std::array{"adamw", "adafactor", "muon"}[static_cast<size_t>(std::max(0, pick(-2, 2)))];
  c.optimizer_on_host = c.optimizer == "adamw" && pick(0, 2) == 0;
  const bool gathers = c.sharding == Sharding::kDdp || c.sharding == Sharding::kZero3;
  c.parameters_on_host = c.optimizer_on_host && gathers && pick(0, 1) == 0;
  c.chunked_loss = pick(0, 2) == 0;
  c.activations_on_host = pick(0, 3) == 0;
  if (!c.reshard || pick(0, 2) > 0) return c;
  c.pp = pick(2, 4);
  c.chunks = pick(1, 3);
  c.dp_shard = std::min(c.dp_shard, 2), c.dp_replicate = std::min(c.dp_replicate, 2);
  c.accumulation = pick(1, 3 * c.pp);
  return c;
}

}  // namespace distsetup
