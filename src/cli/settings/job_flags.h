// Flags of a job, from the table of settings (codegen/job/settings.h): shared by `distsetup slurm`, `emit`, `launcher` and `launch`.
#pragma once
#include <string>
#include <vector>

#include "cli/line/flags.h"
#include "cli/settings/session.h"
#include "codegen/job/options.h"
#include "codegen/job/settings.h"
#include "plan/plan.h"

namespace distsetup {

std::vector<Flag> job_flags();
std::vector<Flag> launcher_flags();  // --master-addr, --master-port, --node-rank: of `launcher` alone

// Defaults, over them the site file (`site` "" = none), over that the flags and the words behind "--".
Result<JobOptions> job_options(const Arguments& arguments, const Session& session, const std::string& site);

// --site and --time-limit may stand beside --plan: they say where a plan runs, not what it is. `planned`: the plan's own; "" = none.
std::string site_path(const Arguments& arguments, const std::string& planned);
std::string time_limit(const Arguments& arguments, int64_t planned_s);

// What a flag of a run was given ("launch.via"); "" = it was not.
std::string run_flag(const Arguments& arguments, std::string_view path);

// Flags and words that neither the target nor what starts it (`via`, "" = nothing) has a use for: an error each, naming the targets
// that have.
Diagnostics refuse_idle_job_flags(const Arguments& arguments, const TemplateSet& templates, const std::string& target,
                                  const std::string& via = "");

// Whether the target starts the words behind `--`, and without them the bundled trainer.
bool starts_program(const TemplateSet& templates, const std::string& target);

// The command line as scripts quote it.
std::string emitted_command(const Arguments& arguments);

// A script of the user's is started, and none is named behind `--`: the one that goes with the configuration file, when it is a
// fine-tuning config.yaml (src/train.py, which takes --config); said in a note. True when there is a script then.
bool name_script(Arguments& arguments, const TemplateSet& templates, Diagnostics& diagnostics);
// --use-deepspeed and --use-fsdp win over the engine that the file names, or has without naming one.
void choose_engine(Arguments& arguments, const Session& session, const std::string& use);
// --use-deepspeed and --use-fsdp without any script: what the bundled trainer does then.
Diagnostic bundled_instead(const std::string& use);
// What a script of one's own is started with for the plan's trainer: "deepspeed", "fsdp", or "".
std::string engine_of(const Plan& plan);
// A script that is started with --deepspeed FILE and has no such argument stops at once: a warning where its text shows none.
Diagnostics check_script(const Arguments& arguments);

// A plan for another trainer runs a script of the user's: an error where none is named behind `--`, with the targets that would start
// that trainer.
Diagnostics needs_program(const Arguments& arguments, const TemplateSet& templates, const std::string& target, const Plan& plan);

}  // namespace distsetup
