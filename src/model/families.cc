// Reads presets/families/. A family is written over its `base`; files whose name begins with '_' are bases only.
#include "model/families.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/map_reader.h"
#include "base/names.h"
#include "model/geometry_fields.h"

namespace distsetup {
namespace {

constexpr int kMaxBases = 8;

std::vector<std::string> texts_of(const Value* value) {
  std::vector<std::string> texts;
  if (value == nullptr) return texts;
  if (value->kind == Value::Kind::kScalar) texts.push_back(value->text);
  for (const Value& item : value->items) texts.push_back(item.text);
  return texts;
}

// A scalar is a value, a list of scalars the keys of one that must be there, a map says both and more. `over` is what the base says
// of the same: a new default keeps its keys.
FamilyRule read_rule(const Value& from, const std::string& name, const FamilyRule* over, Diagnostics& diagnostics) {
  FamilyRule rule;
  if (from.kind != Value::Kind::kMap) {
    if (from.kind == Value::Kind::kScalar) rule.value = from.text;
    rule.keys = from.kind == Value::Kind::kList ? texts_of(&from) : std::vector<std::string>{};
  } else {
    MapReader reader(from, name, diagnostics);
    const Value* keys = reader.child("keys");
    const Value* when = reader.child("when");
    const Value* fixed = reader.child("value");
    const Value* fallback = reader.child("default");
    const Value* if_null = reader.child("if_null");
    reader.finish();
    if (keys == nullptr && fixed == nullptr && over != nullptr) rule = *over;
    if (keys != nullptr) rule.keys = texts_of(keys);
    if (when != nullptr) rule.when = texts_of(when);
    if (if_null != nullptr) rule.if_null = if_null->text;
    if (const Value* value = fixed != nullptr ? fixed : fallback) rule.value = value->text;
  }
  rule.location = from.location;
  if (rule.keys.empty() && rule.value.empty())
    diagnostics.push_back(error(code::kMissingKey, from.location, fmt::format("{}: found neither keys nor a value", name)));
  return rule;
}

std::vector<FamilyRule> read_rules(const Value& from, const std::string& name, const std::vector<FamilyRule>& over,
                                   Diagnostics& diagnostics) {
  const FamilyRule* one = over.size() == 1 ? over.data() : nullptr;
  const bool is_cases = from.kind == Value::Kind::kList && !from.items.empty() && from.items[0].kind == Value::Kind::kMap;
  if (!is_cases) return {read_rule(from, name, one, diagnostics)};
  std::vector<FamilyRule> rules;
  for (const Value& item : from.items) rules.push_back(read_rule(item, name, nullptr, diagnostics));
  return rules;
}

void read_fields(const Value& fields, Family& family, Diagnostics& diagnostics) {
  for (size_t i = 0; i < fields.entries.size(); ++i) {
    const std::string& name = fields.entries[i].first;
    if (find_geometry_field(name) == nullptr) {
      std::vector<std::string> known;
      for (const GeometryField& field : geometry_fields()) known.emplace_back(field.name);
      diagnostics.push_back(error(code::kUnknownKey, fields.key_locations[i],
                                  fmt::format("unknown field '{}' in family '{}'", name, family.name), suggest(name, known)));
      continue;
    }
    std::vector<FamilyRule>& rules = family.fields[name];
    rules = read_rules(fields.entries[i].second, name, rules, diagnostics);
  }
}

// `alibi: false` is the key of that name with its default; a map says another key.
void read_values(const Value& values, Family& family, Diagnostics& diagnostics) {
  for (const auto& [name, from] : values.entries) {
    FamilyRule rule = read_rule(from, name, nullptr, diagnostics);
    if (rule.keys.empty()) rule.keys = {name};
    family.values[name] = std::move(rule);
  }
}

void read_expert_layers(const Value& from, ExpertLayerKeys& keys, Diagnostics& diagnostics) {
  keys = {};
  MapReader reader(from, "expert_layers", diagnostics);
  std::string at = "first";
  reader.get("first_dense", keys.first_dense);
  reader.get("first_dense_default", keys.first_dense_default);
  reader.get("last", keys.last);
  reader.get("kinds", keys.kinds);
  reader.get("every", keys.every);
  reader.get("dense", keys.dense);
  reader.get("at", at);
  reader.finish();
  keys.at_last = at == "last";
  if (at != "first" && at != "last")
    diagnostics.push_back(error(code::kUnknownValue, from.location, fmt::format("at is '{}', expected first or last", at)));
}

void read_window_layers(const Value& from, WindowLayerKeys& keys, Diagnostics& diagnostics) {
  keys = {};
  MapReader reader(from, "window_layers", diagnostics);
  reader.get("first", keys.first);
  reader.get("end", keys.end);
  reader.get("default", keys.absent);
  reader.finish();
}

void read_attention(const Value& from, FamilyAttention& attention, Diagnostics& diagnostics) {
  attention = {};
  MapReader reader(from, "attention", diagnostics);
  reader.get("default", attention.by_default);
  attention.lacks = texts_of(reader.child("lacks"));
  reader.finish();
}

// Writes what `file` says over `family`.
Diagnostics read_over(const Presets& presets, const PresetFile& file, int num_bases, Family& family) {
  const Result<Value> read = read_preset(file);
  if (!read.ok()) return read.diagnostics;
  Diagnostics diagnostics;
  MapReader reader(*read, fmt::format("family '{}'", file.id), diagnostics);
  std::string base;
  if (reader.get("base", base)) {
    const PresetFile* below = find_preset(presets, "families", base);
    if (below == nullptr || num_bases == kMaxBases) {
      return {error(code::kUnsupportedArchitecture, read->find("base")->location,
                    below == nullptr ? fmt::format("no family '{}' to be based on", base)
                                     : fmt::format("found more than {} families based on each other, expected fewer", kMaxBases))};
    }
    append(diagnostics, read_over(presets, *below, num_bases + 1, family));
  }
  family.name = file.id;
  reader.get("layer_class", family.layer_class);
  if (const Value* values = reader.child("values")) read_values(*values, family, diagnostics);
  if (const Value* fields = reader.child("fields")) read_fields(*fields, family, diagnostics);
  for (const std::string& key : texts_of(reader.child("refuse"))) family.refused_keys.push_back(key);
  for (const std::string& key : texts_of(reader.child("unlike"))) family.unlike_keys.push_back(key);
  if (const Value* kinds = reader.child("layer_kinds")) family.layer_kinds = texts_of(kinds);
  family.text_part.clear();
  if (const Value* defaults = reader.child("text_part")) {
    for (const auto& [key, value] : defaults->entries) family.text_part[key] = value.text;
  }
  if (const Value* left_out = reader.child("left_out")) {
    for (const auto& [key, what] : left_out->entries) family.left_out[key] = what.text;
  }
  if (const Value* layers = reader.child("expert_layers")) read_expert_layers(*layers, family.expert_layers, diagnostics);
  if (const Value* attention = reader.child("attention")) read_attention(*attention, family.attention, diagnostics);
  if (const Value* layers = reader.child("window_layers")) read_window_layers(*layers, family.window_layers, diagnostics);
  reader.finish();
  return diagnostics;
}

Diagnostic unknown_family(const Presets& presets, std::string_view model_type, const Location& at) {
  const std::vector<std::string> known = family_names(presets);
  return error(code::kUnsupportedArchitecture, at,
               fmt::format("model_type '{}' is not known, expected one of {}", model_type, fmt::join(known, ", ")),
               suggest(model_type, known));
}

}  // namespace

bool is_family(const Presets& presets, std::string_view model_type) {
  return !model_type.starts_with('_') && find_preset(presets, "families", model_type) != nullptr;
}

std::vector<std::string> family_names(const Presets& presets) {
  std::vector<std::string> names = preset_ids(presets, "families");
  std::erase_if(names, [](const std::string& name) { return name.starts_with('_'); });
  return names;
}

Result<Family> find_family(const Presets& presets, std::string_view model_type, const Location& at) {
  if (!is_family(presets, model_type)) return unknown_family(presets, model_type, at);
  Family family;
  Diagnostics diagnostics = read_over(presets, *find_preset(presets, "families", model_type), 0, family);
  if (has_error(diagnostics)) return diagnostics;
  return family;
}

bool has_layers_of(const Presets& presets, const Value& type, const Value& config) {
  // DeepSeek's own code has layers of plain attention for these (modeling_deepseek.py, ATTENTION_CLASSES).
  const Value *rank = config.find("kv_lora_rank"), *is_latent = config.find("use_mla");
  if ((rank != nullptr && rank->kind == Value::Kind::kNull) || (is_latent != nullptr && is_latent->text == "false")) return false;
  // SantaCoder, a GPT-2 with one head of keys and values (modeling_gpt2_mq.py).
  if (const Value* heads = config.find("attention_head_type"); heads != nullptr && heads->text == "multiquery") return false;
  const Result<Family> family = find_family(presets, type.text, type.location);
  if (!family.ok() || family->layer_kinds.empty()) return true;  // what is wrong with it is said elsewhere
  const Value* kinds = config.find("layer_types");
  const auto is_known = [&](const Value& kind) {
    return std::find(family->layer_kinds.begin(), family->layer_kinds.end(), kind.text) != family->layer_kinds.end();
  };
  return kinds != nullptr && std::all_of(kinds->items.begin(), kinds->items.end(), is_known);
}

Result<std::string> family_layer_class(const Presets& presets, std::string_view model_type, const Location& at) {
  if (!is_family(presets, model_type)) return unknown_family(presets, model_type, at);
  const Result<Value> read = read_preset(*find_preset(presets, "families", model_type));
  if (!read.ok()) return read.diagnostics;
  const Value* layer_class = read->find("layer_class");
  if (layer_class != nullptr) return layer_class->text;
  const Result<Family> family = find_family(presets, model_type, at);
  if (!family.ok()) return family.diagnostics;
  return family->layer_class;
}

}  // namespace distsetup
