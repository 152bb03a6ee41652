// Models as Megatron-LM's command lines describe them: megatron/training/arguments.py, core_r0.16. What no flag says is its default
// there: LayerNorm, GELU over four times the width with biases, learned positions, tied embeddings.
#include <algorithm>

#include "row_setup.h"

namespace distsetup::accuracy {
namespace {

int64_t whole_flag(std::string_view notes, std::string_view name, int64_t absent) {
  return static_cast<int64_t>(flag(notes, name, static_cast<double>(absent)));
}

// Mixers of a hybrid: Mamba-2 counted as attention of the same size, each with the MLP behind it.
void read_hybrid_pattern(std::string_view notes, Geometry& g) {
  constexpr std::string_view kName = "hybrid-layer-pattern=";
  const size_t at = notes.find(kName);
  if (at == std::string_view::npos || g.num_layers > 0) return;
  int64_t attending = 0;
  for (const char layer : notes.substr(at + kName.size())) {
    if (layer == ',' || layer == ';') break;
    g.num_layers += layer == 'M' || layer == '*' ? 1 : 0;
    attending += layer == '*' ? 1 : 0;
  }
  // The in-projection makes two times 2 h, eight groups of B and C with 128 states each, and a step per head of 64 channels; the
  // out-projection takes 2 h (megatron/core/ssm/mamba_mixer.py).
  g.scan_channels = 2 * g.hidden;
  g.global_layer_every = attending > 0 ? g.num_layers / attending : 0;
  g.num_heads = 2 * g.hidden / g.head_size;
  g.num_kv_heads = (g.hidden + 8 * 128 + g.hidden / 64) / g.head_size;
}

}  // namespace

double flag(std::string_view notes, std::string_view name, double absent) {
  return number_after(notes, std::string(name) + "=").value_or(absent);
}

void read_expert_flags(std::string_view notes, Geometry& g, int64_t& dense_layers) {
  g.num_experts = whole_flag(notes, "num-experts", g.num_experts);
  g.experts_per_token = whole_flag(notes, "moe-router-topk", g.experts_per_token);
  g.expert_feed_forward = whole_flag(notes, "moe-ffn-hidden-size", g.expert_feed_forward);
  g.shared_feed_forward = whole_flag(notes, "moe-shared-expert-intermediate-size", g.shared_feed_forward);
  // "moe-layer-freq=([0]*3+[1]*11)": 3 dense layers first.
  dense_layers = static_cast<int64_t>(number_after(notes, "moe-layer-freq=([0]*").value_or(static_cast<double>(dense_layers)));
}

Result<Geometry> flags_geometry(const Row& row) {
  const std::string& notes = row.text("notes");
  const auto says = [&](std::string_view part) { return contains(notes, part); };
  Geometry g;
  g.family = "gpt2";
  g.layer_class = "TransformerLayer";
  g.name = row.text("model");
  g.source = "sizes of the row";
  g.hidden = row.integer("hidden", 0);
  g.num_heads = row.integer("heads", 0);
  if (g.hidden == 0 || g.num_heads == 0) return unmapped(row, "the hidden size or the number of attention heads is not stated");
  g.num_layers = row.integer("layers", 0);
  g.num_kv_heads = row.integer("kv_heads", g.num_heads);
  g.head_size = whole_flag(notes, "kv-channels", g.hidden / g.num_heads);
  g.feed_forward = row.integer("ffn", 4 * g.hidden);
  // 3232 x 40 is DeepSeek's vocabulary; GPT-2's is what a row means that says nothing.
  g.vocabulary = row.integer("vocab", whole_flag(notes, "make-vocab-size-divisible-by", 128) == 3232 ? 129280 : 50257);
  const bool rotates = says("position-embedding-type=rope");
  if (!rotates && !says("position-embedding-type=none")) g.learned_positions = g.max_positions = row.integer("seq_len", 0);
  g.rotary_fraction = rotates ? 1 : 0;
  g.tied_embeddings = !says("untie-embeddings-and-output-weights");
  g.qkv_bias = g.output_bias = g.mlp_bias = !says("disable-bias-linear");
  g.gated_mlp = says("swiglu");
  g.activation = says("squared-relu") ? "relu2" : "gelu_tanh";
  g.norm = Norm::kLayer;
  if (says("multi-latent-attention")) {
    g.attention = Attention::kLatent;
    g.q_lora_rank = whole_flag(notes, "q-lora-rank", 0);
    g.kv_lora_rank = whole_flag(notes, "kv-lora-rank", 32);
    g.qk_nope_head_size = whole_flag(notes, "qk-head-dim", 128);
    g.qk_rope_head_size = whole_flag(notes, "qk-pos-emb-head-dim", 64);
    g.v_head_size = whole_flag(notes, "v-head-dim", 128);
  }
  read_hybrid_pattern(notes, g);
  if (says("num-experts=")) {
    int64_t dense_layers = 0;
    g.expert_feed_forward = g.feed_forward;
    read_expert_flags(notes, g, dense_layers);
    g.expert_layer.assign(static_cast<size_t>(g.num_layers), true);
    for (int64_t i = 0; i < std::min(dense_layers, g.num_layers); ++i) g.expert_layer[static_cast<size_t>(i)] = false;
  }
  return g;
}

}  // namespace distsetup::accuracy
