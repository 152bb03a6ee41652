// From the settings of a run to its plan, or a plan that was made before.
#pragma once
#include <string>
#include <vector>

#include "cli/line/flags.h"
#include "cli/settings/layers.h"
#include "cli/settings/line_layers.h"
#include "cli/settings/run_layers.h"
#include "planner/resolve/resolve.h"

namespace distsetup {

// Everything up to what is to be solved.
Result<Problem> read_problem(const Arguments& arguments, const Session& session, const Spec& spec);

// A plan from --plan FILE, or made from the spec for `target` ("" = launch.target). `problem` is there only when it was made now.
struct PlanSource {
  Plan plan;
  std::optional<Problem> problem;
  bool is_of_target = false;  // the target decided who trains, or left choices out
  std::string preview;        // the choices that `distsetup plan` shows for the same settings, where they are others; "" = the same
  SaidByFiles beside;
};
Result<PlanSource> read_or_make_plan(const Arguments& arguments, const Session& session, const std::string& target = "");

// What was said on the way and what the plan itself says, each once.
Diagnostics said_of(const Result<PlanSource>& source);

Result<Plan> read_plan(const std::string& path);

// Relative paths of data and weights in a plan are relative to its plan.json: the same files seen from another folder.
void move_inputs(Plan& plan, const std::string& from_directory, const std::string& to_directory);

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
