// The table. Left out: what a config.json has no key for and presets read apart (name, family, label, source, expert_layer, the
// factors of longrope).
#include "model/geometry_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

namespace distsetup {
namespace {

// clang-format off: a table
constexpr GeometryField kGeometryFields[] = {
    {"num_layers", &Geometry::num_layers},
    {"hidden", &Geometry::hidden},
    {"num_heads", &Geometry::num_heads},
    {"num_kv_heads", &Geometry::num_kv_heads},
    {"vocabulary", &Geometry::vocabulary},
    {"max_positions", &Geometry::max_positions},
    {"learned_positions", &Geometry::learned_positions},
    {"feed_forward", &Geometry::feed_forward},
    {"num_experts", &Geometry::num_experts},
    {"experts_per_token", &Geometry::experts_per_token},
    {"expert_feed_forward", &Geometry::expert_feed_forward},
    {"expert_hidden", &Geometry::expert_hidden},
    {"swiglu_limit", &Geometry::swiglu_limit},
    {"swiglu_alpha", &Geometry::swiglu_alpha},
    {"num_shared_experts", &Geometry::num_shared_experts},
    {"shared_feed_forward", &Geometry::shared_feed_forward},
    {"shared_expert_gate", &Geometry::shared_expert_gate},
    {"router_score_bias", &Geometry::router_score_bias},
    {"router_normalized", &Geometry::router_normalized},
    {"router_scaling", &Geometry::router_scaling},
    {"router_groups", &Geometry::router_groups},
    {"router_groups_chosen", &Geometry::router_groups_chosen},
    {"router_bias_rate", &Geometry::router_bias_rate},
    {"expert_capacity", &Geometry::expert_capacity},
    {"router_loss", &Geometry::router_loss},
    {"router_z_loss", &Geometry::router_z_loss},
    {"attention", &Geometry::attention},
    {"q_lora_rank", &Geometry::q_lora_rank},
    {"kv_lora_rank", &Geometry::kv_lora_rank},
    {"qk_nope_head_size", &Geometry::qk_nope_head_size},
    {"qk_rope_head_size", &Geometry::qk_rope_head_size},
    {"v_head_size", &Geometry::v_head_size},
    {"head_size", &Geometry::head_size},
    {"tied_embeddings", &Geometry::tied_embeddings},
    {"qkv_bias", &Geometry::qkv_bias},
    {"output_bias", &Geometry::output_bias},
    {"mlp_bias", &Geometry::mlp_bias},
    {"head_bias", &Geometry::head_bias},
    {"qk_norm", &Geometry::qk_norm},
    {"qk_norm_wide", &Geometry::qk_norm_wide},
    {"gated_mlp", &Geometry::gated_mlp},
    {"activation", &Geometry::activation},
    {"parallel_block", &Geometry::parallel_block},
    {"norms_per_layer", &Geometry::norms_per_layer},
    {"embedding_norm", &Geometry::embedding_norm},
    {"norm", &Geometry::norm},
    {"norm_epsilon", &Geometry::norm_epsilon},
    {"rope_base", &Geometry::rope_base},
    {"rope_scaled", &Geometry::rope_scaled},
    {"rope_scaling", &Geometry::rope_scaling},
    {"rope_factor", &Geometry::rope_factor},
    {"rope_low_turns", &Geometry::rope_low_turns},
    {"rope_high_turns", &Geometry::rope_high_turns},
    {"rope_amplitude", &Geometry::rope_amplitude},
    {"rope_mscale", &Geometry::rope_mscale},
    {"rope_mscale_all", &Geometry::rope_mscale_all},
    {"rope_truncated", &Geometry::rope_truncated},
    {"rope_original_positions", &Geometry::rope_original_positions},
    {"rope_short_amplitude", &Geometry::rope_short_amplitude},
    {"rope_long_amplitude", &Geometry::rope_long_amplitude},
    {"local_rope_base", &Geometry::local_rope_base},
    {"query_scalar", &Geometry::query_scalar},
    {"attention_multiplier", &Geometry::attention_multiplier},
    {"attention_sinks", &Geometry::attention_sinks},
    {"attention_soft_cap", &Geometry::attention_soft_cap},
    {"logit_soft_cap", &Geometry::logit_soft_cap},
    {"logits_scaling", &Geometry::logits_scaling},
    {"embedding_multiplier", &Geometry::embedding_multiplier},
    {"residual_multiplier", &Geometry::residual_multiplier},
    {"rotary_fraction", &Geometry::rotary_fraction},
    {"unrotated_layer_every", &Geometry::unrotated_layer_every},
    {"sliding_window", &Geometry::sliding_window},
    {"scan_channels", &Geometry::scan_channels},
    {"delta_heads", &Geometry::delta_heads},
    {"experts_joined", &Geometry::experts_joined},
    {"global_layer_every", &Geometry::global_layer_every},
};
// clang-format on

}  // namespace

std::span<const GeometryField> geometry_fields() { return kGeometryFields; }

const GeometryField* find_geometry_field(std::string_view name) {
  const auto found = std::find_if(std::begin(kGeometryFields), std::end(kGeometryFields),
                                  [name](const GeometryField& field) { return field.name == name; });
  return found == std::end(kGeometryFields) ? nullptr : found;
}

std::string field_text(const GeometryField& field, const Geometry& geometry) {
  return std::visit(
      [&](auto member) -> std::string {
        const auto& value = geometry.*member;
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, Norm>)
          return std::string(kNormNames[static_cast<size_t>(value)]);
        else if constexpr (std::is_same_v<T, Attention>)
          return std::string(kAttentionNames[static_cast<size_t>(value)]);
        else
          return fmt::format("{}", value);
      },
      field.member);
}

}  // namespace distsetup
