// Texts go to codegen as they were typed; it checks them.
#include "cli/settings/job_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/names.h"
#include "base/quantity.h"
#include "cli/line/output.h"
#include "cli/settings/run_source.h"
#include "codegen/job/site.h"
#include "codegen/read/read.h"
#include "codegen/shell/quote.h"
#include "codegen/tables/target.h"
#include "plan/native_program.h"
#include "planner/resolve/starter.h"
#include "planner/spec/spec_lookup.h"
#include "planner/spec/spec_table.h"

namespace distsetup {
namespace {

// They mean something else to `distsetup launch`, which has them as flags of its own.
bool is_launcher_flag(const JobSetting& setting) {
  return setting.flag == "master-addr" || setting.flag == "master-port" || setting.flag == "node-rank";
}

std::vector<Flag> flags_where(bool is_launcher) {
  std::vector<Flag> flags;
  for (const JobSetting& setting : job_settings()) {
    if (setting.flag.empty() || is_launcher_flag(setting) != is_launcher) continue;
    Flag flag{setting.flag, setting.aliases, FlagKind::kValue, setting.placeholder, "job: " + setting.help, 0, setting.choices};
    if (setting.type == JobSettingType::kSwitch) flag.kind = FlagKind::kSwitch;
    flags.push_back(std::move(flag));
  }
  return flags;
}

std::string targets_that_use(const TemplateSet& templates, const std::vector<std::string>& fields) {
  std::string names;
  for (const std::string& target : target_names(templates)) {
    if (target_uses(templates, target, fields)) names += (names.empty() ? "" : ", ") + target;
  }
  return names;
}

// Of the words behind --, which are no flag: what runs instead of the bundled trainer, or what a trainer's script is given.
const std::vector<std::string> kProgramField = {"job.starts"}, kWordFields = {"job.starts", "job.words"};

bool takes_words(const TemplateSet& templates, const std::string& target) { return target_uses(templates, target, kWordFields); }

// `--target native --via slurm` is `--target slurm`, to the byte.
std::vector<std::string> without_native(const Arguments& arguments, std::vector<std::string> words) {
  const std::string via = run_flag(arguments, "launch.via");
  std::string target = arguments.text("target"), left = via;
  settle_via(target, left);
  if (via.empty() || target != via || arguments.text("target") == via) return words;
  std::vector<std::string> out;
  const auto own = std::find(words.begin(), words.end(), "--");  // words of another command
  for (size_t i = 0; i < words.size(); ++i) {
    if (i >= static_cast<size_t>(own - words.begin())) {
      out.push_back(words[i]);
      continue;
    }
    const bool has_next = i + 1 < words.size();
    if (words[i] == "--via=" + via) continue;
    if (words[i] == "--via" && has_next && words[i + 1] == via) {
      ++i;
    } else if (words[i] == "--target" && has_next && words[i + 1] == kNative) {
      out.insert(out.end(), {words[i], via});
      ++i;
    } else {
      out.push_back(words[i] == fmt::format("--target={}", kNative) ? "--target=" + via : words[i]);
    }
  }
  return out;
}

}  // namespace

std::string run_flag(const Arguments& arguments, std::string_view path) {
  for (const Arguments::RunFlag& flag : arguments.run_flags) {
    const SpecKey* key = find_spec_flag(flag.spelling);
    if (key != nullptr && key->path == path && flag.value) return *flag.value;
  }
  return "";
}

bool starts_program(const TemplateSet& templates, const std::string& target) { return target_uses(templates, target, kProgramField); }

std::vector<Flag> job_flags() { return flags_where(false); }
std::vector<Flag> launcher_flags() { return flags_where(true); }

Result<JobOptions> job_options(const Arguments& arguments, const Session& session, const std::string& site) {
  JobOptions options;
  Diagnostics diagnostics;
  if (!site.empty()) {
    const Result<SiteFile>& file = site_file(session, site);
    append(diagnostics, file.diagnostics);
    if (file.ok()) append(diagnostics, apply_site(options, file->value, file->text, site));
  }
  for (const JobSetting& setting : job_settings()) {
    const std::optional<std::string> text = setting.flag.empty() ? std::nullopt : arguments.find(setting.flag);
    if (text) append(diagnostics, set_job_option(options, setting, *text, command_line()));
  }
  options.program = arguments.passed_on;
  if (has_error(diagnostics)) return diagnostics;
  return {std::move(options), std::move(diagnostics)};
}

std::string site_path(const Arguments& arguments, const std::string& planned) {
  const std::string given = run_flag(arguments, "launch.site");
  return given.empty() ? planned : given;
}

std::string time_limit(const Arguments& arguments, int64_t planned_s) {
  const std::string given = run_flag(arguments, "launch.time_limit");
  return !given.empty() ? given : planned_s > 0 ? format_slurm_time(planned_s) : "";
}

Diagnostics refuse_idle_job_flags(const Arguments& arguments, const TemplateSet& templates, const std::string& target,
                                  const std::string& via) {
  Diagnostics refused;
  for (const JobSetting& setting : job_settings()) {
    if (setting.flag.empty() || !arguments.has(setting.flag) || target_uses(templates, target, setting.fields)) continue;
    if (!via.empty() && target_uses(templates, via, setting.fields)) continue;
    const std::string others = targets_that_use(templates, setting.fields);
    refused.push_back(error(code::kConflict, command_line(), fmt::format("--{} does nothing for target '{}'", setting.flag, target),
                            others.empty() ? "leave it out" : fmt::format("leave it out, or --target {}", others)));
  }
  if (!arguments.passed_on.empty() && !takes_words(templates, target)) {
    refused.push_back(
        error(code::kConflict, command_line(),
              fmt::format("target '{}' starts no command of one's own, found '{}' behind --", target, arguments.passed_on[0]),
              fmt::format("leave it out, or --target {}", targets_that_use(templates, kProgramField))));
  }
  return refused;
}

std::string emitted_command(const Arguments& arguments) {
  std::vector<std::string> words = {"distsetup"};
  for (const std::string& word : without_native(arguments, command_words(arguments.words))) words.push_back(word);
  return join_command(words);
}

bool name_script(Arguments& arguments, const TemplateSet& templates, Diagnostics& diagnostics) {
  if (!arguments.passed_on.empty()) return true;
  if (arguments.has("plan") || same_name(run_flag(arguments, "trainer.name"), kNative)) return false;
  const std::string path = arguments.positionals.empty() ? arguments.text("config") : arguments.positionals[0];
  const Result<std::string> text = path.empty() ? Result<std::string>(Diagnostics{}) : read_file(path);
  if (!text.ok()) return false;
  const Result<std::vector<Reading>> readings = read_config(templates, *text, path);
  const auto is_fine_tuning = [](const Reading& one) { return one.table == "fine-tuning/keys.yaml"; };
  if (!readings.ok() || std::none_of(readings->begin(), readings->end(), is_fine_tuning)) return false;
  arguments.passed_on = {"src/train.py", "--config", path};
  diagnostics.push_back(note(code::kMissingArgument, command_line(),
                             fmt::format("no script is named: '{}' is started", join_command(arguments.passed_on)),
                             fmt::format("name your own behind --: -- train.py --config {}", quote_shell(path))));
  return true;
}

void choose_engine(Arguments& arguments, const Session& session, const std::string& use) {
  if (arguments.has("plan") || !run_flag(arguments, "trainer.name").empty()) return;
  const Result<Spec> spec = read_spec(arguments, session);
  if (!spec.ok()) return;  // told when the plan is made
  const std::string trainer = spec->text("trainer.name").value_or(use);
  if (trainer.compare(0, use.size(), use) == 0) return;  // fsdp: fsdp1, fsdp2
  arguments.run_flags.push_back({"trainer", use == "deepspeed" ? use : "fsdp2"});
}

Diagnostic bundled_instead(const std::string& use) {
  return note(code::kMissingArgument, command_line(),
              fmt::format("no script is named: the bundled trainer runs, which shards by itself; no file for {} is written",
                          use == "deepspeed" ? "DeepSpeed" : "FSDP"),
              fmt::format("name a script of your own behind --: --use-{} -- train.py", use));
}

Diagnostics check_script(const Arguments& arguments) {
  if (arguments.passed_on.empty()) return {};
  const std::string& script = arguments.passed_on[0];
  if (script.size() < 3 || script.compare(script.size() - 3, 3, ".py") != 0) return {};
  const Result<std::string> text = read_file(script);
  if (!text.ok()) return {};  // it may be another machine's
  // argparse; the Trainer's arguments; DeepSpeed's own helper; arguments that are taken as they come
  for (const char* sign :
       {"--deepspeed", "TrainingArguments", "SFTConfig", "DPOConfig", "add_config_arguments", "parse_known_args", "sys.argv"}) {
    if (text->find(sign) != std::string::npos) return {};
  }
  return {warning(code::kConflict, command_line(),
                  fmt::format("'{}' is started with --deepspeed FILE, and its text has no such argument: it may stop at it", script),
                  "parser.add_argument('--deepspeed'), or Hugging Face's TrainingArguments")};
}

std::string engine_of(const Plan& plan) {
  const std::string& trainer = plan.strategy.trainer;
  return trainer == "deepspeed" ? "deepspeed" : trainer == "fsdp1" || trainer == "fsdp2" ? "fsdp" : "";
}

Diagnostics needs_program(const Arguments& arguments, const TemplateSet& templates, const std::string& target, const Plan& plan) {
  if (is_native(plan) || !arguments.passed_on.empty()) return {};
  std::string others;
  for (const std::string& one :
       target_uses(templates, target, {"job.node_script"}) ? target_names(templates) : std::vector<std::string>{}) {
    const Result<TargetDescription> described = describe_target(templates, one, command_line());
    if (!described.ok() || described->node_script.empty()) continue;
    const std::vector<std::string>& trainers = described->search.trainers;
    if (std::find(trainers.begin(), trainers.end(), plan.strategy.trainer) != trainers.end())
      others += (others.empty() ? "" : ", ") + one;
  }
  if (!others.empty()) others = fmt::format("; or --target with --via {}, of these: {}", target, others);
  const bool bundled_runs = check_native(plan.model).empty() && check_native_kernels(plan.model, plan.hardware.accelerator).empty();
  return {error(
      code::kMissingArgument, command_line(),
      fmt::format("the run is planned for trainer {}, which runs a script of your own, and none is named", plan.strategy.trainer),
      fmt::format("name it behind --: -- train.py --config {}{}{}",
                  arguments.has("config") ? quote_shell(arguments.text("config")) : "config.yaml", others,
                  bundled_runs ? "; or --trainer native for the bundled trainer" : ""))};
}

}  // namespace distsetup
