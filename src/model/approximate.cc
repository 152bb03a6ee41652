// The idea: nearly all that memory and time depend on are a model's width, depth, MLP and vocabulary, and every config.json states
// those, if under its own names. What its layers have that a transformer's have not is counted, and becomes a part of the MLPs.
// Leaves out: encoders of pictures and sound beside the text model, layers for several tokens at once, norms and biases.
#include "model/approximate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/diagnostic_codes.h"
#include "base/quantity.h"
#include "model/config_sizes.h"
#include "model/config_style.h"
#include "model/count.h"
#include "model/encoder_parts.h"
#include "model/mixer_parameters.h"
#include "model/validate.h"

namespace distsetup {
namespace {

double d(int64_t value) { return static_cast<double>(value); }

constexpr int64_t kUsualHead = 64;

// Keys of a role that more than one rule reads.
constexpr const char* kHeadKeys[] = {
    "num_attention_heads", "n_head", "n_heads", "num_heads", "num_query_heads", "encoder_attention_heads", "decoder_attention_heads"};
bool read_latent(const ConfigSizes& s, Geometry& g) {
  g.kv_lora_rank = s.first({"kv_lora_rank"});
  g.qk_nope_head_size = s.first({"qk_nope_head_dim"});
  g.qk_rope_head_size = s.first({"qk_rope_head_dim"});
  if (g.kv_lora_rank == 0 || g.qk_nope_head_size == 0 || g.qk_rope_head_size == 0) {
    g.kv_lora_rank = g.qk_nope_head_size = g.qk_rope_head_size = 0;
    return false;
  }
  g.attention = Attention::kLatent;
  g.q_lora_rank = s.first({"q_lora_rank"});
  g.v_head_size = s.first({"v_head_dim"}, g.qk_nope_head_size);
  g.head_size = g.qk_nope_head_size + g.qk_rope_head_size;
  return true;
}

void read_heads(const ConfigSizes& s, int64_t heads_per_group, Geometry& g) {
  g.num_heads = s.first(kHeadKeys, std::max<int64_t>(1, g.hidden / kUsualHead));
  g.num_kv_heads = s.first({"num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_head_kv", "kv_n_heads", "multi_query_group_num",
                            "num_attention_groups", "num_multi_query_heads", "num_key_value_heads_per_layer"},
                           s.is_true({"multi_query"}) || s.text({"attention_head_type"}) == "multiquery"
                               ? 1
                               : g.num_heads / std::max<int64_t>(1, heads_per_group));
  // A mean of several layers may be no divisor.
  constexpr int64_t kMostHeads = 100'000;
  g.num_kv_heads = g.num_heads > kMostHeads ? g.num_heads : std::clamp<int64_t>(g.num_kv_heads, 1, g.num_heads);
  while (g.num_heads % g.num_kv_heads != 0) --g.num_kv_heads;
  g.head_size =
      s.first({"head_dim", "attention_head_dim", "kv_channels", "d_kv", "head_size"}, std::max<int64_t>(1, g.hidden / g.num_heads));
  if (read_latent(s, g)) g.num_kv_heads = g.num_heads;
  g.qk_norm = g.attention == Attention::kGrouped && s.is_true({"use_qk_norm", "qk_layernorm", "use_qk_layernorm", "qk_norm"});
}

void read_experts(const ConfigSizes& s, Geometry& g) {
  constexpr int64_t kSingleNeurons = 4096;  // so many experts are single neurons, looked up (PEER)
  if (s.has({"is_moe", "use_moe", "enable_moe"}) && !s.is_true({"is_moe", "use_moe", "enable_moe"})) return;
  g.num_experts =
      s.first({"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts", "n_experts"});
  if (g.num_experts < 2) g.num_experts = 0;
  if (g.num_experts == 0) return;
  g.experts_per_token =
      std::min(g.num_experts, s.first({"num_experts_per_tok", "experts_per_token", "moe_top_k", "moe_topk", "moe_k", "top_k_experts",
                                       "num_selected_experts", "num_experts_per_token", "topk", "n_activated_experts", "num_selects"},
                                      s.has({"router_jitter_noise"}) ? 1 : 2));
  constexpr const char* kWidth[] = {"moe_intermediate_size", "expert_intermediate_size",
                                    "moe_ffn_hidden_size",   "expert_ffn_hidden_size",
                                    "expert_hidden_size",    "expert_dim",
                                    "moe_inter_dim",         "size_experts"};
  // Where the MLPs of dense layers have a key of their own, the plain key is the experts'.
  const bool plain_is_experts = s.has({"intermediate_size_mlp", "dense_intermediate_size"});
  g.expert_feed_forward = s.first(kWidth, g.num_experts >= kSingleNeurons ? 1
                                          : plain_is_experts              ? s.first({"intermediate_size"}, g.feed_forward)
                                                                          : g.feed_forward);
  // ERNIE 4.5 VL has as many experts again of another width, for pictures (modeling_ernie4_5_vl_moe.py).
  if (const Value* widths = s.find({"moe_intermediate_size"}); widths != nullptr && s.text({"model_type"}).starts_with("ernie"))
    g.expert_feed_forward *= std::max<int64_t>(1, static_cast<int64_t>(widths->items.size()));
  g.expert_hidden = s.first({"moe_latent_size", "routed_expert_hidden_size", "moe_hidden_size"});  // Nemotron; Kimi; Muse Spark
  g.experts_joined = s.text({"model_type"}) == "dbrx";                                             // modeling_dbrx.py, DbrxExpertGLU
  g.num_shared_experts = s.first({"n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert"});
  const int64_t one = s.first({"moe_shared_expert_intermediate_size"}, g.expert_feed_forward);
  g.shared_feed_forward = s.first({"shared_expert_intermediate_size", "shared_intermediate_size", "share_expert_dim"},
                                  s.is_true({"enable_moe_block", "residual_moe"})
                                      ? g.feed_forward
                                      : g.num_shared_experts * one);  // Gemma 4, Grok 2: an MLP beside the experts
}

// Parameters of one layer's mixer. Attention: the geometry's own, with the matrix of an output gate where there is one (Qwen3-Next and
// its descendants have it without saying so), and with queries and outputs by way of a low rank (DeepSeek-V4).
double attention_parameters(const ConfigSizes& s, const Geometry& g) {
  const double h = d(g.hidden), heads = d(g.num_heads * g.head_size);
  const std::string type = s.text({"model_type"});
  const bool is_gated =
      s.has({"attn_output_gate"}) ? s.is_true({"attn_output_gate"}) : type.starts_with("qwen3_next") || type.starts_with("qwen3_5");
  double total = d(layer_parameters(g, 0).attention_matmul) + (is_gated ? h * heads : 0);
  if (const std::string gate = s.text({"attention_gate_func"}); !gate.empty() && gate != "null") total += h * heads;  // K2-Horizon
  if (g.attention == Attention::kLatent) return total;
  if (const double rank = d(s.first({"q_lora_rank", "share_q_dim"})); rank > 0) total += rank * (h + heads) - h * heads;
  if (const double rank = d(s.first({"o_lora_rank"})); rank > 0) total += rank * (heads + d(s.first({"o_groups"}, 1)) * h) - h * heads;
  return total;
}

// Gemma 4 (its class in Transformers 5.23): layers that see all tokens have heads of another size, and may take their keys for values;
// the last layers read keys and values of earlier ones, and may have MLPs of twice the width.
double global_heads(const ConfigSizes& s, const Geometry& g, const LayerParts& parts) {
  const Value* each = s.find({"per_layer_config"});  // {"05": {head_dim: 512}, ...}, as newer releases write it
  const auto stated = [&](const char* in_layer, const char* global, int64_t usual) {
    const Value* value = each == nullptr || each->entries.empty() ? nullptr : each->entries.front().second.find(in_layer);
    return d(s.first({global}, value == nullptr ? usual : as_int(*value).value.value_or(usual)));
  };
  const double head = stated("head_dim", "global_head_dim", 0), h = d(g.hidden);
  if (head == 0) return 0;
  const double groups = stated("num_key_value_heads", "num_global_key_value_heads", g.num_kv_heads);
  const double kv = 2 * h * d(g.num_kv_heads * g.head_size);
  const double global_kv = (s.is_true({"attention_k_eq_v"}) ? 1 : 2) * h * groups * head;
  const int64_t sharing = std::min(s.first({"num_kv_shared_layers"}), g.num_layers);
  int64_t sharing_globally = 0;
  if (const Value* types = s.find({"layer_types"}); types != nullptr && !types->items.empty())
    for (int64_t i = g.num_layers - sharing; i < g.num_layers; ++i)
      sharing_globally += types->items[size_t(i) % types->items.size()].text == "full_attention";
  double total = d(parts.attention) * (2 * h * d(g.num_heads) * (head - d(g.head_size)) + global_kv - kv);
  total -= d(sharing_globally) * global_kv + d(sharing - sharing_globally) * kv;
  if (s.is_true({"use_double_wide_mlp"})) total += d(sharing) * d(layer_parameters(g, 0).mlp_matmul);
  return total;
}

// What the layers have more than the geometry's: in place of attention in some, attention to an encoder, no MLP.
double more_than_layers(const ConfigSizes& s, const Geometry& g, const LayerParts& parts) {
  const double h = d(g.hidden), attention = attention_parameters(s, g), mlp = d(layer_parameters(g, 0).mlp_matmul);
  const double own = d(layer_parameters(g, 0).attention_matmul) * d(g.num_layers);
  const double attends = d(parts.shared_blocks > 0 ? parts.shared_blocks : parts.attention + parts.window);
  const double recurrent = d(s.first({"lru_width"}, g.hidden));
  double total = attends * attention - own;
  if (parts.scan > 0) total += d(parts.scan) * scan_parameters(s, g, parts.attention == 0);
  if (parts.linear > 0) total += d(parts.linear) * linear_parameters(s, g);
  // Zamba: its shared blocks see the embeddings beside the stream, and a matrix leads each use of them back.
  if (const double input = d(s.first({"attention_hidden_size"})); parts.shared_blocks > 0 && input > h)
    total += attends * (input - h) * d((g.num_heads + 2 * g.num_kv_heads) * g.head_size) + d(parts.attention) * h * h;
  total += d(parts.convolution) * 4 * h * h;
  total += d(parts.recurrence) * (3 * h * recurrent + 2 * recurrent * recurrent / d(g.num_heads));
  total += d(parts.decoders) * attention;
  if (g.num_experts == 0) total -= d(g.num_layers - (parts.shared_blocks > 0 ? parts.shared_blocks : parts.mlps)) * mlp;
  total += global_heads(s, g, parts) + parameters_beside_layers(s, g, parts);
  // Embeddings of each layer's own (Gemma 3n).
  const double rows = d(s.first({"vocab_size_per_layer_input"}));
  if (rows > 0) total += d(s.first({"hidden_size_per_layer_input"})) * d(g.num_layers) * (rows + 3 * h);
  // LongCat: two of each in a layer, beside its experts (modeling_longcat_flash.py).
  if (s.text({"model_type"}).starts_with("longcat")) total += d(g.num_layers) * (attention + 6 * h * d(s.first({"ffn_hidden_size"})));
  // CogVLM: matrices of its own for pictures in each layer, beside those for text (modeling_cogvlm.py).
  if (model_class(s) == "CogVLMForCausalLM") total += d(g.num_layers) * (attention + mlp);
  // Embeddings of a smaller width than the layers', with a projection; a larger number under that name is of rows (OLMo, Molmo).
  const double embedding = d(s.first({"embedding_size", "word_embed_proj_dim", "input_embedding_size"}, g.hidden));
  if (embedding < h) total += embedding * h - d(g.vocabulary) * (h - embedding);
  return total;
}

// What tokens pass through in part is planned as a part of the experts: experts of the value projection (K2-Horizon), and embeddings
// of several tokens at once, as wide as the layers together (longcat_flash_ngram).
void widen_experts(const ConfigSizes& s, Geometry& g) {
  const double values = d(std::max<int64_t>(0, s.first({"mova_num_experts"}) - 1)) * d(g.num_layers) * d(g.num_kv_heads * g.head_size);
  const double tables = d(s.first({"ngram_vocab_size_ratio", "oe_vocab_size_ratio"})) * d(g.vocabulary);
  constexpr double kWidest = 1e9;
  if (g.num_experts == 0) return;
  const double width = (values + tables) / (d(g.num_layers) * d(g.num_experts) * (g.gated_mlp ? 3 : 2));
  g.expert_feed_forward += std::llround(std::min(width, kWidest));
}

// The MLPs take what there is more or less than the geometry's layers have: of models with experts, more is a part that every token
// passes through.
void match_parameters(Geometry& g, double parameters) {
  const auto more = [&] { return parameters - d(count_parameters(g).total); };
  const double per_width = (g.gated_mlp ? 3 : 2) * d(g.hidden);
  const auto widen = [&](int64_t& width, double layers, int64_t least) {
    width = std::max<int64_t>(least, width + std::llround(more() / (layers * per_width)));
  };
  if (g.num_experts == 0) {
    widen(g.feed_forward, d(g.num_layers), 1);
    // Attention of a block that many layers share, in every layer of ours, may be more than all there is.
    while (g.feed_forward == 1 && more() < 0 && g.attention == Attention::kGrouped && g.num_heads % 2 == 0 &&
           g.num_kv_heads % 2 == 0) {
      g.num_heads /= 2;
      g.num_kv_heads /= 2;
      widen(g.feed_forward, d(g.num_layers), 1);
    }
    return;
  }
  const double with_experts =
      g.expert_layer.empty() ? d(g.num_layers) : d(std::count(g.expert_layer.begin(), g.expert_layer.end(), true));
  const double dense = d(g.num_layers) - with_experts;
  if (dense > 0 && dense >= with_experts) widen(g.feed_forward, dense, 1);
  if (with_experts > 0) widen(g.shared_feed_forward, with_experts, 0);
  // Attention by way of low ranks (DeepSeek-V4) is less than the geometry's, and every token passes through it: not the experts'
  // matter.
  while (with_experts > 0 && g.shared_feed_forward == 0 && more() < 0 && g.attention == Attention::kGrouped &&
         g.num_heads > g.num_kv_heads && (g.num_heads / 2) % g.num_kv_heads == 0) {
    g.num_heads /= 2;
    widen(g.shared_feed_forward, with_experts, 0);
  }
  const double experts = with_experts * d(g.num_experts) * d(g.expert_width()) / d(g.hidden);
  if (with_experts > 0 && more() < 0) widen(g.expert_feed_forward, experts, 1);
}

// Attention of a window, and mixers that see a state instead of all tokens: time only.
void read_windows(const ConfigSizes& s, const LayerParts& parts, Geometry& g) {
  constexpr int64_t kChunk = 128;  // tokens that a scan multiplies at a time
  const int64_t elsewhere = parts.scan + parts.linear + parts.convolution + parts.recurrence;
  if (parts.window == 0 && elsewhere == 0) return;
  g.sliding_window = parts.window > 0
                         ? s.first({"sliding_window", "sliding_window_size", "attention_window_size", "attention_chunk_size"}, 4096)
                         : kChunk;
  if (parts.attention >= parts.layers) g.sliding_window = 0;  // side by side in every layer
  if (parts.attention > 0 && g.sliding_window > 0) g.global_layer_every = std::max<int64_t>(1, parts.layers / parts.attention);
  if (g.global_layer_every == 1) g.sliding_window = g.global_layer_every = 0;
  if (parts.scan + parts.linear > 0 && g.sliding_window > 0) g.scan_channels = 2 * g.hidden;
  // Gated DeltaNet, where it says so.
  const int64_t heads = s.first({"linear_num_value_heads"}), width = s.first({"linear_value_head_dim"});
  if (parts.linear == 0 || parts.scan > 0 || g.scan_channels == 0 || heads <= 0 || width <= 0) return;
  g.delta_heads = heads;
  g.scan_channels = heads * width;
}

// Transformers writes the key where it differs from its default, which is true.
bool is_tied(const ConfigSizes& s) {
  const std::string said = s.text({"tie_word_embeddings", "tie_embeddings", "tie_embedding", "weight_tying"});
  // Their own classes have false (configuration_deepseek.py, modeling_step3.py, configuration_longcat_flash.py), and files with
  // model_type are of known families.
  const std::string_view own = model_class(s);
  if (said.empty() && (own.starts_with("Deepseek") || own.starts_with("Step3") || own.starts_with("Longcat"))) return false;
  return said.empty() || said == "true";
}

std::string missing_sizes(const Geometry& g) {
  std::vector<std::string> missing;
  if (g.num_layers <= 0) missing.emplace_back("num_hidden_layers");
  if (g.hidden <= 0) missing.emplace_back("hidden_size");
  if (g.vocabulary <= 0) missing.emplace_back("vocab_size");
  return fmt::format("{}", fmt::join(missing, ", "));
}

}  // namespace

const Approximation* approximation(const Geometry& geometry) {
  const auto found = std::find_if(std::begin(kApproximations), std::end(kApproximations),
                                  [&](const Approximation& one) { return one.family == geometry.family; });
  return found == std::end(kApproximations) ? nullptr : found;
}

Result<Geometry> approximate_geometry(const Value& config, const std::string& name, int64_t parameters,
                                      std::string_view what_is_not_known) {
  const ConfigSizes s(config);
  // Diffusers writes the class of a model of pictures or films where Transformers has its type.
  if (const std::string own = s.text({"_class_name"}); !own.empty() && !s.has({"model_type"}))
    return error(code::kUnsupportedArchitecture, config.location,
                 fmt::format("'{}' is a model of Diffusers: plans are of models of language", own));
  const std::string called = s.has({"model_type"}) ? fmt::format("{} '{}' is not known", what_is_not_known, s.text({"model_type"}))
                                                   : "config.json states no model_type";
  Geometry g;
  g.name = name;
  g.layer_class = "DecoderLayer";
  g.hidden =
      s.first({"hidden_size", "d_model", "n_embd", "n_embed", "dim", "model_dim", "hidden_dim", "embed_dim", "encoder_hidden_size"});
  constexpr int64_t kVocabularyOfT5 = 32128;  // T5Config of Transformers 5.23, for files that leave it out
  g.vocabulary = s.first({"vocab_size", "padded_vocab_size", "n_vocab"}, is_of(s, {"t5"}) ? kVocabularyOfT5 : 0);
  g.feed_forward = stated_mlp_width(s, 4 * g.hidden);
  if (s.is_true({"block_auto_adjust_ff_dim"}))
    g.feed_forward = 2 * g.feed_forward / 3;  // LLaMA's rule: as many parameters as two matrices
  if (states_both_halves(s)) g.feed_forward /= 2;
  if (s.has({"lru_width"})) g.feed_forward /= 2;  // Griffin states both halves of a gated MLP (modeling_recurrent_gemma.py)
  read_experts(s, g);
  LayerParts parts = layer_parts(s, g.num_experts);
  g.num_layers = parts.layers;
  if (parts.mlp_multiple > 0) g.feed_forward = std::llround(parts.mlp_multiple * 2 / 3 * d(g.hidden));
  if (const std::string missing = missing_sizes(g); !missing.empty() || g.num_layers > 100'000)
    return error(code::kUnsupportedArchitecture, config.location,
                 s.has({"model_type"}) ? fmt::format("{}, and its config.json has no '{}' to plan it by", called, missing)
                                       : fmt::format("{}, and no '{}' to plan the model by", called, missing),
                 "describe it: distsetup explain DS0201");
  g.expert_layer = std::move(parts.expert_layer);
  g.max_positions = s.first({"max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length", "n_ctx"});
  g.tied_embeddings = is_tied(s) || !scores_vocabulary(s);  // a class without scores has no second matrix
  read_heads(s, parts.heads_per_group, g);
  if (parts.scan == parts.layers && parts.attention == 0) {  // the heads that it states are the scan's
    g.head_size = std::min(kUsualHead, g.hidden);
    g.num_heads = g.num_kv_heads = g.hidden / g.head_size;
  }
  read_style(s, parts, g);
  widen_experts(s, g);
  g.bidirectional = sees_all_positions(s, parts);
  g.source = "config.json, read by its sizes alone";
  const bool is_encoder = encoder_kind(s) != nullptr, has_own_code = s.has({"auto_map"}),
             shares = s.has({"num_hidden_groups"}) && s.first({"num_hidden_groups"}) < g.num_layers;
  g.family = kApproximations[parameters > 0                                 ? 2
                             : is_encoder && !shares && !has_own_code       ? 3
                             : parts.decoders > 0 || g.norm == Norm::kLayer ? 1
                                                                            : 0]
                 .family;
  if (Diagnostics wrong = validate(g, config.location); has_error(wrong)) return wrong;
  const double more = more_than_layers(s, g, parts);
  const int64_t groups = shares ? s.first({"num_hidden_groups"}) : g.num_layers;
  const int64_t stored =
      parameters > 0 ? parameters
                     : count_parameters(g).total + std::llround(more) - (g.num_layers - groups) * layer_parameters(g, 0).total();
  if (parameters > 0 && !shares)
    match_parameters(g, d(parameters));
  else if (more != 0)
    match_parameters(g, d(count_parameters(g).total) + more);
  read_windows(s, parts, g);
  const Approximation& as = *approximation(g);
  const std::string off = as.parameters > 0 ? fmt::format(", within {:.2g} % for 9 of 10 architectures", 100 * as.parameters) : "";
  Diagnostics said = {
      note(code::kUnsupportedArchitecture, config.location,
           fmt::format("{}: planned as a transformer of its sizes, {} parameters ({}{}); memory within {:.0f} %, "
                       "time within {:.0f} %",
                       called, format_count(count_parameters(g).total), as.from, off, 100 * as.memory, 100 * as.time))};
  if (shares) {
    const int64_t planned = count_parameters(g).total;
    said.push_back(
        note(code::kUnsupportedArchitecture, config.location,
             fmt::format("its {} layers share the parameters of {}, {} in all: planned as if each had its own, so parameters, "
                         "gradients and optimizer state are {:.1f} times what they take; activations and time are not",
                         g.num_layers, groups, format_count(stored), d(planned) / d(stored))));
  }
  // Ouro (arXiv 2510.25741), Nanbeige 4: the same layers several times over.
  if (const int64_t passes = s.first({"total_ut_steps", "num_loops"}); passes > 1)
    said.push_back(
        warning(code::kUnsupportedArchitecture, config.location,
                fmt::format("its {} layers run {} times over, and the plan counts one pass: parameters and states are right, "
                            "activations and time are up to {} times as much",
                            g.num_layers, passes, passes)));
  say_without_scores(config, said);
  if (Diagnostics wrong = validate(g, config.location); has_error(wrong)) return wrong;
  return {std::move(g), std::move(said)};
}

void say_without_scores(const Value& config, Diagnostics& said) {
  const ConfigSizes s(config);
  if (scores_vocabulary(s)) return;
  said.push_back(note(code::kUnsupportedArchitecture, config.location,
                      fmt::format("its class '{}' computes no scores over the vocabulary, and the plan's training does: memory and "
                                  "time of the loss are too high",
                                  model_class(s))));
}

}  // namespace distsetup
