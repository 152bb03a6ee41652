// Exact parameter counts. The idea: a layer is a sum of matrices, biases and norms; every term below is one tensor (or one kind of
// tensor) of the published checkpoints, so the totals equal theirs to the integer.
// Source: the model classes in Hugging Face Transformers, src/transformers/models/<family>/modeling_<family>.py.
// Leaves out: buffers that are not trained, multi-token-prediction layers, vision towers.
#include "model/count.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/diagnostic_codes.h"
#include "base/quantity.h"
#include "model/layer_pattern.h"
#include "model/rope.h"

namespace distsetup {
namespace {

void count_grouped_attention(const Geometry& g, LayerParameters& layer) {
  const int64_t q_size = g.num_heads * g.head_size;
  const int64_t kv_size = g.num_kv_heads * g.head_size;
  layer.attention_matmul = g.hidden * q_size + 2 * g.hidden * kv_size + q_size * g.hidden;
  if (g.qkv_bias) layer.attention_other += q_size + 2 * kv_size;
  if (g.output_bias) layer.attention_other += g.hidden;
  if (g.qk_norm) layer.attention_other += 2 * g.head_size;
  if (g.qk_norm_wide) layer.attention_other += q_size + kv_size;
  if (g.attention_sinks) layer.attention_other += g.num_heads;
}

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): q through a latent of rank r_q (or directly), k and v
// through a shared latent of rank r_kv plus one rotary key; the latents are normalised.
void count_latent_attention(const Geometry& g, LayerParameters& layer) {
  const int64_t qk_head_size = g.qk_nope_head_size + g.qk_rope_head_size;
  const int64_t q_size = g.num_heads * qk_head_size;
  layer.attention_matmul = g.q_lora_rank > 0 ? g.hidden * g.q_lora_rank + g.q_lora_rank * q_size : g.hidden * q_size;
  layer.attention_matmul += g.hidden * (g.kv_lora_rank + g.qk_rope_head_size);
  layer.attention_matmul += g.kv_lora_rank * g.num_heads * (g.qk_nope_head_size + g.v_head_size);
  layer.attention_matmul += g.num_heads * g.v_head_size * g.hidden;
  layer.attention_other = g.q_lora_rank + g.kv_lora_rank;
}

int64_t norm_size(const Geometry& g) { return g.norm == Norm::kLayer ? 2 * g.hidden : g.hidden; }

// "8x7B" -> 56e9, "30B-A3B" -> 30e9, "350M" -> 350e6; 0 when it is no size.
double label_size(const std::string& label) {
  const char* p = label.c_str();
  char* end = nullptr;
  double size = std::strtod(p, &end);
  if (end == p) return 0;
  if (*end == 'x' || *end == 'X') {
    p = end + 1;
    size *= std::strtod(p, &end);
    if (end == p) return 0;
  }
  switch (*end) {
    case 'K':
    case 'k': return size * 1e3;
    case 'M':
    case 'm': return size * 1e6;
    case 'B':
    case 'b': return size * 1e9;
    case 'T':
    case 't': return size * 1e12;
    default: return 0;
  }
}

}  // namespace

bool is_expert_layer(const Geometry& g, int64_t layer) {
  if (g.num_experts == 0) return false;
  return g.expert_layer.empty() || g.expert_layer[static_cast<size_t>(layer)];
}

bool has_window(const Geometry& g, int64_t layer) { return g.sliding_window > 0 && !is_in_pattern(layer, g.global_layer_every); }

bool is_rotated(const Geometry& g, int64_t layer) { return rotated_elements(g) > 0 && !is_in_pattern(layer, g.unrotated_layer_every); }

namespace {

LayerParameters layer_of_kind(const Geometry& g, bool experts) {
  LayerParameters layer;
  if (g.attention == Attention::kLatent) {
    count_latent_attention(g, layer);
  } else {
    count_grouped_attention(g, layer);
  }
  const int64_t matrices = g.gated_mlp ? 3 : 2;
  if (experts) {
    const int64_t expert = matrices * g.expert_width() * g.expert_feed_forward;
    const int64_t always = g.hidden * g.num_experts + matrices * g.hidden * g.shared_feed_forward +
                           (g.shared_expert_gate ? g.hidden : 0) + 2 * g.hidden * g.expert_hidden;
    layer.mlp_matmul = g.num_experts * expert + always;
    layer.mlp_matmul_active = g.experts_per_token * expert + always;
    if (g.router_score_bias) layer.mlp_other = g.num_experts;
    if (g.mlp_bias) layer.mlp_other += g.num_experts * ((matrices - 1) * g.expert_feed_forward + g.expert_width() + 1);
  } else {
    layer.mlp_matmul = layer.mlp_matmul_active = matrices * g.hidden * g.feed_forward;
    if (g.mlp_bias) layer.mlp_other = (matrices - 1) * g.feed_forward + g.hidden;
  }
  layer.norms = g.norms_per_layer * norm_size(g);
  return layer;
}

}  // namespace

LayerParameters layer_parameters(const Geometry& g, int64_t layer) { return layer_of_kind(g, is_expert_layer(g, layer)); }

ParameterCount count_parameters(const Geometry& g) {
  ParameterCount count;
  count.embedding = g.vocabulary * g.hidden + g.learned_positions * g.hidden;
  if (g.embedding_norm) count.embedding += norm_size(g);
  count.head = g.tied_embeddings ? 0 : g.vocabulary * g.hidden;
  if (g.head_bias) count.head += g.vocabulary;
  count.final_norm = norm_size(g);
  count.total = count.active = count.embedding + count.head + count.final_norm;
  // Layers come in at most two kinds.
  const int64_t with_experts = g.num_experts == 0 ? 0
                               : g.expert_layer.empty()
                                   ? g.num_layers
                                   : std::count(g.expert_layer.begin(), g.expert_layer.begin() + g.num_layers, true);
  for (int64_t experts = 0; experts < 2; ++experts) {
    const int64_t layers = experts == 1 ? with_experts : g.num_layers - with_experts;
    if (layers == 0) continue;
    const LayerParameters layer = layer_of_kind(g, experts == 1);
    count.total += layers * layer.total();
    count.active += layers * layer.active();
    if (is_expert_layer(g, 0) == (experts == 1)) count.per_layer = layer.total();
  }
  return count;
}

std::optional<Diagnostic> label_note(const Geometry& g) {
  const double spoken = label_size(g.label);
  if (spoken <= 0) return std::nullopt;
  const int64_t total = count_parameters(g).total;
  const double off = static_cast<double>(total) / spoken - 1;
  if (std::abs(off) <= 0.05) return std::nullopt;
  return note(code::kLabelOff, {},
              fmt::format("'{}' is called {} but has {} parameters ({:+.0f} %)", g.name, g.label, format_count(total), 100 * off));
}

}  // namespace distsetup
