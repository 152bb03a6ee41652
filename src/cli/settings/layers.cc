#include "cli/settings/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/names.h"
#include "base/value_yaml.h"
#include "cli/settings/line_layers.h"
#include "cli/settings/read_files.h"
#include "cli/settings/run_layers.h"
#include "cli/settings/trainer_flags.h"
#include "codegen/read/document.h"
#include "codegen/read/read_file.h"
#include "codegen/shell/quote.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

// What may have been meant by a run file that cannot be read: a model, or a file of nearly this name.
std::string run_file_help(const std::string& path) {
  std::error_code ignored;
  const bool is_bare = path.find('.') == std::string::npos && path.find('/') == std::string::npos;
  const bool exists = fs::exists(path, ignored);
  if ((is_bare && !exists) || fs::exists(fs::path(path) / "config.json", ignored))
    return fmt::format("a model is named with --model {}", path);
  if (exists) return "";
  const fs::path folder = fs::path(path).parent_path();
  std::vector<std::string> present;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.empty() ? "." : folder, ignored)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".yaml" || extension == ".yml") present.push_back((folder / entry.path().filename()).string());
  }
  const std::string nearest = nearest_name(path, present);
  return nearest.empty() ? "distsetup help keys lists what a run file holds" : fmt::format("did you mean '{}'", nearest);
}

// A configuration file of another tool in a run file's place: not `version: 1`, and a table knows its keys; or it cannot be read, but
// its marks are those of another tool's files.
bool is_foreign(const Value& value, std::string_view text, const std::string& path, const TemplateSet& templates) {
  const Value* version = value.find("version");
  if (version != nullptr && version->text == "1") return false;
  if (std::all_of(value.entries.begin(), value.entries.end(), is_of_run_file)) return false;
  if (std::none_of(value.entries.begin(), value.entries.end(), is_of_run_file)) return true;
  const Result<foreign::DocumentPointer> document = foreign::parse_document(templates, path, text);
  if (!document.ok()) return false;
  const Result<std::vector<Reading>> read = read_document(templates, **document);
  if (!read.ok()) return (*document)->kind != nullptr;
  return std::any_of(read->begin(), read->end(), [](const Reading& one) { return one.fields.size() > 1; });
}

// The same line with the plan where a plan goes; of a command that takes none, the preview of the plan.
std::string line_with_plan(const Arguments& arguments, const std::string& path) {
  const bool takes_plan = arguments.command != nullptr && std::any_of(arguments.command->flags.begin(), arguments.command->flags.end(),
                                                                      [](const Flag& flag) { return flag.name == "plan"; });
  if (!takes_plan) return join_command({"distsetup", "plan", "--plan", path});
  std::vector<std::string> line = {"distsetup"};
  for (const std::string& word : arguments.words) {
    if (word != path && word != "--config=" + path) {
      line.push_back(word);
      continue;
    }
    if (line.back() == "--config") line.pop_back();
    line.insert(line.end(), {"--plan", path});
  }
  return join_command(line);
}

// Nothing: a file of another tool.
Result<std::optional<Value>> read_run_file(const std::string& path, const Arguments& arguments, const TemplateSet& templates) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) {
    Diagnostics failed = text.diagnostics;
    for (Diagnostic& d : failed) {
      if (d.help.empty()) d.help = run_file_help(path);
    }
    return failed;
  }
  Result<Value> value = parse_yaml(*text, path);
  if (!value.ok()) return value.diagnostics;
  if (value->find("schema_version") != nullptr) {
    return error(code::kUnknownVersion, {path}, fmt::format("'{}' is a plan, expected a run file", path),
                 line_with_plan(arguments, path));
  }
  if (value->kind == Value::Kind::kMap && is_foreign(*value, *text, path, templates)) return std::optional<Value>();
  return std::optional<Value>(std::move(*value));
}

// The files that a command line names, read, before it is known which of their settings count.
struct OpenFiles {
  std::optional<Value> run_file;
  ForeignFiles foreign;
  Diagnostics diagnostics;
};

OpenFiles open_files(const Arguments& arguments, const Session& session) {
  OpenFiles files;
  std::string path = arguments.text("config");
  if (!arguments.positionals.empty()) {
    if (!path.empty()) {
      files.diagnostics = {
          error(code::kConflict, command_line(),
                fmt::format("'{}' and '--config {}' both name a run file, expected one", arguments.positionals[0], path),
                "keep one of them")};
      return files;
    }
    path = arguments.positionals[0];
  }
  std::vector<std::string> foreign = lines_of(arguments.text("from"));
  bool is_foreign_file = false;
  if (!path.empty()) {
    Result<std::optional<Value>> read = read_run_file(path, arguments, session.templates);
    append(files.diagnostics, std::move(read.diagnostics));
    is_foreign_file = read.value.has_value() && !read.value->has_value();
    if (is_foreign_file) foreign.insert(foreign.begin(), path);
    if (read.value.has_value()) files.run_file = std::move(*read.value);
  }
  ReadChoices choices{"", arguments.text("distributed"), {}};
  if (is_foreign_file || (path.empty() && !foreign.empty())) choices.stage = arguments.text("stage");
  const bool is_of_script = !session.script_flags.reading.chosen.stage.empty();  // which says it of every run
  if (path.empty() && foreign.empty() && arguments.has("stage") && !is_of_script)
    append(files.diagnostics, refuse_idle(arguments, {"stage"}, "with a file that has stages"));
  if (!foreign.empty()) choices.assignments = foreign_assignments(arguments);
  Result<ForeignFiles> opened = open_foreign_files(foreign, choices, session.templates);
  append(files.diagnostics, std::move(opened.diagnostics));
  if (opened.value) files.foreign = std::move(*opened.value);
  return files;
}

// A layer that asks nothing of those above it.
template <class Read>
std::function<Result<LayerSpec>(const Spec&)> by_itself(Read read) {
  return [read](const Spec&) -> Result<LayerSpec> {
    Result<Spec> spec = read();
    if (!spec.value) return std::move(spec.diagnostics);
    return {LayerSpec{std::move(*spec), {}}, std::move(spec.diagnostics)};
  };
}

// The order of precedence. The layers read what these three hold, which have to outlive them.
std::vector<Layer> layers_of(const Arguments& arguments, const Session& session, const OpenFiles& files) {
  const Value* run_file = files.run_file.has_value() ? &*files.run_file : nullptr;
  return {
      {"flags", by_itself([&arguments] { return read_flags(arguments); })},
      {"--set", by_itself([&arguments, &files] { return read_assignments(arguments, !files.foreign.paths.empty()); })},
      {"DISTSETUP_ variables", by_itself([] { return read_variables(); })},
      script_layer(session),
      {"--distributed",
       by_itself([&session, &files] { return spec_of_recipes(files.foreign.other_setups, session.presets, command_line()); })},
      {"--stage", by_itself([&arguments, run_file] { return spec_of_stage(run_file, arguments.text("stage")); })},
      {"the run file", by_itself([run_file] { return spec_of_run_file(run_file); })},
      {"named presets", by_itself([&session, &arguments, run_file] {
         return spec_of_uses(run_file, lines_of(arguments.text("use")), session.presets);
       })},
      {"files of other tools",
       [&session, &files](const Spec& stronger) { return read_foreign_layer(files.foreign, session.presets, stronger); }},
  };
}

}  // namespace

Result<Spec> merge_layers(const std::vector<Layer>& layers) {
  Spec whole;
  std::vector<Spec> assumed;
  Diagnostics diagnostics;
  for (const Layer& layer : layers) {
    Result<LayerSpec> read = layer.read(whole);
    append(diagnostics, std::move(read.diagnostics));
    if (!read.value) continue;
    whole = merge(read->given, whole);
    assumed.insert(assumed.begin(), std::move(read->assumed));
  }
  for (Spec& one : assumed) {
    give_way(one, whole);
    whole = merge(one, whole);
  }
  if (has_error(diagnostics)) return diagnostics;
  for (const Layer& layer : layers) {
    if (layer.check != nullptr) append(diagnostics, layer.check(whole));
  }
  if (has_error(diagnostics)) return diagnostics;
  return {std::move(whole), std::move(diagnostics)};
}

std::string precedence() {
  const Arguments arguments;
  const Session session;
  const OpenFiles files;
  std::string names;
  for (const Layer& layer : layers_of(arguments, session, files)) names += fmt::format("{}{}", names.empty() ? "" : ", ", layer.name);
  return names;
}

namespace {

// A site file states settings of jobs (codegen/job/site.h), and what its GPUs cost. One that cannot be read is said where jobs are
// made.
Diagnostics take_price_of_site(Spec& spec, const Session& session) {
  const std::optional<std::string> site = spec.text("launch.site");
  if (!site.has_value() || spec.find("hardware.price") != nullptr) return {};
  const Result<SiteFile>& file = site_file(session, *site);
  const Value* price = file.value ? file->value.find("price") : nullptr;
  return price == nullptr ? Diagnostics{} : set(spec, "hardware.price", price->text, price->location);
}

}  // namespace

static SaidByFiles said_by_files(const std::vector<Reading>& readings, const Spec& spec) {
  SaidByFiles said;
  said.keeps_all = !readings.empty() && spec.find("checkpoint.keep") == nullptr;
  for (const Reading& one : readings) {
    if (const std::string saves = text_of(one.fields, "options.saves"); !saves.empty()) said.saves = saves;
    if (one.other_method.empty()) continue;
    said.other_method = one.other_method;
    said.other_method_at = one.other_method_at;
  }
  if (spec.find("checkpoint.every_steps") != nullptr) said.saves = "";
  if (spec.find("train.method") != nullptr) said.other_method = "";
  return said;
}

Result<Spec> read_spec(const Arguments& arguments, const Session& session, SaidByFiles* beside) {
  const OpenFiles files = open_files(arguments, session);
  Result<Spec> spec = merge_layers(layers_of(arguments, session, files));
  Diagnostics diagnostics = files.diagnostics;
  append(diagnostics, std::move(spec.diagnostics));
  if (has_error(diagnostics) || !spec.value) return diagnostics;
  if (beside != nullptr) *beside = said_by_files(files.foreign.readings, *spec.value);
  append(diagnostics, take_price_of_site(*spec.value, session));
  if (has_error(diagnostics)) return diagnostics;
  return {std::move(*spec.value), std::move(diagnostics)};
}

}  // namespace distsetup
