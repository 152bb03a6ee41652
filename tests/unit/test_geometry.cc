// Geometry as people write it: inline keys and Hugging Face configs, right and wrong.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "base/diagnostic_codes.h"
#include "base/value_json.h"
#include "base/value_yaml.h"
#include "model/approximate.h"
#include "model/count.h"
#include "model/geometry.h"
#include "model/geometry_value.h"
#include "model/hf_config.h"
#include "model/presets.h"
#include "support/config_json.h"
#include "support/presets.h"
#include "support/temporary_directory.h"

namespace distsetup {
namespace {

constexpr char kTiny[] = "{num_layers: 2, hidden: 32, num_heads: 4, num_kv_heads: 2, feed_forward: 96, vocabulary: 256";

Result<Geometry> from_yaml(const std::string& text) {
  const Result<Value> value = parse_yaml(text, "run.yaml");
  INFO(format_diagnostics(value.diagnostics));
  REQUIRE(value.ok());
  return geometry_from_value(presets(), *value, "mine");
}

// A Llama config of 2 layers with `more` keys added.
std::string llama_json(const std::string& more, const std::string& heads = "4") {
  return R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": )" + heads +
         R"(, "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 256)" + more + "}";
}

void check_error(const Result<Geometry>& result, const char* expected_code, const std::string& expected_message) {
  INFO(format_diagnostics(result.diagnostics));
  REQUIRE_FALSE(result.ok());
  REQUIRE(result.diagnostics.size() == 1);
  CHECK(result.diagnostics[0].code == expected_code);
  CHECK(result.diagnostics[0].message == expected_message);
}

// A form that the family's file refuses is planned by its sizes, and says which form it is.
void check_by_sizes(const Result<Geometry>& result, const std::string& form) {
  INFO(format_diagnostics(result.diagnostics));
  REQUIRE(result.ok());
  CHECK(is_approximate(*result));
  CHECK(result.diagnostics.front().message.find("this form of model_type") == 0);
  CHECK(result.diagnostics.back().message == form);
}

}  // namespace

TEST_CASE("geometry: inline keys fill what follows from others") {
  const Result<Geometry> g = from_yaml("{num_layers: 2, hidden: 32, num_heads: 4, feed_forward: 96, vocabulary: 256}");
  REQUIRE(g.ok());
  CHECK(g->head_size == 8);
  CHECK(g->num_kv_heads == 4);
  CHECK(g->family == "llama");
  CHECK(g->layer_class == "LlamaDecoderLayer");
  CHECK(g->norm_epsilon == 1e-5);
}

TEST_CASE("regression 20: heads not divisible by kv heads are refused") {
  const Result<Geometry> g =
      from_yaml("{num_layers: 60, hidden: 6656, num_heads: 52, num_kv_heads: 8, feed_forward: 26624, vocabulary: 32000}");
  check_error(g, code::kIndivisible, "52 heads are not divisible by 8 kv heads");
  CHECK(g.diagnostics[0].help == "set num_kv_heads to one of 1, 2, 4, 13, 26, 52");
  CHECK(g.diagnostics[0].location.file == "run.yaml");
  check_error(from_json(llama_json("", "7")), code::kIndivisible, "hidden_size 32 is not divisible by 7 heads");
}

TEST_CASE("geometry: sizes that cannot be are refused with their value") {
  check_error(from_yaml(std::string(kTiny) + ", head_size: 7}"), code::kGeometryInvalid,
              "head_size is 7, expected an even number: rotary positions turn pairs");
  check_error(from_yaml(std::string(kTiny) + ", expert_capacity: 1.25}"), code::kGeometryInvalid,
              "keys of experts are given but num_experts is 0");
  check_error(from_yaml(std::string(kTiny) + ", norms_per_layer: 3}"), code::kGeometryInvalid,
              "norms_per_layer is 3, expected 1, 2 or 4");
  check_error(from_yaml(std::string(kTiny) + ", norm_epsilon: 0}"), code::kGeometryInvalid,
              "norm_epsilon is 0, expected a small positive number such as 1e-5");
  check_error(from_yaml(std::string(kTiny) + ", num_experts: 4, experts_per_token: 5, expert_feed_forward: 8}"),
              code::kGeometryInvalid, "experts_per_token is 5, expected 1 to 4 (num_experts)");
  check_error(from_yaml(std::string(kTiny) + ", experts_per_token: 2}"), code::kGeometryInvalid,
              "keys of experts are given but num_experts is 0");
  check_error(from_yaml(std::string(kTiny) + ", attention: latent, qk_nope_head_size: 8, qk_rope_head_size: 8, v_head_size: 8}"),
              code::kGeometryInvalid, "kv_lora_rank is 0, expected at least 1");
  check_error(from_yaml("{num_layers: 0, hidden: 32, num_heads: 4, feed_forward: 96, vocabulary: 256}"), code::kGeometryInvalid,
              "num_layers is 0, expected at least 1");
  check_error(from_yaml("{num_layers: 100000, hidden: 10000000, num_heads: 400, feed_forward: 10000000, vocabulary: 256}"),
              code::kGeometryInvalid, "the sizes make about 7.0e+19 parameters, expected at most 1e17");
  check_error(from_yaml("{num_layers: 2, hidden: 33, num_heads: 4, feed_forward: 96, vocabulary: 256}"), code::kIndivisible,
              "hidden 33 is not divisible by 4 heads");
}

TEST_CASE("geometry: an odd head size is fine without rotary positions") {
  CHECK(from_yaml(std::string(kTiny) + ", head_size: 7, learned_positions: 64}").ok());
}

TEST_CASE("geometry: unknown keys and values are named with the nearest known one") {
  const Result<Geometry> key = from_yaml("{num_layer: 2, num_layers: 2, hidden: 32, num_heads: 4, feed_forward: 96, vocabulary: 256}");
  REQUIRE_FALSE(key.ok());
  CHECK(key.diagnostics[0].code == code::kUnknownKey);
  CHECK(key.diagnostics[0].help.find("num_layers") != std::string::npos);
  check_error(from_yaml(std::string(kTiny) + ", norm: rmsnorm}"), code::kUnknownValue,
              "norm is 'rmsnorm', expected one of rms, layer, layer_no_bias");
  check_error(from_yaml(std::string(kTiny) + ", family: lama}"), code::kUnsupportedArchitecture,
              "family 'lama' of model 'mine' is not known");
  const Result<Geometry> missing = from_yaml("{num_layers: 2, hidden: 32, num_heads: 4, feed_forward: 96}");
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.diagnostics[0].code == code::kMissingKey);
}

TEST_CASE("geometry: dense_layers and expert_layer say which layers have experts") {
  const std::string experts = ", num_experts: 4, experts_per_token: 2, expert_feed_forward: 8";
  const Result<Geometry> first = from_yaml(std::string(kTiny) + experts + ", dense_layers: 1}");
  REQUIRE(first.ok());
  CHECK_FALSE(is_expert_layer(*first, 0));
  CHECK(is_expert_layer(*first, 1));
  const Result<Geometry> listed = from_yaml(std::string(kTiny) + experts + ", expert_layer: [false, true]}");
  REQUIRE(listed.ok());
  CHECK((*listed == *first));
  check_error(from_yaml(std::string(kTiny) + experts + ", expert_layer: [true]}"), code::kGeometryInvalid,
              "expert_layer has 1 entries, expected 2 (num_layers)");
  check_error(from_yaml(std::string(kTiny) + experts + ", dense_layers: 3}"), code::kOutOfRange,
              "dense_layers is 3, expected 0 to 2 (num_layers)");
}

TEST_CASE("geometry: an unknown model_type without sizes is refused by what is missing") {
  const Result<Geometry> g = from_json(R"({"model_type": "unheard_of", "hidden_size": 32})");
  REQUIRE_FALSE(g.ok());
  CHECK(g.diagnostics[0].code == code::kUnsupportedArchitecture);
  CHECK(g.diagnostics[0].message.starts_with(
      "model_type 'unheard_of' is not known, and its config.json has no 'num_hidden_layers, vocab_size'"));
  CHECK(g.diagnostics[0].location.line == 1);
  const Result<Geometry> none = from_json("{}");
  REQUIRE_FALSE(none.ok());
  CHECK(none.diagnostics[0].message.starts_with("config.json states no model_type, and no "));
}

TEST_CASE("regression 38: layer count, kv heads and norm epsilon of the config are honoured") {
  const Result<Geometry> g = from_json(llama_json(R"(, "rms_norm_eps": 1e-06, "rope_theta": 500000.0, "tie_word_embeddings": true)"));
  INFO(format_diagnostics(g.diagnostics));
  REQUIRE(g.ok());
  CHECK(g->num_layers == 2);
  CHECK(g->num_kv_heads == 2);
  CHECK(g->norm_epsilon == 1e-6);
  CHECK(g->rope_base == 500000);
  CHECK(g->tied_embeddings);
}

TEST_CASE("geometry: rope scaling in its three spellings") {
  CHECK_FALSE(from_json(llama_json(R"(, "rope_scaling": null)"))->rope_scaled);
  CHECK(from_json(llama_json(R"(, "rope_scaling": {"rope_type": "llama3", "factor": 8.0})"))->rope_scaled);
  CHECK(from_json(llama_json(R"(, "rope_scaling": {"type": "linear", "factor": 2.0})"))->rope_scaled);
  const Result<Geometry> plain = from_json(llama_json(R"(, "rope_parameters": {"rope_type": "default", "rope_theta": 250000.0})"));
  CHECK_FALSE(plain->rope_scaled);
  CHECK(plain->rope_base == 250000);
  const Result<Geometry> llama =
      from_json(llama_json(R"(, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": null})"
                           R"(, "original_max_position_embeddings": 32)"));
  REQUIRE(llama.ok());
  CHECK(llama->rope_original_positions == 32);
}

TEST_CASE("geometry: biases of a Llama config are counted") {
  const int64_t plain = count_parameters(*from_json(llama_json(""))).total;
  // q 32, k 16, v 16, o 32, in two layers; gate and up 96 each, down 32.
  CHECK(count_parameters(*from_json(llama_json(R"(, "attention_bias": true)"))).total == plain + 2 * (32 + 16 + 16 + 32));
  CHECK(count_parameters(*from_json(llama_json(R"(, "mlp_bias": true)"))).total == plain + 2 * (96 + 96 + 32));
}

TEST_CASE("geometry: sparse steps and dense layers of an expert config") {
  const std::string moe =
      R"({"model_type": "qwen3_moe", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,)"
      R"( "intermediate_size": 96, "vocab_size": 256, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16)";
  const Result<Geometry> all = from_json(moe + "}");
  REQUIRE(all.ok());
  CHECK(all->expert_layer.empty());
  const Result<Geometry> some = from_json(moe + R"(, "decoder_sparse_step": 2, "mlp_only_layers": [3]})");
  REQUIRE(some.ok());
  CHECK(some->expert_layer == std::vector<bool>{false, true, false, false});
}

TEST_CASE("geometry: settings whose parameters are not known are named") {
  const std::string falcon =
      R"({"model_type": "falcon", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256)";
  CHECK(from_json(falcon + "}").ok());
  check_by_sizes(from_json(falcon + R"(, "alibi": true})"), "'alibi' of model_type 'falcon' is set to 'true', which is not supported");
}

TEST_CASE("geometry: wrong types and missing keys of a config are found") {
  CHECK_FALSE(from_json(llama_json(R"(, "head_dim": "wide")")).ok());
  check_error(from_json(llama_json(R"(, "max_position_embeddings": -1)")), code::kOutOfRange,
              "'max_position_embeddings' is -1, expected 0 to 1000000000000");
  const Result<Geometry> missing = from_json(
      R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96})");
  check_error(missing, code::kMissingKey, "config.json has no 'vocab_size'");
}

TEST_CASE("geometry: multi-token-prediction layers are noted, not counted") {
  const std::string v3 =
      R"({"model_type": "deepseek_v3", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,)"
      R"( "vocab_size": 256, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8)";
  const Result<Geometry> without = from_json(v3 + "}");
  const Result<Geometry> with = from_json(v3 + R"(, "num_nextn_predict_layers": 1})");
  REQUIRE(with.ok());
  CHECK(count_parameters(*with).total == count_parameters(*without).total);
  REQUIRE(with.diagnostics.size() == 1);
  CHECK(with.diagnostics[0].severity == Severity::kNote);
}

// Totals of mosaicml/mpt-7b, bigcode/starcoder and the text model of google/gemma-3-4b-pt, whose config states what differs from its
// class alone.
TEST_CASE("geometry: MPT with ALiBi and without biases and GPT BigCode and Gemma 3 with pictures") {
  const std::string mpt = R"({"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "expansion_ratio": 4,)"
                          R"( "max_seq_len": 2048, "vocab_size": 50432, "no_bias": )";
  const Result<Geometry> alibi = from_json(mpt + R"(true, "attn_config": {"alibi": true, "attn_impl": "torch", "qk_ln": false}})");
  INFO(format_diagnostics(alibi.diagnostics));
  REQUIRE(alibi.ok());
  CHECK(count_parameters(*alibi).total == 6'649'286'656);
  CHECK(alibi->rotary_fraction == 0);
  CHECK(alibi->tied_embeddings);
  const Result<Geometry> learned = from_json(mpt + R"(false, "attn_config": {"alibi": false}})");
  REQUIRE(learned.ok());
  CHECK(learned->learned_positions == 2048);
  CHECK(learned->qkv_bias);
  const int64_t biases = 32 * (3 * 4096 + 4096 + 16384 + 4096 + 2 * 4096) + 4096;
  CHECK(count_parameters(*learned).total == count_parameters(*alibi).total + 2048 * 4096 + biases);

  const Result<Geometry> starcoder =
      from_json(R"({"model_type": "gpt_bigcode", "n_embd": 6144, "n_head": 48, "n_layer": 40, "n_inner": 24576, "n_positions": 8192,)"
                R"( "vocab_size": 49152, "multi_query": true})");
  REQUIRE(starcoder.ok());
  CHECK(starcoder->num_kv_heads == 1);
  CHECK(count_parameters(*starcoder).total == 15'517'456'384);

  const Result<Geometry> gemma = from_json(
      R"({"model_type": "gemma3", "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",)"
      R"( "num_hidden_layers": 34, "sliding_window": 1024}, "vision_config": {"hidden_size": 1152}})");
  REQUIRE(gemma.ok());
  CHECK(count_parameters(*gemma).total == 3'880'263'168);
  CHECK(gemma->global_layer_every == 6);
  REQUIRE(gemma.diagnostics.size() == 1);
  CHECK(gemma.diagnostics[0].message == "of 'gemma3' the text model alone is planned ('text_config')");
}

TEST_CASE("geometry: a family of known operations is a file in the user's presets") {
  const TemporaryDirectory directory;
  std::filesystem::create_directories(directory.path() + "/families");
  std::ofstream(directory.path() + "/families/novel_moe.yaml")
      << "layer_class: NovelMoeBlock\nbase: qwen3\nvalues: {narrow: false, shape: {keys: [mlp.shape], default: wide}}\n"
         "refuse: [vision]\nleft_out: {num_draft_layers: draft layer}\nfields:\n  hidden: [model_width]\n  qk_norm: not narrow\n"
         "  num_kv_heads:\n    - {when: narrow, value: 1}\n    - {keys: [kv_heads], default: num_heads}\n"
         "  feed_forward: {when: shape = wide, value: 4 * hidden}\n  num_experts: [mlp.experts]\n  experts_per_token: 2\n"
         "  expert_feed_forward: feed_forward\nexpert_layers: {every: moe_every, first_dense: dense_first}\n";
  std::ofstream(directory.path() + "/families/novel_alias.yaml") << "base: novel_moe\n";
  std::ofstream(directory.path() + "/families/novel_wrong.yaml") << "base: llama\nlayer_class: X\nfields: {hiden: 3}\n";
  std::ofstream(directory.path() + "/families/novel_loop.yaml") << "base: novel_loop\nlayer_class: X\n";
  const Result<Presets> presets = load_presets({directory.path()});
  REQUIRE(presets.ok());
  const auto read = [&](const std::string& text) {
    return geometry_from_hf_config(*presets, *parse_json(text, "config.json"), "mine");
  };
  const std::string sizes = R"("model_width": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 256)";
  const Result<Geometry> g = read(R"({"model_type": "novel_moe", )" + sizes +
                                  R"(, "mlp": {"experts": 8}, "moe_every": 2, "dense_first": 1, "num_draft_layers": 2})");
  INFO(format_diagnostics(g.diagnostics));
  REQUIRE(g.ok());
  CHECK(g->layer_class == "NovelMoeBlock");
  CHECK(g->family == "novel_moe");
  CHECK(g->hidden == 64);
  CHECK(g->head_size == 128);  // of qwen3
  CHECK(g->qk_norm);
  CHECK(g->num_kv_heads == 4);
  CHECK(g->feed_forward == 256);
  CHECK(g->num_experts == 8);
  CHECK(g->expert_feed_forward == 256);
  CHECK(g->expert_layer == std::vector<bool>{false, false, true, false});
  REQUIRE(g.diagnostics.size() == 1);
  CHECK(g.diagnostics[0].message == "2 draft layers are left out of the model");

  const Result<Geometry> alias = read(R"({"model_type": "novel_alias", )" + sizes + R"(, "mlp": {"experts": 2}, "narrow": true})");
  REQUIRE(alias.ok());
  CHECK(alias->layer_class == "NovelMoeBlock");
  CHECK(alias->num_kv_heads == 1);
  CHECK_FALSE(alias->qk_norm);
  CHECK(alias->expert_layer.empty());

  check_error(read(R"({"model_type": "novel_moe", )" + sizes + "}"), code::kMissingKey, "config.json has no 'mlp.experts'");
  check_error(read(R"({"model_type": "novel_moe", )" + sizes + R"(, "mlp": {"experts": 2}, "vision": true})"),
              code::kUnsupportedArchitecture, "'vision' of model_type 'novel_moe' is set to 'true', which is not supported");
  check_error(read(R"({"model_type": "novel_wrong"})"), code::kUnknownKey, "unknown field 'hiden' in family 'novel_wrong'");
  check_error(read(R"({"model_type": "novel_loop"})"), code::kUnsupportedArchitecture,
              "found more than 8 families based on each other, expected fewer");
  CHECK_FALSE(read(R"({"model_type": "_common"})").ok());
}

TEST_CASE("geometry: newer families have as many parameters as Transformers' classes of those sizes") {
  CHECK(total_parameters(R"({"model_type": "starcoder2", "hidden_size": 3072, "intermediate_size": 12288, "num_hidden_layers": 30,)"
                         R"( "num_attention_heads": 24, "num_key_value_heads": 2, "vocab_size": 49152, "sliding_window": 4096})") ==
        3'030'371'328);
  CHECK(total_parameters(R"({"model_type": "smollm3", "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36,)"
                         R"( "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 128256})") == 3'075'098'624);
  CHECK(total_parameters(
            R"({"model_type": "glm4", "hidden_size": 4096, "intermediate_size": 13696, "num_hidden_layers": 40, "head_dim": 128,)"
            R"( "num_attention_heads": 32, "num_key_value_heads": 2, "vocab_size": 151552})") == 9'400'279'040);
  CHECK(total_parameters(R"({"model_type": "cohere", "hidden_size": 8192, "intermediate_size": 22528, "num_hidden_layers": 40,)"
                         R"( "num_attention_heads": 64, "vocab_size": 256000})") == 34'980'831'232);
  CHECK(total_parameters(R"({"model_type": "stablelm", "hidden_size": 2560, "intermediate_size": 6912, "num_hidden_layers": 32,)"
                         R"( "num_attention_heads": 32, "vocab_size": 50304})") == 2'795'443'200);
  CHECK(total_parameters(
            R"({"model_type": "olmoe", "hidden_size": 2048, "intermediate_size": 2048, "num_hidden_layers": 16, "clip_qkv": null,)"
            R"( "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8, "vocab_size": 50304})") == 13'361'612'800);
  CHECK(total_parameters(
            R"({"model_type": "internlm3", "hidden_size": 4096, "intermediate_size": 10240, "num_hidden_layers": 48, "head_dim": 128,)"
            R"( "num_attention_heads": 32, "num_key_value_heads": 2, "vocab_size": 128512, "bias": false, "qkv_bias": false})") ==
        8'804'241'408);
  CHECK(total_parameters(R"({"model_type": "minimax_m2", "hidden_size": 3072, "intermediate_size": 1536, "num_hidden_layers": 62,)"
                         R"( "head_dim": 128, "num_attention_heads": 48, "num_key_value_heads": 8, "num_local_experts": 256,)"
                         R"( "num_experts_per_tok": 8, "vocab_size": 200064})") == 228'689'764'864);
  check_by_sizes(from_json(R"({"model_type": "olmoe", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,)"
                           R"( "num_attention_heads": 4, "vocab_size": 512, "clip_qkv": 8.0})"),
                 "'clip_qkv' of model_type 'olmoe' is set to '8.0', which is not supported");
}

TEST_CASE("geometry: layers without positions, one over a scale, one number over another") {
  const std::string smollm = R"({"model_type": "smollm3", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,)"
                             R"( "num_attention_heads": 4, "vocab_size": 512, "no_rope_layers": )";
  CHECK(from_json(smollm + "[1, 1, 1, 0]}")->unrotated_layer_every == 4);
  CHECK(from_json(smollm + "[1, 0, 1, 0]}")->unrotated_layer_every == 2);
  CHECK(from_json(smollm + "[1, 1, 1, 1]}")->unrotated_layer_every == 0);
  CHECK(from_json(smollm + "null}")->unrotated_layer_every == 4);
  check_by_sizes(from_json(smollm + "[1, 0, 1, 1]}"), "'no_rope_layers' has 1 at layer 3, expected a 0 in each 2 layers");
  const std::string cohere = R"({"model_type": "cohere", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,)"
                             R"( "num_attention_heads": 4, "vocab_size": 512)";
  CHECK(from_json(cohere + "}")->logits_scaling == 16);
  CHECK(from_json(cohere + R"(, "logit_scale": 0.25})")->logits_scaling == 4);
  const std::string minimax = R"({"model_type": "minimax_m2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,)"
                              R"( "num_attention_heads": 4, "vocab_size": 512, "num_local_experts": 4, "num_experts_per_tok": 2)";
  CHECK(from_json(minimax + "}")->rotary_fraction == 1);
  CHECK(from_json(minimax + R"(, "head_dim": 128, "rotary_dim": 64})")->rotary_fraction == 0.5);
  CHECK(from_json(minimax + R"(, "head_dim": 128, "partial_rotary_factor": 0.25})")->rotary_fraction == 0.25);
  CHECK(from_json(minimax + R"(, "rotary_dim": 8})")->rotary_fraction == 0.0625);                 // of 128
  CHECK(from_json(minimax + R"(, "head_dim": null, "rotary_dim": 8})")->rotary_fraction == 0.5);  // of hidden / heads
  check_error(from_json(minimax + R"(, "rotary_dim": 512})"), code::kGeometryInvalid,
              "rotary_fraction is 4, expected 0 (no rotation) to 1");
  const std::string granite4 =
      R"({"model_type": "granitemoehybrid", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,)"
      R"( "num_attention_heads": 4, "vocab_size": 512, "shared_intermediate_size": 96, "num_local_experts": 0)";
  CHECK(from_json(granite4 + R"(, "layer_types": ["attention", "attention"], "position_embedding_type": "rope"})")->family ==
        "granitemoehybrid");
  CHECK(from_json(granite4 + R"(, "layer_types": ["attention", "attention"]})")->rotary_fraction == 0);
  CHECK(from_json(granite4 + R"(, "layer_types": ["mamba", "attention"]})")->family != "granitemoehybrid");  // by its sizes
  CHECK(from_json(granite4 + R"(, "layer_types": ["mamba", "attention"]})")
            .diagnostics[0]
            .message.starts_with(
                "one kind of layer of model_type 'granitemoehybrid' is not known: planned as a transformer of its sizes"));
  CHECK(from_json(granite4 + "}")->family != "granitemoehybrid");  // all Mamba
  const std::string gptj = R"({"model_type": "gptj", "n_embd": 64, "n_inner": null, "n_layer": 2, "n_head": 4, "vocab_size": 512)";
  CHECK(from_json(gptj + R"(, "rotary_dim": 4})")->rotary_fraction == 0.25);
  CHECK(from_json(gptj + R"(, "rotary_dim": 4})")->feed_forward == 256);
  const Result<Geometry> small = from_json(R"({"model_type": "gptj", "n_embd": 2, "n_layer": 2, "n_head": 4, "vocab_size": 512})");
  CHECK(format_diagnostics(small.diagnostics).find("'rotary_dim / head_size': 'head_size' is 0") != std::string::npos);
  const std::string opt =
      R"({"model_type": "opt", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "ffn_dim": 3072,)"
      R"( "vocab_size": 50272, "max_position_embeddings": 2048)";
  const Result<Geometry> opt_125m = from_json(opt + R"(, "do_layer_norm_before": true})");
  REQUIRE(opt_125m.ok());
  CHECK(count_parameters(*opt_125m).total == 125'239'296);  // the sum of facebook/opt-125m's tensors
  CHECK(format_diagnostics(from_json(opt + R"(, "do_layer_norm_before": false})").diagnostics)
            .find("'do_layer_norm_before' of model_type 'opt' is set to 'false', which is not supported") != std::string::npos);
  const std::string gpt_oss = R"({"model_type": "gpt_oss", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,)"
                              R"( "num_attention_heads": 4, "vocab_size": 512, "num_local_experts": 4, "num_experts_per_tok": 2)";
  const Result<Geometry> oss = from_json(gpt_oss + "}");
  CHECK(oss->attention_sinks);
  CHECK(oss->swiglu_limit == 7);
  CHECK(oss->sliding_window == 128);
  CHECK(oss->global_layer_every == 2);
  CHECK(from_json(gpt_oss + R"(, "layer_types": ["full_attention", "full_attention"]})")->sliding_window == 0);
  CHECK_FALSE(from_json(gpt_oss + R"(, "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "truncate": false}})")->rope_truncated);
  CHECK(from_json(gpt_oss + R"(, "rope_scaling": {"rope_type": "yarn", "factor": 32.0}})")->rope_truncated);
}

TEST_CASE("geometry: every family of ours is read, and its own words mean something") {
  for (const std::string& id : preset_ids(presets(), "families")) {
    if (id.starts_with("_")) continue;
    const std::string config =
        R"({"model_type": ")" + id +
        R"(", "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "vocab_size": 1000, "intermediate_size": 2048,
            "num_experts": 8, "num_local_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256,
            "shared_expert_intermediate_size": 512, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
            "v_head_dim": 32, "n_routed_experts": 8})";
    if (id == "granitemoehybrid") continue;  // asks for layer_types: above
    const Result<Geometry> g = from_json(config);
    INFO(id << "\n" << format_diagnostics(g.diagnostics));
    REQUIRE(g.ok());
    CHECK(g->family == id);
    CHECK_FALSE(g->layer_class.empty());
    CHECK(g.diagnostics.empty());
  }
}

}  // namespace distsetup
