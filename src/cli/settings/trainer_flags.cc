#include "cli/settings/trainer_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "cli/line/parse.h"
#include "cli/settings/read_files.h"

namespace distsetup {
namespace {

// What may stand behind `--` of the command's own: where settings come from. What becomes of the plan is said in front of it.
bool is_about_settings(const Flag& flag) {
  for (const char* name : {"config", "from", "use", "distributed", "stage", "set", "goal", "presets", "templates"}) {
    if (flag.name == name) return true;
  }
  return false;
}

Diagnostics unknown_flags(const Command& command, const FlagList& list) {
  std::vector<std::string> known = flag_spellings(command);
  known.insert(known.end(), list.known.begin(), list.known.end());
  Diagnostics out;
  for (const std::string& word : list.rest) {
    const std::string flag = word.substr(0, word.find('='));
    if (flag.size() < 3 || flag.compare(0, 2, "--") != 0 || find_flag(command, std::string_view(flag).substr(2))) continue;
    const std::string near = nearest_name(flag, known);
    out.push_back(error(code::kUnknownFlag, command_line(),
                        list.tool.empty() ? fmt::format("unknown flag '{}'", flag)
                                          : fmt::format("unknown flag '{}' of {}, or of a run", flag, list.tool),
                        near.empty() ? "distsetup help plan lists the flags of a run" : fmt::format("did you mean '{}'", near)));
  }
  return out;
}

std::string spelled(const LostKey& lost) {
  if (lost.text == "true") return "--" + lost.key;
  const std::string text = shown_text(lost);
  return "--" + lost.key + " " + (text.size() > 48 ? text.substr(0, 45) + "..." : text);
}

Diagnostic about(const LostKey& lost) {
  if (lost.why == LostKey::Why::kValue)
    return error(code::kUnknownValue, lost.at, fmt::format("'--{}' is '{}', {}", lost.key, shown_text(lost), lost.reason));
  return warning(code::kKeyNotRead, lost.at, fmt::format("'{}' is not supported here: {}", spelled(lost), lost.reason));
}

// A folder with a config.json and nothing to load: then training starts from random weights, as it does with other trainers.
bool has_no_weights(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(std::filesystem::path(path) / "config.json", ignored)) return false;
  for (const auto& entry : std::filesystem::directory_iterator(path, ignored)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".safetensors" || extension == ".bin" || extension == ".pt" || extension == ".pth") return false;
  }
  return true;
}

// A flag that names a published model means its weights, where the bundled trainer runs it.
Diagnostics start_from_named_weights(const FlagList& list, const Spec& stronger, ForeignSpec& read) {
  const Spec whole = merge(merge(read.assumed, read.given), stronger);
  const std::string trainer = whole.text("trainer.name").value_or(std::string(kNative));
  Diagnostics said;
  for (const Complaint& one : list.reading.complaints) {
    const bool names_weights = one.trainer == trainer && !one.weights.empty() && !has_no_weights(one.weights);
    if (names_weights && whole.find("train.init") == nullptr)
      append(said, set(read.given, "train.init", std::string(kWeightsInit), one.diagnostic.location));
  }
  return said;
}

Result<LayerSpec> read_script_flags(const Session& session, const Spec& stronger) {
  const FlagList& list = session.script_flags;
  if (list.table.empty()) return LayerSpec{};
  Diagnostics diagnostics;
  for (const Complaint& one : list.reading.complaints) {
    if (one.trainer.empty()) diagnostics.push_back(one.diagnostic);
  }
  for (const LostKey& one : list.reading.lost) {
    if (one.why == LostKey::Why::kValue) diagnostics.push_back(about(one));
  }
  if (has_error(diagnostics)) return diagnostics;
  const Result<ReadFields> fields = merge_readings({list.reading});
  if (!fields.ok()) return fields.diagnostics;
  Result<ForeignSpec> read = spec_of_fields(*fields, session.presets, stronger);
  if (!read.ok()) return read.diagnostics;
  append(diagnostics, std::move(read.diagnostics));
  read->lost.insert(read->lost.end(), list.reading.lost.begin(), list.reading.lost.end());
  for (const LostKey& one : read->lost) diagnostics.push_back(about(one));
  append(diagnostics, start_from_named_weights(list, stronger, *read));
  return {LayerSpec{std::move(read->given), std::move(read->assumed)}, std::move(diagnostics)};
}

// What is wrong only with the trainer that will run.
Diagnostics complaints_of_trainer(const FlagList& list, const Spec& whole) {
  Diagnostics diagnostics;
  const std::string trainer = whole.text("trainer.name").value_or(std::string(kNative));
  for (const Complaint& one : list.reading.complaints) {
    const bool holds = one.weights.empty() || whole.text("train.init") == std::string(kWeightsInit);
    if (one.trainer == trainer && holds) diagnostics.push_back(one.diagnostic);
  }
  return diagnostics;
}

}  // namespace

Result<Arguments> with_trainer_flags(const Arguments& arguments, const Session& session) {
  if (arguments.passed_on.empty()) return arguments;
  for (const std::string& word : arguments.passed_on) {
    if (word == "..." || word == "…")
      return error(code::kUnknownFlag, command_line(),
                   fmt::format("'{}' stands for further arguments in a document, and is none itself", word),
                   "leave it out, or write the arguments");
  }
  const FlagList& list = session.script_flags;
  if (Diagnostics unknown = unknown_flags(*arguments.command, list); !unknown.empty()) return unknown;
  Command command = *arguments.command;
  std::erase_if(command.flags, [](const Flag& flag) { return !is_about_settings(flag); });
  Result<Arguments> own = parse(command, list.rest);
  if (!own.ok()) return own.diagnostics;
  Arguments merged = arguments;
  const ReadChoices& chosen = list.reading.chosen;
  if (!chosen.stage.empty()) own->values.emplace("stage", chosen.stage);
  if (!chosen.setup.empty()) own->values.emplace("distributed", chosen.setup);
  for (const auto& [key, text] : chosen.assignments) {
    std::string& set = own->values["set"];
    set += (set.empty() ? "" : "\n") + key + "=" + text;
  }
  merged.run_flags.insert(merged.run_flags.end(), own->run_flags.begin(), own->run_flags.end());
  merged.positionals.insert(merged.positionals.end(), own->positionals.begin(), own->positionals.end());
  for (const auto& [name, value] : own->values) {
    const auto [it, is_new] = merged.values.emplace(name, value);
    if (!is_new && it->second != value) it->second += "\n" + value;
  }
  return {std::move(merged), std::move(own.diagnostics)};
}

Layer script_layer(const Session& session) {
  return {"flags of a script behind --", [&session](const Spec& stronger) { return read_script_flags(session, stronger); },
          [&session](const Spec& whole) { return complaints_of_trainer(session.script_flags, whole); }};
}

}  // namespace distsetup
