// Keys are those of the configuration classes of Transformers 5.23 and of published config.json files (2026-11).
#include "model/config_sizes.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "model/encoder_parts.h"

namespace distsetup {
namespace {

constexpr int64_t kMostConfigLayers = 100'000;

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

int64_t positive(const Value& value) {
  if (value.kind != Value::Kind::kScalar) return 0;
  const Result<int64_t> read = as_int(value);
  return read.ok() ? std::max<int64_t>(0, *read) : 0;
}

int64_t mean(const Value& list) {
  double sum = 0;
  int64_t count = 0;
  for (const Value& item : list.items) {
    sum += static_cast<double>(item.items.empty() ? positive(item) : mean(item));
    ++count;
  }
  return count == 0 ? 0 : std::llround(sum / static_cast<double>(count));
}

// One word per layer, as the file says it: a list, or a string with a letter each. A short list repeats.
std::vector<std::string> layer_words(const ConfigSizes& s, int64_t layers) {
  std::vector<std::string> words;
  const Value* list = s.find({"layer_types", "layers_block_type", "block_types", "hybrid_override_pattern", "hybrid_pattern"});
  if (list == nullptr) return words;
  for (const Value& item : list->items) words.push_back(item.text);
  if (list->kind == Value::Kind::kScalar)
    for (const char letter : list->text) words.emplace_back(1, letter);
  const size_t stated = words.size();
  while (stated > 0 && static_cast<int64_t>(words.size()) < layers) words.push_back(words[words.size() - stated]);
  if (layers > 0 && static_cast<int64_t>(words.size()) > layers) words.resize(static_cast<size_t>(layers));
  return words;
}

Mixer mixer_of(std::string_view word) {
  if (contains(word, "mamba") || contains(word, "ssm") || word == "M" || word == "m" || contains(word, "hybrid")) return Mixer::kScan;
  if (contains(word, "linear") || contains(word, "delta") || contains(word, "kda") || contains(word, "lightning"))
    return Mixer::kLinear;
  if (contains(word, "conv")) return Mixer::kConvolution;
  if (contains(word, "recurrent")) return Mixer::kRecurrence;
  if (contains(word, "sliding") || contains(word, "window") || contains(word, "local") || contains(word, "chunk"))
    return Mixer::kWindow;
  return Mixer::kAttention;
}

bool is_mlp_alone(std::string_view word) { return word == "-" || word == "E" || word == "mlp" || word == "moe"; }

void add(LayerParts& parts, Mixer mixer, int64_t layers) {
  switch (mixer) {
    case Mixer::kAttention: parts.attention += layers; break;
    case Mixer::kWindow: parts.window += layers; break;
    case Mixer::kScan: parts.scan += layers; break;
    case Mixer::kLinear: parts.linear += layers; break;
    case Mixer::kConvolution: parts.convolution += layers; break;
    case Mixer::kRecurrence: parts.recurrence += layers; break;
  }
}

// Layers that do one thing each ("M-M*"): an MLP and the mixer before it are one layer of ours.
void read_single_parts(const std::vector<std::string>& words, LayerParts& parts) {
  std::vector<bool> experts;
  for (const std::string& word : words) {
    if (is_mlp_alone(word))
      experts.push_back(word == "E" || word == "moe");
    else
      add(parts, mixer_of(word), 1);
  }
  parts.layers = parts.mlps = static_cast<int64_t>(experts.size());
  if (std::find(experts.begin(), experts.end(), false) != experts.end()) parts.expert_layer = std::move(experts);
}

// How many layers of a model that has other mixers too attend: listed by number, or each n-th. 0: not said.
int64_t attention_layers(const ConfigSizes& s, int64_t layers) {
  const Value* listed = s.find(
      {"attn_layer_indices", "attn_layer_idx", "full_attn_idxs", "full_attn_layers", "attention_layers_idx", "attn_layer_idxs"});
  if (listed != nullptr && !listed->items.empty()) return static_cast<int64_t>(listed->items.size());
  if (const Value* kinds = s.find({"attn_type_list"}); kinds != nullptr && !kinds->items.empty())
    return std::count_if(kinds->items.begin(), kinds->items.end(), [](const Value& v) { return v.text == "1"; });
  const int64_t every = s.first({"attn_layer_period", "full_attention_interval", "mamba_step", "mb_per_layer"});
  return every > 0 ? std::max<int64_t>(1, layers / every) : 0;
}

bool has_scan(const ConfigSizes& s) {
  return !s.has({"hyena_layer_idxs"}) &&
         (s.has({"state_size", "ssm_state_size", "mamba_d_state", "d_state", "ssm_cfg"}) || contains(s.text({"model_type"}), "mamba"));
}
bool has_linear(const ConfigSizes& s) { return s.has({"linear_num_key_heads", "linear_attn_config", "attn_type_list"}); }
bool has_convolution(const ConfigSizes& s) { return s.has({"conv_L_cache", "hyena_layer_idxs"}); }  // LFM2, Hyena

// One map for each layer: {attention: {no_op, n_heads_in_group}, ffn: {ffn_mult}}.
void read_blocks(const Value& blocks, LayerParts& parts) {
  const auto in = [](const Value& block, const char* part, const char* key) {
    const Value* map = block.find(part);
    const Value* value = map == nullptr ? nullptr : map->find(key);
    return value == nullptr ? Value{} : *value;
  };
  for (const Value& block : blocks.items) {
    parts.attention += in(block, "attention", "no_op").text != "true";
    if (const int64_t heads = positive(in(block, "attention", "n_heads_in_group")); heads > 0) parts.heads_per_group = heads;
    parts.mlp_multiple += as_double(in(block, "ffn", "ffn_mult")).value.value_or(0) / static_cast<double>(blocks.items.size());
  }
}

void read_mixers(const ConfigSizes& s, LayerParts& parts) {
  const int64_t layers = parts.layers;
  parts.mlps = layers;
  if (const Value* blocks = s.find({"block_configs"}); blocks != nullptr && static_cast<int64_t>(blocks->items.size()) == layers)
    return read_blocks(*blocks, parts);
  const std::vector<std::string> words = layer_words(s, layers);
  if (std::any_of(words.begin(), words.end(), [](const std::string& word) { return is_mlp_alone(word); }))
    return read_single_parts(words, parts);
  const bool is_plain = s.text({"model_type"}) == "zaya";  // whose hybrid layers attend, and have experts (modeling_zaya.py)
  for (const std::string& word : words) add(parts, is_plain ? Mixer::kAttention : mixer_of(word), 1);
  if (has_scan(s) && !has_linear(s)) {  // newer files of Zamba call its scans so
    parts.scan += parts.linear;
    parts.linear = 0;
  }
  if (const auto shared = std::count_if(words.begin(), words.end(), [](const std::string& w) { return contains(w, "hybrid"); });
      shared > 0 && !is_plain) {
    parts.shared_blocks = s.first({"num_mem_blocks"}, 1);
    parts.attention = parts.mlps = shared;
  }
  if (!words.empty()) return;
  const bool scans = has_scan(s), linear = has_linear(s);
  if (!scans && !linear && !has_convolution(s)) return add(parts, Mixer::kAttention, layers);
  const int64_t attend = std::min(layers, attention_layers(s, layers));
  parts.attention = attend;
  add(parts, scans ? Mixer::kScan : linear ? Mixer::kLinear : Mixer::kConvolution, layers - attend);
  if (s.text({"d_intermediate"}) == "0") parts.mlps = 0;  // Mamba-2 with some attention, as state-spaces writes it
  if (!scans || attend > 0) return;
  if (s.has({"num_attention_heads"}))
    parts.attention = layers;  // side by side (Falcon-H1, Hymba)
  else
    parts.mlps = 0;
}

// "4,5,6" or [4, 5, 6]
std::vector<int64_t> numbers(const Value* value) {
  std::vector<int64_t> all;
  if (value == nullptr) return all;
  for (const Value& item : value->items) all.push_back(as_int(item).value.value_or(-1));
  if (value->kind != Value::Kind::kScalar) return all;
  for (size_t at = 0; at < value->text.size();) {
    const size_t comma = std::min(value->text.find(',', at), value->text.size());
    Value item;
    item.kind = Value::Kind::kScalar;
    item.text = value->text.substr(at, comma - at);
    all.push_back(as_int(item).value.value_or(-1));
    at = comma + 1;
  }
  return all;
}

// Which layers have experts: listed, or from one on, or each n-th. In which of n they stand is the family's to say where no offset is.
void read_expert_layers(const ConfigSizes& s, LayerParts& parts) {
  const auto layers = static_cast<size_t>(parts.layers);
  std::vector<bool> experts(layers, true);
  if (const Value* kinds = s.find({"mlp_layer_types"}); kinds != nullptr && kinds->items.size() == layers) {
    for (size_t i = 0; i < layers; ++i) experts[i] = kinds->items[i].text != "dense";
  } else if (const Value* listed = s.find({"moe_layers", "moe_layers_enum", "moe_layers_idx"});
             listed != nullptr && !numbers(listed).empty()) {
    std::fill(experts.begin(), experts.end(), false);
    for (const int64_t i : numbers(listed))
      if (i >= 0 && i < parts.layers) experts[static_cast<size_t>(i)] = true;
  } else {
    const Value* each = s.find({"moe_layer_freq", "moe_layer_frequency"});
    const bool is_list = each != nullptr && each->items.size() == layers;
    const int64_t every = s.first({"expert_layer_period", "decoder_sparse_step", "encoder_sparse_step", "moe_layer_interval",
                                   "interleave_moe_layer_step", "moe_every_n_layers", "moe_layer_freq", "moe_layer_frequency"},
                                  1);
    const int64_t offset = s.first({"expert_layer_offset"}, s.has({"expert_layer_offset"}) ? 0 : every - 1);
    const int64_t begin =
        s.first({"first_k_dense_replace", "moe_layer_start_index", "num_dense_layers", "n_dense_layers", "moe_first_k_dense"});
    for (size_t i = 0; i < layers; ++i) {
      const auto at = static_cast<int64_t>(i);
      experts[i] = at >= begin && (is_list ? positive(each->items[i]) > 0 : at % every == offset % every);
    }
  }
  for (const int64_t i : numbers(s.find({"mlp_only_layers"})))
    if (i >= 0 && i < parts.layers) experts[static_cast<size_t>(i)] = false;
  if (std::find(experts.begin(), experts.end(), false) != experts.end()) parts.expert_layer = std::move(experts);
}

}  // namespace

ConfigSizes::ConfigSizes(const Value& config) : maps_{&config} {
  for (const auto& [name, value] : config.entries) {
    if (value.kind != Value::Kind::kMap || contains(name, "quant")) continue;
    for (const char* part : {"attn", "attention", "ffn", "moe", "ssm", "mamba"})
      if (contains(name, part)) {
        maps_.push_back(&value);
        break;
      }
  }
}

int64_t ConfigSizes::first(Keys keys, int64_t absent) const {
  for (const Value* map : maps_) {
    for (const char* key : keys) {
      const Value* value = map->find(key);
      if (value == nullptr) continue;
      const int64_t number = value->items.empty() ? positive(*value) : mean(*value);
      if (number > 0) return number;
    }
  }
  return absent;
}
int64_t ConfigSizes::first(std::initializer_list<const char*> keys, int64_t absent) const {
  return first(Keys(keys.begin(), keys.size()), absent);
}

const Value* ConfigSizes::find(Keys keys) const {
  for (const Value* map : maps_) {
    for (const char* key : keys) {
      const Value* value = map->find(key);
      if (value != nullptr && value->kind != Value::Kind::kNull) return value;
    }
  }
  return nullptr;
}
const Value* ConfigSizes::find(std::initializer_list<const char*> keys) const { return find(Keys(keys.begin(), keys.size())); }

std::string ConfigSizes::text(std::initializer_list<const char*> keys) const {
  const Value* value = find(keys);
  return value == nullptr ? "" : value->text;
}

LayerParts layer_parts(const ConfigSizes& s, int64_t num_experts) {
  LayerParts parts;
  const int64_t encoders = s.first({"encoder_layers", "num_encoder_layers", "encoder_num_hidden_layers"}),
                decoders = s.first({"decoder_layers", "num_decoder_layers", "decoder_num_hidden_layers"});
  parts.layers = s.first({"num_hidden_layers", "n_layer", "n_layers", "num_layers"}, encoders + decoders);
  if (parts.layers == 0) parts.layers = static_cast<int64_t>(layer_words(s, 0).size());
  // A decoder alone, which keeps its attention to an encoder (BartForCausalLM).
  parts.is_lone_decoder = encoders > 0 && decoders > 0 && model_class(s).ends_with("ForCausalLM");
  // An encoder alone (T5EncoderModel): the file counts its layers, and those of a decoder that is not there.
  if (parts.is_lone_decoder) {
    parts.layers = parts.decoders = decoders;
  } else if (encoders > 0 && decoders > 0 && !model_class(s).ends_with("EncoderModel")) {
    parts.layers = encoders + decoders;
    parts.decoders = decoders;
  } else if (s.is_true({"is_encoder_decoder"}) &&
             !model_class(s).ends_with("EncoderModel")) {  // T5 names its encoder's layers alone, or both numbers
    parts.decoders = decoders > 0 ? decoders : parts.layers;
    parts.layers += parts.decoders;
  }
  if (parts.layers <= 0 || parts.layers > kMostConfigLayers) return parts;
  read_mixers(s, parts);
  if (num_experts > 0 && parts.expert_layer.empty() && parts.layers == parts.mlps) read_expert_layers(s, parts);
  return parts;
}

}  // namespace distsetup
