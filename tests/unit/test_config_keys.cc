// Keys of a config.json that make another model of the same sizes: taken into account, or refused by the bundled trainer by their
// names.
#include <string>
#include <utility>
#include <vector>

#include "plan/native_program.h"
#include "support/config_json.h"
#include "support/random_plan.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

// A small model of a family with keys of its own.
Geometry small(const std::string& family, const std::string& keys) {
  const std::string sizes = R"(", "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4,
    "vocab_size": 1000, "intermediate_size": 1024, "num_experts": 8, "num_local_experts": 8, "n_routed_experts": 8,
    "num_experts_per_tok": 2, "moe_intermediate_size": 256, "shared_expert_intermediate_size": 256, "moe_k": 2, "moe_num_experts": 8,
    "q_lora_rank": 64, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "n_group": 1,
    "topk_group": 1)";
  const Result<Geometry> g = from_json(R"({"model_type": ")" + family + sizes + (keys.empty() ? "" : ", ") + keys + "}");
  INFO(family << " " << keys << "\n" << format_diagnostics(g.diagnostics));
  REQUIRE(g.ok());
  return *g;
}

std::string windows(const Geometry& g) {
  std::string text;
  for (int64_t layer = 0; layer < g.num_layers; ++layer) text += has_window(g, layer) ? 'w' : '-';
  return text;
}

}  // namespace

TEST_CASE("config keys: what no program does is planned, and refused by the bundled trainer with its place") {
  const std::pair<std::string, std::string> refused[] = {
      {"gpt2", R"("scale_attn_by_inverse_layer_idx": true)"},
      {"gpt2", R"("scale_attn_weights": false)"},
      {"gpt_bigcode", R"("scale_attn_weights": false)"},
      {"deepseek_v2", R"("norm_topk_prob": true)"},
      {"deepseek_v3", R"("rope_interleave": false)"},
      {"kimi_k2", R"("rope_interleave": false)"},
      {"glm4_moe_lite", R"("rope_interleave": false)"},
      {"youtu", R"("rope_interleave": false)"},
      {"gemma", R"("use_bidirectional_attention": true)"},
      {"gemma3_text", R"("use_bidirectional_attention": true)"},
      {"gemma3_text", R"("use_bidirectional_attention": "all")"},
      {"llama", R"("is_causal": false)"},
      {"qwen2", R"("is_causal": false)"},
      {"ernie4_5_moe", R"("moe_norm_min": 0.5)"},
      {"gemma3_text", R"("rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}})"},
  };
  for (const auto& [family, keys] : refused) {
    const Geometry g = small(family, keys);
    const std::string said = format_diagnostics(check_native(g));
    const std::string key = keys.find("rope_parameters") != std::string::npos ? "rope_parameters.sliding_attention.rope_type"
                                                                              : keys.substr(1, keys.find('"', 1) - 1);
    INFO(family << " " << keys << "\n" << said);
    CHECK(said.find("'" + key + "' of model_type '" + family + "' is set to '") != std::string::npos);
    CHECK(said.find("(config.json:") != std::string::npos);
    Plan plan = make_test_plan(g, {});
    plan.strategy.trainer = "fsdp2";
    CHECK(format_diagnostics(validate(plan)).find(key) == std::string::npos);
  }
  const std::pair<std::string, std::string> run[] = {
      {"gpt2", R"("scale_attn_by_inverse_layer_idx": false, "scale_attn_weights": true)"},
      {"deepseek_v2", R"("norm_topk_prob": false)"},
      {"deepseek_v3", R"("rope_interleave": true, "norm_topk_prob": true)"},
      {"gemma3_text", R"("use_bidirectional_attention": false)"},
      {"gemma3_text", R"("use_bidirectional_attention": null)"},
      {"llama", R"("is_causal": true)"},
      {"ernie4_5_moe", R"("moe_norm_min": 1e-12)"},
      {"gemma3_text", R"("rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})"},
  };
  for (const auto& [family, keys] : run) {
    INFO(family << " " << keys);
    CHECK(small(family, keys).unlike_family.empty());
    CHECK(format_diagnostics(check_native(small(family, keys))).empty());
  }
}

TEST_CASE("config keys: what Transformers reads is taken, what it does not read is not") {
  CHECK(small("gemma", "").activation == "gelu_tanh");
  CHECK(small("gemma", R"("hidden_act": "gelu")").activation == "gelu_tanh");
  CHECK(small("gemma", R"("hidden_act": "silu")").activation == "silu");
  CHECK(format_diagnostics(check_native(small("gemma", R"("hidden_act": "relu")"))).find("gated relu") != std::string::npos);
  CHECK(small("gemma3_text", R"("attn_logit_softcapping": 2.0)").attention_soft_cap == 0);
  CHECK(small("gemma2", R"("attn_logit_softcapping": 2.0)").attention_soft_cap == 2);
  CHECK(small("cwm", R"("mlp_bias": true)").mlp_bias);
  CHECK(small("ernie4_5_moe", "").head_size == 64);  // hidden / heads; the dense family's is 128
  CHECK(small("ernie4_5", "").head_size == 128);
  for (const char* family : {"gpt_neox", "gpt2"}) CHECK(small(family, "").num_kv_heads == 8);  // they read no num_key_value_heads
  CHECK(small("phi3", R"("rope_scaling": {"type": "su", "short_factor": [1.0], "long_factor": [2.0]})").rope_scaling == "longrope");
  CHECK(small("phi3", R"("rope_scaling": {"type": "yarn", "short_factor": [1.0], "long_factor": [2.0]})").rope_scaling == "longrope");
}

TEST_CASE("config keys: layers with a window or experts up to one, or from one on") {
  using Layers = std::vector<bool>;
  CHECK(small("ernie4_5_moe", R"("moe_layer_end_index": -1)").expert_layer == Layers{false, true, true, true, true, true});
  CHECK(small("ernie4_5_moe", R"("moe_layer_end_index": 5)").expert_layer == Layers{false, true, true, true, true, true});
  CHECK(small("ernie4_5_moe", R"("moe_layer_end_index": 3)").expert_layer == Layers{false, true, true, true, false, false});
  CHECK(small("ernie4_5_moe", R"("moe_layer_start_index": 0, "moe_layer_end_index": 4)").expert_layer ==
        Layers{true, true, true, true, true, false});

  const std::string window = R"("use_sliding_window": true, "sliding_window": 128)";
  for (const char* family : {"qwen2", "qwen3", "qwen2_vl_text"}) {
    CHECK(windows(small(family, window)) == "------");  // 28 layers have none
    CHECK(windows(small(family, window + R"(, "max_window_layers": 6)")) == "------");
    CHECK(windows(small(family, window + R"(, "max_window_layers": 0)")) == "wwwwww");
    CHECK(windows(small(family, R"("use_sliding_window": false, "max_window_layers": 0)")) == "------");
  }
  const Result<Geometry> mixed = from_json(R"({"model_type": "qwen2", "hidden_size": 512, "num_hidden_layers": 6, "vocab_size": 1000,
    "num_attention_heads": 8, "intermediate_size": 1024, "use_sliding_window": true, "max_window_layers": 2})");
  CHECK(format_diagnostics(mixed.diagnostics).find("'max_window_layers' is 2: of 6 layers some have a window") != std::string::npos);
  CHECK(windows(small("qwen2_moe", window)) == "w-w-w-");
  CHECK(windows(small("qwen3_moe", window + R"(, "max_window_layers": 6)")) == "wwwwww");
  CHECK(windows(small("dots1", "")) == "------");
  CHECK(windows(small("dots1", R"("sliding_window": 128, "max_window_layers": 0)")) == "wwwwww");

  CHECK(windows(small("exaone4", "")) == "www-ww");
  CHECK(windows(small("exaone4", R"("sliding_window_pattern": 3)")) == "ww-ww-");
  CHECK(windows(small("exaone4", R"("sliding_window_pattern": "LLLG")")) == "www-ww");
  CHECK(windows(small("exaone4", R"("sliding_window": null, "sliding_window_pattern": null)")) == "------");
  const std::string neo = R"("num_layers": 6, "num_heads": 8, "window_size": 128)";
  CHECK(windows(small("gpt_neo", neo)) == "-w-w-w");
  CHECK(windows(small("gpt_neo", neo + R"(, "attention_types": [[["global"], 6]])")) == "------");
  CHECK(windows(small("gpt_neo", neo + R"(, "attention_types": [[["global", "local", "local"], 2]])")) == "-ww-ww");
}

}  // namespace distsetup
