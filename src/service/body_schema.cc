#include "service/body_schema.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <map>
#include <mutex>
#include <regex>

#include "base/json.h"
#include "base/json_text.h"
#include "base/names.h"
#include "base/value_json.h"
#include "service/request_schemas.h"

namespace distsetup {
namespace {

constexpr size_t kStrictBytes = size_t{4} << 20;  // of larger bodies (rows) a key that is there twice is not looked for
constexpr size_t kMostMistakes = 20;
constexpr int kDeepest = 64;

std::string kind_of(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_boolean()) return "a boolean";
  if (value.is_number()) return value.dump();
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  std::string text = value.get<std::string>();
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return fmt::format("'{}'", text);
}

bool is_whole(const Json& value) {
  return value.is_number_integer() ||
         (value.is_number_float() && std::isfinite(value.get<double>()) && std::floor(value.get<double>()) == value.get<double>());
}

bool is_type(const std::string& type, const Json& value) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return is_whole(value);
  if (type == "number") return value.is_number() && std::isfinite(value.get<double>());
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  return type == "object" && value.is_object();
}

const std::map<std::string, std::string> kTypeWords = {
    {"null", "null"},   {"boolean", "true or false"}, {"integer", "a whole number"}, {"number", "a number"},
    {"string", "text"}, {"array", "a list"},          {"object", "an object"}};

size_t num_characters(const std::string& text) {
  size_t n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  return n;
}

bool matches(const std::string& pattern, const std::string& text) {
  static std::mutex mutex;
  static std::map<std::string, std::regex> compiled;
  const std::lock_guard lock(mutex);
  auto found = compiled.find(pattern);
  if (found == compiled.end()) found = compiled.emplace(pattern, std::regex(pattern)).first;
  return std::regex_search(text, found->second);
}

std::vector<std::string> property_names(const Json& schema) {
  std::vector<std::string> names;
  const Json properties = schema.value("properties", Json::object());
  for (const auto& [name, _] : properties.items()) names.push_back(name);
  return names;
}

void check_text(const Json& schema, const std::string& text, const std::string& where, std::vector<BodyMistake>& out) {
  const size_t n = num_characters(text);
  if (schema.contains("minLength") && n < schema["minLength"].get<size_t>())
    out.push_back(
        {where, n == 0 ? "is empty" : fmt::format("has {} characters, expected {} or more", n, schema["minLength"].dump()), ""});
  else if (schema.contains("maxLength") && n > schema["maxLength"].get<size_t>())
    out.push_back({where, fmt::format("has {} characters, expected {} at most", n, schema["maxLength"].dump()), ""});
  else if (schema.contains("pattern") && !matches(schema["pattern"].get<std::string>(), text))
    out.push_back(
        {where, fmt::format("is {}, expected text that matches {}", kind_of(Json(text)), schema["pattern"].get<std::string>()), ""});
}

// All 64 bits of a whole number, which a double has not.
long double exact(const Json& number) {
  if (number.is_number_unsigned()) return static_cast<long double>(number.get<uint64_t>());
  if (number.is_number_integer()) return static_cast<long double>(number.get<int64_t>());
  return number.get<double>();
}

void check_number(const Json& schema, const Json& value, const std::string& where, std::vector<BodyMistake>& out) {
  const long double number = exact(value);
  if (schema.contains("minimum") && number < exact(schema["minimum"]))
    out.push_back({where, fmt::format("is {}, expected {} or more", value.dump(), schema["minimum"].dump()), ""});
  if (schema.contains("exclusiveMinimum") && number <= exact(schema["exclusiveMinimum"]))
    out.push_back({where, fmt::format("is {}, expected more than {}", value.dump(), schema["exclusiveMinimum"].dump()), ""});
  if (schema.contains("maximum") && number > exact(schema["maximum"]))
    out.push_back({where, fmt::format("is {}, expected {} at most", value.dump(), schema["maximum"].dump()), ""});
}

void check_at(const Json& schema, const Json& value, const std::string& where, int depth, std::vector<BodyMistake>& out);

void check_object(const Json& schema, const Json& value, const std::string& where, int depth, std::vector<BodyMistake>& out) {
  const Json properties = schema.value("properties", Json::object());
  const auto below = [&where](const std::string& key) { return where.empty() ? key : where + "." + key; };
  for (const Json& name : schema.value("required", Json::array())) {
    if (!value.contains(name.get<std::string>())) out.push_back({below(name), "is missing", ""});
  }
  for (const auto& [key, child] : value.items()) {
    if (out.size() >= kMostMistakes) return;
    if (properties.contains(key)) {
      check_at(properties[key], child, below(key), depth + 1, out);
    } else if (schema.contains("additionalProperties")) {
      const Json& others = schema["additionalProperties"];
      if (others.is_object())
        check_at(others, child, below(key), depth + 1, out);
      else if (!others.get<bool>())
        out.push_back({below(key), "is no key of this request", suggest(key, property_names(schema))});
    }
  }
}

// The mistakes of the branch that has the fewest; a branch of another type than the value's counts only where all are.
void check_any(const Json& branches, const Json& value, const std::string& where, int depth, std::vector<BodyMistake>& out) {
  std::vector<BodyMistake> best;
  bool has_best = false, best_is_of_type = false;
  for (const Json& branch : branches) {
    const Json& one = resolved_schema(branch);
    std::vector<BodyMistake> found;
    check_at(one, value, where, depth + 1, found);
    if (found.empty()) return;
    const bool is_of_type = !one.contains("type") || (one["type"].is_string() && is_type(one["type"], value));
    if (!has_best || (is_of_type && !best_is_of_type) || (is_of_type == best_is_of_type && found.size() < best.size())) {
      best = std::move(found);
      best_is_of_type = is_of_type;
      has_best = true;
    }
  }
  out.insert(out.end(), best.begin(), best.end());
}

bool check_type(const Json& schema, const Json& value, const std::string& where, std::vector<BodyMistake>& out) {
  if (!schema.contains("type")) return true;
  const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
  std::string wanted;
  for (const Json& type : types) {
    if (is_type(type, value)) return true;
    wanted += (wanted.empty() ? "" : " or ") + kTypeWords.at(type);
  }
  out.push_back({where, fmt::format("is {}, expected {}", kind_of(value), wanted), ""});
  return false;
}

void check_choice(const Json& allowed, const Json& value, const std::string& where, std::vector<BodyMistake>& out) {
  std::vector<std::string> words;
  for (const Json& one : allowed) {
    if (one == value) return;
    words.push_back(one.is_string() ? one.get<std::string>() : one.dump());
  }
  std::string listed;
  for (const std::string& word : words) listed += (listed.empty() ? "" : ", ") + word;
  out.push_back({where, fmt::format("is {}, expected one of {}", kind_of(value), listed),
                 value.is_string() ? suggest(value.get<std::string>(), words) : ""});
}

void check_at(const Json& given, const Json& value, const std::string& where, int depth, std::vector<BodyMistake>& out) {
  if (out.size() >= kMostMistakes) return;
  const Json& schema = resolved_schema(given);
  if (schema.contains("anyOf")) return check_any(schema["anyOf"], value, where, depth, out);
  if (!check_type(schema, value, where, out)) return;
  if (schema.contains("const")) return check_choice(Json::array({schema["const"]}), value, where, out);
  if (schema.contains("enum")) return check_choice(schema["enum"], value, where, out);
  if (value.is_string()) check_text(schema, value.get_ref<const std::string&>(), where, out);
  if (value.is_number()) check_number(schema, value, where, out);
  if (value.is_array()) {
    if (schema.contains("minItems") && value.size() < schema["minItems"].get<size_t>())
      out.push_back({where,
                     value.empty() ? "is an empty list"
                                   : fmt::format("has {} items, expected {} or more", value.size(), schema["minItems"].dump()),
                     ""});
    if (schema.contains("maxItems") && value.size() > schema["maxItems"].get<size_t>())
      out.push_back({where, fmt::format("has {} items, expected {} at most", value.size(), schema["maxItems"].dump()), ""});
    if (schema.contains("items")) {
      for (size_t i = 0; i < value.size() && out.size() < kMostMistakes; ++i)
        check_at(schema["items"], value[i], fmt::format("{}[{}]", where, i), depth + 1, out);
    }
  }
  if (value.is_object()) check_object(schema, value, where, depth, out);
}

// 3.0 is the integer 3 in JSON Schema; whoever reads the value later need not know that.
void make_whole(const Json& given, Json& value, int depth) {
  const Json& schema = resolved_schema(given);
  if (depth > kDeepest) return;
  if (schema.contains("anyOf")) {
    for (const Json& branch : schema["anyOf"]) make_whole(branch, value, depth + 1);
  }
  const bool wants_integer =
      schema.contains("type") &&
      (schema["type"] == "integer" ||
       (schema["type"].is_array() && std::find(schema["type"].begin(), schema["type"].end(), "integer") != schema["type"].end()));
  if (value.is_number_float() && wants_integer && is_whole(value) && std::abs(value.get<double>()) < 9e15)
    value = static_cast<int64_t>(value.get<double>());
  if (value.is_object() && schema.contains("properties")) {
    for (auto& [key, child] : value.items()) {
      if (schema["properties"].contains(key)) make_whole(schema["properties"][key], child, depth + 1);
    }
  }
  if (value.is_array() && schema.contains("items") && resolved_schema(schema["items"]).value("type", Json()) != "object") {
    for (Json& child : value) make_whole(schema["items"], child, depth + 1);
  }
}

// The command line of Llama Stack's client sends these as text that holds JSON.
void unpack_texts(Json& value) {
  for (const char* key : {"algorithm_config", "training_config"}) {
    if (!value.is_object() || !value.contains(key) || !value[key].is_string()) continue;
    const std::string& text = value[key].get_ref<const std::string&>();
    Json inner = json_from_text(text);
    if (inner.is_object()) value[key] = std::move(inner);
  }
}

bool is_too_deep(const std::string& text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kDeepest) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

}  // namespace

void check_body(const Json& schema, const Json& value, const std::string& where, std::vector<BodyMistake>& out) {
  check_at(schema, value, where, 0, out);
}

Json parameter_value(const Json& given, const std::string& text) {
  const Json& schema = resolved_schema(given);
  const std::string type = schema.contains("type") && schema["type"].is_string() ? schema["type"].get<std::string>() : "string";
  if (type == "integer") {
    int64_t number = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (failure == std::errc() && end == text.data() + text.size() && !text.empty()) return number;
  }
  if (type == "boolean" && (text == "true" || text == "false")) return text == "true";
  return text;
}

Json read_body(const Json& schema, const std::string& text, std::vector<BodyMistake>& out) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    out.push_back({"body", "is empty, expected a JSON object", ""});
    return {};
  }
  if (is_too_deep(text)) {
    out.push_back({"body", fmt::format("is nested deeper than {} levels", kDeepest), ""});
    return {};
  }
  Json value = json_from_text(text);
  if (value.is_discarded() || text.size() <= kStrictBytes) {
    const Result<Value> strict = parse_json(text, "body");
    for (const Diagnostic& one : strict.diagnostics) {
      if (one.severity == Severity::kError)
        out.push_back({fmt::format("body:{}:{}", one.location.line, one.location.column), one.message, one.help});
    }
    if (!out.empty()) return {};
  }
  if (value.is_discarded()) {
    out.push_back({"body", "is no JSON", ""});
    return {};
  }
  unpack_texts(value);
  check_body(schema, value, "", out);
  for (BodyMistake& one : out) {
    if (one.where.empty()) one.where = "body";
  }
  if (out.empty()) make_whole(schema, value, 0);
  return value;
}

}  // namespace distsetup
