// What no run can do without: sizes that exist, heads that divide. Every message carries the numbers.
// Leaves out: what depends on how the model is split (parallel_rules.cc) and what a trainer can run (capabilities).
#include "model/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/diagnostic_codes.h"
#include "base/quantity.h"

namespace distsetup {
namespace {

struct GeometryCheck {
  const Location& at;
  Diagnostics diagnostics;

  void fail(std::string message, std::string help = "") {
    diagnostics.push_back(error(code::kGeometryInvalid, at, std::move(message), std::move(help)));
  }
  void positive(const char* key, int64_t value, int64_t limit) {
    if (value <= 0) {
      fail(fmt::format("{} is {}, expected at least 1", key, value));
    } else if (value > limit) {
      fail(fmt::format("{} is {}, expected at most {}", key, value, format_count(limit)));
    }
  }
  void pattern(const char* key, int64_t every) {
    constexpr int64_t kMost = 100'000;
    if (std::abs(every) > kMost) fail(fmt::format("{} is {}, expected {} to {}", key, every, -kMost, kMost));
  }
  void at_least_zero(const char* key, int64_t value, int64_t limit) {
    if (value < 0 || value > limit) fail(fmt::format("{} is {}, expected 0 to {}", key, value, format_count(limit)));
  }
};

std::string divisors(int64_t n) {
  std::string list;
  for (int64_t i = 1; i <= n; ++i) {
    if (n % i == 0) list += (list.empty() ? "" : ", ") + std::to_string(i);
  }
  return list;
}

void check_attention(const Geometry& g, GeometryCheck& check) {
  check.positive("num_heads", g.num_heads, 100'000);
  check.positive("num_kv_heads", g.num_kv_heads, 100'000);
  if (g.num_heads > 0 && g.num_kv_heads > 0 && g.num_heads <= 100'000 && g.num_heads % g.num_kv_heads != 0) {
    check.diagnostics.push_back(error(code::kIndivisible, check.at,
                                      fmt::format("{} heads are not divisible by {} kv heads", g.num_heads, g.num_kv_heads),
                                      fmt::format("set num_kv_heads to one of {}", divisors(g.num_heads))));
  }
  if (g.attention == Attention::kLatent) {
    check.positive("kv_lora_rank", g.kv_lora_rank, 1'000'000);
    check.positive("qk_nope_head_size", g.qk_nope_head_size, 100'000);
    check.positive("qk_rope_head_size", g.qk_rope_head_size, 100'000);
    check.positive("v_head_size", g.v_head_size, 100'000);
    check.at_least_zero("q_lora_rank", g.q_lora_rank, 1'000'000);
    if (g.qk_rope_head_size % 2 != 0) {
      check.fail(fmt::format("qk_rope_head_size is {}, expected an even number: rotary positions turn pairs", g.qk_rope_head_size));
    }
    if (g.qkv_bias || g.output_bias || g.qk_norm_present()) check.fail("biases and q, k norms are not known for latent attention");
    return;
  }
  check.positive("head_size", g.head_size, 100'000);
  if (g.learned_positions == 0 && g.head_size % 2 != 0) {
    check.fail(fmt::format("head_size is {}, expected an even number: rotary positions turn pairs", g.head_size));
  }
  if (g.qk_norm && g.qk_norm_wide) check.fail("qk_norm and qk_norm_wide are both on, expected at most one");
}

void check_experts(const Geometry& g, GeometryCheck& check) {
  if (g.num_experts < 0) check.fail(fmt::format("num_experts is {}, expected 0 (dense) or more", g.num_experts));
  if (g.num_experts <= 0) {
    if (g.experts_per_token > 0 || g.expert_feed_forward > 0 || g.num_shared_experts > 0 || g.shared_feed_forward > 0 ||
        g.expert_capacity > 0) {
      check.fail("keys of experts are given but num_experts is 0", "set num_experts, or remove the keys of experts");
    }
    return;
  }
  check.positive("num_experts", g.num_experts, 100'000);
  check.positive("expert_feed_forward", g.expert_feed_forward, 10'000'000);
  if (g.experts_per_token < 1 || g.experts_per_token > g.num_experts) {
    check.fail(fmt::format("experts_per_token is {}, expected 1 to {} (num_experts)", g.experts_per_token, g.num_experts));
  }
  if (!check.diagnostics.empty()) return;
  if (g.router_groups < 1 || g.num_experts % g.router_groups != 0 || g.router_groups_chosen < 1 ||
      g.router_groups_chosen > g.router_groups || g.experts_per_token > g.router_groups_chosen * (g.num_experts / g.router_groups)) {
    check.fail(
        fmt::format("{} of {} groups of {} experts, of which a token has {}: expected groups of equal size, of which those that are "
                    "chosen have enough experts",
                    g.router_groups_chosen, g.router_groups, g.num_experts, g.experts_per_token),
        "set router_groups and router_groups_chosen (n_group and topk_group in a config.json)");
  }
  if (!(g.router_scaling > 0)) check.fail(fmt::format("router_scaling is {}, expected more than 0", g.router_scaling));
  if (!(g.router_bias_rate >= 0)) check.fail(fmt::format("router_bias_rate is {}, expected 0 or more", g.router_bias_rate));
  if (!(g.expert_capacity >= 0))
    check.fail(fmt::format("expert_capacity is {}, expected 0 (an expert takes all rows) or more", g.expert_capacity));
  if (!(g.router_z_loss >= 0)) check.fail(fmt::format("router_z_loss is {}, expected 0 or more", g.router_z_loss));
  if (!(g.router_loss >= 0)) check.fail(fmt::format("router_loss is {}, expected 0 or more", g.router_loss));
  if (!(g.swiglu_limit >= 0) || (g.swiglu_limit > 0 && !(g.swiglu_alpha > 0)))
    check.fail(fmt::format("swiglu_limit is {} and swiglu_alpha {}, expected 0 or more, and more than 0 beside a limit",
                           g.swiglu_limit, g.swiglu_alpha));
  check.at_least_zero("expert_hidden", g.expert_hidden, 10'000'000);
  check.at_least_zero("num_shared_experts", g.num_shared_experts, 100'000);
  check.at_least_zero("shared_feed_forward", g.shared_feed_forward, 1'000'000'000);
  if (!g.expert_layer.empty() && static_cast<int64_t>(g.expert_layer.size()) != g.num_layers) {
    check.fail(fmt::format("expert_layer has {} entries, expected {} (num_layers)", g.expert_layer.size(), g.num_layers));
  }
}

}  // namespace

Diagnostics validate(const Geometry& g, const Location& at) {
  GeometryCheck check{at, {}};
  check.positive("num_layers", g.num_layers, 100'000);
  check.positive("hidden", g.hidden, 10'000'000);
  check.positive("vocabulary", g.vocabulary, 100'000'000);
  const bool all_expert = g.num_experts > 0 && g.expert_layer.empty();
  if (!all_expert || g.feed_forward != 0) check.positive("feed_forward", g.feed_forward, 10'000'000);
  check_attention(g, check);
  check_experts(g, check);
  if (g.norms_per_layer != 1 && g.norms_per_layer != 2 && g.norms_per_layer != 4) {
    check.fail(fmt::format("norms_per_layer is {}, expected 1, 2 or 4", g.norms_per_layer));
  }
  if (!(g.norm_epsilon > 0 && g.norm_epsilon < 1)) {
    check.fail(fmt::format("norm_epsilon is {}, expected a small positive number such as 1e-5", g.norm_epsilon));
  }
  if (!(g.rope_base > 1)) check.fail(fmt::format("rope_base is {}, expected more than 1, such as 10000", g.rope_base));
  if (!(g.rotary_fraction >= 0 && g.rotary_fraction <= 1)) {
    check.fail(fmt::format("rotary_fraction is {}, expected 0 (no rotation) to 1", g.rotary_fraction));
  }
  if (!g.rope_scaling.empty() && !(g.rope_factor > 0))
    check.fail(fmt::format("rope_factor is {}, expected more than 0", g.rope_factor));
  for (const std::vector<double>* factors : {&g.rope_short_factors, &g.rope_long_factors})
    for (const double factor : *factors)
      if (!(factor > 0)) check.fail(fmt::format("a factor of longrope is {}, expected more than 0", factor));
  if (!(g.logits_scaling > 0)) check.fail(fmt::format("logits_scaling is {}, expected more than 0", g.logits_scaling));
  check.at_least_zero("rope_original_positions", g.rope_original_positions, 1'000'000'000'000);
  check.at_least_zero("max_positions", g.max_positions, 1'000'000'000'000);
  check.at_least_zero("learned_positions", g.learned_positions, 1'000'000'000);
  check.at_least_zero("sliding_window", g.sliding_window, 1'000'000'000'000);
  check.at_least_zero("scan_channels", g.scan_channels, 10'000'000);
  check.at_least_zero("delta_heads", g.delta_heads, 10'000'000);
  if (g.delta_heads > 0 && g.scan_channels % g.delta_heads != 0)
    check.fail(fmt::format("scan_channels {} is not a multiple of delta_heads {}", g.scan_channels, g.delta_heads));
  check.pattern("global_layer_every", g.global_layer_every);
  check.pattern("unrotated_layer_every", g.unrotated_layer_every);
  if (check.diagnostics.empty()) {
    // Counts are 64-bit integers: a size far beyond any model is a typing error, found here before it overflows.
    const double widest =
        static_cast<double>(std::max(g.feed_forward, (g.num_experts + 1) * std::max(g.expert_feed_forward, int64_t{1})));
    const double shared = static_cast<double>(g.shared_feed_forward);
    const double attention =
        static_cast<double>(g.num_heads) * static_cast<double>(std::max(g.head_size, g.qk_nope_head_size + g.v_head_size));
    const double about = static_cast<double>(g.num_layers) * static_cast<double>(g.hidden) * (3 * (widest + shared) + 4 * attention) +
                         static_cast<double>(2 * g.vocabulary + g.learned_positions) * static_cast<double>(g.hidden);
    if (about > 1e17) check.fail(fmt::format("the sizes make about {:.1e} parameters, expected at most 1e17", about));
  }
  return check.diagnostics;
}

}  // namespace distsetup
