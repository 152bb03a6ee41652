// Small engines: hand-written CUDA (LLM.Q, llm.c) and single files of PyTorch compiled whole (modded-nanogpt, parameter-golf,
// nanochat, autoresearch). What a row leaves open is the default of the engine's own scripts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "row_setup.h"

namespace distsetup::accuracy {
namespace {

// Scripts that print no batch: llmq's benchmarks (--batch-size 16 of 1024 tokens, 524,288 tokens a step), nanochat's speedrun.sh
// (--device-batch-size 16) and autoresearch's train.py (128), both 2048 tokens and 524,288 a step.
constexpr int64_t kTokensPerStep = 524288;

void set_default_batch(Setup& s, int64_t sequence_length, int64_t micro_batch) {
  if (s.sequence_length == 0) s.sequence_length = sequence_length;
  if (s.micro_batch > 0) return;
  s.micro_batch = micro_batch;
  const int64_t ranks = int64_t{s.dp_shard} * s.dp_replicate;
  s.gradient_accumulation = std::max<int64_t>(1, kTokensPerStep / (micro_batch * s.sequence_length * ranks));
}

// --recompute-block stands for all parts; a part alone is named.
void set_recompute(Setup& s, const std::string& notes) {
  if (contains(notes, "--recompute-block")) {
    s.recompute = ActivationRecompute::kFull;
    return;
  }
  for (const char* part : {"norm", "swiglu", "ffn", "qkv", "att"})
    if (contains(notes, fmt::format("--recompute-{}", part))) s.recompute_modules.emplace_back(part);
}

Result<Setup> hand_written_row(const Row& row, Setup s) {
  const std::string &notes = row.text("notes"), &strategy = row.text("strategy");
  const bool llmq = row.says("framework", "LLM.Q");
  s.framework = Framework::kLean;
  s.program = "hand_written";
  s.software.released = llmq ? 202605 : 202407;
  set_default_batch(s, 1024, 16);
  if (!llmq) s.model.vocabulary = (s.model.vocabulary + 127) / 128 * 128;  // padded_vocab_size of train_gpt2.cu
  s.master_copy = row.says("param_dtype", "fp32 master");
  s.parameter_dtype = s.gradient_dtype = s.reduce_dtype = Dtype::kBf16;
  s.state_dtype = row.says("optimizer", "bf16 states") ? Dtype::kBf16 : Dtype::kF32;
  s.sharding = s.world() == 1                          ? Sharding::kDdp
               : contains(strategy, "ZeRO-3")          ? Sharding::kZero3
               : contains(strategy, "sharded weights") ? Sharding::kZero3
                                                       : Sharding::kZero1;
  s.loss = LossHead::kFusedKernel;
  s.loss_chunks = static_cast<int>(number_after(notes, "--lmhead-chunks=").value_or(1));
  set_recompute(s, notes);
  if (s.recompute_modules.empty() && row.text("activation_ckpt") == "full") s.recompute = ActivationRecompute::kFull;
  if (contains(notes, "--offload-residual")) s.offload.activations = OffloadPlace::kHost;
  s.host_gradients = contains(notes, "--offload-gradients");
  // Master weights on the host that are sharded too are what every layer reads, unless 8-bit copies of them are kept.
  const bool from_host = contains(notes, "--offload-quants") ||
                         (contains(notes, "--shard-weights") && contains(notes, "--offload-master") && s.fp8 == Fp8Recipe::kNone);
  s.offload.parameters = from_host ? OffloadPlace::kHost : OffloadPlace::kNone;
  return s;
}

Result<Setup> whole_graph_row(const Row& row, Setup s) {
  const std::string& notes = row.text("notes");
  const bool nanochat = row.says("framework", "nanochat");  // autoresearch is a shorter nanochat
  if (contains(notes, "kernel of attention not told")) return unmapped(row, "which kernel of attention ran is not stated");
  s.framework = Framework::kDdp;
  s.sharding = row.says("optimizer", "sharded") || row.says("strategy", "sharded") ? Sharding::kZero1 : Sharding::kDdp;
  if (s.sharding == Sharding::kDdp) {
    s.dp_replicate = s.world();
    s.dp_shard = 1;
  } else {
    s.dp_shard = s.world();
    s.dp_replicate = 1;
  }
  s.program = nanochat ? "nanochat_compiled" : "modded_gpt_compiled";
  s.compiled = true;
  s.loss = LossHead::kCompiled;
  s.software.online_softmax = true;
  if (row.text("activation_ckpt") == "full") s.recompute = ActivationRecompute::kFull;
  s.software.expandable_segments = nanochat;  // set by train.py
  s.software.released = contains(notes, "torch 2.4") ? 202409 : contains(notes, "torch 2.5") ? 202410 : 202603;
  set_default_batch(s, nanochat ? 2048 : 1024, nanochat ? (s.world() > 1 ? 16 : 128) : 64);
  s.parameter_dtype = s.gradient_dtype = s.state_dtype = s.reduce_dtype = Dtype::kF32;
  s.optimizer = row.says("optimizer", "Adam (") ? OptimizerKind::kAdamW : OptimizerKind::kMuon;
  return s;
}

}  // namespace

bool is_own_gpt(const Row& row) {
  const std::string& model = row.text("model");
  return contains(model, "modded") || contains(model, "relu^2") || model.starts_with("nanochat") ||
         model.starts_with("autoresearch") || model.starts_with("parameter-golf");
}

// modded-nanogpt's block and what came of it: RMS norms without weights, also of each head of q and k, rotary positions, a squared
// ReLU between two matrices, no biases.
Result<Geometry> own_gpt_geometry(const Row& row) {
  const std::string& model = row.text("model");
  Geometry g;
  g.name = model;
  g.family = "modded_gpt";
  g.layer_class = "Block";
  g.hidden = row.integer("hidden", 0);
  g.num_heads = row.integer("heads", 0);
  if (g.hidden == 0 || g.num_heads == 0) return unmapped(row, "the number of attention heads or the hidden size is not stated");
  g.num_kv_heads = row.integer("kv_heads", g.num_heads);
  g.head_size = g.hidden / g.num_heads;
  g.feed_forward = row.integer("ffn", 4 * g.hidden);
  g.vocabulary = row.integer("vocab", 50304);
  g.num_layers = row.integer("layers", 0);
  g.tied_embeddings = !row.says("framework", "nanochat");
  g.gated_mlp = false;
  g.activation = "relu2";
  g.qk_norm = !row.says("notes", "12 heads, GELU");
  // Since 2025-11 three of four layers see half of the 2048 positions.
  if (row.says("framework", "nanochat") && !row.says("notes", "attention to all positions")) {
    g.sliding_window = row.integer("seq_len", 2048) / 2;
    g.global_layer_every = 4;
  }
  if (g.num_layers == 0) {
    const auto h = static_cast<double>(g.hidden), kv = static_cast<double>(g.num_kv_heads * g.head_size);
    const double layer = 2 * h * h + 2 * h * kv + 2 * h * static_cast<double>(g.feed_forward);
    g.num_layers = std::llround((row.number("params_b").value_or(0) * 1e9 - static_cast<double>(g.vocabulary) * h) / layer);
  }
  if (g.num_layers <= 0) return unmapped(row, "the number of layers is not stated");
  g.source = "the engine's train script";
  return g;
}

Result<Setup> lean_row(const Row& row) {
  Result<Setup> common = common_setup(row);
  if (!common) return common;
  const bool hand_written = row.says("framework", "LLM.Q") || row.says("framework", "llm.c");
  return hand_written ? hand_written_row(row, *common) : whole_graph_row(row, *common);
}

}  // namespace distsetup::accuracy
