// What a config.json says in ways of its own: lists with something for each layer, positions, models inside models.
#include <string>
#include <string_view>

#include "base/value_json.h"
#include "model/count.h"
#include "model/hf_config.h"
#include "support/presets.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

Result<Geometry> from_json(const std::string& text) {
  return geometry_from_hf_config(presets(), *parse_json(text, "config.json"), "mine");
}

void check_refused(const Result<Geometry>& g, std::string_view message) {
  INFO(format_diagnostics(g.diagnostics));
  REQUIRE_FALSE(g.ok());
  CHECK(g.diagnostics.front().message == message);
}

}  // namespace

TEST_CASE("config reading: parameters as Transformers' classes and published files have them") {
  const auto total = [](const std::string& text) {
    const Result<Geometry> g = from_json(text);
    INFO(format_diagnostics(g.diagnostics));
    REQUIRE(g.ok());
    CHECK(g.diagnostics.empty());
    return count_parameters(*g).total;
  };
  CHECK(total(R"({"model_type": "gpt_neo", "hidden_size": 768, "num_layers": 12, "num_heads": 12, "vocab_size": 50257,)"
              R"( "max_position_embeddings": 2048})") == 125'198'592);  // EleutherAI/gpt-neo-125M
  CHECK(total(R"({"model_type": "biogpt", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,)"
              R"( "num_attention_heads": 16, "vocab_size": 42384})") == 346'763'264);  // microsoft/biogpt
  CHECK(total(R"({"model_type": "cwm", "hidden_size": 6144, "intermediate_size": 21504, "num_hidden_layers": 64, "head_dim": 128,)"
              R"( "num_attention_heads": 48, "num_key_value_heads": 8, "vocab_size": 128256})") == 32'581'097'472);
  CHECK(total(R"({"model_type": "hy_v3", "hidden_size": 4096, "intermediate_size": 13312, "num_hidden_layers": 80, "head_dim": 128,)"
              R"( "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 120832})") == 295'033'543'488);
  CHECK(total(R"({"model_type": "flex_olmo", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,)"
              R"( "num_attention_heads": 32, "vocab_size": 100352})") == 33'270'665'216);
  CHECK(total(R"({"model_type": "mellum", "hidden_size": 2304, "intermediate_size": 7168, "num_hidden_layers": 28, "num_experts": 64,)"
              R"( "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 98304, "moe_intermediate_size": 896,)"
              R"( "num_experts_per_tok": 8})") == 12'149'923'072);
  CHECK(total(R"({"model_type": "minicpm3", "hidden_size": 2560, "intermediate_size": 6400, "num_hidden_layers": 62,)"
              R"( "num_attention_heads": 40, "vocab_size": 73448})") == 4'073'875'968);
}

TEST_CASE("config reading: which layers see everything, where a list says it of each") {
  const std::string cwm =
      R"({"model_type": "cwm", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 5, "vocab_size": 512,)"
      R"( "num_attention_heads": 4, "sliding_window": 8)";
  const auto windows = [](const Geometry& g) {
    std::string text;
    for (int64_t layer = 0; layer < g.num_layers; ++layer) text += has_window(g, layer) ? 'w' : '-';
    return text;
  };
  const auto types = [&](std::string_view list) {
    std::string items;
    for (const char c : list)
      items += fmt::format("{}\"{}\"", items.empty() ? "" : ", ", c == 'w' ? "sliding_attention" : "full_attention");
    return from_json(cwm + R"(, "layer_types": [)" + items + "]}");
  };
  CHECK(windows(*from_json(cwm + "}")) == "-www-");
  for (const char* list : {"-www-", "-w-w-", "w-w-w", "www-w", "wwwww", "-----", "-wwww", "wwww-"}) {
    INFO(list);
    CHECK(windows(*types(list)) == list);
  }
  check_refused(types("w-w--"), "'layer_types' has full_attention at layer 4, expected full_attention in each 2 layers");
  check_refused(types("--www"), "'layer_types' has sliding_attention at layer 2, expected full_attention in all layers");
  const std::string neo = R"({"model_type": "gpt_neo", "hidden_size": 64, "num_layers": 4, "num_heads": 4, "vocab_size": 512)";
  CHECK(windows(*from_json(neo + "}")) == "-w-w");
  CHECK(windows(*from_json(neo + R"(, "attention_layers": ["local", "local", "global", "local"]})")) == "ww-w");
  CHECK(windows(*from_json(neo + R"(, "attention_layers": ["global", "global", "global", "global"]})")) == "----");
}

TEST_CASE("config reading: a larger base, sections of positions, one number for all layers, a root") {
  const std::string hunyuan =
      R"({"model_type": "hunyuan_v1_dense", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,)"
      R"( "num_attention_heads": 4, "vocab_size": 512, "head_dim": 128, "rope_theta": 10000)";
  const Geometry stretched = *from_json(hunyuan + R"(, "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}})");
  CHECK(stretched.rope_base == Approx(11158839.925));  // 10000 · 1000^(128/126), which Hunyuan 3 states as its base
  CHECK_FALSE(stretched.rope_scaled);
  CHECK(from_json(hunyuan + R"(, "rope_scaling": {"type": "dynamic", "factor": 2.0}})")->rope_scaling == "dynamic");
  CHECK_FALSE(
      from_json(R"({"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 512,)"
                R"( "num_attention_heads": 4, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}})")
          ->rope_scaled);
  const std::string experts =
      R"({"model_type": "hunyuan_v1_moe", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,)"
      R"( "num_attention_heads": 4, "vocab_size": 512, "num_experts": 8, "moe_topk": )";
  CHECK(from_json(experts + "[3, 3]}")->experts_per_token == 3);
  CHECK(from_json(experts + "2}")->experts_per_token == 2);
  CHECK_FALSE(from_json(experts + "[3, 2]}").ok());
  const Geometry minicpm =
      *from_json(R"({"model_type": "minicpm3", "hidden_size": 512, "intermediate_size": 128, "num_hidden_layers": 4,)"
                 R"( "num_attention_heads": 4, "vocab_size": 512, "scale_depth": 1.4, "dim_model_base": 256})");
  CHECK(minicpm.residual_multiplier == Approx(0.7));
  CHECK(minicpm.logits_scaling == 2);
  const std::string pictures = R"({"model_type": "qwen2_5_vl", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,)"
                               R"( "num_attention_heads": 4, "vocab_size": 512, "vision_config": {"depth": 2}})";
  const Result<Geometry> text = from_json(pictures);
  REQUIRE(text.ok());
  CHECK(text->family == "qwen2_5_vl_text");
  CHECK(text->qkv_bias);
  CHECK(text.diagnostics.front().message == "of 'qwen2_5_vl' the text model alone is planned ('text_config')");
}

}  // namespace distsetup
