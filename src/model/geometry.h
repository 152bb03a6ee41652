// A transformer as numbers. Exact: counts are integers and equal the published totals (tests/unit/test_counts.cc).
// Symbols used all over the code: L layers, h hidden, a heads, k kv heads, d head size, f feed-forward, V vocabulary,
// E experts, t top-k, T tokens per rank.
// Field mapping from a Hugging Face config.json: Transformers' per-family configuration classes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "base/value.h"

namespace distsetup {

enum class Attention { kGrouped, kLatent };      // MHA and MQA are kGrouped with k = a, k = 1; kLatent is DeepSeek's MLA
enum class Norm { kRms, kLayer, kLayerNoBias };  // kLayerNoBias: MPT

struct Geometry {
  std::string name;          // preset id or directory name
  std::string family;        // "llama", "qwen3", "mixtral", ... = config.json's model_type
  std::string layer_class;   // "LlamaDecoderLayer": what FSDP wraps
  std::string label;         // size as spoken, "70B"; empty = none
  std::string hub_id;        // "meta-llama/Llama-2-7b-hf"; empty = none
  int64_t num_layers = 0;    // L
  int64_t hidden = 0;        // h
  int64_t num_heads = 0;     // a
  int64_t num_kv_heads = 0;  // k
  int64_t head_size = 0;     // d
  int64_t feed_forward = 0;  // f
  int64_t vocabulary = 0;    // V
  int64_t max_positions = 0;
  bool tied_embeddings = false;
  bool qkv_bias = false;
  bool output_bias = false;  // attention output projection
  bool mlp_bias = false;
  bool qk_norm = false;         // Qwen3, Gemma 3: RMSNorm over d on q and k
  bool qk_norm_wide = false;    // OLMo 2: over a·d and k·d
  bool gated_mlp = true;        // SwiGLU/GeGLU: three matrices
  bool parallel_block = false;  // attention and MLP side by side (Falcon, Phi-2, GPT-NeoX); norms_per_layer says with how many norms
  int64_t norms_per_layer = 2;
  bool qk_norm_present() const { return qk_norm || qk_norm_wide; }
  Norm norm = Norm::kRms;
  double norm_epsilon = 1e-5;
  double rope_base = 10000;
  double rotary_fraction = 1;       // of d; Phi-2 0.4; 0: no rotation (ALiBi)
  std::string activation = "silu";  // silu, gelu, gelu_tanh, or as the config names it
  bool rope_scaled = false;         // the model states a rope_scaling that the trainer must refuse
  int64_t learned_positions = 0;    // GPT-2: 1024
  bool head_bias = false;           // Phi-2
  // Experts (E = 0: dense)
  int64_t num_experts = 0, experts_per_token = 0, expert_feed_forward = 0, num_shared_experts = 0;
  int64_t shared_feed_forward = 0;  // f_s in total
  bool shared_expert_gate = false, router_score_bias = false;
  std::vector<bool> expert_layer;  // per layer; empty = all (when E > 0)
  // Latent attention
  Attention attention = Attention::kGrouped;
  int64_t q_lora_rank = 0, kv_lora_rank = 0, qk_nope_head_size = 0, qk_rope_head_size = 0, v_head_size = 0;
  int64_t sliding_window = 0;      // 0 = none; time only
  int64_t global_layer_every = 0;  // with a window: each n-th layer sees everything (Gemma 2: 2, Gemma 3: 6); 0 = no layer does
  std::string source;              // URL or text, with date
  bool operator==(const Geometry&) const = default;
};

struct ParameterCount {
  int64_t total = 0;
  int64_t active = 0;     // per token
  int64_t per_layer = 0;  // of the first layer
  int64_t embedding = 0;  // V·h (+ learned positions)
  int64_t head = 0;       // 0 when tied
  int64_t final_norm = 0;
};
ParameterCount count_parameters(const Geometry& geometry);

// Whether layer `layer` has experts instead of the dense MLP.
bool is_expert_layer(const Geometry& geometry, int64_t layer);

// FLOPs of one token, forward and backward, at sequence length S. `model_flops` counts 6 per matmul parameter plus causal attention
// (half of S); kFlopsConvention says so. Source: PaLM appendix B (arXiv 2204.02311), with causal halving.
struct TokenFlops {
  double forward = 0;
  double train = 0;  // 3 × forward
};
TokenFlops token_flops(const Geometry& geometry, int64_t sequence_length);
inline constexpr char kFlopsConvention[] = "6 per matmul parameter and causal attention (half of the sequence), no recomputation";

// Checks what no run can do without: positive sizes, a divisible by k, d even for RoPE, h = a·d unless head_size is stated, ...
Diagnostics validate(const Geometry& geometry, const Location& at);

// kLabelOff (a note) when the label is more than 5 % off: "'llama3.2_1b' is called 1B but has 1,235,814,400 parameters (+24 %)".
std::optional<Diagnostic> label_note(const Geometry& geometry);

// From a parsed Hugging Face config.json. Unknown model_type: kUnsupportedArchitecture with the list.
Result<Geometry> geometry_from_hf_config(const Value& config, const std::string& name);
// Inline keys or a preset file (our own names, one-to-one with the fields above).
Result<Geometry> geometry_from_value(const Value& value, const std::string& name);

}  // namespace distsetup
