// Geometry from our own keys: a preset file or the inline form of `model:`. Key names are the field names (geometry_fields.h).
// The idea: read strictly, fill what follows from other keys (head_size = hidden / num_heads, num_kv_heads = num_heads), validate.
// Beyond the fields: `hub`, `date` (appended to the source), `dense_layers: n` (the first n layers of an expert model are dense).
#include "model/geometry_value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <type_traits>
#include <variant>

#include "base/diagnostic_codes.h"
#include "base/map_reader.h"
#include "base/names.h"
#include "model/families.h"
#include "model/geometry_fields.h"
#include "model/validate.h"

namespace distsetup {
namespace {

// Reads the fields of the table, each by its type.
struct FieldReading {
  MapReader& reader;
  const Value& map;
  Diagnostics& diagnostics;

  template <class T>
  void get(std::string_view key, T& out) {
    if constexpr (std::is_same_v<T, Norm>) {
      choice(key, kNormNames, out);
    } else if constexpr (std::is_same_v<T, Attention>) {
      choice(key, kAttentionNames, out);
    } else {
      reader.get(key, out);
    }
  }
  template <class E, size_t N>
  void choice(std::string_view key, const std::array<std::string_view, N>& names, E& out) {
    std::string text;
    if (!reader.get(key, text)) return;
    for (size_t i = 0; i < N; ++i) {
      if (same_name(text, names[i])) {
        out = static_cast<E>(i);
        return;
      }
    }
    const Value* value = map.find(key);
    diagnostics.push_back(error(code::kUnknownValue, value ? value->location : map.location,
                                fmt::format("{} is '{}', expected one of {}", key, text, fmt::join(names, ", ")),
                                suggest(text, std::vector<std::string>(names.begin(), names.end()))));
  }
};

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
                                  "expert_layer is a list of true and false, one for each layer, "
                                  "and excludes dense_layers"));
      return;
    }
    for (const Value& item : list->items) {
      const Result<bool> entry = as_bool(item);
      append(diagnostics, entry.diagnostics);
      g.expert_layer.push_back(entry.value.value_or(false));
    }
  }
}

// The two lists of longrope.
void read_rope_factors(MapReader& reader, std::string_view key, std::vector<double>& out, Diagnostics& diagnostics) {
  const Value* list = reader.child(key);
  if (list == nullptr) return;
  if (list->kind != Value::Kind::kList)
    return diagnostics.push_back(
        error(code::kWrongType, list->location, fmt::format("{} is a list of numbers, one for each pair", key)));
  for (const Value& item : list->items) {
    const Result<double> factor = as_double(item);
    append(diagnostics, factor.diagnostics);
    out.push_back(factor.value.value_or(1));
  }
}

void read_fields(MapReader& reader, const Value& value, Geometry& g, Diagnostics& diagnostics) {
  reader.get("family", g.family);
  reader.get("layer_class", g.layer_class);
  reader.get("label", g.label);
  reader.get("hub", g.hub_id);
  (void)reader.child("aliases");  // looked up by presets.cc
  for (const char* key : {"num_layers", "hidden", "num_heads", "vocabulary"}) reader.require(key);
  if (value.find("num_experts") == nullptr) reader.require("feed_forward");
  FieldReading fields{reader, value, diagnostics};
  for (const GeometryField& field : geometry_fields()) {
    std::visit([&](auto member) { fields.get(field.name, g.*member); }, field.member);
  }
  read_rope_factors(reader, "rope_short_factors", g.rope_short_factors, diagnostics);
  read_rope_factors(reader, "rope_long_factors", g.rope_long_factors, diagnostics);
  if (value.find("num_kv_heads") == nullptr) g.num_kv_heads = g.num_heads;
  if (value.find("shared_feed_forward") == nullptr &&
      __builtin_mul_overflow(g.num_shared_experts, g.expert_feed_forward, &g.shared_feed_forward)) {
    g.shared_feed_forward = -1;  // validate() refuses it
  }
}

void fill_head_size(const Value& value, Geometry& g, Diagnostics& diagnostics) {
  if (value.find("head_size") != nullptr) return;
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

Result<Geometry> geometry_from_value(const Presets& presets, const Value& value, const std::string& name) {
  if (value.kind != Value::Kind::kMap) {
    return error(code::kWrongType, value.location, fmt::format("the geometry of model '{}' is not a map of keys", name));
  }
  Diagnostics diagnostics;
  Geometry g;
  g.name = name;
  g.family = "llama";
  MapReader reader(value, fmt::format("model '{}'", name), diagnostics);
  read_fields(reader, value, g, diagnostics);
  fill_head_size(value, g, diagnostics);
  read_expert_layers(reader, value, g, diagnostics);
  std::string date;
  reader.get("source", g.source);
  if (reader.get("date", date)) g.source += (g.source.empty() ? "" : ", ") + date;
  reader.finish();
  if (g.layer_class.empty()) {
    if (!is_family(presets, g.family)) {
      diagnostics.push_back(error(code::kUnsupportedArchitecture, value.location,
                                  fmt::format("family '{}' of model '{}' is not known", g.family, name),
                                  suggest(g.family, family_names(presets))));
      return diagnostics;
    }
    Result<std::string> layer_class = family_layer_class(presets, g.family, value.location);
    append(diagnostics, std::move(layer_class.diagnostics));
    if (layer_class.value) g.layer_class = std::move(*layer_class.value);
  }
  if (has_error(diagnostics)) return diagnostics;
  append(diagnostics, validate(g, value.location));
  if (has_error(diagnostics)) return diagnostics;
  return {std::move(g), std::move(diagnostics)};
}

}  // namespace distsetup
