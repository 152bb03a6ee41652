// Walking a target's folder: each file is plan.json, a key table or a script template. Everything that is particular to a target is
// in its files; adding one touches no C++ (templates/README.md).
#include "codegen/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "base/value.h"
#include "codegen/script.h"

namespace distsetup {
namespace {

// "keys.yaml" is of the target's own folder, "native/launch.sh.mustache" of templates/.
const std::string* find_file(const TemplateSet& templates, const std::string& path) {
  const auto found =
      std::find_if(templates.files.begin(), templates.files.end(), [&path](const auto& file) { return file.first == path; });
  return found == templates.files.end() ? nullptr : &found->second;
}

Result<std::string> text_of(const TemplateSet& templates, const std::string& path, const Location& at) {
  const std::string* text = find_file(templates, path);
  if (text != nullptr) return *text;
  std::vector<std::string> known;
  for (const auto& file : templates.files) known.push_back(file.first);
  return error(code::kTemplate, at, fmt::format("no template '{}'", path), suggest(path, known));
}

struct Walk {
  const TemplateSet& templates;
  const std::string& target;
  const Source& source;
  Artifacts artifacts;
  Diagnostics diagnostics;

  void fail(const Location& at, std::string message, std::string help = "") {
    diagnostics.push_back(error(code::kTemplate, at, std::move(message), std::move(help)));
  }

  std::string resolve(const std::string& path) const { return path.find('/') == std::string::npos ? target + "/" + path : path; }

  Result<Entries> entries(const std::string& path, const Location& at, TableFormat& format) {
    Result<std::string> text = text_of(templates, path, at);
    if (!text.ok()) return text.diagnostics;
    Result<KeyTable> table = parse_key_table(*text, "templates/" + path);
    if (!table.ok()) return table.diagnostics;
    format = table->format;
    return walk_keys(*table, source.fields, source.at);
  }

  const Json* field(const std::string& name, const Location& at) {
    const auto found = source.fields.find(name);
    if (found != source.fields.end()) return &found->second;
    std::vector<std::string> names;
    for (const auto& entry : source.fields) names.push_back(entry.first);
    fail(at, fmt::format("unknown field '{}'", name), suggest(name, names));
    return nullptr;
  }

  ScriptValue list(const std::string& name, Form form, const Location& at) {
    ScriptValue value;
    value.form = form;
    const Json* items = field(name, at);
    if (items == nullptr || items->is_null()) return value;
    if (!items->is_array()) fail(at, fmt::format("field '{}' is not a list", name));
    for (const Json& item : *items) value.items.push_back(field_text(item));
    return value;
  }

  // A switch is a condition: {derived.single_node: true}.
  ScriptValue condition(const Value& map) {
    ScriptValue value;
    value.form = Form::kSwitch;
    value.present = map.kind == Value::Kind::kMap && !map.entries.empty();
    if (!value.present) fail(map.location, "a switch needs a condition: {switch: {field: value}}");
    for (const auto& [name, wanted] : map.entries) {
      const Json* found = field(name, map.location);
      if (found == nullptr) continue;
      std::vector<std::string> texts;
      for (const Value& item : wanted.items) texts.push_back(item.text);
      if (wanted.kind == Value::Kind::kScalar) texts.push_back(wanted.text);
      if (wanted.kind == Value::Kind::kNull) texts.push_back("null");
      value.present = value.present && std::find(texts.begin(), texts.end(), field_text(*found)) != texts.end();
    }
    return value;
  }

  // "hardware.gpus_per_node" | {list: field} | {lines: field} | {switch: condition} | {keys: table}
  ScriptValue script_value(const std::string& name, const Value& from) {
    ScriptValue value;
    if (from.kind == Value::Kind::kScalar) {
      const Json* found = field(from.text, from.location);
      value.present = found != nullptr && !found->is_null();
      if (value.present) value.text = field_text(*found);
      return value;
    }
    if (from.kind != Value::Kind::kMap || from.entries.size() != 1) {
      fail(from.location, fmt::format("value '{}' is neither a field nor one of list, lines, switch, keys", name));
      return value;
    }
    const auto& [kind, argument] = from.entries[0];
    if (kind == "list") return list(argument.text, Form::kShellList, argument.location);
    if (kind == "lines") return list(argument.text, Form::kVerbatimList, argument.location);
    if (kind == "switch") return condition(argument);
    if (kind == "keys") {
      TableFormat format = TableFormat::kDirectives;
      Result<Entries> written = entries(resolve(argument.text), argument.location, format);
      append(diagnostics, written.diagnostics);
      value.form = Form::kVerbatim;
      if (written.value.has_value()) value.text = write_entries(*written, format);
      if (!value.text.empty()) value.text.pop_back();  // the template has the last newline
      return value;
    }
    fail(from.location, fmt::format("unknown form '{}' of value '{}'", kind, name), "known: list, lines, switch, keys");
    return value;
  }

  void script(const std::string& path, const Value* values, Artifact artifact, const Location& at) {
    Result<std::string> text = text_of(templates, resolve(path), at);
    append(diagnostics, text.diagnostics);
    ScriptValues taken;
    taken["header"] = ScriptValue{Form::kVerbatim, true, header(source), {}};
    if (values != nullptr) {
      for (const auto& [name, from] : values->entries) taken[name] = script_value(name, from);
    }
    if (has_error(diagnostics)) return;
    Result<std::string> rendered = render_script(*text, "templates/" + resolve(path), taken);
    append(diagnostics, rendered.diagnostics);
    if (!rendered.ok()) return;
    artifact.text = std::move(*rendered);
    artifacts.push_back(std::move(artifact));
  }

  void file(const Value& value) {
    Artifact artifact;
    bool plan = false;
    std::string keys, script_path;
    MapReader reader(value, "a file of a target", diagnostics);
    reader.require("output");
    reader.get("output", artifact.path);
    reader.get("plan", plan);
    reader.get("keys", keys);
    reader.get("template", script_path);
    reader.get("executable", artifact.executable);
    const Value* values = reader.child("values");
    reader.finish();
    if (artifact.path.empty() || artifact.path[0] == '/' || artifact.path.find("..") != std::string::npos) {
      return fail(value.location, fmt::format("output '{}' is not a path inside the target's folder", artifact.path));
    }
    if (static_cast<int>(plan) + static_cast<int>(!keys.empty()) + static_cast<int>(!script_path.empty()) != 1) {
      return fail(value.location, fmt::format("'{}' needs one of plan, keys, template", artifact.path));
    }
    if (plan) {
      if (source.plan == nullptr) return;
      artifact.text = dump_json(to_json(*source.plan));
      artifacts.push_back(std::move(artifact));
    } else if (!keys.empty()) {
      Result<Artifact> written = emit_table(templates, resolve(keys), source, artifact.path);
      append(diagnostics, written.diagnostics);
      if (written.ok()) artifacts.push_back(std::move(*written));
    } else {
      script(script_path, values, std::move(artifact), value.location);
    }
  }
};

}  // namespace

Result<Artifact> emit_table(const TemplateSet& templates, const std::string& table, const Source& source, const std::string& path) {
  Walk walk{templates, table, source, {}, {}};
  TableFormat format = TableFormat::kJson;
  Result<Entries> entries = walk.entries(table, source.at, format);
  if (!entries.ok()) return entries.diagnostics;
  Artifact artifact{path, write_entries(*entries, format), false};
  if (format == TableFormat::kYaml) artifact.text = header(source) + "\n" + artifact.text;
  return {std::move(artifact), std::move(entries.diagnostics)};
}

Result<Artifacts> emit_target(const TemplateSet& templates, const std::string& target, const Source& source) {
  const std::string path = target + "/target.yaml";
  const std::string* text = find_file(templates, path);
  if (text == nullptr) {
    return error(code::kUnknownTarget, source.at, fmt::format("unknown target '{}'", target),
                 suggest(target, target_names(templates)));
  }
  Result<Value> root = parse_yaml(*text, "templates/" + path);
  if (!root.ok()) return root.diagnostics;
  Walk walk{templates, target, source, {}, {}};
  static constexpr std::array<std::string_view, 4> kProofs = {"run", "parsed", "schema", "table"};
  int64_t version = 0;
  std::string describes, proof;
  MapReader reader(*root, "a target", walk.diagnostics);
  for (const char* key : {"version", "describes", "proof", "files"}) reader.require(key);
  reader.get("version", version);
  reader.get("describes", describes);
  reader.get("proof", proof);
  const Value* files = reader.child("files");
  reader.finish();
  if (version != 1) walk.fail(root->location, fmt::format("target of version {}, expected 1", version));
  if (std::find(kProofs.begin(), kProofs.end(), proof) == kProofs.end()) {
    walk.fail(root->location, fmt::format("unknown proof '{}'", proof), "known: run, parsed, schema, table");
  }
  if (files != nullptr) {
    for (const Value& file : files->items) walk.file(file);
  }
  if (has_error(walk.diagnostics)) return walk.diagnostics;
  return {std::move(walk.artifacts), std::move(walk.diagnostics)};
}

}  // namespace distsetup
