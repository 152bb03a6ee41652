// Walking a target's folder: each file is plan.json, a key table or a script template. Everything that is particular to a target is
// in its files; adding one touches no C++ (templates/README.md).
#include "codegen/tables/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/diagnostic_codes.h"
#include "base/map_reader.h"
#include "base/names.h"
#include "base/value.h"
#include "base/value_yaml.h"
#include "codegen/job/script.h"
#include "codegen/shell/quote.h"

namespace distsetup {
namespace {

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
    const auto table = load_key_table(templates, path, at);
    if (!table.ok()) return table.diagnostics;
    format = (*table)->format;
    return walk_keys(**table, source.fields, source.at);
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

  // {derived.single_node: true, ...}: all hold.
  bool condition(const Value& map) {
    bool present = map.kind == Value::Kind::kMap && !map.entries.empty();
    if (!present) fail(map.location, "expected a condition: {field: value}");
    for (const auto& [name, wanted] : map.entries) {
      const Json* found = field(name, map.location);
      if (found == nullptr) continue;
      std::vector<std::string> texts;
      for (const Value& item : wanted.items) texts.push_back(item.text);
      if (wanted.kind == Value::Kind::kScalar) texts.push_back(wanted.text);
      if (wanted.kind == Value::Kind::kNull) texts.push_back("null");
      present = present && std::find(texts.begin(), texts.end(), field_text(*found)) != texts.end();
    }
    return present;
  }

  // A field as YAML scalars of a manifest: Kubernetes and docker compose both read $ themselves, and $$ as $.
  ScriptValue manifest(const std::string& name, Form form, const Location& at) {
    const Json* found = field(name, at);
    ScriptValue value;
    value.form = form;
    value.present = found != nullptr && !found->is_null();
    if (!value.present) return value;
    const auto scalar = [](const Json& one) {
      if (!one.is_string()) return one.dump();
      std::string text;
      for (const char c : one.get<std::string>()) text += c == '$' ? "$$" : std::string(1, c);
      return quote_yaml(text);
    };
    if (form == Form::kVerbatim) value.text = scalar(*found);
    if (found->is_array()) {
      for (const Json& item : *found) value.items.push_back(scalar(item));
    }
    return value;
  }

  // plan.json as lines, for a block of YAML.
  ScriptValue plan_lines() {
    ScriptValue value;
    value.form = Form::kVerbatimList;
    if (source.plan == nullptr) return value;
    std::string line;
    for (const char c : dump_json(to_json(*source.plan))) {
      if (c != '\n') {
        line += c;
      } else {
        value.items.push_back(json_in_yaml(line));
        line.clear();
      }
    }
    return value;
  }

  // Lines '{{>folder/file}}' become that file's text: what several targets say in the same words.
  std::string with_parts(const std::string& text, const Location& at) {
    std::string out;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      const std::string line = text.substr(begin, end - begin);
      if (line.compare(0, 3, "{{>") == 0 && line.size() > 5 && line.compare(line.size() - 2, 2, "}}") == 0) {
        const Result<std::string> part = text_of(templates, resolve(line.substr(3, line.size() - 5)), at);
        append(diagnostics, part.diagnostics);
        if (part.ok()) out += *part;
      } else {
        out += line + (end < text.size() ? "\n" : "");
      }
      begin = end + 1;
    }
    return out;
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
    if (kind == "switch") return {Form::kSwitch, condition(argument), "", {}};
    if (kind == "switch_not") return {Form::kSwitch, !condition(argument), "", {}};
    if (kind == "manifest") return manifest(argument.text, Form::kVerbatim, argument.location);
    if (kind == "manifest_list") return manifest(argument.text, Form::kVerbatimList, argument.location);
    if (kind == "plan_lines") return plan_lines();
    if (kind == "keys") {
      TableFormat format = TableFormat::kDirectives;
      Result<Entries> written = entries(resolve(argument.text), argument.location, format);
      append(diagnostics, written.diagnostics);
      value.form = Form::kVerbatim;
      if (written.value.has_value()) value.text = write_entries(*written, format);
      if (!value.text.empty()) value.text.pop_back();  // the template has the last newline
      return value;
    }
    fail(from.location, fmt::format("unknown form '{}' of value '{}'", kind, name),
         "known: list, lines, switch, switch_not, keys, manifest, manifest_list, plan_lines");
    return value;
  }

  void script(const std::string& path, const std::vector<const Value*>& values, Artifact artifact, const Location& at) {
    Result<std::string> text = text_of(templates, resolve(path), at);
    append(diagnostics, text.diagnostics);
    ScriptValues taken;
    taken["header"] = ScriptValue{Form::kVerbatim, true, header(source), {}};
    for (const Value* some : values) {
      if (some == nullptr) continue;
      for (const auto& [name, from] : some->entries) taken[name] = script_value(name, from);
    }
    if (has_error(diagnostics)) return;
    const std::string whole = with_parts(*text, at);
    if (has_error(diagnostics)) return;
    Result<std::string> rendered = render_script(whole, "templates/" + resolve(path), taken);
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
    const Value *values = reader.child("values"), *also = reader.child("also");  // `values: *those_of_another_file`, and its own
    const Value *when = reader.child("when"), *unless = reader.child("unless");
    reader.finish();
    const bool is_wanted = (when == nullptr || condition(*when)) && (unless == nullptr || !condition(*unless));
    if (artifact.path.empty() || artifact.path[0] == '/' || artifact.path.find("..") != std::string::npos) {
      return fail(value.location, fmt::format("output '{}' is not a path inside the target's folder", artifact.path));
    }
    if (static_cast<int>(plan) + static_cast<int>(!keys.empty()) + static_cast<int>(!script_path.empty()) != 1) {
      return fail(value.location, fmt::format("'{}' needs one of plan, keys, template", artifact.path));
    }
    if (!is_wanted || (source.configs_only && keys.empty())) return;
    if (plan) {
      if (source.plan == nullptr) return;
      artifact.text = dump_json(to_json(*source.plan));
      artifacts.push_back(std::move(artifact));
    } else if (!keys.empty()) {
      Result<Artifact> written = emit_table(templates, resolve(keys), source, artifact.path);
      append(diagnostics, written.diagnostics);
      if (written.ok()) artifacts.push_back(std::move(*written));
    } else {
      script(script_path, {values, also}, std::move(artifact), value.location);
    }
  }
};

}  // namespace

namespace {

Result<KeyTable> read_table(const TemplateSet& templates, const std::string& path, const std::string& text) {
  Result<KeyTable> read = parse_key_table(text, "templates/" + path);
  if (!read.ok()) return read;
  std::vector<KeyRow> rows = std::move(read->rows);
  read->rows.clear();
  for (KeyRow& row : rows) {
    if (row.table.empty()) {
      read->rows.push_back(std::move(row));
      continue;
    }
    if (row.table == path) return error(code::kTemplate, row.location, fmt::format("table '{}' includes itself", path));
    const auto inner = load_key_table(templates, row.table, row.location);
    if (!inner.ok()) return inner.diagnostics;
    include_table(**inner, row.key, row.when, *read);
  }
  return read;
}

}  // namespace

Result<std::shared_ptr<const KeyTable>> load_key_table(const TemplateSet& templates, const std::string& path, const Location& at) {
  const Result<std::string> text = text_of(templates, path, at);
  if (!text.ok()) return text.diagnostics;
  ReadTables* known = templates.read_tables.get();
  if (known != nullptr) {
    const auto found = known->tables.find(path);
    if (found != known->tables.end() && found->second.first == *text) return found->second.second;
  }
  Result<KeyTable> read = read_table(templates, path, *text);
  if (!read.ok()) return read.diagnostics;
  auto table = std::make_shared<const KeyTable>(std::move(*read));
  if (known != nullptr) known->tables.insert_or_assign(path, std::pair{*text, table});
  return {std::move(table), std::move(read.diagnostics)};
}

Result<Artifact> emit_table(const TemplateSet& templates, const std::string& table, const Source& source, const std::string& path) {
  Walk walk{templates, table, source, {}, {}};
  TableFormat format = TableFormat::kJson;
  Result<Entries> entries = walk.entries(table, source.at, format);
  if (!entries.ok()) return entries.diagnostics;
  Artifact artifact{path, write_entries(*entries, format), false};
  const bool has_comments = format == TableFormat::kYaml || format == TableFormat::kToml;
  if (has_comments) artifact.text = header(source) + "\n" + artifact.text;
  return {std::move(artifact), std::move(entries.diagnostics)};
}

namespace {

// What a target.yaml says before its files.
struct Description {
  Value root;
  const Value *files = nullptr, *set = nullptr;
  std::string rules;  // a key table without keys: what the target refuses
  TargetSearch search;
  const Value* search_of = nullptr;  // trainer -> what it has less
};

// search: {strategy.sharding: [ddp, zero3], ...}: what of the plan's choices the target has a form for.
void read_search(const Value& map, TargetSearch& search, Diagnostics& diagnostics, const Value** of = nullptr) {
  MapReader reader(map, "search", diagnostics);
  reader.get("trainer", search.trainers);
  reader.get("sharding", search.shardings);
  reader.get("recompute", search.recomputes);
  reader.get("hybrid", search.hybrid);
  reader.get("keeps_parameters", search.keeps_parameters);
  std::vector<std::string> axes;
  if (reader.get("axes", axes)) search.axes = axes;
  if (of != nullptr) *of = reader.child("of");
  reader.finish();
}

Result<Description> describe(const TemplateSet& templates, const std::string& target, const Location& at) {
  static constexpr std::array<std::string_view, 4> kProofs = {"run", "parsed", "schema", "table"};
  const std::string path = target + "/target.yaml";
  const std::string* text = find_file(templates, path);
  if (text == nullptr)
    return error(code::kUnknownTarget, at, fmt::format("unknown target '{}'", target), suggest(target, target_names(templates)));
  Result<Value> root = parse_yaml(*text, "templates/" + path);
  if (!root.ok()) return root.diagnostics;
  Description out;
  out.root = std::move(*root);
  Diagnostics diagnostics;
  int64_t version = 0;
  std::string describes, proof, proof_of;
  MapReader reader(out.root, "a target", diagnostics);
  for (const char* key : {"version", "describes", "proof", "files"}) reader.require(key);
  reader.get("version", version);
  reader.get("describes", describes);
  reader.get("proof", proof);
  reader.get("proof_of", proof_of);  // the tool and release that the proof is of
  out.files = reader.child("files");
  out.set = reader.child("set");
  (void)reader.child("not_applicable");  // reasons for codegen/coverage.h
  reader.get("rules", out.rules);
  if (const Value* search = reader.child("search")) read_search(*search, out.search, diagnostics, &out.search_of);
  reader.finish();
  const auto fail = [&](std::string message, std::string help = "") {
    diagnostics.push_back(error(code::kTemplate, out.root.location, std::move(message), std::move(help)));
  };
  if (version != 1) fail(fmt::format("target of version {}, expected 1", version));
  if (std::find(kProofs.begin(), kProofs.end(), proof) == kProofs.end())
    fail(fmt::format("unknown proof '{}'", proof), "known: run, parsed, schema, table");
  if (has_error(diagnostics)) return diagnostics;
  return {std::move(out), std::move(diagnostics)};
}

// set: {options.fsdp_version: 1}: what makes a target of a table that serves several.
Fields with_settings(const Description& described, Fields fields, Diagnostics& diagnostics) {
  if (described.set == nullptr) return fields;
  for (const auto& [name, value] : described.set->entries) {
    const auto found = fields.find(name);
    if (found == fields.end() || name.compare(0, 8, "options.") != 0) {
      diagnostics.push_back(
          error(code::kTemplate, value.location, fmt::format("'{}' cannot be set, expected an options.* field", name)));
    } else if (const Result<int64_t> number = as_int(value); number.ok()) {
      found->second = *number;
    } else if (const Result<bool> truth = as_bool(value); truth.ok()) {
      found->second = *truth;
    } else {
      found->second = value.text;
    }
  }
  return fields;
}

}  // namespace

Result<TargetSearch> target_search(const TemplateSet& templates, std::string_view target, std::string_view trainer) {
  Result<Description> described = describe(templates, std::string(target), {"command line", 0, 0});
  if (!described.ok()) return described.diagnostics;
  const Value* of = described->search_of == nullptr ? nullptr : described->search_of->find(trainer);
  if (of == nullptr) return std::move(described->search);
  Diagnostics diagnostics;
  read_search(*of, described->search, diagnostics);
  if (has_error(diagnostics)) return diagnostics;
  return std::move(described->search);
}

Result<Artifacts> emit_target(const TemplateSet& templates, const std::string& target, Source source) {
  const Result<Description> described = describe(templates, target, source.at);
  if (!described.ok()) return described.diagnostics;
  Diagnostics diagnostics = described.diagnostics;
  source.fields = with_settings(*described, std::move(source.fields), diagnostics);
  Walk walk{templates, target, source, {}, std::move(diagnostics)};
  if (!described->rules.empty()) {
    TableFormat format = TableFormat::kYaml;
    append(walk.diagnostics, walk.entries(walk.resolve(described->rules), described->root.location, format).diagnostics);
  }
  if (has_error(walk.diagnostics)) return walk.diagnostics;
  for (const Value& file : described->files->items) walk.file(file);
  if (has_error(walk.diagnostics)) return walk.diagnostics;
  for (const Artifact& artifact : walk.artifacts) {  // a shell takes any bytes
    const bool is_script = artifact.executable || artifact.text.compare(0, 2, "#!") == 0;
    if (is_script || is_utf8(artifact.text)) continue;
    walk.diagnostics.push_back(error(code::kWrongType, source.at,
                                     fmt::format("'{}' would hold bytes that are no UTF-8 text, expected text", artifact.path),
                                     "rename what has them"));
  }
  if (has_error(walk.diagnostics)) return walk.diagnostics;
  return {std::move(walk.artifacts), std::move(walk.diagnostics)};
}

}  // namespace distsetup
