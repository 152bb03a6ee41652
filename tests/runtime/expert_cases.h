// Tiny mixtures of experts.
#pragma once
#include <stdexcept>
#include <string>

#include "base/embedded.h"
#include "runtime/tiny.h"

namespace distsetup::tiny {

// 6 experts of which a token has 2, few enough tokens that some expert gets none now and then. "qwen2" has a dense layer, a shared
// expert behind a gate and biases; "qwen3" normed q and k; "glm4" sigmoid scores of experts in groups, corrected by each step.
// "gpt_oss" sinks, a window in the first layer, and biases.
inline Geometry expert_geometry(const std::string& which) {
  Geometry g = odd_geometry();
  g.family = which == "mixtral" || which == "gpt_oss" ? which : which + "_moe";
  g.num_heads = 4, g.num_kv_heads = 2, g.head_size = 8;
  g.num_experts = 6, g.experts_per_token = 2, g.expert_feed_forward = 13;
  g.router_normalized = which != "qwen2";
  if (which == "qwen2") {
    g.num_layers = 3;
    g.expert_layer = {true, false, true};
    g.qkv_bias = g.shared_expert_gate = true;
    g.shared_feed_forward = 11;
  }
  g.qk_norm = which == "qwen3";
  if (which == "gpt_oss") {
    g.attention_sinks = g.qkv_bias = g.output_bias = g.mlp_bias = true;
    g.swiglu_limit = 0.05, g.swiglu_alpha = 1.702;  // so small that some gates are clipped
    g.sliding_window = 5, g.global_layer_every = 2;
  }
  if (which == "glm4") {
    g.expert_layer = {false, true};
    g.router_score_bias = true;
    g.router_scaling = 1.5, g.router_bias_rate = 0.01;
    g.router_groups = 3, g.router_groups_chosen = 2;
    g.num_shared_experts = 1, g.shared_feed_forward = g.expert_feed_forward;
  }
  return g;
}

// DeepSeek: "deepseek_v2" without a latent of the query, experts in groups by their best; "deepseek_v3" with one.
inline Geometry latent_geometry(const std::string& which) {
  Geometry g = expert_geometry(which == "deepseek_v3" ? "glm4" : "mixtral");
  g.family = which;
  g.attention = Attention::kLatent;
  g.num_kv_heads = g.num_heads;
  g.kv_lora_rank = 14, g.qk_nope_head_size = 6, g.qk_rope_head_size = 4, g.v_head_size = 7, g.head_size = 10;
  g.q_lora_rank = which == "deepseek_v3" ? 12 : 0;
  g.rope_scaled = true, g.rope_scaling = "yarn", g.rope_factor = 4, g.rope_high_turns = 32, g.rope_original_positions = 8;
  g.rope_mscale = 0.7, g.rope_mscale_all = 0.9;
  if (which == "deepseek_v2") g.router_groups = 3, g.router_groups_chosen = 2, g.router_normalized = false;
  return g;
}

// Every token goes to the first expert: a router of zeros never leaves a tie, of which the first expert is the one that is taken, and
// the weight of a single expert has no gradient.
inline Geometry adversarial_geometry() {
  Geometry g = expert_geometry("mixtral");
  g.experts_per_token = 1;
  for (const EmbeddedFile& file : embedded_files())
    if (file.path == "presets/programs/native/mixtral.yaml") g.native_program = file.text;
  const std::string router = "slot: wg, shape: [E, h]";
  const size_t at = g.native_program.find(router);
  if (at == std::string::npos) throw std::logic_error("mixtral.yaml has no router");
  g.native_program.insert(at + router.size(), ", init: zeros");
  return g;
}

}  // namespace distsetup::tiny
