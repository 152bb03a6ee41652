// config.json files whose own code differs from what their words say elsewhere, and text parts that lean on the whole.
#include <catch2/catch.hpp>

#include <algorithm>
#include <string>

#include "support/config_text.h"

using namespace distsetup;

TEST_CASE("approximate: what a folder's own code has, where the file says it in other words") {
  struct Published {
    const char* config;
    double parameters, within;
  };
  // Step3 says which layers have experts in a text, and its queries come from a low rank; SantaCoder is a GPT-2 with one head of keys
  // and values; encoders alone of T5 keep the number of decoder layers; gates of GTE, of Jina's BERT (without a table of positions)
  // and of Phi-3-small; CogVLM has matrices of its own for pictures; Hyena's layers are convolutions; SambaY attends in every second
  // layer.
  const Published all[] = {
      {R"({"model_type": "step3_text", "architectures": ["Step3TextForCausalLM"], "hidden_size": 7168, "intermediate_size": 18432,
           "num_attention_heads": 64, "num_attention_groups": 1, "num_hidden_layers": 61, "vocab_size": 128815, "rms_norm_eps": 1e-5,
           "moe_intermediate_size": 5120, "moe_num_experts": 48, "moe_top_k": 3, "share_expert_dim": 5120, "share_q_dim": 2048,
           "head_dim": 256, "rope_theta": 500000,
           "moe_layers_enum": "4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59"})",
       316e9, 0.03},
      {R"({"model_type": "gpt2", "attention_head_type": "multiquery", "activation_function": "gelu_fast", "n_embd": 2048, "n_head": 16,
           "n_inner": 8192, "n_layer": 24, "n_positions": 2048, "layer_norm_epsilon": 1e-5, "vocab_size": 49280})",
       1'124'886'528, 0.005},
      {R"({"model_type": "t5", "architectures": ["T5EncoderModel"], "d_ff": 10240, "d_kv": 64, "d_model": 4096,
           "feed_forward_proj": "gated-gelu", "is_encoder_decoder": true, "num_decoder_layers": 24, "num_heads": 64, "num_layers": 24,
           "relative_attention_num_buckets": 32, "layer_norm_epsilon": 1e-6, "vocab_size": 32128})",
       4'762'310'656, 0.01},
      {R"({"model_type": "bert", "auto_map": {"AutoConfig": "x"}, "hidden_act": "gelu", "hidden_size": 768, "intermediate_size": 3072,
           "layer_norm_eps": 1e-12, "max_position_embeddings": 8192, "num_attention_heads": 12, "num_hidden_layers": 12,
           "position_embedding_type": "alibi", "type_vocab_size": 2, "vocab_size": 30528, "feed_forward_type": "geglu"})",
       137'368'320, 0.01},
      {R"({"model_type": "new", "architectures": ["NewModel"], "hidden_act": "gelu", "hidden_size": 1024, "intermediate_size": 4096,
           "layer_norm_eps": 1e-12, "max_position_embeddings": 8192, "num_attention_heads": 16, "num_hidden_layers": 24,
           "position_embedding_type": "rope", "rope_theta": 160000, "type_vocab_size": 2, "vocab_size": 30528})",
       434e6, 0.01},
      {R"({"model_type": "phi3small", "ff_intermediate_size": 14336, "hidden_act": "gegelu", "hidden_size": 4096,
           "layer_norm_epsilon": 1e-5, "max_position_embeddings": 8192, "num_attention_heads": 32, "num_hidden_layers": 32,
           "num_key_value_heads": 8, "rope_embedding_base": 1000000, "vocab_size": 100352})",
       7.39e9, 0.02},
      // Grok 2 has an MLP beside its experts; LongCat-Flash-Lite tables of several tokens; K2-Horizon experts of the values.
      {R"({"model_type": "git", "vocab_size": 131072, "hidden_size": 8192, "intermediate_size": 32768, "moe_intermediate_size": 16384,
           "num_experts_per_tok": 2, "num_local_experts": 8, "residual_moe": true, "num_attention_heads": 64, "num_key_value_heads": 8,
           "num_hidden_layers": 64, "head_dim": 128, "rms_norm_eps": 1e-5, "rope_theta": 208533496})",
       269.5e9, 0.02},
      {R"({"model_type": "longcat_flash_ngram", "architectures": ["LongcatFlashNgramForCausalLM"], "vocab_size": 131072,
           "hidden_size": 3072, "ffn_hidden_size": 6144, "expert_ffn_hidden_size": 1024, "num_layers": 14, "num_attention_heads": 32,
           "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
           "n_routed_experts": 256, "moe_topk": 12, "ngram_vocab_size_ratio": 78, "rope_theta": 5000000.0, "rms_norm_eps": 1e-5})",
       68.5e9, 0.05},
      {R"({"model_type": "k2_horizon", "attention_gate_func": "softplus", "head_dim": 128, "hidden_act": "silu", "hidden_size": 2560,
           "intermediate_size": 6144, "mlp_only_layers": [0, 1, 2], "moe_intermediate_size": 768, "mova_num_experts": 64,
           "num_attention_heads": 32, "num_experts": 100, "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 8,
           "num_shared_experts": 1, "rms_norm_eps": 1e-6, "rope_theta": 1e7, "tie_word_embeddings": false, "vocab_size": 250624})",
       37.4e9, 0.05}};
  for (const Published& one : all) {
    INFO(one.config);
    const Result<Geometry> g = read(one.config);
    REQUIRE(g.ok());
    CHECK(share(*g, one.parameters) == Approx(1).margin(one.within));
  }
}

TEST_CASE("approximate: text parts that lean on the whole, or on what their class has") {
  // Fuyu-8B's text part is a name; OPT's in BLIP-2 leaves its vocabulary out; Donut calls its text part a decoder.
  const Result<Geometry> fuyu = read(
      R"({"model_type": "fuyu", "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 36, "num_attention_heads": 64,
          "vocab_size": 262144, "hidden_act": "relu2", "tie_word_embeddings": false, "text_config": {"model_type": "persimmon"}})");
  REQUIRE(fuyu.ok());
  CHECK(share(*fuyu, 9.4e9) == Approx(1).margin(0.03));
  const Result<Geometry> blip = read(
      R"({"model_type": "blip-2", "text_config": {"architectures": ["OPTForCausalLM"], "ffn_dim": 10240, "hidden_size": 2560,
          "model_type": "opt", "num_attention_heads": 32, "num_hidden_layers": 32, "word_embed_proj_dim": 2560}})");
  REQUIRE(blip.ok());
  CHECK(share(*blip, 2'651'596'800) == Approx(1).margin(0.001));
  CHECK(read(R"({"model_type": "vision-encoder-decoder", "encoder": {"model_type": "donut-swin"},
                 "decoder": {"model_type": "mbart", "d_model": 1024, "decoder_layers": 4, "decoder_attention_heads": 16,
                             "decoder_ffn_dim": 4096, "vocab_size": 57580, "num_hidden_layers": 4}})")
            .ok());
}

TEST_CASE("approximate: layers that run several times, and classes without a head, are said") {
  const auto said = [](const std::string& more, const char* words) {
    const Result<Geometry> g = read(R"({"model_type": "novel", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16,
                                        "intermediate_size": 5632, "vocab_size": 49152, "rms_norm_eps": 1e-6)" +
                                    more + "}");
    REQUIRE(g.ok());
    return std::any_of(g.diagnostics.begin(), g.diagnostics.end(),
                       [words](const Diagnostic& one) { return one.message.find(words) != std::string::npos; });
  };
  CHECK(said(R"(, "total_ut_steps": 4)", "24 layers run 4 times over"));
  CHECK_FALSE(said(R"(, "total_ut_steps": 1)", "times over"));
  for (const char* named : {"NovelModel", "NovelRewardModel", "NovelForSequenceClassification", "NovelEncoderModel"})
    CHECK(said(std::string(R"(, "architectures": [")") + named + "\"]", "computes no scores over the vocabulary"));
  for (const char* named : {"NovelForCausalLM", "NovelLMHeadModel", "ChatGLMModel", "InternVLChatModel"})
    CHECK_FALSE(said(std::string(R"(, "architectures": [")") + named + "\"]", "computes no scores over the vocabulary"));
}
