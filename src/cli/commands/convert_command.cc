// `distsetup convert`: configuration that exists, as another tool's. No plan is made: what the files say is written in the other form,
// and what has no place there is said.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/names.h"
#include "cli/commands/carried.h"
#include "cli/commands/commands.h"
#include "cli/deliver/deliver.h"
#include "cli/line/output.h"
#include "cli/settings/job_flags.h"
#include "cli/settings/lost_text.h"
#include "cli/settings/named_file.h"
#include "cli/settings/read_files.h"
#include "cli/settings/run_source.h"
#include "codegen/read/settings.h"
#include "codegen/tables/coverage.h"
#include "codegen/tables/emit_target.h"
#include "codegen/tables/target.h"
#include "plan/plan_json.h"
#include "planner/spec/spec_text.h"

namespace distsetup {
namespace {

constexpr char kRunFile[] = "run";

// --nodes, --gpus …: what no configuration file says and a form may need.
Diagnostics add_hardware(const Arguments& arguments, ReadFields& fields) {
  Spec spec;
  Diagnostics diagnostics;
  for (const Arguments::RunFlag& flag : arguments.run_flags) {
    const std::optional<std::string_view> text = flag.value ? std::optional<std::string_view>(*flag.value) : std::nullopt;
    append(diagnostics, set_flag(spec, flag.spelling, text, command_line()));
  }
  for (const auto& [path, field] : {std::pair{"hardware.nodes", "hardware.nodes"},
                                    {"hardware.gpus_per_node", "hardware.gpus_per_node"},
                                    {"hardware.total_gpus", "derived.world"}}) {
    if (const std::optional<int64_t> number = spec.integer(path)) fields[field] = {*number, path, command_line(), false, false};
  }
  return diagnostics;
}

Result<Artifacts> as_run_file(const ReadFields& fields, const Presets& presets, std::vector<LostKey>& lost) {
  Result<ForeignSpec> read = spec_of_fields(fields, presets, {});
  if (!read.ok()) return read.diagnostics;
  lost.insert(lost.end(), read->lost.begin(), read->lost.end());
  return Artifacts{{"run.yaml", to_yaml(merge(read->assumed, read->given)), false}};
}

// Configuration files alone: scripts follow from a plan.
TargetInput config_input(const ReadFields& fields, const std::string& command) {
  return {fields_to_write(fields), nullptr, command, command_line(), true};
}

// Sizes that a target divides by.
Diagnostics zero_sizes(const ReadFields& fields) {
  Diagnostics out;
  for (const char* name : {"mesh.pp", "mesh.tp", "mesh.cp", "mesh.ep", "mesh.dp_shard", "mesh.dp_replicate", "hardware.nodes",
                           "hardware.gpus_per_node", "micro_batch", "gradient_accumulation", "strategy.virtual_stages"}) {
    const auto it = fields.find(name);
    if (it != fields.end() && it->second.value.is_number() && it->second.value == 0)
      out.push_back(error(code::kOutOfRange, it->second.at, fmt::format("'{}' is 0, expected 1 or more", it->second.key)));
  }
  return out;
}

// A name with a folder in it is one at the hub, or a path, and loads the same weights for every tool.
ReadFields with_model_to_load(ReadFields fields) {
  const auto name = fields.find("model.name");
  if (name != fields.end() && fields.count("model.hub_id") == 0 && field_text(name->second.value).find('/') != std::string::npos) {
    fields["model.hub_id"] = name->second;
    fields.erase(name);
  }
  return fields;
}

Result<Artifacts> as_target(const TemplateSet& templates, const std::string& target, const ReadFields& read,
                            const std::string& command, std::vector<LostKey>& lost) {
  const ReadFields fields = with_model_to_load(read);
  if (Diagnostics problems = zero_sizes(fields); !problems.empty()) return problems;
  Result<Artifacts> written = emit_target(templates, target, config_input(fields, command));
  if (!written.ok()) return written;
  if (written->empty()) {
    return error(
        code::kNoForm, command_line(),
        fmt::format("target '{}' has no configuration file that could be written without a plan", target),
        fmt::format("make one from the same files: distsetup emit --target {} --from FILE --model NAME --output run", target));
  }
  const Result<std::vector<FieldCoverage>> coverage = target_coverage(templates, target);
  if (!coverage.ok()) return coverage.diagnostics;
  for (const auto& [name, field] : fields) {
    const auto of =
        std::find_if(coverage->begin(), coverage->end(), [&key = name](const FieldCoverage& one) { return one.field == key; });
    const bool is_target = name == "strategy.trainer" || name == "hardware.accelerator";
    if (field.is_assumed || is_target || of == coverage->end() || of->how != Coverage::kNotApplicable) continue;
    lost.push_back({field.key, field_text(field.value), fmt::format("{}: {}", target, of->reason), field.at});
  }
  const WriteFields write = [&](const ReadFields& others) { return emit_target(templates, target, config_input(others, command)); };
  if (Diagnostics unknown = check_sharding_is_known(target, fields, lost, *coverage, *written, write); !unknown.empty())
    return unknown;
  const std::vector<LostKey> left_out = not_in_files(target, fields, *coverage, write);
  lost.insert(lost.end(), left_out.begin(), left_out.end());
  return written;
}

std::string target_of(const Arguments& arguments, const TemplateSet& templates, Diagnostics& diagnostics) {
  const std::string wanted = arguments.text("to");
  std::vector<std::string> known = target_names(templates);
  known.emplace_back(kRunFile);
  if (wanted.empty()) {
    diagnostics.push_back(error(code::kMissingArgument, command_line(), "no --to, expected a target to write",
                                "add --to accelerate-fsdp2, or --to run"));
    return "";
  }
  for (const std::string& one : known) {
    if (same_name(one, wanted)) return one;
  }
  diagnostics.push_back(
      error(code::kUnknownTarget, command_line(), fmt::format("unknown target '{}'", wanted), suggest_target(wanted, known)));
  return "";
}

// What reads a file names flags by which a plan says what the file does not; plan and emit have them, and convert may not.
std::string saying_whose_flags(const Command& command, std::string text) {
  constexpr std::string_view kOfFlags = "abcdefghijklmnopqrstuvwxyz0123456789-_.";  // of other tools', too: --model.name
  if (text.find("distsetup ") != std::string::npos) return text;                    // a whole command
  const Command *plan = find_command("plan"), *emit = find_command("emit");
  for (size_t at = text.find("--"); at != std::string::npos; at = text.find("--", at + 2)) {
    const size_t end = std::min(text.find_first_not_of(kOfFlags, at + 2), text.size());
    const std::string flag = text.substr(at + 2, end - at - 2);
    if (find_flag(command, flag) || !(find_flag(*plan, flag) || find_flag(*emit, flag))) continue;
    const std::string whose = find_flag(*plan, flag) ? "plan and emit" : "emit";
    if (end == text.size()) return fmt::format("{} of {}", text, whose);
    return fmt::format("{}; {} {} --{}", text, whose, whose == "emit" ? "has" : "have", flag);
  }
  return text;
}

// The form that was written, what was read as what, and what could not be carried over.
int finish(const Arguments& arguments, const Terminal& terminal, const Artifacts& artifacts, const std::vector<Reading>& readings,
           std::vector<LostKey> lost, Diagnostics diagnostics) {
  for (LostKey& one : lost) one.reason = saying_whose_flags(*arguments.command, one.reason);
  for (Diagnostic& one : diagnostics) one.help = saying_whose_flags(*arguments.command, one.help);
  mention(terminal, readings_text(readings));
  say(lost_text(lost));
  Delivery delivery;
  delivery.files = artifacts;
  delivery.diagnostics = std::move(diagnostics);
  delivery.output = arguments.text("output");
  if (artifacts.size() == 1) delivery.named_file = artifacts.front().path;
  delivery.also = readings_json(readings, lost);
  return deliver(arguments, terminal, std::move(delivery));
}

ReadChoices foreign_choices(const Arguments& arguments) {
  ReadChoices choices{arguments.text("stage"), arguments.text("distributed"), {}};
  for (const std::string& one : lines_of(arguments.text("set"))) {
    const size_t equals = std::min(one.find('='), one.size());
    choices.assignments.emplace_back(one.substr(0, equals), equals < one.size() ? one.substr(equals + 1) : "");
  }
  return choices;
}

// Files that say nothing of a run, or name others that do and are not here.
Diagnostic nothing_to_convert(const std::vector<Reading>& readings, const std::vector<LostKey>& lost) {
  std::vector<std::string> named;
  for (const LostKey& one : lost) {
    if (one.is_file && std::find(named.begin(), named.end(), one.text) == named.end()) named.push_back(one.text);
  }
  const Location at{readings.empty() ? "" : readings[0].file, 0, 0};
  if (named.empty())
    return warning(code::kUnknownValue, at, "nothing in the file is a setting of a run", "distsetup lint looks at it");
  return warning(code::kUnknownValue, at,
                 fmt::format("nothing in the file is a setting of a run: they stand in {}, which is not here", fmt::join(named, ", ")),
                 "give that file beside this one");
}

int run_convert(const Arguments& arguments, const Terminal& terminal) {
  const Result<Session> session = open_session(arguments);
  if (!session.ok()) return fail(arguments, terminal, session.diagnostics);
  const TemplateSet& templates = session->templates;
  Diagnostics diagnostics;
  const std::string target = target_of(arguments, templates, diagnostics);
  if (has_error(diagnostics)) return fail(arguments, terminal, diagnostics);
  const Result<std::vector<Reading>> readings =
      read_foreign_files(templates, arguments.positionals, arguments.text("as"), foreign_choices(arguments));
  append(diagnostics, readings.diagnostics);
  if (!readings.ok()) return fail(arguments, terminal, diagnostics);
  const bool has_setup = std::any_of(readings->begin(), readings->end(), [](const Reading& one) { return !one.setup.empty(); });
  if (arguments.has("distributed") && !has_setup) {
    diagnostics.push_back(error(code::kUnknownValue, command_line(),
                                fmt::format("no setup '{}' in the files", arguments.text("distributed")),
                                "distsetup plan and emit take those of presets/recipes too"));
    return fail(arguments, terminal, diagnostics);
  }
  Result<ReadFields> fields = merge_readings(*readings);
  append(diagnostics, fields.diagnostics);
  if (!fields.ok()) return fail(arguments, terminal, diagnostics);
  append(diagnostics, add_hardware(arguments, *fields));
  settle_derived(*fields);
  settle_by_model(*fields, session->presets);
  std::vector<LostKey> lost;
  for (const Reading& one : *readings) {
    lost.insert(lost.end(), one.lost.begin(), one.lost.end());
    if (!one.chosen.setup.empty() && !has_setup)
      lost.push_back(
          {"fsdp_config", one.chosen.setup, "no file has this setup; distsetup plan takes those of presets/recipes too", {one.file}});
  }
  if (settings_of(*fields).settings.empty()) diagnostics.push_back(nothing_to_convert(*readings, lost));
  if (target == kRunFile) {  // a run file may leave it open
    for (Diagnostic one : unread_strategy(*readings)) {
      one.severity = Severity::kWarning;
      diagnostics.push_back(std::move(one));
    }
  }
  const Result<Artifacts> written = target == kRunFile ? as_run_file(*fields, session->presets, lost)
                                                       : as_target(templates, target, *fields, emitted_command(arguments), lost);
  append(diagnostics, written.diagnostics);
  if (!written.ok() || has_error(diagnostics)) return fail(arguments, terminal, diagnostics);
  return finish(arguments, terminal, *written, *readings, std::move(lost), std::move(diagnostics));
}

std::vector<std::string> known_outputs() {
  std::vector<std::string> names = target_names(embedded_templates());
  names.insert(names.begin(), kRunFile);
  return names;
}

}  // namespace

Command convert_command() {
  Command command;
  command.summary = "configuration files that exist, as another tool's";
  command.positional = "FILE...";
  command.min_positionals = 1;
  command.max_positionals = 16;
  command.examples = {"distsetup convert --to accelerate-fsdp2 accelerate_fsdp1.yaml --output accelerate.yaml",
                      "distsetup convert --to run ds_config.json job.sbatch",
                      "distsetup convert --to deepspeed accelerate.yaml --json"};
  command.notes =
      "Reads DeepSpeed JSON, accelerate YAML, TrainingArguments, a config.yaml in sections (of fine-tuning, of stages), torchtitan "
      "TOML, Megatron and OpenRLHF arguments, #SBATCH lines, launch lines, Kubernetes manifests. What could not be carried over is "
      "listed on standard error. - is standard input. --to run writes a run file.";
  command.flags = {{"to", {"target"}, FlagKind::kValue, "TARGET", "what to write: a target of `emit`, or run", 0, known_outputs()},
                   {"as",
                    {},
                    FlagKind::kValue,
                    "TARGET",
                    "what the files are, where their keys do not say it",
                    0,
                    target_names(embedded_templates())},
                   {"stage", {}, FlagKind::kValue, "NAME", "one of the stages of a config.yaml of stages", 0},
                   {"distributed", {"fsdp-config"}, FlagKind::kValue, "NAME", "one of its named setups, over the stage's own", 0},
                   {"set", {"override"}, FlagKind::kList, "KEY=VALUE", "a key of the files with another value; may be repeated", 0},
                   output_flag("write the file there (several files: the folder)"),
                   force_flag(),
                   dry_run_flag(),
                   templates_flag()};
  command.run_keys = {"hardware"};
  command.run = run_convert;
  return command;
}

}  // namespace distsetup
