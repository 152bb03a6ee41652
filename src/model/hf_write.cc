// A family's file says which keys of config.json state a field, under conditions that may ask for further values of that file
// ("new_decoder_architecture"). The other way round: a field's keys are all written, each in every spelling that the family reads, for
// the values of the conditions that make the file read back as the same geometry. There are at most a few yes-or-no values, all are
// tried.
#include "model/hf_write.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/diagnostic_codes.h"
#include "base/value_json.h"
#include "model/families.h"
#include "model/geometry_fields.h"
#include "model/hf_config.h"

namespace distsetup {
namespace {

constexpr size_t kMostValues = 6;  // of a family: 64 tries

// As Transformers' table of activations has it.
std::string published_activation(const std::string& name) { return name == "gelu_tanh" ? "gelu_pytorch_tanh" : name; }

// Keys inside a map are newer spellings of ones outside. What a field has not (no window, no cap) is left out where that is the
// default, and else null where that says it.
void put(const FamilyRule& rule, const Json& value, Json& config) {
  const bool is_nothing = value.is_number() && value == 0;
  if (is_nothing && rule.value == "0") return;
  for (const std::string& key : rule.keys)
    if (is_reciprocal(key))
      config[std::string(without_reciprocal(key))] = 1 / value.get<double>();
    else if (key.find('.') == std::string::npos)
      config[key] = is_nothing && rule.if_null == "0" ? Json() : value;
}

Json json_of(const GeometryField& field, const Geometry& g) {
  if (field.name == "activation") return published_activation(g.activation);
  if (field.name == "query_scalar" && g.query_scalar == std::floor(g.query_scalar)) return std::llround(g.query_scalar);  // "256"
  return std::visit(
      [&](auto member) -> Json {
        using T = std::decay_t<decltype(g.*member)>;
        if constexpr (std::is_enum_v<T>)
          return nullptr;
        else
          return g.*member;
      },
      field.member);
}

// Older releases of Transformers take no other keys here, and the original context beside it.
void put_longrope(const Geometry& g, Json& config) {
  Json rope = {{"type", "longrope"}, {"short_factor", g.rope_short_factors}, {"long_factor", g.rope_long_factors}};
  if (g.rope_factor * static_cast<double>(g.rope_original_positions) != static_cast<double>(g.max_positions))
    rope["factor"] = g.rope_factor;
  if (g.rope_amplitude != 0) rope["attention_factor"] = g.rope_amplitude;
  if (g.rope_long_amplitude != 0) rope["long_mscale"] = g.rope_long_amplitude;
  if (g.rope_short_amplitude != 0)  // Phi 3.5 MoE has the original context here, too
    rope.update({{"short_mscale", g.rope_short_amplitude}, {"original_max_position_embeddings", g.rope_original_positions}});
  config["original_max_position_embeddings"] = g.rope_original_positions;
  config["rope_scaling"] = rope;
}

// Scaled rotary positions, as hf_config.cc reads them.
void put_rope_scaling(const Geometry& g, Json& config) {
  if (!g.rope_scaled) return;
  if (g.rope_scaling == "longrope") return put_longrope(g, config);
  Json rope = {{"rope_type", g.rope_scaling}, {"factor", g.rope_factor}};
  if (g.rope_scaling == "llama3") rope.update({{"low_freq_factor", g.rope_low_turns}, {"high_freq_factor", g.rope_high_turns}});
  if (g.rope_scaling == "yarn") rope.update({{"beta_slow", g.rope_low_turns}, {"beta_fast", g.rope_high_turns}});
  if (!g.rope_truncated) rope["truncate"] = false;
  if (g.rope_amplitude != 0) rope["attention_factor"] = g.rope_amplitude;
  if (g.rope_mscale != 0) rope["mscale"] = g.rope_mscale;
  if (g.rope_mscale_all != 0) rope["mscale_all_dim"] = g.rope_mscale_all;
  if (g.rope_scaling == "llama3" || g.rope_scaling == "yarn") rope["original_max_position_embeddings"] = g.rope_original_positions;
  config["rope_scaling"] = rope;
}

// Which layers have experts: from one on, or all but those listed.
void put_expert_layers(const ExpertLayerKeys& keys, const Geometry& g, Json& config) {
  if (g.expert_layer.empty()) return;
  if (!keys.every.empty()) config[keys.every] = 1;
  const auto first = std::find(g.expert_layer.begin(), g.expert_layer.end(), true) - g.expert_layer.begin();
  if (!keys.first_dense.empty()) config[keys.first_dense] = first;
  if (!keys.kinds.empty())
    for (const bool experts : g.expert_layer) config[keys.kinds].push_back(experts ? "sparse" : "dense");
  if (keys.dense.empty()) return;
  Json dense = Json::array();
  for (size_t i = 0; i < g.expert_layer.size(); ++i)
    if (!g.expert_layer[i]) dense.push_back(i);
  config[keys.dense] = std::move(dense);
}

// With bit i of `chosen` the family's i-th value is true; without the head size, which is hidden / heads or the family's own then.
enum class HeadSize { kLeftOut, kStated };
Json config_with(const Family& family, const Geometry& g, unsigned chosen, HeadSize head_size) {
  Json config = {{"model_type", family.name}, {"bos_token_id", nullptr}, {"eos_token_id", nullptr}, {"pad_token_id", nullptr}};
  unsigned bit = 1;
  for (const auto& [name, rule] : family.values) {
    if (rule.value != "true" && rule.value != "false") continue;
    put(rule, (chosen & bit) != 0, config);
    bit <<= 1;
  }
  for (const GeometryField& field : geometry_fields()) {
    const auto rules = family.fields.find(std::string(field.name));
    if (rules == family.fields.end()) continue;
    if (field.name == "head_size" && head_size == HeadSize::kLeftOut) continue;
    for (const FamilyRule& rule : rules->second) put(rule, json_of(field, g), config);
  }
  put_rope_scaling(g, config);
  put_expert_layers(family.expert_layers, g, config);
  if (!family.layer_kinds.empty()) config["layer_types"] = std::vector(static_cast<size_t>(g.num_layers), family.layer_kinds.front());
  return config;
}

// What a config.json says of a model: all but its names, and what is not of the model.
Geometry as_stated(Geometry g) {
  g.name = g.label = g.hub_id = g.source = g.layer_class = g.native_program = "";
  g.router_bias_rate = g.router_z_loss = g.expert_capacity = 0;   // how it is trained
  if (g.rope_scaling == "linear") g.rope_original_positions = 0;  // read and not used
  return g;
}

}  // namespace

Result<Json> hf_config_of(const Presets& presets, const Geometry& geometry, std::string_view dtype) {
  const Result<Family> family = find_family(presets, geometry.family, {});
  if (!family.ok()) return family.diagnostics;
  size_t num_values = 0;
  for (const auto& [name, rule] : family->values) num_values += rule.value == "true" || rule.value == "false";
  for (unsigned chosen = 0; num_values <= kMostValues && chosen < 2u << num_values; ++chosen) {
    Json config = config_with(*family, geometry, chosen >> 1, (chosen & 1) != 0 ? HeadSize::kStated : HeadSize::kLeftOut);
    const Result<Value> value = parse_json(config.dump(), "config.json");
    if (!value.ok()) return value.diagnostics;
    const Result<Geometry> read = geometry_from_hf_config(presets, *value, geometry.name);
    if (!read.ok() || as_stated(*read) != as_stated(geometry)) continue;
    config["torch_dtype"] = dtype;
    return config;
  }
  return error(code::kUnsupportedArchitecture, {},
               fmt::format("no config.json of model_type '{}' says what '{}' is", geometry.family, geometry.name),
               "export the weights of a model that came from a folder with config.json, or describe it with the fields of its family");
}

}  // namespace distsetup
