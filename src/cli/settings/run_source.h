// Where a run comes from: the run file, DISTSETUP_ variables and flags, strongest last; and from there to a plan.
#pragma once
#include <string>
#include <vector>

#include "cli/line/flags.h"
#include "cli/settings/session.h"
#include "planner/planner.h"

namespace distsetup {

// Flags over --set over variables over the stage over the run file (the positional or --config) over named presets over files of other
// tools (--from). An absent flag overrides nothing.
// Warnings: DISTSETUP_ variables that no key reads.
Result<Spec> read_spec(const Arguments& arguments, const Session& session);

// Values of a flag that may be given several times (FlagKind::kList).
std::vector<std::string> lines_of(const std::string& text);

// A top-level key that only a run file has.
bool is_of_run_file(const Value::Entry& entry);

// Everything up to what is to be solved.
Result<Problem> read_problem(const Arguments& arguments, const Session& session, const Spec& spec);

// A plan from --plan FILE, or made from the spec for `target` ("" = launch.target). `problem` is there only when it was made now.
struct PlanSource {
  Plan plan;
  std::optional<Problem> problem;
};
Result<PlanSource> read_or_make_plan(const Arguments& arguments, const Session& session, const std::string& target = "");

// What was said on the way and what the plan itself says, each once.
Diagnostics said_of(const Result<PlanSource>& source);

Result<Plan> read_plan(const std::string& path);

// Relative data paths of a plan are relative to its plan.json: the same files seen from another folder.
void move_data_root(Plan& plan, const std::string& from_directory, const std::string& to_directory);

// "4 nodes × 8 GPUs = 32".
std::string machines_line(int nodes, int gpus_per_node, std::string_view kind = "GPU");
std::string machines_line(const Plan& plan);

// --plan, --config, --presets, --templates as flag table rows.
Flag plan_flag();
Flag config_flag();
Flag goal_flag();
std::vector<Flag> layer_flags();  // --from, --use, --stage, --set
Flag presets_flag();
Flag templates_flag();
Flag output_flag(std::string help);
Flag force_flag();
Flag dry_run_flag();

}  // namespace distsetup
