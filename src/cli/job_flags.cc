// Texts go to codegen as they were typed; it checks them.
#include "cli/job_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/quantity.h"
#include "cli/output.h"

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
    Flag flag{std::string(setting.flag),           {}, FlagKind::kValue, std::string(setting.placeholder),
              "job: " + std::string(setting.help), 0};
    for (const std::string_view alias : setting.aliases) flag.aliases.emplace_back(alias);
    if (setting.type == JobSettingType::kSwitch) flag.kind = FlagKind::kSwitch;
    flags.push_back(std::move(flag));
    flag.values.assign(setting.choices.begin(), setting.choices.end());
  }
  return flags;
}

std::string run_flag(const Arguments& arguments, std::string_view path) {
  for (const Arguments::RunFlag& flag : arguments.run_flags) {
    const SpecKey* key = find_spec_flag(flag.spelling);
    if (key != nullptr && key->path == path && flag.value) return *flag.value;
  }
  return "";
}

std::string targets_that_use(const TemplateSet& templates, const JobSetting& setting) {
  std::string names;
  for (const std::string& target : target_names(templates)) {
    if (target_uses(templates, target, setting)) names += (names.empty() ? "" : ", ") + target;
  }
  return names;
}

}  // namespace

std::vector<Flag> job_flags() { return flags_where(false); }
std::vector<Flag> launcher_flags() { return flags_where(true); }

Result<JobOptions> job_options(const Arguments& arguments, const std::string& site) {
  JobOptions options;
  Diagnostics diagnostics;
  if (!site.empty()) {
    const Result<std::string> text = read_file(site);
    append(diagnostics, text.diagnostics);
    if (!text.ok()) {
      diagnostics.back().help = "make one: distsetup init --site --output " + site;
      return diagnostics;
    }
    const Result<Value> value = parse_yaml(*text, site);
    append(diagnostics, value.diagnostics);
    if (value.ok()) append(diagnostics, apply_site(options, *value, *text, site));
  }
  for (const JobSetting& setting : job_settings()) {
    const std::optional<std::string> text = setting.flag.empty() ? std::nullopt : arguments.find(setting.flag);
    if (text) append(diagnostics, set_job_option(options, setting, *text, command_line()));
  }
  options.program = arguments.passed_on;
  options.command = emitted_command(arguments);
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

Diagnostics refuse_idle_job_flags(const Arguments& arguments, const TemplateSet& templates, const std::string& target) {
  Diagnostics refused;
  for (const JobSetting& setting : job_settings()) {
    if (setting.flag.empty() || !arguments.has(setting.flag) || target_uses(templates, target, setting)) continue;
    const std::string others = targets_that_use(templates, setting);
    refused.push_back(error(code::kConflict, command_line(), fmt::format("--{} does nothing for target '{}'", setting.flag, target),
                            others.empty() ? "leave it out" : fmt::format("leave it out, or --target {}", others)));
  }
  JobSetting program;
  program.fields = {"job.program"};
  if (!arguments.passed_on.empty() && !target_uses(templates, target, program)) {
    refused.push_back(
        error(code::kConflict, command_line(),
              fmt::format("target '{}' starts no command of one's own, found '{}' behind --", target, arguments.passed_on[0]),
              fmt::format("leave it out, or --target {}", targets_that_use(templates, program))));
  }
  return refused;
}

std::string emitted_command(const Arguments& arguments) {
  std::vector<std::string> words = {"distsetup"};
  for (const std::string& word : command_words(arguments.words)) words.push_back(word);
  return join_command(words);
}

Diagnostics needs_program(const Arguments& arguments, const Plan& plan) {
  if (plan.strategy.trainer == "native" || !arguments.passed_on.empty()) return {};
  return {error(
      code::kMissingArgument, command_line(),
      fmt::format("the run is planned for trainer {}, which runs a script of your own, and none is named", plan.strategy.trainer),
      fmt::format("name it behind --: -- train.py --config {}; or --trainer native for the bundled trainer",
                  arguments.has("config") ? arguments.text("config") : "config.yaml"))};
}

}  // namespace distsetup
