// Layers of settings. Each layer is read whole, so that all of its mistakes are told together; then they are merged.
#include "cli/settings/run_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/names.h"
#include "base/value_yaml.h"
#include "cli/line/trainer_flags.h"
#include "cli/settings/read_files.h"
#include "cli/settings/run_layers.h"
#include "cli/settings/target_limits.h"
#include "planner/search/goal.h"

extern char** environ;

namespace distsetup {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "DISTSETUP_";
// Read by scripts and tests of this project, not keys of a run.
const std::vector<std::string> kOtherVariables = {"DISTSETUP_BIN", "DISTSETUP_SOURCE", "DISTSETUP_PRESETS", "DISTSETUP_TEMPLATES"};

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

// A configuration file of another tool in a run file's place: not `version: 1`, and a table knows its keys.
bool is_foreign(const Value& value, std::string_view text, const std::string& path, const TemplateSet& templates) {
  const Value* version = value.find("version");
  if (version != nullptr && version->text == "1") return false;
  if (std::all_of(value.entries.begin(), value.entries.end(), is_of_run_file)) return false;
  const Result<std::vector<Reading>> read = read_config(templates, text, path);
  if (std::none_of(value.entries.begin(), value.entries.end(), is_of_run_file)) return true;
  return !read.ok() || std::any_of(read->begin(), read->end(), [](const Reading& one) { return one.fields.size() > 1; });
}

Result<Spec> read_run_file(const std::string& path, const std::vector<std::string>& uses, const std::string& stage,
                           const Session& session, bool& foreign) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) {
    Diagnostics failed = text.diagnostics;
    for (Diagnostic& d : failed) {
      if (d.help.empty()) d.help = run_file_help(path);
    }
    return failed;
  }
  const Result<Value> value = parse_yaml(*text, path);
  if (!value.ok()) return value.diagnostics;
  if (value->find("schema_version") != nullptr) {
    return error(code::kUnknownVersion, {path}, fmt::format("'{}' is a plan, expected a run file", path),
                 fmt::format("distsetup launch --plan {}", path));
  }
  if (value->kind == Value::Kind::kMap && is_foreign(*value, *text, path, session.templates)) {
    foreign = true;
    return spec_of_recipes(uses, session.presets, command_line());
  }
  return spec_of_layers(*value, uses, stage, session.presets);
}

Result<Spec> read_variables() {
  Spec spec;
  Diagnostics diagnostics;
  std::vector<std::string> known = kOtherVariables;
  for (const SpecKey& key : spec_keys()) {
    known.emplace_back(key.env);
    const char* text = std::getenv(std::string(key.env).c_str());
    if (text != nullptr && *text != '\0') append(diagnostics, set(spec, key.path, text, {std::string(key.env)}));
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    const std::string name(variable.substr(0, variable.find('=')));
    if (name.compare(0, kPrefix.size(), kPrefix) != 0) continue;
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    diagnostics.push_back(warning(code::kUnknownKey, {"environment"}, fmt::format("nothing reads the variable '{}'", name),
                                  nearest_name(name, known).empty() ? "distsetup help keys" : suggest(name, known)));
  }
  return {std::move(spec), std::move(diagnostics)};
}

// One flag may set two things ("--gpus 8xH100"); two flags that set one thing differently are a mistake, whichever came last.
Result<Spec> read_flags(const Arguments& arguments) {
  Spec spec;
  Diagnostics diagnostics;
  std::map<std::string, std::string> set_by;  // path -> the flag as typed
  for (const Arguments::RunFlag& flag : arguments.run_flags) {
    const std::optional<std::string_view> text = flag.value ? std::optional<std::string_view>(*flag.value) : std::nullopt;
    const std::string shown = fmt::format("--{}{}", flag.spelling, flag.value ? " " + *flag.value : "");
    Spec alone;
    Diagnostics mistakes = set_flag(alone, flag.spelling, text, command_line());
    for (const auto& [path, setting] : alone.settings) {
      const auto [before, is_new] = set_by.emplace(path, shown);
      const bool may_repeat = std::holds_alternative<std::vector<std::string>>(setting.value);
      if (is_new || before->second == shown || may_repeat) continue;
      mistakes.push_back(error(code::kConflict, command_line(),
                               fmt::format("'{}' and '{}' both set {}, expected one of them", before->second, shown, path),
                               "keep one of them"));
    }
    if (!has_error(mistakes)) (void)set_flag(spec, flag.spelling, text, command_line());
    append(diagnostics, std::move(mistakes));
  }
  return {std::move(spec), std::move(diagnostics)};
}

// Where a plan runs and for how long may be said beside it; anything else would be another plan.
bool is_about_plan(const Arguments::RunFlag& flag) {
  const SpecKey* key = find_spec_flag(flag.spelling);
  return key == nullptr || (key->path != "launch.site" && key->path != "launch.time_limit");
}

// --set key.path=value, each once or more. With files of other tools a key may be theirs.
Result<Spec> read_assignments(const Arguments& arguments, ReadChoices* foreign) {
  Spec spec;
  Diagnostics diagnostics;
  for (const std::string& one : lines_of(arguments.text("set"))) {
    const size_t equals = one.find('=');
    if (foreign != nullptr && equals != std::string::npos && find_spec_key(one.substr(0, equals)) == nullptr) {
      foreign->assignments.emplace_back(one.substr(0, equals), one.substr(equals + 1));
    } else {
      append(diagnostics, set_by_path(spec, one, command_line()));
    }
  }
  return {std::move(spec), std::move(diagnostics)};
}

std::string directory_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

}  // namespace

Result<Spec> read_spec(const Arguments& arguments, const Session& session) {
  Spec spec;
  Diagnostics diagnostics;
  std::string path = arguments.text("config");
  if (!arguments.positionals.empty()) {
    if (!path.empty()) {
      return error(code::kConflict, command_line(),
                   fmt::format("'{}' and '--config {}' both name a run file, expected one", arguments.positionals[0], path),
                   "keep one of them");
    }
    path = arguments.positionals[0];
  }
  const std::vector<std::string> uses = lines_of(arguments.text("use"));
  ForeignFiles files{lines_of(arguments.text("from")), {"", arguments.text("distributed"), {}}};
  std::vector<Result<Spec>> layers;
  bool is_foreign_file = false;
  if (path.empty()) {
    if (!uses.empty()) layers.push_back(spec_of_recipes(uses, session.presets, command_line()));
  } else {
    layers.push_back(read_run_file(path, uses, arguments.text("stage"), session, is_foreign_file));
    if (is_foreign_file) files.paths.insert(files.paths.begin(), path);
  }
  if (is_foreign_file || (path.empty() && !files.paths.empty())) files.choices.stage = arguments.text("stage");
  if (path.empty() && files.paths.empty() && arguments.has("stage"))
    append(diagnostics, refuse_idle(arguments, {"stage"}, "with a file that has stages"));
  const size_t below_variables = layers.size();
  layers.push_back(read_variables());
  layers.push_back(read_assignments(arguments, files.paths.empty() ? nullptr : &files.choices));
  layers.push_back(read_flags(arguments));
  Spec file;
  for (size_t i = 0; i < layers.size(); ++i) {
    Spec& into = i < below_variables ? file : spec;
    if (layers[i].value) into = merge(into, *layers[i].value);
    append(diagnostics, std::move(layers[i].diagnostics));
  }
  bool has_setup = files.choices.setup.empty();
  const Spec above = spec;
  if (!files.paths.empty()) {
    Result<Spec> whole = spec_over_files(files, session, merge(file, above), has_setup);
    append(diagnostics, std::move(whole.diagnostics));
    if (whole.value) file = std::move(*whole.value);
  }
  if (!has_setup) {  // one of ours, over the file
    const Result<Spec> setup = spec_of_recipes({files.choices.setup}, session.presets, command_line());
    append(diagnostics, setup.diagnostics);
    if (setup.value) file = merge(file, *setup.value);
  }
  spec = merge(file, above);
  if (!session.script_flags.table.empty()) {
    Result<Spec> whole = spec_over_trainer_flags(session, above, file);
    append(diagnostics, std::move(whole.diagnostics));
    if (whole.value) spec = std::move(*whole.value);
  }
  if (has_error(diagnostics)) return diagnostics;
  return {std::move(spec), std::move(diagnostics)};
}

bool is_of_run_file(const Value::Entry& entry) {
  const std::string& key = entry.first;
  return key == "use" || key == "stages" || std::any_of(spec_keys().begin(), spec_keys().end(), [&key](const SpecKey& one) {
           return same_name(one.path.substr(0, one.path.find('.')), key);
         });
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

Result<Problem> read_problem(const Arguments& arguments, const Session& session, const Spec& spec) {
  Diagnostics diagnostics;
  Result<Inputs> inputs = read_inputs(spec);
  append(diagnostics, std::move(inputs.diagnostics));
  if (has_error(diagnostics)) return diagnostics;
  Result<Problem> problem =
      resolve_for_target(spec, session.presets, *inputs, session.templates, arguments.text("fsdp-version") == "1");
  append(diagnostics, std::move(problem.diagnostics));
  if (has_error(diagnostics)) return diagnostics;
  return {std::move(*problem), std::move(diagnostics)};
}

Result<Plan> read_plan(const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) {
    Diagnostics failed = text.diagnostics;
    for (Diagnostic& d : failed) {
      if (d.help.empty()) d.help = fmt::format("make one: distsetup plan --model 7B --output {}", path);
    }
    return failed;
  }
  return plan_from_json(*text, path);
}

Result<PlanSource> read_or_make_plan(const Arguments& arguments, const Session& session, const std::string& target) {
  Diagnostics diagnostics;
  if (arguments.has("plan")) {
    const std::string path = arguments.text("plan");
    const auto changes_plan = std::find_if(arguments.run_flags.begin(), arguments.run_flags.end(), is_about_plan);
    if (changes_plan != arguments.run_flags.end() || !arguments.positionals.empty() || arguments.has("config")) {
      const std::string other = changes_plan != arguments.run_flags.end() ? "--" + changes_plan->spelling
                                : arguments.positionals.empty()           ? "--config"
                                                                          : arguments.positionals[0];
      return error(code::kConflict, command_line(),
                   fmt::format("'{}' and '--plan {}' given, expected one: a plan is complete", other, path),
                   fmt::format("leave '{}' away, or plan again without --plan", other));
    }
    if (Diagnostics idle =
            refuse_idle(arguments, {"from", "use", "distributed", "stage", "set"}, "without --plan: a plan is complete");
        !idle.empty())
      return idle;
    Result<Plan> plan = read_plan(path);
    if (!plan.ok()) return plan.diagnostics;
    move_data_root(*plan, directory_of(path), ".");
    return {PlanSource{std::move(*plan), std::nullopt}, std::move(plan.diagnostics)};
  }
  Result<Spec> spec = read_spec(arguments, session);
  append(diagnostics, spec.diagnostics);
  if (spec.value && !target.empty()) append(diagnostics, set(*spec, "launch.target", target, command_line()));
  if (has_error(diagnostics)) return diagnostics;
  Result<Problem> problem = read_problem(arguments, session, *spec);
  append(diagnostics, std::move(problem.diagnostics));
  if (has_error(diagnostics)) return diagnostics;
  append(diagnostics, narrow_to_target(*problem, problem->base.launch.target, session.templates));
  if (has_error(diagnostics)) return diagnostics;
  const Result<std::string> goal = choice_flag(arguments, "goal", "throughput", goal_names());
  if (!goal.ok()) return goal.diagnostics;
  problem->goal = *goal_of(*goal);
  Result<Plan> plan = make_plan_for_goal(*problem);
  append(diagnostics, std::move(plan.diagnostics));
  if (has_error(diagnostics)) return diagnostics;
  if (!plan->data.files.empty()) {  // seen from here; move_data_root() goes on from there
    std::error_code ignored;
    const fs::path relative = fs::proximate(plan->data.root, ignored);
    plan->data.root = relative.empty() ? "." : relative.string();
  }
  return {PlanSource{std::move(*plan), std::move(*problem)}, std::move(diagnostics)};
}

Diagnostics said_of(const Result<PlanSource>& source) {
  Diagnostics said = source.diagnostics;
  if (!source.value) return said;
  for (const Diagnostic& d : source->plan.diagnostics) {
    if (std::find(said.begin(), said.end(), d) == said.end()) said.push_back(d);
  }
  return said;
}

void move_data_root(Plan& plan, const std::string& from_directory, const std::string& to_directory) {
  if (plan.data.files.empty() || fs::path(plan.data.root).is_absolute()) return;
  const fs::path root = fs::path(from_directory) / (plan.data.root.empty() ? "." : plan.data.root);
  fs::path moved = fs::weakly_canonical(fs::absolute(root)).lexically_relative(fs::weakly_canonical(fs::absolute(to_directory)));
  plan.data.root = moved.empty() ? "." : moved.string();
}

std::string machines_line(int nodes, int gpus_per_node, std::string_view kind) {
  return fmt::format("{} {} × {} {}{} = {}\n", nodes, nodes == 1 ? "node" : "nodes", gpus_per_node, kind,
                     gpus_per_node == 1 ? "" : "s", static_cast<int64_t>(nodes) * gpus_per_node);
}

std::string machines_line(const Plan& plan) {
  const bool is_cpu = plan.hardware.accelerator == Accelerator::kCpu;
  return machines_line(plan.hardware.nodes, plan.hardware.gpus_per_node, is_cpu ? "CPU rank" : "GPU");
}

Flag plan_flag() { return {"plan", {}, FlagKind::kValue, "PLAN.JSON", "a plan made before, instead of keys of a run", 0}; }
Flag config_flag() { return {"config", {"run"}, FlagKind::kValue, "RUN.YAML", "the run file, as without a flag", 0}; }
std::vector<Flag> layer_flags() {
  return {
      {"from",
       {},
       FlagKind::kList,
       "FILE",
       "a file of another tool (DeepSpeed, accelerate, a job script …), below the run file; may be repeated",
       0},
      {"use", {"recipe"}, FlagKind::kList, "NAME", "a named preset (presets/recipes), below the run file; may be repeated", 0},
      {"distributed",
       {"distributed-preset", "fsdp-config"},
       FlagKind::kValue,
       "NAME",
       "named machines and sharding, over the file: single_node_fsdp, multi_node_fsdp, large_scale_fsdp, multi_node_ddp, or one of "
       "the file's own (distributed_examples)",
       0},
      {"stage", {}, FlagKind::kValue, "NAME", "one of the file's stages, over the rest of it", 0},
      {"set",
       {"override", "pin"},
       FlagKind::kList,
       "KEY=VALUE",
       "a key by its path or flag, such as train.steps=50 or tp=2, or one of the file's own; may be repeated",
       0}};
}
Flag goal_flag() {
  return {"goal", {},          FlagKind::kValue, "GOAL", "what is best: throughput, min-gpus, max-context, min-cost or min-memory",
          0,      goal_names()};
}
Flag presets_flag() {
  return {"presets", {}, FlagKind::kValue, "DIR", "GPUs, machines and models of your own, over the built-in ones", 0};
}
Flag templates_flag() { return {"templates", {}, FlagKind::kValue, "DIR", "templates of your own, over the built-in ones", 0}; }
Flag output_flag(std::string help) { return {"output", {"out"}, FlagKind::kValue, "PATH", std::move(help), 'o'}; }
Flag dry_run_flag() { return {"dry-run", {}, FlagKind::kSwitch, "", "write nothing, print the files as they would be", 'n'}; }
Flag force_flag() { return {"force", {}, FlagKind::kSwitch, "", "replace files that exist with other content", 'f'}; }

}  // namespace distsetup
