#include "cli/settings/file_origins.h"

#include <fmt/format.h>

#include "base/diagnostic_codes.h"
#include "planner/spec/spec_table.h"

namespace distsetup {
namespace {

std::string list_settings(const Spec& spec) {
  std::string out;
  if (spec.model.has_value()) out = "the model's sizes";
  for (const auto& [path, setting] : spec.settings) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", path, setting.text);
  return out;
}

// Of the settings that move memory and time most, those that nobody gives, with what is taken for them. A key whose fallback is one of
// several ways to say the same ("from global_batch_tokens") is told by the others.
std::string list_defaults(const Spec& all) {
  const auto has = [&all](std::string_view path) { return all.find(path) != nullptr; };
  std::string out;
  const auto add = [&](std::string_view path, std::string_view value) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", path, value);
  };
  const bool has_machine = has("hardware.machine");
  for (const char* path :
       {"hardware.gpu", "hardware.gpus_per_node", "train.sequence_length", "train.global_batch_tokens", "precision.compute"}) {
    const std::string_view name = path;
    if (has(name) || (has_machine && name.substr(0, 9) == "hardware.")) continue;
    if (name == "hardware.gpus_per_node" && has("hardware.total_gpus")) continue;
    if (name == "train.global_batch_tokens" && (has("train.global_batch") || has("parallel.gradient_accumulation"))) continue;
    std::string_view value = find_spec_key(name)->fallback;
    constexpr std::string_view kAssumed = "assumed: ";
    if (value.substr(0, kAssumed.size()) == kAssumed) value.remove_prefix(kAssumed.size());
    add(name, value);
  }
  return out;
}

}  // namespace

Diagnostic tell_file_origins(const std::string& files, const Spec& given, const Spec& assumed, const Spec& stronger) {
  const std::string said = list_settings(given), by_tool = list_settings(assumed);
  std::string message = said.empty() ? fmt::format("{} says no setting of a run", files) : fmt::format("from {}: {}", files, said);
  if (!by_tool.empty()) message += fmt::format("; its tool's own: {}", by_tool);
  Spec all = merge(merge(assumed, given), stronger);
  if (stronger.model.has_value()) all.model = stronger.model;
  const std::string defaults = list_defaults(all);
  return note(code::kNoForm, {}, message, defaults.empty() ? "" : "assumed, as nothing says it: " + defaults);
}

}  // namespace distsetup
