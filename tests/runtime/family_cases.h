// A tiny model of each family whose programs differ from Llama's.
#pragma once
#include <string>
#include <vector>

#include "runtime/tiny.h"

namespace distsetup::tiny {

struct FamilyCase {
  std::string name;
  Geometry geometry;
};

inline Geometry of(const std::string& family) {
  Geometry g = odd_geometry();
  g.family = family;
  g.num_layers = 3;
  g.hidden = 32, g.num_heads = 4, g.num_kv_heads = 2, g.head_size = 8;
  return g;
}

inline Geometry with_layer_norm(const std::string& family) {
  Geometry g = of(family);
  g.norm = Norm::kLayer;
  g.gated_mlp = false;
  g.activation = "gelu";
  g.qkv_bias = g.output_bias = g.mlp_bias = true;
  return g;
}

inline std::vector<FamilyCase> families() {
  std::vector<FamilyCase> out;
  const auto add = [&](std::string name, Geometry g) { out.push_back({std::move(name), std::move(g)}); };
  Geometry g = of("mistral");
  g.sliding_window = 5;
  add("window", g);
  g = of("gemma2");
  g.activation = "gelu_tanh", g.norms_per_layer = 4, g.tied_embeddings = true, g.sliding_window = 5, g.global_layer_every = 2;
  g.query_scalar = 20, g.attention_soft_cap = 5, g.logit_soft_cap = 3;
  add("gemma2", g);
  g = of("olmo2");
  g.qk_norm_wide = true;
  add("olmo2", g);
  g = of("granite");
  g.embedding_multiplier = 12, g.residual_multiplier = 0.22, g.attention_multiplier = 0.1, g.logits_scaling = 8;
  add("granite", g);
  g = with_layer_norm("phi");
  g.parallel_block = true, g.norms_per_layer = 1, g.head_bias = true, g.rotary_fraction = 0.5, g.activation = "gelu_tanh";
  add("phi", g);
  g = with_layer_norm("gpt_neox");
  g.parallel_block = true, g.rotary_fraction = 0.25;
  add("gpt_neox", g);
  g = with_layer_norm("gpt2");
  g.learned_positions = 16, g.tied_embeddings = true;
  add("gpt2", g);
  g.family = "opt", g.learned_positions = 18;  // whose positions begin at the third row; relu has a kink that rounding steps over
  add("opt", g);
  g = with_layer_norm("falcon");
  g.parallel_block = true, g.norms_per_layer = 1, g.num_kv_heads = 1, g.qkv_bias = g.output_bias = g.mlp_bias = false,
  g.tied_embeddings = true;
  add("falcon", g);
  g = of("cohere");
  g.norm = Norm::kLayerNoBias, g.parallel_block = true, g.norms_per_layer = 1, g.tied_embeddings = true, g.logits_scaling = 4;
  add("cohere", g);
  g = of("glm4");
  g.norms_per_layer = 4, g.qkv_bias = true, g.rotary_fraction = 0.5;
  add("glm4", g);
  g = of("smollm3");
  g.unrotated_layer_every = 2, g.tied_embeddings = true;
  add("smollm3", g);
  return out;
}

}  // namespace distsetup::tiny
