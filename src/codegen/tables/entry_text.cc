#include "codegen/tables/entry_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/names.h"
#include "codegen/shell/quote.h"

namespace distsetup {
namespace {

void put(nlohmann::ordered_json& root, const std::string& path, const Json& value) {
  nlohmann::ordered_json* node = &root;
  size_t at = 0;
  for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', at)) {
    node = &(*node)[path.substr(at, dot - at)];
    at = dot + 1;
  }
  (*node)[path.substr(at)] = nlohmann::ordered_json(value);
}

// YAML 1.1 takes 1e-08 for text, TOML takes it for a number: 1.0e-08 is one for both.
std::string number_text(const nlohmann::ordered_json& value) {
  std::string text = value.dump();
  const size_t exponent = text.find('e');
  if (value.is_number_float() && exponent != std::string::npos && text.find('.') == std::string::npos) text.insert(exponent, ".0");
  return text;
}

std::string yaml_scalar(const nlohmann::ordered_json& value) {
  return value.is_string() ? quote_yaml(value.get<std::string>()) : number_text(value);
}

void write_yaml(const nlohmann::ordered_json& map, const std::string& indent, std::string& out) {
  for (const auto& [key, value] : map.items()) {
    out += indent + quote_yaml(key) + ":";
    if (value.is_object()) {
      out += "\n";
      write_yaml(value, indent + "  ", out);
    } else if (value.is_array()) {
      out += value.empty() ? " []\n" : "\n";
      for (const auto& item : value) out += indent + "  - " + yaml_scalar(item) + "\n";
    } else {
      out += " " + yaml_scalar(value) + "\n";
    }
  }
}

std::string toml_value(const nlohmann::ordered_json& value) {
  if (value.is_string()) return quote_toml(value.get<std::string>());
  if (!value.is_array()) return number_text(value);
  std::string out;
  for (const auto& item : value) out += (out.empty() ? "" : ", ") + toml_value(item);
  return "[" + out + "]";
}

// What is no table comes first: behind a [header] it would be taken for a part of that table.
void write_toml(const nlohmann::ordered_json& map, const std::string& path, std::string& out) {
  for (const auto& [key, value] : map.items()) {
    if (!value.is_object()) out += key + " = " + toml_value(value) + "\n";
  }
  for (const auto& [key, value] : map.items()) {
    if (!value.is_object()) continue;
    const std::string inner = path.empty() ? key : path + "." + key;
    const bool has_values = std::any_of(value.begin(), value.end(), [](const auto& item) { return !item.is_object(); });
    if (has_values) out += (out.empty() ? "[" : "\n[") + inner + "]\n";
    write_toml(value, inner, out);
  }
}

std::string write_arguments(const Entries& entries) {
  std::string out;
  for (const auto& [key, value] : entries) {
    if (value.is_boolean() && !value.get<bool>()) continue;
    out += "  --" + key;
    if (value.is_array()) {
      for (const Json& item : value) out += " " + quote_shell(field_text(item));
    } else if (!value.is_boolean()) {
      out += " " + quote_shell(field_text(value));
    }
    out += "\n";
  }
  return out;
}

}  // namespace

std::string write_entries(const Entries& entries, TableFormat format) {
  std::string out;
  if (format == TableFormat::kDirectives) {
    for (const auto& [key, value] : entries) {
      if (value.is_boolean()) {
        if (value.get<bool>()) out += "#SBATCH --" + key + "\n";
      } else {
        out += "#SBATCH --" + key + "=" + quote_directive(field_text(value)) + "\n";
      }
    }
    return out;
  }
  if (format == TableFormat::kArguments) return write_arguments(entries);
  nlohmann::ordered_json root = nlohmann::ordered_json::object();
  for (const auto& [key, value] : entries) put(root, key, value);
  if (format == TableFormat::kJson) return root.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (format == TableFormat::kToml) {
    write_toml(root, "", out);
  } else {
    write_yaml(root, "", out);
  }
  return out;
}

}  // namespace distsetup
