// A transformer as numbers. Exact: counts are integers and equal the published totals (tests/unit/test_counts.cc).
// Symbols used all over the code: L layers, h hidden, a heads, k kv heads, d head size, f feed-forward, V vocabulary,
// E experts, t top-k, T tokens per rank. Where it comes from: geometry_value.h (our own keys), hf_config.h (a config.json).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

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
  bool output_bias = false;     // attention output projection
  bool mlp_bias = false;        // with experts: each has biases, and the router (GPT-OSS)
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
  bool rope_scaled = false;         // the model states a rope_scaling
  std::string rope_scaling;    // its kind: linear, llama3, yarn, longrope, dynamic, or one that the trainer refuses; empty: not stated
  double rope_factor = 1;      // of the scaling: how many times longer than the original context
  double rope_low_turns = 1;   // of the scaling: pairs that turn less often than this in the original context are interpolated ...
  double rope_high_turns = 4;  // ... more often: left as they are (llama3: low and high_freq_factor; yarn: beta_slow and beta_fast)
  double rope_amplitude = 0;   // attention_factor of yarn and longrope; 0: from the factor
  double rope_mscale = 0;      // DeepSeek's yarn: the amplitude is (0.1 · this · ln factor + 1) over the same with rope_mscale_all,
  double rope_mscale_all = 0;  // whose square scores are multiplied by; 0: not stated
  bool rope_truncated = true;  // yarn's ramp begins and ends at whole pairs (GPT-OSS: false)
  int64_t rope_original_positions = 0;
  // longrope (Phi 3): what the wavelength of each pair is multiplied by, in sequences of the original context and in longer ones; and
  // amplitudes of their own (Phi 3.5 MoE), 0: as rope_amplitude.
  std::vector<double> rope_short_factors, rope_long_factors;
  double rope_short_amplitude = 0, rope_long_amplitude = 0;
  double local_rope_base = 0;       // of layers with a window (Gemma 3); 0: rope_base
  double query_scalar = 0;          // scores are divided by its root (Gemma: query_pre_attn_scalar); 0: by that of d
  double attention_multiplier = 0;  // scores are multiplied by it instead (Granite); 0: they are not
  bool attention_sinks = false;     // a score of each head's own takes part in the softmax, and has no value (GPT-OSS)
  double attention_soft_cap = 0;    // scores become cap · tanh(score / cap) (Gemma 2); 0: they do not
  double logit_soft_cap = 0;        // the same of logits
  double logits_scaling = 1;        // logits are divided by it (Granite)
  double embedding_multiplier = 1;  // Granite
  double residual_multiplier = 1;   // Granite: of what attention and MLP add
  int64_t learned_positions = 0;    // GPT-2: 1024
  bool head_bias = false;           // Phi-2
  bool embedding_norm = false;      // BLOOM: a norm behind the embedding
  // Experts (E = 0: dense)
  int64_t num_experts = 0, experts_per_token = 0, expert_feed_forward = 0, num_shared_experts = 0;
  int64_t shared_feed_forward = 0;  // f_s in total
  bool experts_joined = false;      // a stack's rows are those of all experts (DBRX), so that ranks of any number share it
  int64_t expert_hidden = 0;        // routed experts read and write a projection of this width (LatentMoE); 0 = hidden
  double swiglu_limit = 0;  // of experts: gates and ups are clipped to it, and the gate is gate · sigmoid(swiglu_alpha · gate) times
  double swiglu_alpha = 0;  // up + 1 (GPT-OSS); 0: they are not
  int64_t expert_width() const { return expert_hidden > 0 ? expert_hidden : hidden; }
  bool shared_expert_gate = false, router_score_bias = false;
  bool router_normalized = false;  // the weights of a token's experts are divided by their sum
  double router_scaling = 1;       // and multiplied by this (DeepSeek)
  int64_t router_groups = 1;       // experts are in groups, of which a token sees the best
  int64_t router_groups_chosen = 1;
  double router_bias_rate = 0;  // what a step moves each expert's correction by, against its share of tokens; 0: they stay as they are
  // Rows that an expert takes of a rank's tokens, at most: this many times an equal share, the first tokens first; others pass it by
  // (Switch Transformers, arXiv 2101.03961, section 2.2). 0: it takes all.
  double expert_capacity = 0;
  double router_loss = 0;  // what the load-balancing loss is multiplied by; 0: there is none
  double router_z_loss =
      0;  // what the mean square of the routers' log-sum-exp is multiplied by, of each layer; 0: there is no such loss
  std::vector<bool> expert_layer;  // per layer; empty = all (when E > 0)
  // Latent attention
  Attention attention = Attention::kGrouped;
  int64_t q_lora_rank = 0, kv_lora_rank = 0, qk_nope_head_size = 0, qk_rope_head_size = 0, v_head_size = 0;
  int64_t sliding_window = 0;         // keys a query sees, itself included; 0 = none
  int64_t scan_channels = 0;          // of the mixer in layers with a window that is a state-space scan (Mamba-2) or the like
  int64_t delta_heads = 0;            // of Gated DeltaNet in these layers, scan_channels wide together; 0: they are of another kind
  bool bidirectional = false;         // a position sees those behind it, too (encoders)
  int64_t unrotated_layer_every = 0;  // each n-th layer has no rotary positions (SmolLM3: 4); 0 = none
  int64_t global_layer_every =
      0;  // with a window: each n-th layer sees everything (Gemma 2: 2, Gemma 3: 6), -n: the first of each n (CWM); 0: none
  std::string source;  // URL or text, with date
  // What its config.json says that makes it another model of the same sizes, with the place; empty: nothing. The bundled trainer has
  // no program of it.
  std::string unlike_family;
  std::string native_program;  // text of the bundled trainer's program where it is not a built-in one (presets/programs/native)
  bool operator==(const Geometry&) const = default;

  // Compiled once, in geometry.cc: a geometry is copied with every plan.
  Geometry();
  Geometry(const Geometry&);
  Geometry(Geometry&&) noexcept;
  Geometry& operator=(const Geometry&);
  Geometry& operator=(Geometry&&) noexcept;
  ~Geometry();
};

}  // namespace distsetup
