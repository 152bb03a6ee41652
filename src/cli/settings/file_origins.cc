#include "cli/settings/file_origins.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "base/diagnostic_codes.h"
#include "planner/resolve/method_defaults.h"
#include "planner/spec/spec_lookup.h"
#include "planner/spec/spec_table.h"

namespace distsetup {
namespace {

std::string list_settings(const Spec& spec) {
  std::vector<std::string> out;
  if (spec.model.has_value()) out.emplace_back("the model's sizes");
  for (const auto& [path, setting] : spec.settings) out.push_back(fmt::format("{} {}", path, setting.text));
  return fmt::format("{}", fmt::join(out, ", "));
}

// By what is trained, as resolve_batch() takes it; a micro-batch that is given rounds it.
std::string usual_batch(const Spec& all) {
  const std::string finetune = all.text("train.finetune").value_or("full");
  const bool is_tuned = finetune != "full" && all.find("data.paths") == nullptr;
  const Result<Presets> presets = load_presets();
  if (!presets.ok()) return "a usual batch";
  const Result<MethodDefaults> usual =
      method_defaults(*presets, all.text("train.method").value_or(is_tuned ? "sft" : "pretrain"), finetune);
  if (!usual.ok()) return "a usual batch";
  const std::string batch = usual->batch_samples > 0 ? fmt::format("train.global_batch {}", usual->batch_samples)
                                                     : fmt::format("train.global_batch_tokens {}", usual->batch_tokens);
  const bool is_rounded = all.find("parallel.micro_batch") != nullptr;
  return is_rounded ? batch + " (in whole micro-batches of every rank)" : batch;
}

// Of the settings that move memory and time most, those that nobody gives, with what is taken for them.
std::string list_defaults(const Spec& all) {
  const auto has = [&all](std::string_view path) { return all.find(path) != nullptr; };
  std::vector<std::string> out;
  for (const std::string_view path : {"hardware.gpu", "hardware.gpus_per_node", "train.sequence_length", "train.global_batch_tokens",
                                      "precision.compute", "train.steps"}) {
    if (has(path) || (has("hardware.machine") && path.starts_with("hardware."))) continue;
    if (path == "hardware.gpus_per_node" && has("hardware.total_gpus")) continue;
    if (path == "train.steps" && (has("train.total_tokens") || has("train.samples") || has("train.epochs"))) continue;
    if (path == "train.global_batch_tokens" && (has("train.global_batch") || has("parallel.gradient_accumulation"))) continue;
    if (path == "train.global_batch_tokens") {
      out.push_back(usual_batch(all));
      continue;
    }
    std::string_view value = find_spec_key(path)->fallback;
    constexpr std::string_view kAssumed = "assumed: ";
    if (value.starts_with(kAssumed)) value.remove_prefix(kAssumed.size());
    out.push_back(fmt::format("{} {}", path, value));
  }
  return fmt::format("{}", fmt::join(out, ", "));
}

}  // namespace

Diagnostic tell_file_origins(const std::string& files, const Spec& given, const Spec& assumed, const Spec& stronger) {
  const std::string said = list_settings(given), by_tool = list_settings(assumed);
  std::string message = said.empty() ? fmt::format("{} gives no setting of a run", files) : fmt::format("from {}: {}", files, said);
  if (!by_tool.empty()) message += fmt::format("; its tool assumes: {}", by_tool);
  const std::string defaults = list_defaults(merge(merge(assumed, given), stronger));
  return note(code::kNoForm, {}, message, defaults.empty() ? "" : "given nowhere, so assumed here: " + defaults);
}

}  // namespace distsetup
