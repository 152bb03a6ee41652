// Geometry from a Hugging Face config.json. The idea: what all families share is read first, under the names they give it; then
// each family adds what only it has. A key that is absent takes that family's own default; a setting whose parameters or positions
// we do not know is refused by name.
// Source: Hugging Face Transformers, src/transformers/models/<family>/configuration_<family>.py.
// Leaves out: dropout, initialisation, token ids, quantisation; multi-token-prediction layers are noted and not counted.
#include "model/hf_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "model/families.h"
#include "model/validate.h"

namespace distsetup {
namespace {

using Keys = std::initializer_list<std::string_view>;
constexpr int64_t kLargest = 1'000'000'000'000;  // no count in a config is near it; sums of a few stay inside 64 bits

// Reads keys of one config under any of their names; null counts as absent.
struct ConfigReader {
  const Value& config;
  Diagnostics& diagnostics;

  const Value* find(Keys keys) const {
    for (const std::string_view key : keys) {
      const Value* value = config.find(key);
      if (value != nullptr && value->kind != Value::Kind::kNull) return value;
    }
    return nullptr;
  }
  template <class T>
  T take(Result<T> result, T fallback) {
    append(diagnostics, std::move(result.diagnostics));
    return result.value ? std::move(*result.value) : fallback;
  }
  int64_t integer(Keys keys, int64_t fallback) {
    const Value* value = find(keys);
    if (value == nullptr) return fallback;
    const int64_t number = take<int64_t>(as_int(*value), fallback);
    if (number >= 0 && number <= kLargest) return number;
    diagnostics.push_back(
        error(code::kOutOfRange, value->location, fmt::format("'{}' is {}, expected 0 to {}", *keys.begin(), number, kLargest)));
    return fallback;
  }
  int64_t required(Keys keys) {
    if (find(keys) == nullptr) {
      diagnostics.push_back(error(code::kMissingKey, config.location, fmt::format("config.json has no '{}'", *keys.begin())));
      return 0;
    }
    return integer(keys, 0);
  }
  double number(Keys keys, double fallback) {
    const Value* value = find(keys);
    return value ? take<double>(as_double(*value), fallback) : fallback;
  }
  bool flag(Keys keys, bool fallback) {
    const Value* value = find(keys);
    return value ? take<bool>(as_bool(*value), fallback) : fallback;
  }
  std::string text(Keys keys, const std::string& fallback) {
    const Value* value = find(keys);
    return value ? take<std::string>(as_text(*value), fallback) : fallback;
  }
  // Refuses a setting that changes the model in a way that is not known here.
  void refuse_if(bool refused, std::string_view key, std::string_view family) {
    if (!refused) return;
    const Value* value = config.find(key);
    diagnostics.push_back(
        error(code::kUnsupportedArchitecture, value ? value->location : config.location,
              fmt::format("'{}' of model_type '{}' is set to '{}', which is not supported", key, family, value ? value->text : "")));
  }
};

std::string activation_name(const std::string& name) {
  if (name == "swish") return "silu";
  if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh") return "gelu_tanh";
  return name;
}

// `rope_scaling` in older files, `rope_parameters` (with rope_theta inside) in newer ones.
void read_rope(ConfigReader& in, const Family& family, Geometry& g) {
  g.rope_base = in.number({"rope_theta", "rotary_emb_base"}, family.rope_base);
  g.rotary_fraction = in.number({"partial_rotary_factor", "rotary_pct"}, 1.0);
  const Value* rope = in.find({"rope_parameters", "rope_scaling"});
  if (rope == nullptr) return;
  ConfigReader inner{*rope, in.diagnostics};
  g.rope_base = inner.number({"rope_theta"}, g.rope_base);
  g.rotary_fraction = inner.number({"partial_rotary_factor"}, g.rotary_fraction);
  g.rope_scaled = inner.text({"rope_type", "type"}, "given without a type") != "default";
}

void read_shared(ConfigReader& in, const Family& family, Geometry& g) {
  // The text part of a Gemma 3 with pictures states only what differs from its class (configuration_gemma3.py).
  const bool gemma3 = g.family == "gemma3_text";
  const auto needed = [&](Keys keys, int64_t of_class) { return gemma3 ? in.integer(keys, of_class) : in.required(keys); };
  g.hidden = needed({"hidden_size", "n_embd", "d_model"}, 2304);
  g.num_layers = needed({"num_hidden_layers", "n_layer", "n_layers"}, 26);
  g.num_heads = needed({"num_attention_heads", "n_head", "n_heads"}, 8);
  g.vocabulary = needed({"vocab_size"}, 262'208);
  g.num_kv_heads = in.integer({"num_key_value_heads"}, gemma3 ? 4 : g.num_heads);
  g.feed_forward = in.integer({"intermediate_size", "n_inner", "ffn_hidden_size"}, gemma3 ? 9216 : 0);
  g.max_positions = in.integer({"max_position_embeddings", "n_positions", "max_seq_len"}, gemma3 ? 131'072 : 0);
  g.tied_embeddings = in.flag({"tie_word_embeddings"}, family.tied_embeddings);
  g.norm = family.norm;
  g.norm_epsilon = in.number({"rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps"}, family.norm_epsilon);
  g.norms_per_layer = family.norms_per_layer;
  g.gated_mlp = family.gated_mlp;
  g.activation = activation_name(
      in.text({"hidden_activation", "activation_function", "hidden_act", "activation"}, std::string(family.activation)));
  g.head_size = in.integer({"head_dim"}, 0);
  read_rope(in, family, g);
}

// Llama-like families: `attention_bias` is on q, k, v and o.
void read_llama_biases(ConfigReader& in, Geometry& g) {
  g.qkv_bias = g.output_bias = in.flag({"attention_bias"}, false);
  g.mlp_bias = in.flag({"mlp_bias"}, false);
}

void read_window(ConfigReader& in, Geometry& g, int64_t fallback, int64_t global_layer_every) {
  g.sliding_window = in.config.find("sliding_window") != nullptr ? in.integer({"sliding_window"}, 0) : fallback;
  if (g.sliding_window == 0) return;
  g.global_layer_every = in.integer({"sliding_window_pattern", "_sliding_window_pattern"}, global_layer_every);
  const Value* types = in.find({"layer_types"});
  if (types == nullptr || types->items.empty()) return;
  const auto first = std::find_if(types->items.begin(), types->items.end(), [](const Value& v) { return v.text == "full_attention"; });
  g.global_layer_every = first == types->items.end() ? 0 : first - types->items.begin() + 1;
  if (g.global_layer_every == 1) g.sliding_window = g.global_layer_every = 0;
}

void read_qwen_experts(ConfigReader& in, Geometry& g) {
  g.num_experts = in.required({"num_experts", "num_local_experts"});
  g.experts_per_token = in.required({"num_experts_per_tok"});
  g.expert_feed_forward = in.required({"moe_intermediate_size"});
  const int64_t step = std::max<int64_t>(in.integer({"decoder_sparse_step"}, 1), 1);
  const Value* dense = in.find({"mlp_only_layers"});
  if ((step == 1 && (dense == nullptr || dense->items.empty())) || g.num_layers < 0 || g.num_layers > 100'000) return;
  for (int64_t i = 0; i < g.num_layers; ++i) g.expert_layer.push_back((i + 1) % step == 0);
  if (dense == nullptr) return;
  for (const Value& item : dense->items) {
    const int64_t layer = in.take<int64_t>(as_int(item), -1);
    if (layer >= 0 && layer < g.num_layers) g.expert_layer[static_cast<size_t>(layer)] = false;
  }
}

void read_falcon(ConfigReader& in, Geometry& g) {
  const bool new_architecture = in.flag({"new_decoder_architecture"}, false);
  if (new_architecture) {
    g.num_kv_heads = in.integer({"num_kv_heads", "n_head_kv"}, g.num_heads);
  } else {
    g.num_kv_heads = in.flag({"multi_query"}, true) ? 1 : g.num_heads;
  }
  g.parallel_block = new_architecture || in.flag({"parallel_attn"}, true);
  g.norms_per_layer = new_architecture ? in.integer({"num_ln_in_parallel_attn"}, 2) : g.parallel_block ? 1 : 2;
  g.qkv_bias = g.output_bias = g.mlp_bias = in.flag({"bias"}, false);
  in.refuse_if(in.flag({"alibi"}, false), "alibi", g.family);
  if (g.max_positions == 0) g.max_positions = 2048;
}

void read_gpt(ConfigReader& in, Geometry& g) {
  g.qkv_bias = g.output_bias = g.mlp_bias = true;
  if (g.family == "gpt2" || g.family == "gpt_bigcode") {
    g.learned_positions = g.max_positions = in.integer({"n_positions", "max_position_embeddings"}, 1024);
    if (g.family == "gpt_bigcode" && in.flag({"multi_query"}, true)) g.num_kv_heads = 1;
    in.refuse_if(in.flag({"add_cross_attention"}, false), "add_cross_attention", g.family);
  } else if (g.family == "gpt_neox") {
    g.qkv_bias = g.output_bias = in.flag({"attention_bias"}, true);
    g.parallel_block = in.flag({"use_parallel_residual"}, true);
    if (in.find({"rotary_pct", "partial_rotary_factor", "rope_parameters"}) == nullptr) g.rotary_fraction = 0.25;
  } else {  // phi
    g.parallel_block = true;
    g.head_bias = true;
    in.refuse_if(in.flag({"qk_layernorm"}, false), "qk_layernorm", g.family);
    if (in.find({"partial_rotary_factor", "rope_parameters"}) == nullptr) g.rotary_fraction = 0.5;
  }
}

// Transformers' own class has ALiBi always, llm-foundry's where attn_config says so and else learned positions.
void read_mpt(ConfigReader& in, Geometry& g) {
  g.feed_forward = in.integer({"expansion_ratio"}, 4) * std::clamp<int64_t>(g.hidden, 0, 10'000'000);
  if (!in.flag({"no_bias"}, true)) {
    g.qkv_bias = g.output_bias = g.mlp_bias = true;
    g.norm = Norm::kLayer;
  }
  static const Value kNone;
  const Value* attention = in.find({"attn_config"});
  ConfigReader inner{attention == nullptr ? kNone : *attention, in.diagnostics};
  const std::string type = inner.text({"attn_type"}, "multihead_attention");
  if (type == "multiquery_attention") g.num_kv_heads = 1;
  if (type == "grouped_query_attention") g.num_kv_heads = inner.required({"kv_n_heads"});
  in.refuse_if(inner.flag({"qk_ln"}, false), "attn_config", g.family);
  const bool alibi = inner.flag({"alibi"}, true);
  if (alibi) g.rotary_fraction = 0;
  if (!alibi && in.flag({"learned_pos_emb"}, true)) g.learned_positions = g.max_positions;
}

void read_deepseek(ConfigReader& in, Geometry& g) {
  g.attention = Attention::kLatent;
  g.q_lora_rank = in.integer({"q_lora_rank"}, 0);
  g.kv_lora_rank = in.required({"kv_lora_rank"});
  g.qk_nope_head_size = in.required({"qk_nope_head_dim"});
  g.qk_rope_head_size = in.required({"qk_rope_head_dim"});
  g.v_head_size = in.required({"v_head_dim"});
  g.head_size = g.qk_nope_head_size + g.qk_rope_head_size;
  in.refuse_if(in.flag({"attention_bias"}, false), "attention_bias", g.family);
  g.num_experts = in.integer({"n_routed_experts"}, 0);
  if (g.num_experts > 0) {
    g.experts_per_token = in.required({"num_experts_per_tok"});
    g.expert_feed_forward = in.required({"moe_intermediate_size"});
    g.num_shared_experts = in.integer({"n_shared_experts"}, 0);
    g.router_score_bias = in.text({"topk_method"}, g.family == "deepseek_v3" ? "noaux_tc" : "greedy") == "noaux_tc";
    const int64_t dense = in.integer({"first_k_dense_replace"}, 0);
    const int64_t every = std::max<int64_t>(in.integer({"moe_layer_freq"}, 1), 1);
    if ((dense > 0 || every > 1) && g.num_layers <= 100'000) {
      for (int64_t i = 0; i < g.num_layers; ++i) g.expert_layer.push_back(i >= dense && i % every == 0);
    }
  }
  if (const int64_t layers = in.integer({"num_nextn_predict_layers"}, 0); layers > 0) {
    in.diagnostics.push_back(
        note(code::kUnsupportedArchitecture, in.config.find("num_nextn_predict_layers")->location,
             fmt::format("{} multi-token-prediction layer{} left out of the model", layers, layers == 1 ? " is" : "s are")));
  }
}

void read_family(ConfigReader& in, Geometry& g) {
  if (g.family == "llama" || g.family == "olmo2") {
    read_llama_biases(in, g);
    g.qk_norm_wide = g.family == "olmo2";
  } else if (g.family == "mistral" || g.family == "mixtral") {
    read_window(in, g, g.family == "mistral" ? 4096 : 0, 0);
    if (g.family == "mixtral") {
      g.num_experts = in.required({"num_local_experts"});
      g.experts_per_token = in.required({"num_experts_per_tok"});
      g.expert_feed_forward = g.feed_forward;
    }
  } else if (g.family == "qwen2" || g.family == "qwen2_moe") {
    g.qkv_bias = in.flag({"qkv_bias"}, true);
    if (in.flag({"use_sliding_window"}, false)) read_window(in, g, 4096, 0);
    if (g.family == "qwen2_moe") {
      read_qwen_experts(in, g);
      g.shared_feed_forward = in.required({"shared_expert_intermediate_size"});
      g.shared_expert_gate = true;
    }
  } else if (g.family == "qwen3" || g.family == "qwen3_moe") {
    read_llama_biases(in, g);
    g.qk_norm = true;
    if (g.head_size == 0) g.head_size = g.family == "qwen3" ? 128 : 0;
    if (in.flag({"use_sliding_window"}, false)) read_window(in, g, 4096, 0);
    if (g.family == "qwen3_moe") read_qwen_experts(in, g);
  } else if (g.family.starts_with("gemma")) {
    g.qkv_bias = g.output_bias = in.flag({"attention_bias"}, false);
    if (g.head_size == 0) g.head_size = 256;
    g.qk_norm = g.family == "gemma3_text";
    if (g.family == "gemma") g.activation = "gelu_tanh";  // its code ignores the older hidden_act
    if (g.family == "gemma2") read_window(in, g, 4096, 2);
    if (g.family == "gemma3_text") read_window(in, g, 4096, 6);
  } else if (g.family == "phi3") {
    read_window(in, g, 0, 0);
  } else if (g.family == "falcon") {
    read_falcon(in, g);
  } else if (g.family == "mpt") {
    read_mpt(in, g);
  } else if (g.family.starts_with("deepseek")) {
    read_deepseek(in, g);
  } else {
    read_gpt(in, g);
  }
}

// What follows from other keys: f = 4h, d = h/a, shared experts of the routed experts' width.
void fill_derived(ConfigReader& in, Geometry& g) {
  if (g.feed_forward == 0 && (g.family == "gpt2" || g.family == "gpt_bigcode" || g.family == "falcon"))
    g.feed_forward = 4 * std::min<int64_t>(g.hidden, 10'000'000);
  if (g.feed_forward == 0 && g.num_experts == 0) in.required({"intermediate_size"});
  if (g.num_shared_experts > 0 && __builtin_mul_overflow(g.num_shared_experts, g.expert_feed_forward, &g.shared_feed_forward)) {
    g.shared_feed_forward = -1;  // validate() refuses it
  }
  if (g.head_size != 0 || g.num_heads <= 0 || g.hidden <= 0) return;
  if (g.hidden % g.num_heads == 0) {
    g.head_size = g.hidden / g.num_heads;
  } else {
    in.diagnostics.push_back(error(code::kIndivisible, in.config.location,
                                   fmt::format("hidden_size {} is not divisible by {} heads", g.hidden, g.num_heads),
                                   "state head_dim, or choose hidden_size as a multiple of num_attention_heads"));
  }
}

}  // namespace

Result<Geometry> geometry_from_hf_config(const Value& config, const std::string& name) {
  Diagnostics diagnostics;
  ConfigReader in{config, diagnostics};
  if (config.kind != Value::Kind::kMap) {
    return error(code::kWrongType, config.location, "config.json is not an object");
  }
  Geometry g;
  g.name = name;
  g.family = in.text({"model_type"}, "");
  const Family* family = find_family(g.family);
  if (const Value* text = config.find("text_config"); family == nullptr && text != nullptr) {  // a model with pictures or sound
    Result<Geometry> part = geometry_from_hf_config(*text, name);
    if (part.value)
      part.diagnostics.push_back(note(code::kUnsupportedArchitecture, text->location,
                                      fmt::format("of '{}' the text model alone is planned ('text_config')", g.family)));
    return part;
  }
  if (family == nullptr) {
    const Value* type = config.find("model_type");
    const std::vector<std::string> known = family_names();
    return error(code::kUnsupportedArchitecture, type ? type->location : config.location,
                 type ? fmt::format("model_type '{}' is not known, expected one of {}", g.family, fmt::join(known, ", "))
                      : fmt::format("config.json has no 'model_type', expected one of {}", fmt::join(known, ", ")),
                 type ? suggest(g.family, known) : "");
  }
  g.layer_class = family->layer_class;
  read_shared(in, *family, g);
  read_family(in, g);
  fill_derived(in, g);
  g.source = config.location.file;
  if (has_error(diagnostics)) return diagnostics;
  append(diagnostics, validate(g, config.location));
  if (has_error(diagnostics)) return diagnostics;
  return {std::move(g), std::move(diagnostics)};
}

}  // namespace distsetup
