// A file as the keys of tables. Structured files: every table of the format is tried, and the one that leaves fewest keys unread is
// the file's; no list of marks has to be kept. Scripts: #SBATCH lines, the flags of each launcher, the arguments of the program it
// starts, each with the table of its own.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "base/tree_builder.h"
#include "base/value_json.h"
#include "base/value_toml.h"
#include "base/value_yaml.h"
#include "codegen/lint/stage.h"
#include "codegen/read/explain.h"
#include "codegen/read/manifest.h"
#include "codegen/read/match.h"
#include "codegen/read/names.h"
#include "codegen/read/read.h"
#include "codegen/tables/load_table.h"

namespace distsetup {
namespace {

constexpr std::string_view kDirectives = "slurm/directives.yaml", kManifest = "launchers/kubernetes.yaml";

enum class TextForm { kJsonText, kYamlText, kTomlText, kScriptText, kArgumentText };

bool ends_in(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool has_line_that_starts(std::string_view text, std::string_view with) {
  return text.substr(0, with.size()) == with || text.find("\n" + std::string(with)) != std::string_view::npos;
}

TextForm form_of(std::string_view text, const std::string& file) {
  const size_t first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  const char begin = first == std::string_view::npos ? '\0' : text[first];
  if (ends_in(file, ".json") || begin == '{') return TextForm::kJsonText;
  if (ends_in(file, ".yaml") || ends_in(file, ".yml")) return TextForm::kYamlText;
  if (ends_in(file, ".toml")) return TextForm::kTomlText;
  const bool is_script =
      text.substr(0, 2) == "#!" || has_line_that_starts(text, "#SBATCH") || ends_in(file, ".sh") || ends_in(file, ".sbatch");
  if (is_script) return TextForm::kScriptText;
  if (begin == '-' && text.substr(first, 2) == "--" && text.substr(first, 3) != "---") return TextForm::kArgumentText;
  if (begin == '[') return TextForm::kTomlText;
  for (const std::string_view launcher : {"torchrun", "accelerate launch", "deepspeed ", "srun ", "mpirun ", "python"}) {
    if (text.find(launcher) != std::string_view::npos) return TextForm::kScriptText;
  }
  return TextForm::kYamlText;
}

bool says_format(std::string_view table, std::string_view format) {
  return table.find("\nformat: " + std::string(format)) != std::string_view::npos;
}

// Tables of the formats, by path.
std::vector<std::string> tables_of(const TemplateSet& templates, const std::vector<std::string_view>& formats) {
  std::vector<std::string> out;
  for (const auto& [path, text] : templates.files) {
    const bool is_table = path[0] != '_' && ends_in(path, "keys.yaml");
    if (is_table &&
        std::any_of(formats.begin(), formats.end(), [&t = text](std::string_view format) { return says_format(t, format); }))
      out.push_back(path);
  }
  return out;
}

Reading unread(const std::vector<Found>& found, const std::string& file, const std::string& what) {
  Reading reading;
  reading.file = file;
  reading.tool = what;
  for (const Found& one : found)
    reading.lost.push_back({one.key, one.text, fmt::format("no table knows the arguments of {}", what), one.at});
  return reading;
}

size_t num_known(const KeyTable& table, const std::vector<Found>& found) {
  return static_cast<size_t>(std::count_if(found.begin(), found.end(), [&table](const Found& one) {
    std::string key = one.key;
    for (const auto& [from, to] : table.read_as) {
      if (key.size() >= from.size() && is_same_key(std::string_view(key).substr(0, from.size()), from))
        key = to + key.substr(from.size());
    }
    return std::any_of(table.rows.begin(), table.rows.end(), [&key](const KeyRow& row) { return is_same_key(row.key, key); }) ||
           std::any_of(table.reads.begin(), table.reads.end(), [&key](const ReadRow& row) { return is_same_key(row.key, key); });
  }));
}

Result<KeyTable> load_read_table(const TemplateSet& templates, const std::string& path, const std::string& file);

// A table with what the target's reads.yaml adds to it, and those that it includes.
Result<KeyTable> parse_read_table(const TemplateSet& templates, const std::string& path, const std::string& file) {
  const std::string* text = find_file(templates, path);
  if (text == nullptr) return error(code::kTemplate, {file, 0, 0}, fmt::format("no template '{}'", path));
  Result<KeyTable> parsed = parse_key_table(*text, "templates/" + path);
  if (!parsed.ok()) return parsed;
  KeyTable table = std::move(*parsed);
  std::vector<KeyRow> rows = std::move(table.rows);
  table.rows.clear();
  for (KeyRow& row : rows) {
    if (row.table.empty()) {
      table.rows.push_back(std::move(row));
      continue;
    }
    const Result<KeyTable> inner = load_read_table(templates, row.table, file);
    if (!inner.ok()) return inner;
    const size_t before = table.reads.size();
    include_table(*inner, row.key, row.when, table);
    // A tool assumes nothing for a section that is not there.
    for (size_t i = before; i < table.reads.size() && !row.key.empty(); ++i) table.reads[i].given.push_back({row.key + ".*", {"*"}});
    const std::string section = row.key.empty() ? "" : row.key + ".";
    for (const auto& [from, to] : inner->read_as) table.read_as.emplace_back(section + from, section + to);
    for (const std::string& key : inner->words) table.words.push_back(section + key);
    for (const std::string& name : inner->accepted) table.accepted.insert(section + name);
  }
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  const std::string more_path = folder + "reads.yaml";
  const std::string* more_text = path == more_path ? nullptr : find_file(templates, more_path);
  if (more_text == nullptr) {
    add_accepted_names(templates, table);
    return table;
  }
  Result<KeyTable> more = parse_key_table(*more_text, "templates/" + more_path);
  if (!more.ok()) return more;
  const auto add = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  // Rows of the target's own come before those of tables that it includes.
  more->reads.insert(more->reads.end(), table.reads.begin(), table.reads.end());
  table.reads = std::move(more->reads);
  add(table.read_as, more->read_as);
  add(table.words, more->words);
  add(table.accepts, more->accepts);
  add_accepted_names(templates, table);
  return table;
}

// Each once for a set of templates: finding the table of a file asks all of them.
Result<KeyTable> load_read_table(const TemplateSet& templates, const std::string& path, const std::string& file) {
  if (templates.read_tables == nullptr) return parse_read_table(templates, path, file);
  auto& known = templates.read_tables->with_reads;
  if (const auto it = known.find(path); it != known.end()) return it->second;
  Result<KeyTable> table = parse_read_table(templates, path, file);
  if (table.ok()) known.emplace(path, *table);
  return table;
}

// What is read: a tree, whose parts a table knows, or keys as they are.
struct FileSource {
  const Value* root = nullptr;
  std::vector<Found> found;
  const ReadChoices* choices = nullptr;
};

TakenParts parts_of(const KeyTable& table, const FileSource& source) {
  if (source.root != nullptr) return take_parts(table, *source.root, *source.choices);
  TakenParts out;
  out.found = source.found;
  return out;
}

Reading reading_of(const KeyTable& table, TakenParts parts, const std::string& path, const std::string& file) {
  Reading reading = read_keys(table, parts.found, file);
  reading.table = path;
  reading.lost.insert(reading.lost.end(), parts.lost.begin(), parts.lost.end());
  reading.stage = std::move(parts.stage);
  reading.setup = std::move(parts.setup);
  reading.assigned = std::move(parts.assigned);
  return reading;
}

// Of a file without a key that the table has a row of its own for: sections it takes one entry of, keys below a "wandb.*" of it.
size_t num_half_known(const KeyTable& table, const FileSource& source, const TakenParts& parts) {
  if (source.root == nullptr) return 0;
  const auto is_known = [&table](const Found& one) {
    return std::any_of(table.reads.begin(), table.reads.end(), [&one](const ReadRow& row) { return is_below(row.key, one.key); });
  };
  return parts.num_sections + static_cast<size_t>(std::count_if(parts.found.begin(), parts.found.end(), is_known));
}

// The table that knows most of the keys, of these the one that leaves fewest unread, of these the one that would add least, of these
// the one that assumes least.
Result<Reading> best_reading(const TemplateSet& templates, const std::vector<std::string>& tables, const FileSource& source,
                             const std::string& file) {
  Reading best;
  std::pair<size_t, size_t> most;
  Diagnostics diagnostics;
  for (const std::string& path : tables) {
    const Result<KeyTable> table = load_read_table(templates, path, file);
    if (!table.ok()) return table.diagnostics;
    TakenParts parts = parts_of(*table, source);
    std::pair<size_t, size_t> known = {num_known(*table, parts.found), 0};
    if (known.first == 0) known.second = num_half_known(*table, source, parts);
    if (known == std::pair<size_t, size_t>() || known < most) continue;
    Diagnostics said = std::move(parts.diagnostics);
    Reading reading = reading_of(*table, std::move(parts), path, file);
    const auto rest = [](const Reading& one) {
      const auto is_assumed = [](const auto& field) { return field.second.is_assumed; };
      return std::tuple(one.lost.size(), one.num_missing, std::count_if(one.fields.begin(), one.fields.end(), is_assumed));
    };
    if (known == most && rest(reading) >= rest(best)) continue;
    most = known;
    best = std::move(reading);
    diagnostics = std::move(said);
  }
  if (has_error(diagnostics)) return diagnostics;
  return best;
}

Result<Reading> reading_by(const TemplateSet& templates, const std::string& path, const FileSource& source, const std::string& file) {
  const Result<KeyTable> table = load_read_table(templates, path, file);
  if (!table.ok()) return table.diagnostics;
  TakenParts parts = parts_of(*table, source);
  if (has_error(parts.diagnostics)) return parts.diagnostics;
  return reading_of(*table, std::move(parts), path, file);
}

std::string table_of(lint::Program program) {
  switch (program) {
    case lint::Program::kSrun: return "launchers/srun.yaml";
    case lint::Program::kTorchrun: return "launchers/torchrun.yaml";
    case lint::Program::kDeepspeed: return "launchers/deepspeed.yaml";
    case lint::Program::kAccelerate: return "launchers/accelerate.yaml";
    case lint::Program::kMpirun: return "launchers/mpirun.yaml";
    case lint::Program::kScript:
    case lint::Program::kOther: break;
  }
  return "";
}

class ScriptReading {
 public:
  ScriptReading(const TemplateSet& templates, std::string_view text, const std::string& file)
      : templates_(templates),
        file_(file),
        source_(text, file),
        script_(lint::taken_branches(lint::parse_shell(text, {0, text.size()}))) {}

  Result<std::vector<Reading>> run() {
    directives();
    for (const lint::Line& line : lint::find_lines(script_)) {
      for (const lint::Stage& stage : line.stages) read_stage(stage);
    }
    if (has_error(diagnostics_)) return diagnostics_;
    return {std::move(readings_), std::move(diagnostics_)};
  }

  // A manifest and the commands in it; places of both are in its text.
  Result<std::vector<Reading>> run_manifest(const lint::Document& manifest) {
    if (has_error(manifest.broken)) return manifest.broken;
    add(reading_by(templates_, std::string(kManifest), {nullptr, keys_of_manifest(manifest), nullptr}, file_));
    for (const lint::ScriptPart& part : manifest.parts) {
      for (const lint::Line& line : part.lines) {
        for (const lint::Stage& stage : line.stages) read_stage(stage);
      }
    }
    if (has_error(diagnostics_)) return diagnostics_;
    return {std::move(readings_), std::move(diagnostics_)};
  }

 private:
  Found found(const std::string& key, const std::string& value, bool has_value, const lint::Span& span) const {
    Found one;
    one.key = key;
    one.text = has_value ? value : "true";
    one.stands_alone = !has_value;
    one.at = source_.at(span.begin);
    const size_t dollar = value.find_first_of("$`");
    if (dollar != std::string::npos) one.unknown = fmt::format("only the running script knows {}", value.substr(dollar));
    return one;
  }

  void add(Result<Reading> reading) {
    append(diagnostics_, reading.diagnostics);
    if (reading.ok() && (!reading->fields.empty() || !reading->lost.empty())) readings_.push_back(std::move(*reading));
  }

  void directives() {
    std::vector<Found> keys;
    for (const lint::Directive& one : script_.directives) {
      if (!one.is_late) keys.push_back(found(one.name, one.value, !one.value.empty(), one.span));
    }
    if (!keys.empty()) add(reading_by(templates_, std::string(kDirectives), {nullptr, keys, nullptr}, file_));
  }

  void read_stage(const lint::Stage& stage) {
    std::vector<Found> keys;
    for (const lint::Option& option : stage.options) {
      keys.push_back(found(option.name, option.value, option.has_value, option.span));
      if (option.more.empty()) continue;
      keys.back().items = option.more;
      keys.back().items.insert(keys.back().items.begin(), option.value);
    }
    if (keys.empty()) return;
    if (const std::string table = table_of(stage.program); !table.empty())
      return add(reading_by(templates_, table, {nullptr, keys, nullptr}, file_));
    Result<Reading> best =
        best_reading(templates_, tables_of(templates_, {"arguments", "json", "yaml"}), {nullptr, keys, nullptr}, file_);
    if (best.ok() && best->table.empty()) best = unread(keys, file_, stage.name);
    add(std::move(best));
  }

  const TemplateSet& templates_;
  std::string file_;
  SourceText source_;
  lint::ShellScript script_;
  std::vector<Reading> readings_;
  Diagnostics diagnostics_;
};

Diagnostic nothing_known(const std::string& file) {
  return error(code::kUnknownValue, {file, 0, 0},
               fmt::format("no table knows a key of '{}', expected a configuration file or launch script of a known tool", file),
               "name the tool with --as, such as --as deepspeed");
}

// A list of arguments without a program.
Result<std::vector<Reading>> arguments_of(const TemplateSet& templates, const std::string& line, std::string_view text,
                                          const std::string& file, const std::string& table) {
  const SourceText source(text, file);
  std::vector<Found> keys;
  for (const lint::ShellCommand& command : lint::parse_shell(line, {0, line.size()}).commands) {
    for (size_t i = 0; i < command.words.size(); ++i) {
      const std::string& word = command.words[i].text;
      if (word.compare(0, 2, "--") != 0) continue;
      Found one;
      const size_t equals = word.find('=');
      one.key = word.substr(2, equals == std::string::npos ? equals : equals - 2);
      one.at = source.at(command.words[i].span.begin);
      const bool has_next = i + 1 < command.words.size() && command.words[i + 1].text.compare(0, 2, "--") != 0;
      one.stands_alone = equals == std::string::npos && !has_next;
      one.text = equals != std::string::npos ? word.substr(equals + 1) : has_next ? command.words[i + 1].text : "true";
      for (size_t next = i + 1; has_next && next < command.words.size() && command.words[next].text.compare(0, 2, "--") != 0; ++next)
        one.items.push_back(command.words[next].text);
      if (one.items.size() == 1) one.items.clear();
      keys.push_back(std::move(one));
    }
  }
  Result<Reading> best =
      table.empty() ? best_reading(templates, tables_of(templates, {"arguments", "json", "yaml"}), {nullptr, keys, nullptr}, file)
                    : reading_by(templates, table, {nullptr, keys, nullptr}, file);
  if (!best.ok()) return best.diagnostics;
  if (best->table.empty()) return nothing_known(file);
  return std::vector<Reading>{std::move(*best)};
}

std::string table_named(const TemplateSet& templates, const std::string& name) {
  for (const auto& entry : templates.files) {
    if (entry.first == name || entry.first == name + "/keys.yaml") return entry.first;
  }
  return "";
}

}  // namespace

Result<std::vector<Reading>> read_config(const TemplateSet& templates, std::string_view text, const std::string& file,
                                         const std::string& table, const ReadChoices& choices) {
  const TextForm form = form_of(text, file);
  const std::string path = table.empty() ? "" : table_named(templates, table);
  if (!table.empty() && path.empty()) {
    return error(code::kUnknownTarget, {"command line", 0, 0}, fmt::format("no target '{}' to read '{}' as", table, file),
                 suggest(table, target_names(templates)));
  }
  if (form == TextForm::kYamlText && path.empty() && is_manifest(text)) {
    const std::unique_ptr<lint::Document> manifest = lint::read_document({file, std::string(text)}, FileKind::kKubernetes);
    Result<std::vector<Reading>> read = ScriptReading(templates, text, file).run_manifest(*manifest);
    if (read.ok() && read->empty()) return nothing_known(file);
    return read;
  }
  if (form == TextForm::kScriptText) {
    Result<std::vector<Reading>> script = ScriptReading(templates, text, file).run();
    if (script.ok() && script->empty()) return nothing_known(file);
    return script;
  }
  if (form == TextForm::kArgumentText) {
    // One option a line: the words of a command that goes on over the ends of lines. Same places, so no word may be put in front.
    std::string line(text);
    std::replace(line.begin(), line.end(), '\n', ' ');
    return arguments_of(templates, line, text, file, path);
  }
  const Result<Value> root = form == TextForm::kJsonText   ? parse_json(text, file)
                             : form == TextForm::kTomlText ? parse_toml(text, file)
                                                           : parse_yaml(text, file);
  if (!root.ok()) return root.diagnostics;
  const FileSource source{&*root, {}, &choices};
  if (!path.empty()) {
    Result<Reading> one = reading_by(templates, path, source, file);
    if (!one.ok()) return one.diagnostics;
    return std::vector<Reading>{std::move(*one)};
  }
  const std::vector<std::string_view> formats =
      form == TextForm::kTomlText ? std::vector<std::string_view>{"toml"} : std::vector<std::string_view>{"json", "yaml"};
  Result<Reading> best = best_reading(templates, tables_of(templates, formats), source, file);
  if (!best.ok()) return best.diagnostics;
  if (best->table.empty()) return nothing_known(file);
  return std::vector<Reading>{std::move(*best)};
}

}  // namespace distsetup
