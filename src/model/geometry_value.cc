// Geometry from our own keys: a preset file or the inline form of `model:`. Key names are the field names.
// The idea: read strictly, fill what follows from other keys (head_size = hidden / num_heads, num_kv_heads = num_heads), validate.
// Beyond the fields: `hub`, `date` (appended to the source), `dense_layers: n` (the first n layers of an expert model are dense).
#include "model/geometry_value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/map_reader.h"
#include "base/names.h"
#include "model/families.h"
#include "model/validate.h"

namespace distsetup {
namespace {

// Reads `key` as one of `names`; returns its index, or -1 when absent or wrong (then reported).
int read_choice(MapReader& reader, const Value& map, const char* key, const std::vector<std::string>& names,
                Diagnostics& diagnostics) {
  std::string text;
  if (!reader.get(key, text)) return -1;
  for (size_t i = 0; i < names.size(); ++i) {
    if (same_name(text, names[i])) return static_cast<int>(i);
  }
  diagnostics.push_back(error(code::kUnknownValue, map.find(key) ? map.find(key)->location : map.location,
                              fmt::format("{} is '{}', expected one of {}", key, text, fmt::join(names, ", ")), suggest(text, names)));
  return -1;
}

void read_expert_layers(MapReader& reader, const Value& value, Geometry& g, Diagnostics& diagnostics) {
  int64_t dense_layers = 0;
  if (reader.get("dense_layers", dense_layers)) {
    if (dense_layers < 0 || dense_layers > std::min<int64_t>(g.num_layers, 100'000)) {
      diagnostics.push_back(error(code::kOutOfRange,
                                  value.find("dense_layers") ? value.find("dense_layers")->location : value.location,
                                  fmt::format("dense_layers is {}, expected 0 to {} (num_layers)", dense_layers, g.num_layers)));
    } else if (dense_layers > 0) {
      g.expert_layer.assign(static_cast<size_t>(g.num_layers), true);
      for (int64_t i = 0; i < dense_layers; ++i) g.expert_layer[static_cast<size_t>(i)] = false;
    }
  }
  if (const Value* list = reader.child("expert_layer")) {
    if (list->kind != Value::Kind::kList || dense_layers > 0) {
      diagnostics.push_back(error(code::kWrongType, list->location,
                                  "expert_layer is a list of true and false, one for each layer, and excludes dense_layers"));
      return;
    }
    for (const Value& item : list->items) {
      const Result<bool> entry = as_bool(item);
      append(diagnostics, entry.diagnostics);
      g.expert_layer.push_back(entry.value.value_or(false));
    }
  }
}

void read_fields(MapReader& reader, const Value& value, Geometry& g, Diagnostics& diagnostics) {
  reader.get("family", g.family);
  reader.get("layer_class", g.layer_class);
  reader.get("label", g.label);
  reader.get("hub", g.hub_id);
  for (const char* key : {"num_layers", "hidden", "num_heads", "vocabulary"}) reader.require(key);
  if (value.find("num_experts") == nullptr) reader.require("feed_forward");
  reader.get("num_layers", g.num_layers);
  reader.get("hidden", g.hidden);
  reader.get("num_heads", g.num_heads);
  reader.get("vocabulary", g.vocabulary);
  if (!reader.get("num_kv_heads", g.num_kv_heads)) g.num_kv_heads = g.num_heads;
  reader.get("feed_forward", g.feed_forward);
  reader.get("max_positions", g.max_positions);
  reader.get("tied_embeddings", g.tied_embeddings);
  reader.get("qkv_bias", g.qkv_bias);
  reader.get("output_bias", g.output_bias);
  reader.get("mlp_bias", g.mlp_bias);
  reader.get("qk_norm", g.qk_norm);
  reader.get("qk_norm_wide", g.qk_norm_wide);
  reader.get("gated_mlp", g.gated_mlp);
  reader.get("parallel_block", g.parallel_block);
  reader.get("norms_per_layer", g.norms_per_layer);
  const auto norm = read_choice(reader, value, "norm", {"rms", "layer", "layer_no_bias"}, diagnostics);
  g.norm = norm == 1 ? Norm::kLayer : norm == 2 ? Norm::kLayerNoBias : Norm::kRms;
  reader.get("norm_epsilon", g.norm_epsilon);
  reader.get("rope_base", g.rope_base);
  reader.get("rope_scaled", g.rope_scaled);
  reader.get("rotary_fraction", g.rotary_fraction);
  reader.get("activation", g.activation);
  reader.get("learned_positions", g.learned_positions);
  reader.get("head_bias", g.head_bias);
  reader.get("num_experts", g.num_experts);
  reader.get("experts_per_token", g.experts_per_token);
  reader.get("expert_feed_forward", g.expert_feed_forward);
  reader.get("num_shared_experts", g.num_shared_experts);
  if (!reader.get("shared_feed_forward", g.shared_feed_forward) &&
      __builtin_mul_overflow(g.num_shared_experts, g.expert_feed_forward, &g.shared_feed_forward)) {
    g.shared_feed_forward = -1;  // validate() refuses it
  }
  reader.get("shared_expert_gate", g.shared_expert_gate);
  reader.get("router_score_bias", g.router_score_bias);
  if (read_choice(reader, value, "attention", {"grouped", "latent"}, diagnostics) == 1) g.attention = Attention::kLatent;
  reader.get("q_lora_rank", g.q_lora_rank);
  reader.get("kv_lora_rank", g.kv_lora_rank);
  reader.get("qk_nope_head_size", g.qk_nope_head_size);
  reader.get("qk_rope_head_size", g.qk_rope_head_size);
  reader.get("v_head_size", g.v_head_size);
  reader.get("sliding_window", g.sliding_window);
  reader.get("global_layer_every", g.global_layer_every);
}

void read_head_size(MapReader& reader, const Value& value, Geometry& g, Diagnostics& diagnostics) {
  if (reader.get("head_size", g.head_size)) return;
  if (g.attention == Attention::kLatent) {
    if (__builtin_add_overflow(g.qk_nope_head_size, g.qk_rope_head_size, &g.head_size))
      g.head_size = -1;  // validate() refuses the parts
  } else if (g.num_heads > 0 && g.hidden % g.num_heads == 0) {
    g.head_size = g.hidden / g.num_heads;
  } else if (g.num_heads > 0 && g.hidden > 0) {
    diagnostics.push_back(error(code::kIndivisible, value.location,
                                fmt::format("hidden {} is not divisible by {} heads", g.hidden, g.num_heads),
                                "state head_size, or choose hidden as a multiple of num_heads"));
  }
}

}  // namespace

Result<Geometry> geometry_from_value(const Value& value, const std::string& name) {
  if (value.kind != Value::Kind::kMap) {
    return error(code::kWrongType, value.location, fmt::format("the geometry of model '{}' is not a map of keys", name));
  }
  Diagnostics diagnostics;
  Geometry g;
  g.name = name;
  g.family = "llama";
  MapReader reader(value, fmt::format("model '{}'", name), diagnostics);
  read_fields(reader, value, g, diagnostics);
  read_head_size(reader, value, g, diagnostics);
  read_expert_layers(reader, value, g, diagnostics);
  std::string date;
  reader.get("source", g.source);
  if (reader.get("date", date)) g.source += (g.source.empty() ? "" : ", ") + date;
  reader.finish();
  if (g.layer_class.empty()) {
    const Family* family = find_family(g.family);
    if (family == nullptr) {
      diagnostics.push_back(error(code::kUnsupportedArchitecture, value.location,
                                  fmt::format("family '{}' of model '{}' is not known", g.family, name),
                                  suggest(g.family, family_names())));
      return diagnostics;
    }
    g.layer_class = family->layer_class;
  }
  if (has_error(diagnostics)) return diagnostics;
  append(diagnostics, validate(g, value.location));
  if (has_error(diagnostics)) return diagnostics;
  return {std::move(g), std::move(diagnostics)};
}

}  // namespace distsetup
