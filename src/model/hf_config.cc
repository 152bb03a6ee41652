// Geometry from a Hugging Face config.json: by its family's file (config_reading.h), or by its sizes alone (approximate.h).
#include "model/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "base/safetensors.h"
#include "base/value_json.h"
#include "model/approximate.h"
#include "model/config_reading.h"
#include "model/families.h"
#include "model/stored_parameters.h"
#include "model/validate.h"

namespace distsetup {
namespace {

// Where the text model of a model with pictures or sound stands.
const Value* text_part(const Value& config) {
  for (const char* key : {"text_config", "llm_config", "language_config", "thinker_config", "language_model_config", "lm_config",
                          "text_model_config", "llm_cfg"}) {
    const Value* part = config.find(key);
    if (part != nullptr && part->kind == Value::Kind::kMap) return part;
  }
  // Donut, TrOCR: an encoder of pictures and a decoder of text; InfiMM.
  const Value *decoder = config.find("decoder"), *language = config.find("language");
  if (decoder != nullptr && decoder->kind == Value::Kind::kMap && config.find("encoder") != nullptr) return decoder;
  return language != nullptr && language->kind == Value::Kind::kMap ? language : nullptr;
}

// Fuyu's text part is a name alone: its sizes stand in the whole.
void take_sizes(const Value& whole, Value& part) {
  constexpr std::string_view kLayers = "num_hidden_layers";
  if (part.find(kLayers) != nullptr || part.find("hidden_size") != nullptr || whole.find(kLayers) == nullptr) return;
  for (const auto& [key, value] : whole.entries) {
    if (value.kind == Value::Kind::kMap || part.find(key) != nullptr) continue;
    part.entries.push_back({key, value});
    part.key_locations.push_back(value.location);
  }
}

// What a text part does not say because it is as its class has it (LLaVA 1.5 names the class and little more).
void add_defaults(const Presets& presets, Value& part) {
  const Value* type = part.find("model_type");
  if (type == nullptr || !is_family(presets, type->text)) return;
  const Result<Family> family = find_family(presets, type->text, type->location);
  if (!family.ok()) return;  // which is said when it is read
  for (const auto& [key, text] : family->text_part) {
    if (part.find(key) != nullptr) continue;
    part.entries.push_back({key, scalar_value(text, part.location)});
    part.key_locations.push_back(part.location);
  }
}

// Whether a folder's weights have a head of their own; nothing where it has no weights.
std::optional<bool> has_head(const std::string& directory) {
  std::error_code failure;
  std::optional<bool> found;
  for (std::filesystem::directory_iterator it(directory, failure), end; !failure && it != end; it.increment(failure)) {
    if (it->path().extension() != ".safetensors") continue;
    const Result<SafetensorsHeader> header = read_safetensors_header(it->path().string());
    if (!header.ok()) return std::nullopt;
    found = found.value_or(false);
    for (const auto& entry : header->tensors)
      if (entry.first.ends_with("lm_head.weight")) return true;
  }
  return found;
}

// A text part with what the whole says of its embeddings. Where the two differ, as Transformers 5 writes them (Mistral 3 is tied and
// its text part says it is not; Qwen3-VL's experts the other way round), what the folder holds decides, and without weights the whole,
// whose class ties them or not (PreTrainedModel.tie_weights of 5.24).
void take_tied(const Value& whole, const std::string& directory, Value& text) {
  constexpr std::string_view kTied = "tie_word_embeddings";
  const Value* tied = whole.find(kTied);
  if (tied == nullptr) return;
  if (text.find(kTied) == nullptr) {
    text.entries.push_back({std::string(kTied), *tied});
    text.key_locations.push_back(tied->location);
    return;
  }
  for (Value::Entry& entry : text.entries)
    if (entry.first == kTied && entry.second.text != tied->text) {
      const std::optional<bool> untied = has_head(directory);
      entry.second.text = !untied.has_value() ? tied->text : *untied ? "false" : "true";
    }
}

Result<Geometry> as_text_part(Result<Geometry> part, const Value& at, std::string_view type) {
  if (part.value)
    part.diagnostics.push_back(note(code::kUnsupportedArchitecture, at.location,
                                    fmt::format("of '{}' the text model alone is planned ('text_config')", type)));
  return part;
}

}  // namespace

Result<Value> parse_hf_config(std::string text, std::string_view file_name) {
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && (text[i] == 'N' || text[i] == 'I' || text[i] == '-')) {
      for (const auto& [spelling, same_length] :
           {std::pair<std::string_view, std::string_view>{"NaN", "0  "}, {"Infinity", "null    "}, {"-Infinity", "null     "}})
        if (std::string_view(text).substr(i).starts_with(spelling)) text.replace(i, spelling.size(), same_length);
    }
  }
  return parse_json(text, file_name);
}

namespace {

// Stored in fewer bits (gptq, awq, fp8, …): a plan counts weights as they are trained.
void say_quantized(const Value& config, Diagnostics& said) {
  const Value* how = config.find("quantization_config");
  const Value* method = how == nullptr ? nullptr : how->find("quant_method");
  if (method == nullptr || method->kind != Value::Kind::kScalar) return;
  const Value* bits = how->find("bits");
  said.push_back(note(code::kUnsupportedArchitecture, how->location,
                      fmt::format("the weights are stored as {}{}: planned as trained from weights that are not quantized",
                                  method->text, bits == nullptr ? "" : fmt::format(" of {} bits", bits->text)),
                      "--finetune qlora keeps a frozen base in 4 bits"));
}

std::string family_by_spelling(const Presets& presets, std::string_view type) {
  const std::string known = misspelt_name(type, family_names(presets));
  // nemotron_h is no nemotron, and llava none of llama's.
  const bool is_other = type.starts_with(known) || known.starts_with(type) || type.starts_with("llava");
  return known.empty() || is_other ? "" : fmt::format("did you mean '{}'", known);
}

// A file without model_type may name a class: Qwen2MoeForCausalLM is of qwen2_moe.
std::string family_by_class(const Presets& presets, const Value& config) {
  const Value* classes = config.find("architectures");
  if (classes == nullptr || classes->items.empty()) return "";
  const std::string& whole = classes->items.front().text;
  const std::string own = lower(whole.substr(0, whole.find("For")));
  for (const std::string& family : family_names(presets)) {
    std::string folded = family;
    std::erase(folded, '_');
    if (own == folded) return fmt::format("'{}' is of model_type '{}': write it into the file", whole, family);
  }
  return "";
}

Result<Geometry> read_geometry(const Presets& presets, const Value& config, const std::string& name, const std::string& directory) {
  if (config.kind != Value::Kind::kMap) return error(code::kWrongType, config.location, "config.json is not an object");
  const Value* type = config.find("model_type");
  if (type != nullptr && type->kind == Value::Kind::kNull) type = nullptr;
  if (const std::string text = type == nullptr ? "" : type->text + "_text";  // Qwen2-VL: what its text part has stands beside it
      !text.empty() && !is_family(presets, type->text) && is_family(presets, text) && text_part(config) == nullptr) {
    Value own = config;
    for (Value::Entry& entry : own.entries)
      if (entry.first == "model_type") entry.second.text = text;
    return as_text_part(read_geometry(presets, own, name, ""), *type, type->text);
  }
  const bool has_family = type != nullptr && is_family(presets, type->text);
  const bool is_known = has_family && has_layers_of(presets, *type, config);
  if (const Value* text = text_part(config); !is_known && text != nullptr) {  // a model with pictures or sound
    Value own = *text;
    take_tied(config, directory, own);
    take_sizes(config, own);
    add_defaults(presets, own);
    return as_text_part(read_geometry(presets, own, name, ""), *text, type ? type->text : "");
  }
  if (!is_known) {
    Result<Geometry> near = approximate_geometry(config, name, directory.empty() ? 0 : count_in_safetensors(directory),
                                                 has_family ? "one kind of layer of model_type" : "model_type");
    if (!has_family && !near.diagnostics.empty() && near.diagnostics.front().help.empty())
      near.diagnostics.front().help = type == nullptr ? family_by_class(presets, config) : family_by_spelling(presets, type->text);
    return near;
  }
  const Result<Family> family = find_family(presets, type->text, type->location);
  if (!family.ok()) return family.diagnostics;
  Diagnostics diagnostics;
  Geometry g = read_config(config, *family, name, diagnostics);
  if (has_error(diagnostics)) {
    // A form that the family's file refuses: its sizes are stated all the same.
    const auto is_refused = [](const Diagnostic& d) {
      return d.severity != Severity::kError || d.code == code::kUnsupportedArchitecture;
    };
    if (!std::all_of(diagnostics.begin(), diagnostics.end(), is_refused)) return diagnostics;
    Result<Geometry> near =
        approximate_geometry(config, name, directory.empty() ? 0 : count_in_safetensors(directory), "this form of model_type");
    if (!near.ok()) return diagnostics;
    for (const Diagnostic& one : diagnostics)
      if (one.severity == Severity::kError) near.diagnostics.push_back(note(one.code, one.location, one.message));
    return near;
  }
  append(diagnostics, validate(g, config.location));
  if (has_error(diagnostics)) return diagnostics;
  say_without_scores(config, diagnostics);
  return {std::move(g), std::move(diagnostics)};
}

}  // namespace

Result<Geometry> geometry_from_hf_config(const Presets& presets, const Value& config, const std::string& name,
                                         const std::string& directory) {
  Result<Geometry> geometry = read_geometry(presets, config, name, directory);
  if (geometry.ok()) say_quantized(config, geometry.diagnostics);
  return geometry;
}

}  // namespace distsetup
