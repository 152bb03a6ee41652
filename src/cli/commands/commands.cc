#include "cli/commands/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>

#include "base/names.h"

namespace distsetup {

// Words of other tools for what a command does here.
constexpr std::pair<std::string_view, std::string_view> kOtherWords[] = {
    {"estimate", "plan"}, {"estimate-memory", "plan"}, {"predict", "plan"}, {"run", "launch"},
    {"start", "launch"},  {"train", "launch"},         {"check", "lint"}};

std::string suggest_command(const std::string& typed, const std::vector<std::string>& known) {
  std::vector<std::string> below;  // "config" alone
  for (const std::string& name : known) {
    if (name.starts_with(typed + " ")) below.push_back(name);
    if (name.ends_with(" " + typed)) below.push_back(name);  // "prepare" of "data prepare"
  }
  const auto meant = std::find_if(std::begin(kOtherWords), std::end(kOtherWords), [&](const auto& one) { return one.first == typed; });
  if (meant != std::end(kOtherWords)) return fmt::format("did you mean '{}'", meant->second);
  if (below.empty()) return suggest(typed, known);
  if (below.size() == 1) return fmt::format("did you mean '{}'", below.front());
  return fmt::format("use one of {}", fmt::join(below, ", "));
}

namespace {

struct NamedCommand {
  std::string_view name;
  Command (*make)();
};

constexpr NamedCommand kCommands[] = {
    {"plan", plan_command},
    {"emit", emit_command},
    {"convert", convert_command},
    {"fsdp", fsdp_command},
    {"deepspeed", deepspeed_command},
    {"slurm", slurm_command},
    {"launcher", launcher_command},
    {"launch", launch_command},
    {"probe", probe_command},
    {"checkpoint list", checkpoint_list_command},
    {"checkpoint verify", checkpoint_verify_command},
    {"checkpoint diff", checkpoint_diff_command},
    {"checkpoint prune", checkpoint_prune_command},
    {"checkpoint export", checkpoint_export_command},
    {"generate", generate_command},
    {"config show", config_show_command},
    {"diff", diff_command},
    {"compare", compare_command},
    {"init", init_command},
    {"schema", schema_command},
    {"lint", lint_command},
    {"validate", validate_command},
    {"explain", explain_command},
    {"sweep", sweep_command},
    {"tune", tune_command},
    {"list", list_command},
    {"data prepare", data_prepare_command},
    {"data stats", data_stats_command},
    {"data show", data_show_command},
    {"data export", data_export_command},
    {"data tokenize", data_tokenize_command},
    {"data render", data_render_command},
    {"serve", serve_command},
    {"jobs list", jobs_list_command},
    {"jobs show", jobs_show_command},
    {"jobs logs", jobs_logs_command},
    {"jobs cancel", jobs_cancel_command},
    {"jobs submit", jobs_submit_command},
    {"jobs plan", jobs_plan_command},
    {"help", help_command},
    {"completions", completions_command},
    {"man", man_command},
    {"version", version_command},
};

// Made when it is first asked for: the flags of some come out of files, which would cost every other command milliseconds.
const Command& command_at(size_t i) {
  static std::array<std::optional<Command>, std::size(kCommands)> made;
  if (!made[i]) {
    made[i] = kCommands[i].make();
    made[i]->name = kCommands[i].name;
  }
  return *made[i];
}

}  // namespace

std::vector<std::reference_wrapper<const Command>> commands() {
  std::vector<std::reference_wrapper<const Command>> all;
  for (size_t i = 0; i < std::size(kCommands); ++i) all.emplace_back(command_at(i));
  return all;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const NamedCommand& command : kCommands) names.emplace_back(command.name);
  return names;
}

const Command* find_command(std::string_view name) {
  for (size_t i = 0; i < std::size(kCommands); ++i) {
    if (same_name(kCommands[i].name, name)) return &command_at(i);
  }
  return nullptr;
}

}  // namespace distsetup
