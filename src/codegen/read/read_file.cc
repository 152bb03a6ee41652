#include "codegen/read/read_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "codegen/read/best_table.h"
#include "codegen/read/job_steps.h"
#include "codegen/read/known_keys.h"
#include "codegen/read/loose_json.h"
#include "codegen/read/manifest.h"
#include "codegen/read/named_method.h"
#include "codegen/read/read_script.h"
#include "codegen/read/recognise.h"
#include "codegen/read/tree.h"
#include "codegen/shell/quote.h"
#include "codegen/tables/load_table.h"

namespace distsetup {
namespace {

// The keys at the top that some table knows.
size_t num_known_keys(const TemplateSet& templates, const foreign::Document& document) {
  KnownKeys known;
  for (const std::string& path : tables_of(templates, {"json", "yaml", "toml"})) {
    const auto table = load_read_table(templates, path, {document.path, 0, 0});
    if (table.ok()) add_known_keys(known, **table);
  }
  const auto& entries = document.root.entries;
  return static_cast<size_t>(
      std::count_if(entries.begin(), entries.end(), [&known](const auto& one) { return known.knows(one.first, &one.second); }));
}

// A program that trains by files which are not read, where a command of the script starts one; "": none.
std::string program_of_another_tool(const foreign::Document& document) {
  static constexpr std::string_view kPrograms[] = {"composer", "litgpt", "oumi", "autotrain", "ludwig", "fairseq2", "mlx_lm.lora"};
  for (const foreign::ScriptPart& part : document.parts) {
    for (const foreign::ShellCommand& command : part.script.commands) {
      if (command.is_dead || command.expanded.size() < 2) continue;
      const std::string& first = command.expanded[0].text;
      const std::string base = first.substr(first.rfind('/') + 1);
      const bool starts = base == "fabric" ? command.expanded[1].text == "run"
                                           : std::find(std::begin(kPrograms), std::end(kPrograms), base) != std::end(kPrograms);
      if (starts) return base;
    }
  }
  return "";
}

Diagnostic nothing_known(const TemplateSet& templates, const foreign::Document& document) {
  const std::string& file = document.path;
  if (const std::string program = program_of_another_tool(document); !program.empty()) {
    return error(code::kUnknownValue, {file, 0, 0},
                 fmt::format("the script starts '{}', a program whose runs distsetup does not read", program),
                 "plan it by what it says (--model, --nodes, --gpus, --micro-batch)");
  }
  if (foreign::says_nothing(document)) {
    return error(code::kUnknownValue, {file, 0, 0}, fmt::format("'{}' is empty, or has nothing but comments", file),
                 "take out the # in front of what is meant to act");
  }
  if (const size_t num = document.is_structured() ? num_known_keys(templates, document) : 0; num > 0) {
    return error(code::kUnknownValue, {file, 0, 0},
                 fmt::format("'{}' is of no known tool: tools have {} of its {} keys, and none that tells which tool it is", file, num,
                             document.root.entries.size()),
                 "name the tool with --as, such as --as deepspeed, or give the script that starts the training");
  }
  return error(code::kUnknownValue, {file, 0, 0},
               fmt::format("no table knows a key of '{}', expected a configuration file or launch script of a known tool", file),
               "name the tool with --as, such as --as deepspeed");
}

Diagnostics with_warnings(Diagnostic refusal, const Diagnostics& said) {
  Diagnostics out = {std::move(refusal)};
  append(out, said);
  return out;
}

std::string table_named(const TemplateSet& templates, const std::string& name) {
  for (const auto& entry : templates.files) {
    if (entry.first == name || entry.first == name + "/keys.yaml") return entry.first;
  }
  return "";
}

// The last of keys that are given twice, as PyYAML takes it.
Value with_last_of_each(const Value& value) {
  Value out = value;
  out.entries.clear();
  out.key_locations.clear();
  for (size_t i = 0; i < value.entries.size(); ++i) {
    const auto is_again = [&](const Value::Entry& one) { return one.first == value.entries[i].first; };
    if (std::any_of(value.entries.begin() + static_cast<std::ptrdiff_t>(i) + 1, value.entries.end(), is_again)) continue;
    out.entries.push_back({value.entries[i].first, with_last_of_each(value.entries[i].second)});
    out.key_locations.push_back(value.key_locations[i]);
  }
  return out;
}

// Tables that may read a structured file: those of its kind, and those that belong to no kind (of one's own, with --templates), which
// have to know half of the keys of a file of no kind.
Result<std::vector<std::string>> tables_for(const TemplateSet& templates, const foreign::Document& document) {
  const auto kinds = load_kinds(templates);
  if (!kinds.ok()) return kinds.diagnostics;
  const bool is_toml = document.form == foreign::TextForm::kToml;
  std::vector<std::string> tables =
      tables_of(templates, is_toml ? std::vector<std::string_view>{"toml"} : std::vector<std::string_view>{"json", "yaml"});
  const auto has = [](const FileKind& kind, const std::string& table) {
    return std::find(kind.tables.begin(), kind.tables.end(), table) != kind.tables.end();
  };
  std::erase_if(tables, [&](const std::string& table) {
    const auto is_its = [&](const FileKind& kind) { return has(kind, table); };
    const bool is_own = document.kind != nullptr && has(*document.kind, table);
    return !is_own && std::any_of((*kinds)->all.begin(), (*kinds)->all.end(), is_its);
  });
  if (document.kind != nullptr) return tables;
  std::vector<std::string> out;
  for (const std::string& path : tables) {
    const auto table = load_read_table(templates, path, {document.path, 0, 0});
    if (!table.ok()) return table.diagnostics;
    KnownKeys known;
    add_known_keys(known, **table);
    const auto& entries = document.root.entries;
    const auto num_known =
        std::count_if(entries.begin(), entries.end(), [&known](const auto& one) { return known.knows(one.first, &one.second); });
    if (is_most(static_cast<size_t>(num_known), entries.size())) out.push_back(path);
  }
  return out;
}

// Of a file that holds a command's arguments by their names: the command's table. "": of any other.
Result<std::string> table_of_command(const TemplateSet& templates, const foreign::Document& document) {
  if (document.kind == nullptr || document.kind->tables.size() != 1) return std::string();
  const std::string& path = document.kind->tables[0];
  const auto table = load_read_table(templates, path, {document.path, 0, 0});
  if (!table.ok()) return table.diagnostics;
  return (*table)->format == TableFormat::kArguments ? path : std::string();
}

// A program's own file, which hands its values to the tool: what is not there may stand in the program.
Result<bool> is_handed_on(const TemplateSet& templates, const foreign::Document& document) {
  if (document.kind == nullptr) return false;
  const auto kinds = load_kinds(templates);
  if (!kinds.ok()) return kinds.diagnostics;
  const FileKind* around = document.kind->within.empty() ? document.kind.get() : (*kinds)->find(document.kind->within);
  return around != nullptr && std::any_of(around->handed_on.begin(), around->handed_on.end(), [&document](const auto& word) {
           return document.root.find(word.first) != nullptr && document.root.find(word.second) == nullptr;
         });
}

// A structured file by the table at `path` ("" = the one that knows most of its keys).
Result<std::vector<Reading>> read_tree(const TemplateSet& templates, const foreign::Document& document, const std::string& path,
                                       const ReadChoices& choices) {
  Diagnostics twice = document.broken;
  const bool is_readable = document.form == foreign::TextForm::kYaml && !document.roots.empty() &&
                           std::all_of(twice.begin(), twice.end(), [](const Diagnostic& d) { return d.code == code::kDuplicateKey; });
  if (has_error(document.broken) && !is_readable) return document.broken;
  for (Diagnostic& one : twice) one.severity = Severity::kWarning;
  if (document.roots.size() > 1)
    return error(code::kSyntax, document.roots[1].location, "found a second document, expected one", "remove it and the '---' above");
  const Value root = twice.empty() ? document.root : with_last_of_each(document.root);
  FileSource source{&root, {}, &choices};
  if (path == "trl/keys.yaml") source.found = {script_of_trl("trl")};  // somebody says that it is read by TRL's own program
  const Result<std::string> own = path.empty() ? table_of_command(templates, document) : Result<std::string>(path);
  if (!own.ok()) return own.diagnostics;
  Result<Reading> read;
  if (own->empty()) {
    const Result<std::vector<std::string>> tables = tables_for(templates, document);
    if (!tables.ok()) return tables.diagnostics;
    read = best_reading(templates, *tables, source, document.path);
  } else {
    read = reading_by(templates, *own, source, document.path);
  }
  if (!read.ok()) return read.diagnostics;
  const Result<bool> handed_on = is_handed_on(templates, document);
  if (!handed_on.ok()) return handed_on.diagnostics;
  if (*handed_on) drop_assumed(*read);
  assume_fsdp_of_trainer(root.location, false, *read);
  append(twice, apply_keys_of_rollouts(*read));
  std::vector<Reading> out;
  if (!read->table.empty()) out.push_back(std::move(*read));
  return {std::move(out), std::move(twice)};
}

// fsdp_config of the Trainer in a file of its own (--fsdp_config fsdp.json) is read as the section that it is. Of the other arguments
// nothing is known and nothing assumed, nor which of FSDP's forms they ask for.
Result<std::vector<Reading>> read_fsdp_config(const TemplateSet& templates, const foreign::Document& document,
                                              const ReadChoices& choices) {
  const std::string section = "fsdp_config";
  Value root;
  root.kind = Value::Kind::kMap;
  root.entries = {{"fsdp", scalar_value("true", document.root.location)}, {section, document.root}};
  root.key_locations = {document.root.location, document.root.location};
  Result<Reading> read = reading_by(templates, "fsdp_trainer/keys.yaml", {&root, {}, &choices}, document.path);
  if (!read.ok()) return read.diagnostics;
  const auto bare = [&section](std::string& key) {
    if (key.starts_with(section + ".")) key.erase(0, section.size() + 1);
  };
  // Of version 1 the form is what "fsdp" says ("full_shard", "shard_grad_op"), which is not here.
  const bool says_form =
      foreign::real(document.root, "version").value_or(1) == 2 || foreign::has(document.root, "reshard_after_forward");
  std::erase_if(read->fields,
                [says_form](const auto& one) { return one.second.is_assumed || (one.second.key == "fsdp" && !says_form); });
  for (auto& [field, one] : read->fields) bare(one.key);
  for (LostKey& one : read->lost) bare(one.key);
  read->tool = "fsdp_config of transformers TrainingArguments";
  return std::vector<Reading>{std::move(*read)};
}

// A manifest that no machines could be read from: of a kind that is not read, or of one that names none.
Diagnostic nothing_in_manifest(const foreign::Document& document) {
  std::string kinds;
  for (const Value& root : document.roots) kinds += (kinds.empty() ? "" : ", ") + foreign::text(root, "kind");
  return error(code::kUnknownValue, {document.path, 0, 0},
               fmt::format("the manifest holds {}, of which no nodes, GPUs or commands were read", kinds.empty() ? "nothing" : kinds),
               fmt::format("these are read, with the commands of their containers: {}", kinds_of_manifests()));
}

Diagnostic no_settings(const foreign::Document& document) {
  return error(code::kUnknownValue, {document.path, 0, 0},
               fmt::format("the file is of the kind '{}', and nothing in it is a setting of a run", document.kind->says),
               "distsetup lint looks at it");
}

// Nothing to be converted.
Diagnostic own_form(const foreign::Document& document) {
  return error(code::kUnknownValue, {document.path, 0, 0},
               fmt::format("the file is a {} of distsetup, which is used as it is", document.kind->says),
               document.is(file_kind::kRun) ? "distsetup plan " + quote_shell(document.path) : "--site " + quote_shell(document.path));
}

Diagnostic comments_in(const foreign::Document& document) {
  Diagnostic one = document.broken[0];
  one.severity = Severity::kWarning;
  one.message =
      "JSON has neither comments nor commas before a closing bracket: the file is read without them, which most tools do not";
  one.help = "take them out";
  return one;
}

// A template that is no JSON or YAML before it is filled in.
std::optional<Diagnostic> unfilled(const foreign::Document& document) {
  for (const Diagnostic& one : document.broken) {
    const std::string word = foreign::template_mark(document.text, document.offset(one.location));
    if (!word.empty()) {
      return error(code::kUnknownValue, one.location,
                   fmt::format("'{}': the file is a template, which does not parse before it is filled in", word),
                   "give the file that comes out of it");
    }
  }
  return std::nullopt;
}

std::string_view without_dot(std::string_view path) { return path.substr(path.substr(0, 2) == "./" ? 2 : 0); }

// A job that the script writes and submits: sbatch <<EOF, cat > job.sh <<EOF.
void add_written_jobs(const TemplateSet& templates, const foreign::Document& script, const ReadChoices& choices,
                      Result<std::vector<Reading>>& readings) {
  for (const foreign::ScriptPart& part : script.parts) {
    for (const foreign::ScriptFile& file : part.script.files) {
      const bool is_job = file.text.find("#SBATCH ") != std::string::npos || file.text.find("#PBS ") != std::string::npos ||
                          file.text.find("#BSUB ") != std::string::npos;
      if (!is_job) continue;
      Result<std::vector<Reading>> read = read_config(templates, file.text, file.path, "", choices);
      if (!read.ok()) continue;
      append(readings.diagnostics, read.diagnostics);
      for (Reading& one : *read) readings->push_back(std::move(one));
    }
  }
}

}  // namespace

Result<std::vector<Reading>> read_document(const TemplateSet& templates, const foreign::Document& document, const std::string& table,
                                           const ReadChoices& choices) {
  const std::string path = table.empty() ? "" : table_named(templates, table);
  if (!table.empty() && path.empty()) {
    return error(code::kUnknownTarget, {"command line", 0, 0}, fmt::format("no target '{}' to read '{}' as", table, document.path),
                 suggest(table, target_names(templates)));
  }
  if (path.empty() && document.kind != nullptr && document.kind->is_foreign) return foreign::foreign_format(document);
  if (path.empty() && (document.is(file_kind::kRun) || document.is(file_kind::kSite))) return own_form(document);
  if (const foreign::DocumentPointer plain = foreign::without_comments(document)) {
    Result<std::vector<Reading>> read = read_document(templates, *plain, table, choices);
    read.diagnostics.push_back(comments_in(document));
    return read;
  }
  if (document.is_structured() && has_error(document.broken)) {
    if (std::optional<Diagnostic> filled_in_later = unfilled(document)) return *filled_in_later;
  }
  Result<std::vector<Reading>> read = document.is_script()                             ? read_script(templates, document)
                                      : document.form == foreign::TextForm::kArguments ? read_arguments(templates, document, path)
                                      : document.form == foreign::TextForm::kLines     ? read_lines(templates, document)
                                      : path.empty() && (document.is(file_kind::kKubernetes) || document.is(file_kind::kSkypilot))
                                          ? read_manifest(templates, document)
                                          : read_tree(templates, document, path, choices);
  if (read.ok() && read->empty() && document.is(file_kind::kTrainerFsdp) && document.is_structured())
    read = read_fsdp_config(templates, document, choices);
  for (const auto& [key, at] : read.ok() && !read->empty() ? document.beside : std::vector<std::pair<std::string, Location>>())
    (*read)[0].lost.push_back({key, "another tool's", "it stands beside the section that is DeepSpeed's, and is not read", at});
  if (read.ok() && document.is_script()) add_written_jobs(templates, document, choices, read);
  if (read.ok() && read->empty()) {
    const bool is_list = document.kind != nullptr && document.form == foreign::TextForm::kLines;
    return document.is(file_kind::kKubernetes) ? Diagnostics{nothing_in_manifest(document)}
           : is_list                           ? Diagnostics{no_settings(document)}
                                               : with_warnings(nothing_known(templates, document), read.diagnostics);
  }
  if (read.ok() && (document.is_script() || document.is(file_kind::kKubernetes)))
    add_written_files(templates, document, choices, *read, read.diagnostics);
  // A script that the shell refuses is read as far as it goes, and is no error: it may be a form to be filled in.
  for (Diagnostic one : document.is_script() ? document.broken : Diagnostics{}) {
    one.severity = Severity::kWarning;
    read.diagnostics.push_back(std::move(one));
  }
  return read;
}

// Of a file that the script writes: a variable that nothing sets is still there.
static void drop_unknown_variables(Reading& reading) {
  std::erase_if(reading.fields, [&reading](const auto& one) {
    const std::string text = field_text(one.second.value);
    const size_t dollar = text.find('$');
    if (dollar == std::string::npos || dollar + 1 >= text.size()) return false;
    reading.lost.push_back(
        {one.second.key, text, fmt::format("only the running script knows {}", text.substr(dollar)), one.second.at});
    return true;
  });
}

void add_written_files(const TemplateSet& templates, const foreign::Document& script, const ReadChoices& choices,
                       std::vector<Reading>& readings, Diagnostics& diagnostics) {
  const auto add = [&](const std::string& text, const std::string& path, bool expands, const auto& is_it) {
    const LostKey* naming = nullptr;
    for (const Reading& one : readings) {
      const auto found = std::find_if(one.lost.begin(), one.lost.end(), is_it);
      if (naming == nullptr && found != one.lost.end()) naming = &*found;
    }
    if (naming == nullptr) return;
    const bool is_over_script = naming->key == kLightningFile;
    Result<std::vector<Reading>> read = read_config(templates, text, path, "", choices);
    if (!read.ok()) {  // it stays a file of settings that were not read
      for (Reading& one : readings) {
        for (LostKey& lost : one.lost) {
          if (is_it(lost) && lost.is_file) lost.reason = fmt::format("'{}' stands in this file, and no table knows its keys", path);
        }
      }
      return;
    }
    for (Reading& one : readings) std::erase_if(one.lost, is_it);
    append(diagnostics, read.diagnostics);
    for (Reading& one : *read) {
      one.is_over_script = is_over_script;
      if (expands) drop_unknown_variables(one);
      readings.push_back(std::move(one));
    }
  };
  for (const foreign::ScriptPart& part : script.parts) {
    for (const foreign::ScriptFile& file : part.script.files)
      add(file.text, file.path, file.expands, [&file](const LostKey& lost) {
        return without_dot(lost.text) == without_dot(file.path) || (!file.spelled.empty() && lost.text == file.spelled);
      });
  }
  // A ConfigMap's entries are files of the folder that it is mounted at.
  for (const Value& root : script.roots) {
    const foreign::TreeNode data = foreign::text(root, "kind") == "ConfigMap" ? foreign::node(root, "data") : foreign::TreeNode();
    if (!data || data.value->kind != Value::Kind::kMap) continue;
    for (const auto& [name, value] : data.value->entries) {
      if (value.kind != Value::Kind::kScalar) continue;
      add(value.text, name, false, [&end = name](const LostKey& lost) { return lost.is_file && lost.text.ends_with("/" + end); });
    }
  }
}

Result<std::vector<Reading>> read_config(const TemplateSet& templates, std::string_view text, const std::string& file,
                                         const std::string& table, const ReadChoices& choices) {
  const Result<foreign::DocumentPointer> document = foreign::parse_document(templates, file, text);
  if (!document.ok()) return document.diagnostics;
  return read_document(templates, **document, table, choices);
}

}  // namespace distsetup
