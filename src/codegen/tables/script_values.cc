#include "codegen/tables/script_values.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/names.h"
#include "codegen/shell/quote.h"
#include "codegen/tables/entry_text.h"
#include "codegen/tables/key_walk.h"
#include "codegen/tables/load_table.h"
#include "plan/plan_json.h"

namespace distsetup {
namespace {

void complain(const ScriptSource& source, const Location& at, std::string message, std::string help = "") {
  source.diagnostics.push_back(error(code::kTemplate, at, std::move(message), std::move(help)));
}

const Json* field_of(const ScriptSource& source, const std::string& name, const Location& at) {
  const auto found = source.input.fields.find(name);
  if (found != source.input.fields.end()) return &found->second;
  std::vector<std::string> names;
  for (const auto& entry : source.input.fields) names.push_back(entry.first);
  complain(source, at, fmt::format("unknown field '{}'", name), suggest(name, names));
  return nullptr;
}

ScriptValue list_value(const ScriptSource& source, const std::string& name, Form form, const Location& at) {
  ScriptValue value;
  value.form = form;
  const Json* items = field_of(source, name, at);
  if (items == nullptr || items->is_null()) return value;
  if (!items->is_array()) complain(source, at, fmt::format("field '{}' is not a list", name));
  for (const Json& item : *items) value.items.push_back(field_text(item));
  return value;
}

// Kubernetes and docker compose both read $ themselves, and $$ as $.
std::string manifest_scalar(const Json& one) {
  if (!one.is_string()) return one.dump();
  std::string text;
  for (const char c : one.get<std::string>()) text += c == '$' ? "$$" : std::string(1, c);
  return quote_yaml(text);
}

ScriptValue manifest_value(const ScriptSource& source, const std::string& name, Form form, const Location& at) {
  const Json* found = field_of(source, name, at);
  ScriptValue value;
  value.form = form;
  value.present = found != nullptr && !found->is_null();
  if (!value.present) return value;
  if (form == Form::kVerbatim) value.text = manifest_scalar(*found);
  if (found->is_array()) {
    for (const Json& item : *found) value.items.push_back(manifest_scalar(item));
  }
  return value;
}

// plan.json as lines, for a block of YAML.
ScriptValue plan_lines(const Plan* plan) {
  ScriptValue value;
  value.form = Form::kVerbatimList;
  if (plan == nullptr) return value;
  std::string line;
  for (const char c : dump_json(to_json(*plan))) {
    if (c != '\n') {
      line += c;
    } else {
      value.items.push_back(json_in_yaml(line));
      line.clear();
    }
  }
  return value;
}

// The files that the target starts, as entries of a YAML map: `launch.sh: |` and its lines. Nobody reads a plan.json there.
ScriptValue file_lines(const ScriptSource& source) {
  ScriptValue value;
  value.form = Form::kVerbatimList;
  for (const Artifact& file : source.input.started == nullptr ? Artifacts{} : *source.input.started) {
    if (file.path == "plan.json") continue;
    const bool is_plain = std::none_of(file.text.begin(), file.text.end(), [](char c) {
      return (static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t') || c == '\x7f';
    });
    if (!is_plain || !is_utf8(file.text)) {
      source.diagnostics.push_back(error(code::kWrongType, source.input.at,
                                         fmt::format("'{}' would hold characters that no manifest can hold, expected text", file.path),
                                         "rename what has them"));
      continue;
    }
    value.items.push_back(quote_yaml(file.path) + ": |");
    size_t begin = 0;
    while (begin < file.text.size()) {
      const size_t end = std::min(file.text.find('\n', begin), file.text.size());
      value.items.push_back(end == begin ? "" : "  " + file.text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return value;
}

ScriptValue keys_value(const ScriptSource& source, const std::string& table_path, const Location& at) {
  ScriptValue value;
  value.form = Form::kVerbatim;
  const auto table = load_key_table(source.templates, table_path, at);
  append(source.diagnostics, table.diagnostics);
  if (!table.ok()) return value;
  Result<Entries> written = walk_keys(**table, source.input.fields, source.input.at);
  append(source.diagnostics, written.diagnostics);
  if (written.value.has_value()) value.text = write_entries(*written, (*table)->format);
  if (!value.text.empty()) value.text.pop_back();  // the template has the last newline
  return value;
}

}  // namespace

bool target_condition(const ScriptSource& source, const Value& map) {
  bool present = map.kind == Value::Kind::kMap && !map.entries.empty();
  if (!present) complain(source, map.location, "expected a condition: {field: value}");
  for (const auto& [name, wanted] : map.entries) {
    const Json* found = field_of(source, name, map.location);
    if (found == nullptr) continue;
    std::vector<std::string> texts;
    for (const Value& item : wanted.items) texts.push_back(item.text);
    if (wanted.kind == Value::Kind::kScalar) texts.push_back(wanted.text);
    if (wanted.kind == Value::Kind::kNull) texts.push_back("null");
    present = present && std::find(texts.begin(), texts.end(), field_text(*found)) != texts.end();
  }
  return present;
}

ScriptValue script_value(const ScriptSource& source, const std::string& name, const Value& from) {
  ScriptValue value;
  if (from.kind == Value::Kind::kScalar) {
    const Json* found = field_of(source, from.text, from.location);
    value.present = found != nullptr && !found->is_null();
    if (value.present) value.text = field_text(*found);
    return value;
  }
  if (from.kind != Value::Kind::kMap || from.entries.size() != 1) {
    complain(source, from.location, fmt::format("value '{}' is neither a field nor one of list, lines, switch, keys", name));
    return value;
  }
  const auto& [kind, argument] = from.entries[0];
  const Location& at = argument.location;
  if (kind == "list") return list_value(source, argument.text, Form::kShellList, at);
  if (kind == "lines") return list_value(source, argument.text, Form::kVerbatimList, at);
  if (kind == "switch") return {Form::kSwitch, target_condition(source, argument), "", {}};
  if (kind == "switch_not") return {Form::kSwitch, !target_condition(source, argument), "", {}};
  if (kind == "manifest") return manifest_value(source, argument.text, Form::kVerbatim, at);
  if (kind == "manifest_list") return manifest_value(source, argument.text, Form::kVerbatimList, at);
  if (kind == "plan_lines") return plan_lines(source.input.plan);
  if (kind == "files") return file_lines(source);
  if (kind == "keys") return keys_value(source, path_of_target(source.target, argument.text), at);
  complain(source, from.location, fmt::format("unknown form '{}' of value '{}'", kind, name),
           "known: list, lines, switch, switch_not, keys, manifest, manifest_list, plan_lines, files");
  return value;
}

std::string path_of_target(const std::string& target, const std::string& path) {
  return path.find('/') == std::string::npos ? target + "/" + path : path;
}

}  // namespace distsetup
