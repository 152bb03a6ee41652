// The fields of a plan's model (plan_fields.h has the others). What most models have not is written only where it is there: such a
// field has what it is otherwise as a third value.
#pragma once
#include "model/geometry.h"

namespace distsetup {

// clang-format off: a table
template <class V>
void visit(V& v, Geometry& g) {
  v("name", g.name);
  v("family", g.family);
  v("layer_class", g.layer_class);
  v("label", g.label);
  v("hub_id", g.hub_id);
  v("activation", g.activation);
  v("rotary_fraction", g.rotary_fraction);
  v("global_layer_every", g.global_layer_every);
  v("unrotated_layer_every", g.unrotated_layer_every, int64_t{0});
  v("num_layers", g.num_layers);
  v("hidden", g.hidden);
  v("num_heads", g.num_heads);
  v("num_kv_heads", g.num_kv_heads);
  v("head_size", g.head_size);
  v("feed_forward", g.feed_forward);
  v("vocabulary", g.vocabulary);
  v("max_positions", g.max_positions);
  v("tied_embeddings", g.tied_embeddings);
  v("qkv_bias", g.qkv_bias);
  v("output_bias", g.output_bias);
  v("mlp_bias", g.mlp_bias);
  v("qk_norm", g.qk_norm);
  v("qk_norm_wide", g.qk_norm_wide);
  v("gated_mlp", g.gated_mlp);
  v("parallel_block", g.parallel_block);
  v("norms_per_layer", g.norms_per_layer);
  v("norm", g.norm);
  v("norm_epsilon", g.norm_epsilon);
  v("rope_base", g.rope_base);
  v("rope_scaled", g.rope_scaled);
  v("rope_scaling", g.rope_scaling);
  v("rope_factor", g.rope_factor);
  v("rope_low_turns", g.rope_low_turns);
  v("rope_high_turns", g.rope_high_turns);
  v("rope_amplitude", g.rope_amplitude);
  v("rope_mscale", g.rope_mscale, 0.0);
  v("rope_mscale_all", g.rope_mscale_all, 0.0);
  v("rope_truncated", g.rope_truncated, true);
  v("rope_original_positions", g.rope_original_positions);
  v("rope_short_factors", g.rope_short_factors, std::vector<double>{});
  v("rope_long_factors", g.rope_long_factors, std::vector<double>{});
  v("rope_short_amplitude", g.rope_short_amplitude, 0.0);
  v("rope_long_amplitude", g.rope_long_amplitude, 0.0);
  v("local_rope_base", g.local_rope_base);
  v("query_scalar", g.query_scalar);
  v("attention_multiplier", g.attention_multiplier);
  v("attention_sinks", g.attention_sinks, false);
  v("attention_soft_cap", g.attention_soft_cap);
  v("logit_soft_cap", g.logit_soft_cap);
  v("logits_scaling", g.logits_scaling);
  v("embedding_multiplier", g.embedding_multiplier);
  v("residual_multiplier", g.residual_multiplier);
  v("learned_positions", g.learned_positions);
  v("head_bias", g.head_bias);
  v("embedding_norm", g.embedding_norm, false);
  v("num_experts", g.num_experts);
  v("experts_per_token", g.experts_per_token);
  v("expert_feed_forward", g.expert_feed_forward);
  v("expert_hidden", g.expert_hidden);
  v("swiglu_limit", g.swiglu_limit, 0.0);
  v("swiglu_alpha", g.swiglu_alpha, 0.0);
  v("num_shared_experts", g.num_shared_experts);
  v("shared_feed_forward", g.shared_feed_forward);
  v("shared_expert_gate", g.shared_expert_gate);
  v("router_score_bias", g.router_score_bias);
  v("router_normalized", g.router_normalized);
  v("router_scaling", g.router_scaling);
  v("router_groups", g.router_groups);
  v("router_groups_chosen", g.router_groups_chosen);
  v("router_bias_rate", g.router_bias_rate);
  v("expert_capacity", g.expert_capacity, 0.0);
  v("router_loss", g.router_loss);
  v("router_z_loss", g.router_z_loss, 0.0);
  v("expert_layer", g.expert_layer);
  v("attention", g.attention);
  v("q_lora_rank", g.q_lora_rank);
  v("kv_lora_rank", g.kv_lora_rank);
  v("qk_nope_head_size", g.qk_nope_head_size);
  v("qk_rope_head_size", g.qk_rope_head_size);
  v("v_head_size", g.v_head_size);
  v("sliding_window", g.sliding_window);
  v("scan_channels", g.scan_channels);
  v("delta_heads", g.delta_heads, int64_t{0});
  v("experts_joined", g.experts_joined, false);
  v("bidirectional", g.bidirectional, false);
  v("source", g.source);
  v("unlike_family", g.unlike_family, std::string());
  v("native_program", g.native_program);
}
// clang-format on

}  // namespace distsetup
