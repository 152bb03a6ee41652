#include "codegen/tables/emit_target.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/map_reader.h"
#include "base/names.h"
#include "base/value.h"
#include "codegen/job/header.h"
#include "codegen/job/script.h"
#include "codegen/tables/entry_text.h"
#include "codegen/tables/key_walk.h"
#include "codegen/tables/load_table.h"
#include "codegen/tables/script_values.h"
#include "codegen/tables/target.h"
#include "plan/plan_json.h"

namespace distsetup {
namespace {

// A file as target.yaml lists it.
struct TargetFile {
  Artifact artifact;
  bool is_plan = false;
  std::string keys, script;                        // paths below templates/
  const Value *values = nullptr, *also = nullptr;  // `values: *those_of_another_file`, and its own
  const Value *only_when = nullptr, *unless = nullptr;
  Location at;
};

TargetFile read_target_file(const std::string& target, const Value& value, Diagnostics& diagnostics) {
  TargetFile file;
  file.at = value.location;
  std::string keys, script;
  MapReader reader(value, "a file of a target", diagnostics);
  reader.require("output");
  reader.get("output", file.artifact.path);
  reader.get("plan", file.is_plan);
  reader.get("keys", keys);
  reader.get("template", script);
  reader.get("executable", file.artifact.executable);
  file.values = reader.child("values");
  file.also = reader.child("also");
  file.only_when = reader.child("when");
  file.unless = reader.child("unless");
  reader.finish();
  if (!keys.empty()) file.keys = path_of_target(target, keys);
  if (!script.empty()) file.script = path_of_target(target, script);
  const std::string& path = file.artifact.path;
  if (path.empty() || path[0] == '/' || path.find("..") != std::string::npos) {
    diagnostics.push_back(error(code::kTemplate, file.at, fmt::format("output '{}' is not a path inside the target's folder", path)));
  } else if (static_cast<int>(file.is_plan) + static_cast<int>(!keys.empty()) + static_cast<int>(!script.empty()) != 1) {
    diagnostics.push_back(error(code::kTemplate, file.at, fmt::format("'{}' needs one of plan, keys, template", path)));
  }
  return file;
}

// Lines '{{>folder/file}}' become that file's text: what several targets say in the same words.
std::string with_parts(const ScriptSource& source, const std::string& text, const Location& at) {
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    if (line.compare(0, 3, "{{>") == 0 && line.size() > 5 && line.compare(line.size() - 2, 2, "}}") == 0) {
      const std::string path = path_of_target(source.target, line.substr(3, line.size() - 5));
      const Result<std::string> part = template_text(source.templates, path, at);
      append(source.diagnostics, part.diagnostics);
      if (part.ok()) out += *part;
    } else {
      out += line + (end < text.size() ? "\n" : "");
    }
    begin = end + 1;
  }
  return out;
}

Result<std::string> script_text(const ScriptSource& source, const TargetFile& file) {
  const Result<std::string> text = template_text(source.templates, file.script, file.at);
  append(source.diagnostics, text.diagnostics);
  ScriptValues taken;
  taken["header"] = ScriptValue{Form::kVerbatim, true, header(source.input), {}};
  for (const Value* some : {file.values, file.also}) {
    if (some == nullptr) continue;
    for (const auto& [name, from] : some->entries) taken[name] = script_value(source, name, from);
  }
  if (has_error(source.diagnostics)) return Diagnostics{};
  const std::string whole = with_parts(source, *text, file.at);
  if (has_error(source.diagnostics)) return Diagnostics{};
  return render_script(whole, "templates/" + file.script, taken);
}

void put_file(const ScriptSource& source, const Value& value, Artifacts& artifacts) {
  const size_t num_mistakes = source.diagnostics.size();
  TargetFile file = read_target_file(source.target, value, source.diagnostics);
  const bool is_wanted = (file.only_when == nullptr || target_condition(source, *file.only_when)) &&
                         (file.unless == nullptr || !target_condition(source, *file.unless));
  if (source.diagnostics.size() > num_mistakes || !is_wanted || (source.input.configs_only && file.keys.empty())) return;
  if (file.is_plan) {
    if (source.input.plan == nullptr || source.input.started != nullptr) return;
    file.artifact.text = dump_json(to_json(*source.input.plan));
  } else if (!file.keys.empty()) {
    Result<Artifact> written = emit_table(source.templates, file.keys, source.input, file.artifact.path);
    append(source.diagnostics, written.diagnostics);
    if (!written.ok()) return;
    file.artifact = std::move(*written);
  } else {
    Result<std::string> text = script_text(source, file);
    append(source.diagnostics, text.diagnostics);
    if (!text.ok()) return;
    file.artifact.text = std::move(*text);
  }
  artifacts.push_back(std::move(file.artifact));
}

// A shell takes any bytes, readers of other files take text.
void refuse_bytes(const Artifacts& artifacts, const Location& at, Diagnostics& diagnostics) {
  for (const Artifact& artifact : artifacts) {
    const bool is_script = artifact.executable || artifact.text.compare(0, 2, "#!") == 0;
    if (is_script || is_utf8(artifact.text)) continue;
    diagnostics.push_back(error(code::kWrongType, at,
                                fmt::format("'{}' would hold bytes that are no UTF-8 text, expected text", artifact.path),
                                "rename what has them"));
  }
}

// The release that the table was read off: "checked: 2026-11-21, accelerate 1.15.0". Other releases may take other keys.
std::string tool_line(const KeyTable& table) {
  const size_t comma = table.checked.find(", ");
  if (comma == std::string::npos || table.checked.find_first_of("0123456789", comma) == std::string::npos) return "";
  return "\n# for " + table.checked.substr(comma + 2);
}

}  // namespace

Result<Artifact> emit_table(const TemplateSet& templates, const std::string& table, const TargetInput& input,
                            const std::string& path) {
  const auto loaded = load_key_table(templates, table, input.at);
  if (!loaded.ok()) return loaded.diagnostics;
  const bool is_json = (*loaded)->format == TableFormat::kYaml && path.ends_with(".json");
  const TableFormat format = is_json ? TableFormat::kJson : (*loaded)->format;
  Result<Entries> entries = walk_keys(**loaded, input.fields, input.at);
  if (!entries.ok()) return entries.diagnostics;
  Artifact artifact{path, write_entries(*entries, format), false};
  const bool has_comments = format == TableFormat::kYaml || format == TableFormat::kToml;
  if (has_comments) artifact.text = header(input) + tool_line(**loaded) + "\n" + artifact.text;
  return {std::move(artifact), std::move(entries.diagnostics)};
}

Result<Artifacts> emit_target(const TemplateSet& templates, const std::string& target, TargetInput input) {
  const Result<TargetDescription> described = describe_target(templates, target, input.at);
  if (!described.ok()) return described.diagnostics;
  // Of a target whose files all follow from a plan nothing is refused where no plan is: there is nothing to write.
  const auto is_table = [](const Value& file) { return file.find("keys") != nullptr; };
  if (input.configs_only && std::none_of(described->files->items.begin(), described->files->items.end(), is_table)) return Artifacts{};
  Diagnostics diagnostics = described.diagnostics;
  input.fields = with_settings(*described, std::move(input.fields), diagnostics);
  const bool is_fsdp1 = input.plan != nullptr && input.plan->strategy.trainer == "fsdp1";
  if (is_fsdp1) set_field(input.fields, "options.fsdp_version", 1);  // what was planned, whatever is usual for the target
  if (!described->rules.empty()) {
    const auto rules = load_key_table(templates, path_of_target(target, described->rules), described->root.location);
    append(diagnostics, rules.diagnostics);
    if (rules.ok()) append(diagnostics, walk_keys(**rules, input.fields, input.at).diagnostics);
  }
  if (has_error(diagnostics)) return diagnostics;
  Artifacts artifacts;
  const ScriptSource source{templates, target, input, diagnostics};
  for (const Value& file : described->files->items) put_file(source, file, artifacts);
  if (!has_error(diagnostics)) refuse_bytes(artifacts, input.at, diagnostics);
  if (has_error(diagnostics)) return diagnostics;
  return {std::move(artifacts), std::move(diagnostics)};
}

}  // namespace distsetup
