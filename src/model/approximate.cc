// The idea: nearly all that memory and time depend on are a model's width, depth, MLP and vocabulary, and every config.json states
// those, if under its own names. Leaves out: convolutions, state-space scans, encoders of pictures and sound beside the text model.
#include "model/approximate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <vector>

#include "base/diagnostic_codes.h"
#include "base/quantity.h"
#include "base/value_json.h"
#include "model/count.h"
#include "model/validate.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

class ConfigSizes {
 public:
  explicit ConfigSizes(const Value& config) : config_(config) {}

  // The first of these keys that holds a number above 0; of a list its largest (a width per layer).
  int64_t first(std::initializer_list<const char*> keys, int64_t absent = 0) const {
    for (const char* key : keys) {
      const Value* value = config_.find(key);
      if (value == nullptr) continue;
      int64_t most = number(*value);
      for (const Value& item : value->items) most = std::max(most, number(item));
      if (most > 0) return most;
    }
    return absent;
  }
  bool has(const char* key) const { return config_.find(key) != nullptr && config_.find(key)->kind != Value::Kind::kNull; }
  std::string text(const char* key) const { return has(key) ? config_.find(key)->text : ""; }
  bool is_true(const char* key) const { return text(key) == "true"; }

 private:
  static int64_t number(const Value& value) {
    if (value.kind != Value::Kind::kScalar) return 0;
    const Result<int64_t> read = as_int(value);
    return read.ok() ? *read : 0;
  }
  const Value& config_;
};

void read_heads(const ConfigSizes& s, Geometry& g) {
  constexpr int64_t kUsualHead = 64;
  g.num_heads =
      s.first({"num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads"},
              std::max<int64_t>(1, g.hidden / kUsualHead));
  g.num_kv_heads = s.first({"num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_head_kv", "multi_query_group_num"}, g.num_heads);
  g.head_size = s.first({"head_dim", "kv_channels", "attention_head_dim"}, std::max<int64_t>(1, g.hidden / g.num_heads));
}

void read_experts(const ConfigSizes& s, Geometry& g) {
  g.num_experts = s.first({"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"});
  if (g.num_experts < 2) g.num_experts = 0;
  if (g.num_experts == 0) return;
  g.experts_per_token =
      s.first({"num_experts_per_tok", "experts_per_token", "moe_top_k", "moe_topk", "top_k_experts", "num_selected_experts"}, 2);
  g.expert_feed_forward = s.first({"moe_intermediate_size", "expert_intermediate_size", "moe_ffn_hidden_size"}, g.feed_forward);
  g.num_shared_experts = s.first({"n_shared_experts", "num_shared_experts", "moe_num_shared_experts"});
  g.shared_feed_forward = s.first({"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"},
                                  g.num_shared_experts * g.expert_feed_forward);
  const int64_t dense = std::min(s.first({"first_k_dense_replace", "moe_layer_start_index"}), g.num_layers - 1);
  for (int64_t i = 0; dense > 0 && i < g.num_layers; ++i) g.expert_layer.push_back(i >= dense);
}

// What BERT's descendants and OPT have: layer norms, biases, learned positions, an MLP of two matrices.
void read_old_style(const ConfigSizes& s, Geometry& g) {
  const std::string act = s.text(s.has("hidden_act") ? "hidden_act" : "activation_function");
  const bool is_old =
      s.has("type_vocab_size") || act == "gelu" || act == "relu" || s.has("layer_norm_eps") || s.has("layer_norm_epsilon");
  if (!is_old || s.has("rms_norm_eps") || s.has("rope_theta")) return;
  g.norm = Norm::kLayer;
  g.gated_mlp = false;
  g.activation = "gelu";
  g.qkv_bias = g.output_bias = g.mlp_bias = true;
  g.learned_positions = g.max_positions;
}

// A state-space block has no attention: about three matrices of the inner width. As attention with one key and value head and the rest
// as an MLP it has the same parameters.
bool read_state_space(const ConfigSizes& s, Geometry& g) {
  const bool is_one = s.has("state_size") || s.has("ssm_cfg") || s.has("mamba_d_state") || s.text("model_type").find("mamba") == 0;
  if (!is_one || s.has("num_attention_heads")) return false;
  const int64_t inner = s.first({"intermediate_size", "d_inner"}, 2 * g.hidden);
  g.num_kv_heads = 1;
  g.feed_forward = std::max<int64_t>(64, inner - 2 * g.hidden / 3 - 2 * g.head_size / 3);
  return true;
}

// The MLP takes what the tensors have more or less than the sizes say.
void match_parameters(Geometry& g, int64_t parameters) {
  const int64_t counted = count_parameters(g).total;
  int64_t& width = g.num_experts > 0 ? g.expert_feed_forward : g.feed_forward;
  const double copies =
      static_cast<double>(g.num_layers) * static_cast<double>(std::max<int64_t>(g.num_experts, 1)) * (g.gated_mlp ? 3 : 2);
  const double more = static_cast<double>(parameters - counted) / (copies * static_cast<double>(g.hidden));
  width = std::max<int64_t>(1, width + std::llround(more));
}

std::string missing_sizes(const Geometry& g) {
  std::vector<std::string> missing;
  if (g.num_layers <= 0) missing.emplace_back("num_hidden_layers");
  if (g.hidden <= 0) missing.emplace_back("hidden_size");
  if (g.vocabulary <= 0) missing.emplace_back("vocab_size");
  return fmt::format("{}", fmt::join(missing, ", "));
}

}  // namespace

Result<Geometry> approximate_geometry(const Value& config, const std::string& name, int64_t parameters) {
  const ConfigSizes s(config);
  const std::string type = s.has("model_type") ? s.text("model_type") : "not stated";
  Geometry g;
  g.name = name;
  g.family = kApproximateFamily;
  g.layer_class = "DecoderLayer";
  g.hidden = s.first({"hidden_size", "d_model", "n_embd", "dim", "model_dim", "hidden_dim", "embed_dim", "encoder_hidden_size"});
  g.num_layers = s.first({"num_hidden_layers", "n_layer", "n_layers", "num_layers"});
  if (g.num_layers == 0) g.num_layers = s.first({"encoder_layers"}) + s.first({"decoder_layers", "num_decoder_layers"});
  g.vocabulary = s.first({"vocab_size", "padded_vocab_size", "n_vocab"});
  if (const std::string missing = missing_sizes(g); !missing.empty() || g.num_layers > 100'000)
    return error(code::kUnsupportedArchitecture, config.location,
                 fmt::format("model_type '{}' is not known, and its config.json has no '{}' to plan it by", type, missing),
                 "describe it: distsetup explain DS0201");
  g.max_positions = s.first({"max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length", "n_ctx"});
  g.tied_embeddings = s.is_true("tie_word_embeddings") || s.has("type_vocab_size");
  read_heads(s, g);
  g.feed_forward = s.first(
      {"intermediate_size", "ffn_hidden_size", "ffn_dim", "d_ff", "n_inner", "encoder_ffn_dim", "decoder_ffn_dim"}, 4 * g.hidden);
  const bool is_state_space = read_state_space(s, g);
  if (!is_state_space) read_old_style(s, g);
  read_experts(s, g);
  g.source = "config.json, read by its sizes alone";
  if (Diagnostics wrong = validate(g, config.location); has_error(wrong)) return wrong;
  if (parameters > 0) match_parameters(g, parameters);
  Diagnostics said = {note(
      code::kUnsupportedArchitecture, config.location,
      fmt::format(
          "model_type '{}' is not known: planned approximately, as {} of its sizes with {} parameters ({}); memory may be off by "
          "{:.0f} %, time by {:.0f} %",
          type, is_state_space ? "a transformer" : "transformer layers", format_count(count_parameters(g).total),
          parameters > 0 ? "counted in its safetensors files" : "from its sizes", 100 * kApproximateMemory, 100 * kApproximateTime))};
  if (Diagnostics wrong = validate(g, config.location); has_error(wrong)) return wrong;
  return {std::move(g), std::move(said)};
}

int64_t count_in_safetensors(const std::string& directory) {
  constexpr uint64_t kLongestHeader = uint64_t{100} << 20;
  std::error_code failure;
  int64_t total = 0;
  for (fs::directory_iterator it(directory, failure), end; !failure && it != end; it.increment(failure)) {
    if (it->path().extension() != ".safetensors") continue;
    std::ifstream file(it->path(), std::ios::binary);
    unsigned char bytes[8] = {};
    if (!file.read(reinterpret_cast<char*>(bytes), sizeof(bytes))) return 0;
    uint64_t length = 0;  // little-endian, whatever this machine is
    for (int i = 7; i >= 0; --i) length = length << 8 | bytes[i];
    if (length == 0 || length > kLongestHeader) return 0;
    std::string header(length, '\0');
    if (!file.read(header.data(), static_cast<std::streamsize>(length))) return 0;
    const Result<Value> tensors = parse_json(header, it->path().string());
    if (!tensors.ok()) return 0;
    for (const auto& [name, tensor] : tensors->entries) {
      const Value* shape = name == "__metadata__" ? nullptr : tensor.find("shape");
      if (shape == nullptr) continue;
      double elements = 1;
      for (const Value& size : shape->items) elements *= static_cast<double>(as_int(size).value.value_or(0));
      if (elements > 1e15 || static_cast<double>(total) > 1e16) return 0;
      total += std::llround(elements);
    }
  }
  return total;
}

}  // namespace distsetup
