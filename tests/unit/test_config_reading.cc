// What a config.json says in ways of its own: lists with something for each layer, positions, models inside models.
#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/value_json.h"
#include "model/approximate.h"
#include "model/count.h"
#include "model/hf_config.h"
#include "plan/native_program.h"
#include "plan/plan.h"
#include "support/config_json.h"
#include "support/presets.h"
#include "support/random_plan.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

void check_refused(const Result<Geometry>& g, std::string_view message) {
  INFO(format_diagnostics(g.diagnostics));
  REQUIRE_FALSE(g.ok());
  CHECK(g.diagnostics.front().message == message);
}

}  // namespace

TEST_CASE("config reading: parameters as Transformers' classes and published files have them") {
  CHECK(total_parameters(R"({"model_type": "gpt_neo", "hidden_size": 768, "num_layers": 12, "num_heads": 12, "vocab_size": 50257,)"
                         R"( "max_position_embeddings": 2048})") == 125'198'592);  // EleutherAI/gpt-neo-125M
  CHECK(total_parameters(R"({"model_type": "biogpt", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,)"
                         R"( "num_attention_heads": 16, "vocab_size": 42384})") == 346'763'264);  // microsoft/biogpt
  CHECK(total_parameters(
            R"({"model_type": "cwm", "hidden_size": 6144, "intermediate_size": 21504, "num_hidden_layers": 64, "head_dim": 128,)"
            R"( "num_attention_heads": 48, "num_key_value_heads": 8, "vocab_size": 128256})") == 32'581'097'472);
  CHECK(total_parameters(
            R"({"model_type": "hy_v3", "hidden_size": 4096, "intermediate_size": 13312, "num_hidden_layers": 80, "head_dim": 128,)"
            R"( "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 120832})") == 295'033'543'488);
  CHECK(total_parameters(R"({"model_type": "flex_olmo", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,)"
                         R"( "num_attention_heads": 32, "vocab_size": 100352})") == 33'270'665'216);
  CHECK(total_parameters(
            R"({"model_type": "mellum", "hidden_size": 2304, "intermediate_size": 7168, "num_hidden_layers": 28, "num_experts": 64,)"
            R"( "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 98304, "moe_intermediate_size": 896,)"
            R"( "num_experts_per_tok": 8})") == 12'149'923'072);
  CHECK(total_parameters(R"({"model_type": "minicpm3", "hidden_size": 2560, "intermediate_size": 6400, "num_hidden_layers": 62,)"
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
  // A pattern that no period holds is planned by the model's sizes, and named.
  const auto by_sizes = [](const Result<Geometry>& g, std::string_view pattern) {
    INFO(format_diagnostics(g.diagnostics));
    REQUIRE(g.ok());
    CHECK(is_approximate(*g));
    CHECK(g.diagnostics.back().message == pattern);
  };
  by_sizes(types("w-w--"), "'layer_types' has full_attention at layer 4, expected full_attention in each 2 layers");
  by_sizes(types("--www"), "'layer_types' has sliding_attention at layer 2, expected full_attention in all layers");
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

TEST_CASE("config reading: a text part has its class's own numbers where it says none") {
  const Result<Geometry> llava = from_json(R"({"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064},)"
                                           R"( "vision_config": {"model_type": "clip_vision_model"}})");
  REQUIRE(llava.ok());
  CHECK(count_parameters(*llava).total == 6'738'939'904);  // the language model of llava-hf/llava-1.5-7b-hf
  const Result<Geometry> mistral =
      from_json(R"({"model_type": "llava_next", "text_config": {"model_type": "mistral", "vocab_size": 32064}})");
  CHECK(count_parameters(*mistral).total == 7'242'256'384);
  check_refused(from_json(R"({"model_type": "llama", "vocab_size": 32064})"),
                "config.json has no 'num_hidden_layers'");  // no text part
  CHECK_FALSE(
      from_json(R"({"model_type": "x", "text_config": {"model_type": "qwen3", "vocab_size": 320}})").ok());  // written over Llama
}

TEST_CASE("config.json: where the whole and its text part differ about tied embeddings, the whole's class decides") {
  const auto tied = [](const char* whole, const char* part) {
    const Result<Geometry> g = from_json(fmt::format(
        R"({{"model_type": "llava", "tie_word_embeddings": {}, "text_config": {{"model_type": "llama", "vocab_size": 32064, "tie_word_embeddings": {}}}}})",
        whole, part));
    INFO(format_diagnostics(g.diagnostics));
    REQUIRE(g.ok());
    return g->tied_embeddings;
  };
  CHECK(tied("true", "false"));
  CHECK_FALSE(tied("false", "true"));
}

TEST_CASE("config reading: families whose own code is not Transformers'") {
  const std::string minicpm = R"({"model_type": "minicpm", "hidden_size": 2304, "intermediate_size": 5760, "num_hidden_layers": 40,)"
                              R"( "num_attention_heads": 36, "vocab_size": 122753, "scale_emb": 12, "dim_model_base": 256,)"
                              R"( "scale_depth": 1.4)";
  const Geometry two_b = *from_json(minicpm + "}");
  CHECK(count_parameters(two_b).total == 2'724'880'896);  // openbmb/MiniCPM-2B-sft-bf16
  CHECK(check_native(two_b).empty());
  CHECK(native_programs(two_b)->file == "minicpm");
  const Geometry experts = *from_json(minicpm + R"(, "num_experts": 8})");
  CHECK(count_parameters(experts).total == 13'873'291'776);  // 40 · (7 · 3 · 5,760 + 8) · 2,304 more
  CHECK(format_diagnostics(check_native(experts)).find("8 experts; its blocks are dense") != std::string::npos);
}

TEST_CASE("config reading: Ministral 3 is run as long as the factor on its queries is 1") {
  const std::string sizes = R"({"model_type": "ministral3", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 34,)"
                            R"( "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131072,)"
                            R"( "max_position_embeddings": 262144)";
  const std::string scaled = R"(, "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "mscale": 1.0,)"
                             R"( "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1)";
  const Geometry eight_b = *from_json(sizes + scaled + R"(, "original_max_position_embeddings": 16384}})");
  CHECK(count_parameters(eight_b).total == 8'489'553'920);  // Ministral3Config() of Transformers 5.23
  CHECK(check_native(eight_b).empty());
  const LongestSequence longest = longest_sequence(eight_b);
  CHECK(longest.tokens == 16'384);
  CHECK(longest.why ==
        "beyond 16384 tokens it needs a kernel that there is not, for queries that are multiplied by a factor of their position "
        "(llama_4_scaling_beta)");
  Plan plan = make_test_plan(eight_b, {}, 16'384);
  CHECK(format_diagnostics(validate(plan)).find("the sequence length is") == std::string::npos);
  plan.train.sequence_length = 16'385;
  CHECK(format_diagnostics(validate(plan)).find("the sequence length is 16385, too long for model 'mine': beyond 16384 tokens") !=
        std::string::npos);
  Geometry unstated = eight_b;
  unstated.rope_original_positions = 0;
  CHECK(format_diagnostics(check_native(unstated)).find("whose length before is not stated") != std::string::npos);
}

TEST_CASE("config reading: what a model has need of and there is not is said by the name of the kernel") {
  const std::string sizes = R"(", "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "vocab_size": 1000,)"
                            R"( "intermediate_size": 2048, "num_local_experts": 8, "num_experts_per_tok": 2)";
  for (const auto& [type, kernel] :
       {std::pair<std::string, std::string>{"bloom", "attention whose scores are biased by distance (ALiBi)"},
        {"mpt", "attention whose scores are biased by distance (ALiBi)"},
        {"olmo", "LayerNorm without weights"},
        {"phimoe", "a router that chooses by SparseMixer"},
        {"llama4_text", "attention in chunks of tokens (Llama 4)"},
        {"minicpm3", "latent attention that rotates the two halves of a head (MiniCPM 3)"}}) {
    INFO(type);
    const Result<Geometry> g = from_json(R"({"model_type": ")" + type + sizes + "}");
    REQUIRE(g.ok());
    const Diagnostics said = check_native(*g);
    REQUIRE(said.size() == 1);
    CHECK(said[0].message == "the native trainer cannot run model 'mine' yet: there is no kernel for " + kernel);
  }
  const Result<Geometry> learned =
      from_json(R"({"model_type": "mpt)" + sizes + R"(, "attn_config": {"alibi": false}, "max_seq_len": 64})");
  CHECK(format_diagnostics(check_native(*learned)).find("ALiBi") == std::string::npos);  // it lacks other things
}

TEST_CASE("config reading: BLOOM has a norm behind its embedding, whose weights and biases are counted") {
  // Of bigscience/bloom-7b1, whose model card says 7,069,016,064 parameters.
  const Result<Geometry> g =
      from_json(R"({"model_type": "bloom", "hidden_size": 4096, "n_layer": 30, "n_head": 32, "vocab_size": 250880})");
  REQUIRE(g.ok());
  CHECK(g->embedding_norm);
  CHECK(count_parameters(*g).total == 7'069'016'064);
  Geometry without = *g;
  without.embedding_norm = false;
  CHECK(count_parameters(*g).total - count_parameters(without).total == 2 * 4096);
  CHECK(count_parameters(*g).embedding == 250'880 * 4096 + 2 * 4096);
}

}  // namespace distsetup
