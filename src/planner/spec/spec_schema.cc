// A setting's type becomes a schema; its path becomes nested objects. Names of values are compared without case, '-' and '_' the same,
// as the reader does, so each is a pattern; the canonical ones are also an enumeration, for completion. What only looking things up
// can tell (is there such a GPU?) is left to the planner.
#include "planner/spec/spec_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/json.h"
#include "base/names.h"
#include "data/source_rows.h"
#include "plan/plan_fields.h"
#include "planner/spec/spec.h"
#include "planner/spec/spec_lookup.h"
#include "planner/spec/spec_table.h"

namespace distsetup {
namespace {

constexpr char kSizePattern[] = "^[0-9]+([.][0-9]+)?([eE][+]?[0-9]+)? ?([KMGTP]i?)?B$";
constexpr char kDurationPattern[] =
    "^(?=[0-9])([0-9]+([.][0-9]+)? ?[dD] ?)?([0-9]+([.][0-9]+)? ?[hH] ?)?([0-9]+([.][0-9]+)? ?[mM] ?)?([0-9]+([.][0-9]+)? ?[sS] ?)?$"
    "|^([0-9]+-)?[0-9]+:[0-9]{1,2}:[0-9]{1,2}$";

// "zero2" -> "[zZ][eE][rR][oO]2".
std::string any_case(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto low = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const auto high = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    if (low != high) {
      out += fmt::format("[{}{}]", low, high);
    } else if (c == '-' || c == '_') {
      out += "[-_]";
    } else if (c == '.') {
      out += "[.]";
    } else {
      out += c;
    }
  }
  return out;
}

bool is_number(std::string_view text) { return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos; }

constexpr char kCountPattern[] = "^[0-9]+([.][0-9]+)? ?[KkMmBbTt]i?$";

Json choice_schema(const SpecKey& key) {
  Json canonical = Json::array(), integers = Json::array(), any = Json::array();
  std::string pattern;
  bool has_bool = false;
  const auto add = [&](std::string_view spelling) {
    pattern += (pattern.empty() ? "" : "|") + any_case(spelling);
    if (is_number(spelling)) integers.push_back(std::stoll(std::string(spelling)));
    has_bool = has_bool || spelling == "true" || spelling == "false";
  };
  for (const SettingChoice& choice : key.choices) {
    if (!choice.refused.empty()) continue;
    if (choice.value == "every_k") {
      pattern += (pattern.empty() ? "" : "|") + any_case("every_k") + ":[1-9][0-9]*";
      continue;
    }
    canonical.push_back(choice.value);
    add(choice.value);
    for (const std::string_view alias : choice.aliases) add(alias);
  }
  if (key.can_be_auto) {
    canonical.push_back("auto");
    add("auto");
  }
  any.push_back({{"enum", canonical}});
  any.push_back({{"type", "string"}, {"pattern", "^(" + pattern + ")$"}});
  if (!integers.empty()) any.push_back({{"enum", integers}});
  if (has_bool) any.push_back({{"type", "boolean"}});
  return {{"anyOf", any}};
}

Json number_schema(const SpecKey& key, const char* type) {
  Json schema = {{"type", type}, {"minimum", key.minimum}};
  if (key.maximum < 1e18) schema["maximum"] = key.maximum;
  return schema;
}

// Of data_source.h.
Json source_schema() {
  const Json text = {{"type", "string"}, {"minLength", 1}};
  const Json map = {{"type", "object"},
                    {"required", {"path"}},
                    {"additionalProperties", false},
                    {"properties",
                     {{"path", text},
                      {"subset", text},
                      {"weight", {{"type", "number"}, {"exclusiveMinimum", 0}}},
                      {"format", {{"type", "string"}, {"enum", source_formats()}}},
                      {"fields", {{"type", "object"}, {"additionalProperties", text}}}}}};
  const Json one = {{"anyOf", {text, map}}};
  return {{"anyOf", {text, map, {{"type", "array"}, {"minItems", 1}, {"items", one}}}}};
}

Json value_schema(const SpecKey& key) {
  switch (key.type) {
    case SettingType::kBool: return {{"type", "boolean"}};
    case SettingType::kInt:
      if (!key.is_count) return number_schema(key, "integer");
      return {{"anyOf", {number_schema(key, "integer"), {{"type", "string"}, {"pattern", kCountPattern}}}}};
    case SettingType::kDouble: return number_schema(key, "number");
    case SettingType::kShare:
      return {{"anyOf", {number_schema(key, "number"), {{"type", "string"}, {"pattern", R"(^[0-9]+(\.[0-9]+)?%$)"}}}}};
    case SettingType::kBytes: return {{"type", "string"}, {"pattern", kSizePattern}};
    case SettingType::kDuration: return {{"type", "string"}, {"pattern", kDurationPattern}};
    case SettingType::kText: return {{"type", "string"}, {"minLength", 1}};
    case SettingType::kEnum: return choice_schema(key);
    case SettingType::kSources: return source_schema();
    case SettingType::kList: return {{"anyOf", {{{"type", "string"}}, {{"type", "array"}, {"items", {{"type", "string"}}}}}}};
  }
  return Json::object();
}

Json setting_schema(const SpecKey& key) {
  Json schema = value_schema(key);
  if (key.can_be_auto && key.type != SettingType::kEnum)
    schema = {{"anyOf", {std::move(schema), {{"type", "string"}, {"pattern", "^[aA][uU][tT][oO]$"}}}}};
  std::string said(key.help);
  if (!key.unit.empty()) said += fmt::format(" ({})", key.unit);
  if (!key.fallback.empty()) said += fmt::format("; default: {}", key.fallback);
  schema["description"] = said;
  return schema;
}

// Keys of an inline geometry: the fields of a Geometry, and what its reader knows beside them.
struct GeometryKeys {
  Json properties = Json::object();
  template <class T>
  void operator()(const char* name, T& value, const T& /*usual*/) {
    (*this)(name, value);
  }
  template <class T>
  void operator()(const char* name, T&) {
    if constexpr (std::is_same_v<T, bool>) {
      properties[name] = {{"type", "boolean"}};
    } else if constexpr (std::is_integral_v<T>) {
      properties[name] = {{"type", "integer"}};
    } else if constexpr (std::is_floating_point_v<T>) {
      properties[name] = {{"type", "number"}};
    } else {
      properties[name] = Json::object();
    }
  }
};

Json model_schema(const SpecKey& key) {
  GeometryKeys keys;
  Geometry geometry;
  visit(keys, geometry);
  for (const char* name : {"hub", "date", "dense_layers"}) keys.properties[name] = Json::object();
  for (const char* name : {"name", "hub_id"}) keys.properties.erase(name);
  keys.properties["weights"] = {{"type", "string"}, {"minLength", 1}, {"description", find_spec_key("model.weights")->help}};
  return {{"description", key.help},
          {"anyOf",
           {{{"type", "string"}, {"minLength", 1}},
            {{"type", "object"}, {"properties", keys.properties}, {"additionalProperties", false}}}}};
}

Json& object_at(Json& root, std::string_view path) {
  Json* node = &root;
  while (path.find('.') != std::string_view::npos) {
    const std::string first(path.substr(0, path.find('.')));
    path.remove_prefix(first.size() + 1);
    Json& next = (*node)["properties"][first];
    if (!next.is_object()) next = {{"type", "object"}, {"additionalProperties", false}, {"properties", Json::object()}};
    node = &next;
  }
  return (*node)["properties"][std::string(path)];
}

}  // namespace

Json run_schema() {
  Json part = {{"type", "object"}, {"additionalProperties", false}, {"properties", Json::object()}};
  for (const SpecKey& key : spec_keys()) {
    if (key.path == "model.weights") continue;  // a key of the map that a model may be
    object_at(part, key.path) = key.path == "model" ? model_schema(key) : setting_schema(key);
  }
  Json root = part;
  root["$schema"] = "http://json-schema.org/draft-07/schema#";
  root["title"] = "run file of distsetup";
  root["required"] = {"version"};
  root["properties"]["version"] = {{"const", 1}, {"description", "of this format"}};
  root["properties"]["use"] = {
      {"description", "named presets below this file: presets/recipes"},
      {"anyOf", {{{"type", "string"}}, {{"type", "array"}, {"items", {{"type", "string"}}}, {"minItems", 1}}}}};
  root["properties"]["stages"] = {{"type", "object"},
                                  {"description", "parts of a run file by name; --stage NAME puts one over the rest"},
                                  {"additionalProperties", {{"$ref", "#/definitions/part"}}}};
  root["definitions"]["part"] = part;
  return root;
}

}  // namespace distsetup
