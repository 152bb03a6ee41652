#include "model/config_style.h"

#include <algorithm>
#include <string>

#include "model/encoder_parts.h"

namespace distsetup {
namespace {

constexpr const char* kMlpKeys[] = {"intermediate_size_mlp",
                                    "dense_intermediate_size",
                                    "intermediate_size",
                                    "ffn_hidden_size",
                                    "ffn_dim",
                                    "d_ff",
                                    "n_inner",
                                    "block_ff_dim",
                                    "inner_hidden_size",
                                    "mlp_hidden_size",
                                    "ffn_embed_dim",
                                    "hidden_dim",
                                    "ff_intermediate_size",
                                    "inter_dim",
                                    "d_intermediate",
                                    "inner_mlp_size"};

bool is_gated(const ConfigSizes& s, const Geometry& g) {
  // By their code alone: modeling_bitnet.py (relu of a gate), modeling_telechat.py, the NewGatedMLP of GTE and Arctic Embed
  // (modeling.py of Alibaba-NLP/new-impl), and MosaicBERT, whose bert_layers.py has BertGatedLinearUnitMLP.
  if (states_both_halves(s) || is_of(s, {"bitnet", "telechat", "qwen", "new"}) || s.has({"alibi_starting_size"})) return true;
  const std::string act = s.text({"hidden_act", "activation_function", "hidden_activation", "feed_forward_proj", "mlp_hidden_act",
                                  "activation_type", "activation", "act_fn"});
  const auto has = [&](const char* part) { return act.find(part) != std::string::npos; };
  if (has("glu") || has("gated") || has("gegelu")) return true;                     // gegelu: modeling_phi3_small.py
  if (s.text({"feed_forward_type"}).find("glu") != std::string::npos) return true;  // jina-bert-implementation
  if (has("relu") || has("xielu")) return false;
  if (s.has({"rms_norm_eps", "rms_norm_epsilon", "norm_eps"})) return true;
  if (has("silu") || has("swish")) return true;
  if (!act.empty() || encoder_kind(s) != nullptr || s.has({"layer_norm_eps", "layer_norm_epsilon", "type_vocab_size"})) return false;
  // Nothing is said: four times the width is what MLPs of two matrices have; a gated one has two thirds of it, or another width.
  return g.feed_forward != 4 * g.hidden;
}

}  // namespace

bool is_of(const ConfigSizes& s, std::initializer_list<const char*> types) {
  const std::string own = s.text({"model_type"});
  return std::any_of(types.begin(), types.end(), [&own](const char* one) { return own == one; });
}

int64_t stated_mlp_width(const ConfigSizes& s, int64_t absent) { return s.first(kMlpKeys, absent); }

// Both halves of a gated MLP are stated as one width: modeling_qwen.py (QWenMLP), Molmo's and OLMo's ff_proj, modeling_moshi.py
// (MoshiGatingMLP).
bool states_both_halves(const ConfigSizes& s) {
  return is_of(s, {"qwen", "molmo", "hf_olmo", "moshi", "kyutai_speech_to_text"}) &&
         s.has({"intermediate_size", "ffn_hidden_size", "ffn_dim", "mlp_hidden_size"});
}

// Encoders, and pairs of encoder and decoder: a decoder sees half of its own positions and all of the encoder's.
bool sees_all_positions(const ConfigSizes& s, const LayerParts& parts) {
  if (s.is_true({"is_decoder"}) || parts.is_lone_decoder) return false;
  const std::string type = s.text({"model_type"});
  return encoder_kind(s) != nullptr || parts.decoders > 0 || type.find("bert") != std::string::npos ||
         model_class(s).ends_with("ForMaskedLM");
}

// What BERT's descendants, OPT and T5 have: layer norms, biases, an MLP of two matrices; positions that are learned, where no rotation
// is stated.
void read_style(const ConfigSizes& s, const LayerParts& parts, Geometry& g) {
  g.gated_mlp = is_gated(s, g);
  if (!g.gated_mlp) g.activation = "gelu";
  const bool rotates = s.has({"rope_theta", "rope_parameters", "rope_scaling", "rotary_dim", "rotary_emb_base",
                              "partial_rotary_factor", "rope_embedding_base"});
  const EncoderKind* kind = encoder_kind(s);
  if (kind == nullptr) {
    // States of a scan know their order; the others turn by their position without saying so.
    if (parts.scan > 0 || is_of(s, {"rwkv", "rwkv5", "rwkv6", "rwkv7", "telechat", "qwen", "xlstm"})) return;
    if (s.has({"rms_norm_eps"}) || rotates || s.has({"relative_attention_num_buckets"})) return;
    const bool silent = s.text({"hidden_act", "activation_function", "feed_forward_proj", "activation"}).empty();
    if (!s.has({"type_vocab_size", "layer_norm_eps", "layer_norm_epsilon"}) && (g.gated_mlp || silent)) return;
  }
  g.norm = Norm::kLayer;
  g.qkv_bias = g.output_bias = g.mlp_bias = true;
  if (kind != nullptr) {
    if (g.max_positions == 0) g.max_positions = kind->positions;
    if (g.max_positions > kind->first_position) g.max_positions -= kind->first_position;
  }
  const std::string positions = s.text({"position_embedding_type"});
  const bool has_table = !s.has({"alibi_starting_size"}) && positions != "alibi" && positions != "rope" && positions != "rotary";
  if (has_table) g.learned_positions = g.max_positions;
}

}  // namespace distsetup
