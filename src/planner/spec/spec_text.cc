#include "planner/spec/spec_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "plan/schedule_text.h"
#include "planner/spec/spec.h"
#include "planner/spec/spec_lookup.h"
#include "planner/spec/spec_table.h"

namespace distsetup {
namespace {

std::string canonical_value(const Setting& setting) {
  switch (setting.value.index()) {
    case 0: return "auto";
    case 1: return std::get<bool>(setting.value) ? "true" : "false";
    case 2: return fmt::format("{}", std::get<int64_t>(setting.value));
    case 3: return fmt::format("{}", std::get<double>(setting.value));
    case 4: return std::get<std::string>(setting.value);
    default: return fmt::format("[{}]", fmt::join(std::get<std::vector<std::string>>(setting.value), ", "));
  }
}

// Keys sorted: their order in a file means nothing.
std::string canonical_tree(const Value& value) {
  switch (value.kind) {
    case Value::Kind::kNull: return "null";
    case Value::Kind::kScalar: return value.text;
    case Value::Kind::kList: {
      std::string text;
      for (const Value& item : value.items) text += canonical_tree(item) + ",";
      return "[" + text + "]";
    }
    case Value::Kind::kMap: break;
  }
  std::vector<std::string> lines;
  for (const auto& entry : value.entries) lines.push_back(entry.first + ": " + canonical_tree(entry.second));
  std::sort(lines.begin(), lines.end());
  return fmt::format("{{{}}}", fmt::join(lines, ", "));
}

std::string yaml_scalar(const SpecKey& key, const Setting& setting) {
  std::string text = canonical_value(setting);
  if (setting.is_auto()) return text;
  if (key.type == SettingType::kBytes) return text + "B";
  if (key.type == SettingType::kDuration) return text + "s";
  const auto quoted = [](const std::string& raw) {
    std::string out = "\"";
    for (char c : raw) {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
    return out + "\"";
  };
  if (key.type == SettingType::kText) return quoted(text);
  if (holds_list(key.type)) {
    std::vector<std::string> items;
    for (const std::string& item : std::get<std::vector<std::string>>(setting.value))
      items.push_back(key.type == SettingType::kSources && item.starts_with('{') ? item : quoted(item));
    return fmt::format("[{}]", fmt::join(items, ", "));
  }
  return text;
}

void write_yaml_tree(const Value& value, int indent, std::string& out) {
  for (const auto& entry : value.entries) {
    out += std::string(static_cast<size_t>(indent), ' ') + entry.first + ":";
    if (entry.second.kind == Value::Kind::kMap) {
      out += "\n";
      write_yaml_tree(entry.second, indent + 2, out);
    } else if (entry.second.kind == Value::Kind::kScalar) {
      out += entry.second.quoted ? " \"" + entry.second.text + "\"\n" : " " + entry.second.text + "\n";
    } else {
      out += " " + canonical_tree(entry.second) + "\n";
    }
  }
}

}  // namespace

std::string canonical_text(const Spec& spec) {
  std::string text;
  if (spec.model.has_value()) text += "model = " + canonical_tree(*spec.model) + "\n";
  for (const auto& [path, setting] : spec.settings) text += fmt::format("{} = {}\n", path, canonical_value(setting));
  return text;
}

std::string to_yaml(const Spec& spec) {
  std::string out = "version: 1\n";
  const SpecKey& weights = *find_spec_key("model.weights");
  const Setting* own_weights = spec.find(weights.path);
  const Setting* name = spec.find("model");
  if (spec.model.has_value() || own_weights != nullptr) {  // a map: `model: NAME` has no place for the weights
    out += "model:\n";
    if (spec.model.has_value()) write_yaml_tree(*spec.model, 2, out);
    if (!spec.model.has_value() && name != nullptr && name->text != own_weights->text)
      out += "  base: " + yaml_scalar(*find_spec_key("model"), *name) + "\n";
    if (own_weights != nullptr) out += "  weights: " + yaml_scalar(weights, *own_weights) + "\n";
  }
  std::vector<std::string> open;  // sections written so far on the way down
  for (const SpecKey& key : spec_keys()) {
    const Setting* setting = spec.find(key.path);
    if (setting == nullptr || key.path == weights.path || (key.path == "model" && own_weights != nullptr)) continue;
    std::vector<std::string> parts;
    for (std::string_view rest = key.path; !rest.empty();) {
      const size_t dot = std::min(rest.find('.'), rest.size());
      parts.emplace_back(rest.substr(0, dot));
      rest.remove_prefix(std::min(dot + 1, rest.size()));
    }
    size_t shared = 0;
    while (shared < open.size() && shared + 1 < parts.size() && open[shared] == parts[shared]) ++shared;
    open.resize(shared);
    for (; open.size() + 1 < parts.size(); open.push_back(parts[open.size()]))
      out += std::string(2 * open.size(), ' ') + parts[open.size()] + ":\n";
    out += std::string(2 * open.size(), ' ') + parts.back() + ": " + yaml_scalar(key, *setting) + "\n";
  }
  return out;
}

}  // namespace distsetup
