// A config.json of an architecture that nobody described is planned by its sizes, and says how far that may be off.
#include <catch2/catch.hpp>

#include <algorithm>
#include <fstream>

#include "base/value_json.h"
#include "model/approximate.h"
#include "model/count.h"
#include "model/hf_config.h"
#include "model/stored_parameters.h"
#include "planner/search/make_plan.h"
#include "support/config_text.h"
#include "support/presets.h"
#include "support/problems.h"
#include "support/temporary_directory.h"

using namespace distsetup;

namespace {

// A file of safetensors with one tensor of so many elements, without its data: the header is all that is read.
void write_header(const std::string& path, int64_t rows, int64_t columns) {
  const std::string header = fmt::format(
      R"({{"__metadata__":{{"format":"pt"}},"w":{{"dtype":"BF16","shape":[{},{}],"data_offsets":[0,2]}}}})", rows, columns);
  std::ofstream file(path, std::ios::binary);
  for (size_t i = 0; i < 8; ++i) file.put(static_cast<char>(header.size() >> (8 * i) & 0xff));
  file << header;
}

}  // namespace

TEST_CASE("approximate: sizes under the names that families use for them") {
  // GLM-4-9B, of a family that nobody knows: 9,399,951,360 parameters.
  const Result<Geometry> glm = read(
      R"({"model_type": "glm_unknown", "hidden_size": 4096, "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 2,
          "head_dim": 128, "intermediate_size": 13696, "vocab_size": 151552, "rms_norm_eps": 1e-5, "max_position_embeddings": 131072,
          "tie_word_embeddings": false})");
  REQUIRE(glm.ok());
  CHECK(is_approximate(*glm));
  CHECK(share(*glm, 9'399'951'360) == Approx(1).margin(0.01));
  REQUIRE(glm.diagnostics.size() == 1);
  CHECK(glm.diagnostics[0].message.find("within 17 % for 9 of 10 architectures") != std::string::npos);
  CHECK(glm.diagnostics[0].message.find("memory within 20 %, time within 18 %") != std::string::npos);
  // Mamba 2.8B: 2,768,345,600.
  const Result<Geometry> mamba = read(R"({"model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 64, "vocab_size": 50280,
                                          "state_size": 16, "expand": 2, "intermediate_size": 5120, "tie_word_embeddings": true})");
  REQUIRE(mamba.ok());
  CHECK(share(*mamba, 2'768'345'600) == Approx(1).margin(0.05));
  // BERT large: 335,174,458 with its pooler and heads.
  const Result<Geometry> bert = read(
      R"({"model_type": "bert", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
               "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12})");
  REQUIRE(bert.ok());
  CHECK(share(*bert, 335'174'458) == Approx(1).margin(0.001));
  CHECK_FALSE(bert->gated_mlp);
  CHECK(approximation(*bert)->parameters < approximation(*glm)->parameters);
  CHECK(approximation(*bert)->memory >= approximation(*glm)->memory);
  // The text model of one with pictures, of a family that is not known.
  const Result<Geometry> seeing = read(R"({"model_type": "some_vl", "llm_config": {"model_type": "some_text", "hidden_size": 512,
                                           "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 1000}})");
  REQUIRE(seeing.ok());
  CHECK(seeing->hidden == 512);
  CHECK(seeing->tied_embeddings);  // the default of Transformers
  const auto help = [](const std::string& type) {
    return read(R"({"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 256, "model_type": ")" + type + "\"}")
        .diagnostics[0]
        .help;
  };
  CHECK(help("llamma") == "did you mean 'llama'");
  CHECK(help("qwen4").empty());  // another model, and not a misspelling
  const Result<Geometry> none = read(R"({"model_type": "novel", "hidden_size": 64})");
  REQUIRE_FALSE(none.ok());
  CHECK(none.diagnostics[0].code == std::string("DS0206"));
  CHECK(none.diagnostics[0].message.find("no 'num_hidden_layers, vocab_size'") != std::string::npos);
}

// What no transformer of equal layers has, counted by general rules: the totals are those of the published models.
TEST_CASE("approximate: layers that differ, encoders, latents, windows") {
  struct Published {
    const char* what;
    double parameters, margin;
    const char* config;
  };
  const Published models[] = {
      {"T5 small: an encoder and a decoder that looks at it", 60'506'624, 0.01,
       R"({"is_encoder_decoder": true, "d_model": 512, "num_layers": 6, "num_heads": 8, "d_kv": 64, "d_ff": 2048, "vocab_size": 32128,
           "feed_forward_proj": "relu", "relative_attention_num_buckets": 32})"},
      {"Jamba: attention in each eighth layer, experts in each second", 51'570'323'328, 0.01,
       R"({"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
           "vocab_size": 65536, "num_experts": 16, "num_experts_per_tok": 2, "expert_layer_period": 2, "expert_layer_offset": 1,
           "attn_layer_period": 8, "attn_layer_offset": 4, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2,
           "mamba_dt_rank": 256, "rms_norm_eps": 1e-6, "tie_word_embeddings": false})"},
      {"Falcon-H1 3B: attention and a scan side by side", 3'149'256'192, 0.01,
       R"({"hidden_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 10, "num_key_value_heads": 2, "head_dim": 128,
           "intermediate_size": 6144, "vocab_size": 65536, "tie_word_embeddings": false, "mamba_d_state": 256, "mamba_n_groups": 1,
           "mamba_n_heads": 32, "mamba_d_head": 128, "mamba_d_ssm": 4096, "mamba_d_conv": 4, "rms_norm_eps": 1e-5, "hidden_act": "silu"})"},
      {"Nemotron-3 Nano: layers of one part each", 31'577'937'344, 0.01,
       R"({"hidden_size": 2688, "num_hidden_layers": 52, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128,
           "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "n_routed_experts": 128,
           "num_experts_per_tok": 6, "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712, "n_shared_experts": 1,
           "intermediate_size": 1856, "mlp_hidden_act": "relu2", "vocab_size": 131072, "mamba_num_heads": 64, "mamba_head_dim": 64,
           "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "layer_norm_epsilon": 1e-5, "rope_theta": 10000,
           "tie_word_embeddings": false})"},
      {"MiniCPM3 4B: latent attention", 4'073'875'968, 0.01,
       R"({"hidden_size": 2560, "num_hidden_layers": 62, "num_attention_heads": 40, "num_key_value_heads": 40, "intermediate_size": 6400,
           "vocab_size": 73448, "q_lora_rank": 768, "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32,
           "rms_norm_eps": 1e-5, "hidden_act": "silu"})"},
      {"Gemma 4 E2B: larger heads in each fifth layer, 20 layers without keys and values of their own", 4'628'569'344, 0.001,
       R"({"hidden_size": 1536, "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256,
           "global_head_dim": 512, "intermediate_size": 6144, "vocab_size": 262144, "rms_norm_eps": 1e-6, "num_kv_shared_layers": 20,
           "use_double_wide_mlp": true, "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144, "layer_types":
           ["sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]})"},
      {"Gemma 4 31B: keys are values in each sixth layer", 30'697'345'280, 0.001,
       R"({"hidden_size": 5376, "num_hidden_layers": 60, "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 256,
           "num_global_key_value_heads": 4, "global_head_dim": 512, "attention_k_eq_v": true, "intermediate_size": 21504,
           "vocab_size": 262144, "rms_norm_eps": 1e-6, "hidden_size_per_layer_input": 0, "layer_types": ["sliding_attention",
           "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]})"},
      {"Gemma 4 26B-A4B: an MLP beside the experts", 25'233'141'760, 0.001,
       R"({"hidden_size": 2816, "num_hidden_layers": 30, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256,
           "num_global_key_value_heads": 2, "global_head_dim": 512, "attention_k_eq_v": true, "intermediate_size": 2112,
           "enable_moe_block": true, "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704, "vocab_size": 262144,
           "rms_norm_eps": 1e-6, "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention",
           "sliding_attention", "full_attention"]})"},
      {"Llama 4 Maverick: experts in each second layer, another width for the rest", 400'711'848'960, 0.02,
       R"({"hidden_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
           "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_local_experts": 128, "num_experts_per_tok": 1,
           "interleave_moe_layer_step": 2, "vocab_size": 202048, "rms_norm_eps": 1e-5, "tie_word_embeddings": false})"},
  };
  for (const Published& model : models) {
    INFO(model.what);
    const Result<Geometry> g = read(std::string(R"({"model_type": "novel", )") + (model.config + 1));
    REQUIRE(g.ok());
    CHECK(share(*g, model.parameters) == Approx(1).margin(model.margin));
  }
  const Result<Geometry> windows = read(
      R"({"model_type": "novel", "hidden_size": 512, "num_hidden_layers": 4, "vocab_size": 1000, "sliding_window": 128,
          "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]})");
  REQUIRE(windows.ok());
  CHECK(windows->sliding_window == 128);
  CHECK(windows->global_layer_every == 2);
  const Result<Geometry> shared = read(R"({"model_type": "albert", "hidden_size": 768, "num_hidden_layers": 12, "num_hidden_groups": 1,
                                           "embedding_size": 128, "vocab_size": 30000, "type_vocab_size": 2})");
  REQUIRE(shared.ok());
  REQUIRE(shared.diagnostics.size() == 2);
  CHECK(shared.diagnostics[1].message.find("share the parameters of 1") != std::string::npos);
}

TEST_CASE("approximate: a file as Python writes it, with Infinity") {
  const Result<Value> file = parse_hf_config(
      R"({"time_step_limit": [0.0, Infinity, -Infinity, NaN], "name": "Infinity \"NaN", "hidden_size": 64})", "config.json");
  REQUIRE(file.ok());
  CHECK(file->find("name")->text == "Infinity \"NaN");
  CHECK(file->find("hidden_size")->text == "64");
}

TEST_CASE("approximate: the tensors of safetensors files say how many parameters there are") {
  const TemporaryDirectory folder;
  write_header(folder.path() + "/model-00001-of-00002.safetensors", 300'000, 1000);
  write_header(folder.path() + "/model-00002-of-00002.safetensors", 100'000, 1000);
  CHECK(count_in_safetensors(folder.path()) == 400'000'000);
  const Result<Geometry> g =
      read(R"({"model_type": "novel", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "vocab_size": 32000})",
           folder.path());
  REQUIRE(g.ok());
  CHECK(share(*g, 400e6) == Approx(1).margin(0.001));
  CHECK(g.diagnostics[0].message.find("counted in its safetensors files") != std::string::npos);
  std::ofstream(folder.path() + "/model-00002-of-00002.safetensors") << "short";
  CHECK(count_in_safetensors(folder.path()) == 0);
  CHECK(count_in_safetensors("/no/such/folder") == 0);
}

TEST_CASE("approximate: the plan is another trainer's, with wider intervals") {
  const TemporaryDirectory folder;
  std::ofstream(folder.path() + "/config.json")
      << R"({"model_type": "novel", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
             "intermediate_size": 14336, "vocab_size": 128256, "rms_norm_eps": 1e-5})";
  Spec spec;
  REQUIRE(set(spec, "model", folder.path(), {"command line", 0, 0}).empty());
  REQUIRE(set(spec, "hardware.nodes", "1", {"command line", 0, 0}).empty());
  const Result<Inputs> inputs = read_inputs(spec, presets());
  REQUIRE(inputs.ok());
  const Result<Problem> problem = resolve(spec, presets(), *inputs);
  INFO(format_diagnostics(problem.diagnostics));
  REQUIRE(problem.ok());
  CHECK(problem->trainer.name == "fsdp2");
  const Result<Plan> plan = make_plan(*problem), known = make_plan(*resolved({{"model", "8B"}, {"nodes", "1"}, {"trainer", "fsdp2"}}));
  REQUIRE(plan.ok());
  const auto width = [](const Plan& p) { return p.time.step_high_s / p.time.step_low_s; };
  CHECK(width(*plan) > 1.05 * width(*known));
  const auto said = [&](const std::string& reason) {
    return reason.find("read by its sizes alone: memory ±20 %") != std::string::npos;
  };
  CHECK(std::count_if(plan->reasons.begin(), plan->reasons.end(), said) == 1);
  CHECK(static_cast<double>(plan->memory.device_high_bytes) > 1.1 * static_cast<double>(plan->memory.device_bytes));
}

// Counts of Transformers 5.24's classes on the meta device, with their own defaults.
TEST_CASE("approximate: blocks that layers share, scans under another name, both halves of an MLP in one number") {
  std::string kinds;
  for (int i = 0; i < 76; ++i)
    kinds += fmt::format("{}\"{}\"", i == 0 ? "" : ", ", i % 6 == 2 && i > 2 ? "hybrid" : "linear_attention");
  const Result<Geometry> zamba = read(fmt::format(
      R"({{"model_type": "zamba", "hidden_size": 3712, "num_hidden_layers": 76, "num_attention_heads": 16, "num_key_value_heads": 16,
           "attention_head_dim": 464, "attention_hidden_size": 7424, "intermediate_size": 14848, "hidden_act": "gelu", "mamba_d_state": 16,
           "mamba_d_conv": 4, "mamba_dt_rank": 232, "mamba_expand": 2, "n_mamba_heads": 2, "rms_norm_eps": 1e-5, "vocab_size": 32000,
           "tie_word_embeddings": true, "layers_block_type": [{}]}})",
      kinds));
  REQUIRE(zamba.ok());
  CHECK(share(*zamba, 7'232'490'496) == Approx(1).margin(0.02));
  CHECK(zamba->num_heads % zamba->num_kv_heads == 0);
  const Result<Geometry> griffin = read(
      R"({"model_type": "recurrent_gemma", "hidden_size": 2560, "num_hidden_layers": 26, "num_attention_heads": 10,
          "num_key_value_heads": 10, "head_dim": 256, "intermediate_size": 7680, "lru_width": 2560, "attention_window_size": 2048,
          "block_types": ["recurrent", "recurrent", "attention"], "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6,
          "vocab_size": 256000, "tie_word_embeddings": true})");
  REQUIRE(griffin.ok());
  CHECK(share(*griffin, 2'010'263'040) == Approx(1).margin(0.01));
}

TEST_CASE("approximate: the decoder alone of a pair, which keeps its attention to an encoder") {
  const auto bart = [](const char* named) {
    const Result<Geometry> g = read(fmt::format(
        R"({{"model_type": "bart", "architectures": ["{}"], "d_model": 1024, "decoder_layers": 12, "encoder_layers": 12,
             "decoder_attention_heads": 16, "encoder_attention_heads": 16, "decoder_ffn_dim": 4096, "encoder_ffn_dim": 4096,
             "activation_function": "gelu", "max_position_embeddings": 1024, "is_encoder_decoder": true, "vocab_size": 50265,
             "tie_word_embeddings": true}})",
        named));
    REQUIRE(g.ok());
    return *g;
  };
  const Geometry alone = bart("BartForCausalLM"), both = bart("BartForConditionalGeneration");
  CHECK(share(alone, 254'084'096) == Approx(1).margin(0.001));
  CHECK(alone.num_layers == 12);
  CHECK_FALSE(alone.bidirectional);
  CHECK(both.num_layers == 24);
  CHECK(both.bidirectional);
}

// modeling_dbrx.py keeps a layer's experts as rows of one matrix, which FSDP2 splits over any number of ranks.
TEST_CASE("approximate: DBRX's experts are split over more ranks than there are experts") {
  const Result<Geometry> dbrx = read(
      R"({"model_type": "dbrx", "d_model": 6144, "n_layers": 40, "n_heads": 48, "max_seq_len": 32768, "vocab_size": 100352,
          "tie_word_embeddings": false, "attn_config": {"kv_n_heads": 8, "clip_qkv": 8},
          "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}})");
  REQUIRE(dbrx.ok());
  CHECK(share(*dbrx, 131'596'523'520) == Approx(1).margin(0.001));
  const auto sharded = [&](bool are_joined) {
    const Result<Problem> like = resolved({{"model", "mixtral_8x7b"},
                                           {"nodes", "8"},
                                           {"trainer", "fsdp2"},
                                           {"code-base", "transformers"},
                                           {"dp-shard", "64"},
                                           {"micro-batch", "1"},
                                           {"recompute", "full"}});
    REQUIRE(like.ok());
    Problem problem = *like;
    problem.base.model = problem.setup.model = *dbrx;
    problem.base.model.experts_joined = problem.setup.model.experts_joined = are_joined;
    const Result<Plan> plan = make_plan(problem);
    REQUIRE(plan.ok());
    return static_cast<double>(plan->memory.peak_allocated_bytes);
  };
  CHECK(dbrx->experts_joined);
  CHECK(sharded(false) - sharded(true) > 60e9);  // three quarters of the ranks have none of 16 stacks, the others four times as much
}

TEST_CASE("approximate: widths that mean something else by the model's own code") {
  // Qwen-7B: 7,721,324,544; its width is of both halves of the MLP.
  const Result<Geometry> qwen = read(
      R"({"model_type": "qwen", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "intermediate_size": 22016,
          "vocab_size": 151936, "layer_norm_epsilon": 1e-6, "seq_length": 8192, "tie_word_embeddings": false})");
  REQUIRE(qwen.ok());
  CHECK(share(*qwen, 7'721'324'544) == Approx(1).margin(0.005));
  CHECK(qwen->learned_positions == 0);
  // OLMo-7B: 6,888,095,744; embedding_size is a number of rows.
  const Result<Geometry> olmo = read(
      R"({"model_type": "hf_olmo", "d_model": 4096, "n_layers": 32, "n_heads": 32, "mlp_hidden_size": 22016, "vocab_size": 50280,
          "embedding_size": 50304, "activation_type": "swiglu", "weight_tying": false, "rope": true})");
  REQUIRE(olmo.ok());
  CHECK(share(*olmo, 6'888'095'744) == Approx(1).margin(0.01));
  // BitNet b1.58 2B: 2.74 billion, with relu behind a gate.
  const Result<Geometry> bitnet = read(
      R"({"model_type": "bitnet", "hidden_size": 2560, "num_hidden_layers": 30, "num_attention_heads": 20, "num_key_value_heads": 5,
          "intermediate_size": 6912, "vocab_size": 128256, "hidden_act": "relu2", "rms_norm_eps": 1e-5, "tie_word_embeddings": false})");
  REQUIRE(bitnet.ok());
  CHECK(bitnet->gated_mlp);
  // LFM2-1.2B: 1,170,340,608; layers that are not listed are convolutions.
  const Result<Geometry> lfm = read(
      R"({"model_type": "lfm_unknown", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
          "block_ff_dim": 12288, "block_auto_adjust_ff_dim": true, "vocab_size": 65536, "conv_L_cache": 3, "norm_eps": 1e-5,
          "full_attn_idxs": [2, 5, 8, 10, 12, 14], "tie_embedding": true, "rope_theta": 1000000.0})");
  REQUIRE(lfm.ok());
  CHECK(share(*lfm, 1'170'340'608) == Approx(1).margin(0.01));
}

TEST_CASE("approximate: experts between narrow projections, and attention that every token passes through") {
  // 92 layers of 896 experts: a token that is 7168 wide is 3584 wide in them.
  const Result<Geometry> kimi = read(
      R"({"model_type": "kimi_novel", "hidden_size": 7168, "num_hidden_layers": 93, "num_attention_heads": 64, "num_key_value_heads": 64,
          "head_dim": 128, "intermediate_size": 18432, "moe_intermediate_size": 3072, "n_routed_experts": 896, "num_experts_per_tok": 16,
          "routed_expert_hidden_size": 3584, "first_k_dense_replace": 1, "vocab_size": 163840, "rms_norm_eps": 1e-5})");
  REQUIRE(kimi.ok());
  CHECK(share(*kimi, 2.78e12) == Approx(1).margin(0.05));
  // Queries and outputs by way of low ranks: fewer active parameters than full matrices would have, and as many experts.
  const std::string sizes =
      R"("hidden_size": 4096, "num_hidden_layers": 43, "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512,
         "moe_intermediate_size": 2048, "n_routed_experts": 256, "num_experts_per_tok": 6, "vocab_size": 129280, "rms_norm_eps": 1e-6)";
  const Result<Geometry> full = read(R"({"model_type": "novel", )" + sizes + "}");
  const Result<Geometry> low =
      read(R"({"model_type": "novel", "q_lora_rank": 1024, "o_lora_rank": 1024, "o_groups": 8, )" + sizes + "}");
  REQUIRE(full.ok());
  REQUIRE(low.ok());
  CHECK(low->expert_feed_forward == 2048);
  CHECK(low->num_heads < full->num_heads);
}

TEST_CASE("approximate: weights that cannot be counted by their tensors") {
  const auto counted = [](const std::vector<std::pair<std::string, std::string>>& files) {
    const TemporaryDirectory folder;
    for (const auto& [name, tensors] : files) {
      std::ofstream file(folder.path() + "/" + name, std::ios::binary);
      for (size_t i = 0; i < 8; ++i) file.put(static_cast<char>(tensors.size() >> (8 * i) & 0xff));
      file << tensors;
    }
    return count_in_safetensors(folder.path());
  };
  const std::string whole = R"({"w":{"dtype":"BF16","shape":[100,10],"data_offsets":[0,2000]}})";
  CHECK(counted({{"model.safetensors", whole}}) == 1000);
  CHECK(counted({{"model.safetensors", whole}, {"consolidated.safetensors", whole}, {"adapter_model.safetensors", whole}}) == 1000);
  CHECK(counted({{"model-00001-of-00002.safetensors", whole}, {"model-00002-of-00002.safetensors", whole}}) == 2000);
  CHECK(counted({{"model-00001-of-00002.safetensors", whole}}) == 0);
  // The same weights again: in another type, in one file, after another save; and what is no weight.
  for (const char* again : {"model.fp16.safetensors", "model-00001-of-00001.safetensors", "ema_model.safetensors",
                            "optimizer.safetensors", "pytorch_model.safetensors"})
    CHECK(counted({{"model.safetensors", whole}, {again, whole}}) == 1000);
  CHECK(counted({{"model-00001-of-00002.safetensors", whole},
                 {"model-00002-of-00002.safetensors", whole},
                 {"model-00001-of-00003.safetensors", whole}}) == 2000);
  CHECK(counted({{"diffusion_pytorch_model.safetensors", whole}, {"diffusion_pytorch_model.fp16.safetensors", whole}}) == 1000);
  const std::string index = R"({"weight_map": {"w": "a.safetensors", "v": "b.safetensors"}})";
  const auto with_index = [&](const std::vector<std::string>& names) {
    const TemporaryDirectory folder;
    std::ofstream(folder.path() + "/model.safetensors.index.json") << index;
    for (const std::string& name : names) write_header(folder.path() + "/" + name, 100, 10);
    return count_in_safetensors(folder.path());
  };
  CHECK(with_index({"a.safetensors", "b.safetensors", "c.safetensors"}) == 2000);
  CHECK(with_index({"a.safetensors"}) == 0);
  CHECK(counted({{"model.safetensors", R"({"l.qweight":{"dtype":"I32","shape":[100,10],"data_offsets":[0,4000]}})"}}) == 0);
  CHECK(counted({{"model.safetensors", R"({"w":{"dtype":"U8","shape":[100,10],"data_offsets":[0,1000]}})"}}) == 0);
  CHECK(counted({{"model.safetensors", R"({"w":{"dtype":"F8_E4M3","shape":[100,10],"data_offsets":[0,1000]},)"
                                       R"("w_scale_inv":{"dtype":"F32","shape":[10],"data_offsets":[1000,1040]}})"}}) == 1000);
}
