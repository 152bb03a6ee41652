// Every command, in the order of the help. One file each: its own flags, its help texts and its function; names are in commands.cc.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/line/flags.h"

namespace distsetup {

Command plan_command();
Command emit_command();
Command convert_command();
Command fsdp_command();
Command deepspeed_command();
Command slurm_command();
Command launcher_command();
Command launch_command();
Command probe_command();
Command checkpoint_list_command();
Command checkpoint_verify_command();
Command checkpoint_diff_command();
Command checkpoint_prune_command();
Command checkpoint_export_command();
Command generate_command();
Command config_show_command();
Command diff_command();
Command compare_command();
Command init_command();
Command schema_command();
Command lint_command();
Command validate_command();
Command explain_command();
Command sweep_command();
Command tune_command();
Command list_command();
Command data_prepare_command();
Command data_stats_command();
Command data_show_command();
Command data_export_command();
Command data_tokenize_command();
Command data_render_command();
Command serve_command();
Command jobs_list_command();
Command jobs_show_command();
Command jobs_logs_command();
Command jobs_cancel_command();
Command jobs_submit_command();
Command jobs_plan_command();
Command version_command();
Command help_command();
Command completions_command();
Command man_command();

std::vector<std::reference_wrapper<const Command>> commands();
std::vector<std::string> command_names();
// What `typed` may have meant of these names of commands or topics, as help of a message.
std::string suggest_command(const std::string& typed, const std::vector<std::string>& known);
// "plan", "config show"; '-' and '_' the same, case ignored. nullptr: none.
const Command* find_command(std::string_view name);

}  // namespace distsetup
