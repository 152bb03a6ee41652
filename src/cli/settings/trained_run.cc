#include "cli/settings/trained_run.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "base/diagnostic_codes.h"
#include "cli/settings/run_source.h"
#include "planner/search/goal.h"
#include "weights/checkpoint_folder.h"
#include "weights/export.h"
#include "weights/folder.h"
#include "weights/hub_cache.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

// A plan is what the trainer reads; of a folder of weights the smallest one that has its model.
Result<TrainedModel> of_weights(const Arguments& arguments, const Session& session, const std::string& folder) {
  Spec spec;
  Diagnostics said;
  for (const auto& [key, text] : std::vector<std::pair<const char*, std::string>>{{"model", folder},
                                                                                  {"hardware.gpu", "cpu"},
                                                                                  {"hardware.gpus_per_node", "1"},
                                                                                  {"hardware.nodes", "1"},
                                                                                  {"parallel.sharding", "ddp"},
                                                                                  {"precision.compute", "fp32"},
                                                                                  {"train.init", "weights"},
                                                                                  {"train.sequence_length", "1"},
                                                                                  {"train.global_batch", "1"},
                                                                                  {"train.steps", "1"}})
    append(said, set(spec, key, text, command_line()));
  if (has_error(said)) return said;
  const Result<Problem> problem = read_problem(arguments, session, spec);
  if (!problem.ok()) return problem.diagnostics;
  Result<Plan> plan = make_plan_for_goal(*problem);
  if (!plan.ok()) return plan.diagnostics;
  return TrainedModel{std::move(*plan), "", folder};
}

Result<TrainedModel> of_checkpoint(const Arguments& arguments, const std::string& path) {
  const Result<std::string> checkpoint = committed_checkpoint(path);
  if (!checkpoint.ok()) {
    Diagnostics said = checkpoint.diagnostics;
    said.push_back(note(code::kCheckpoint, {path}, "nor is it a folder with config.json and safetensors"));
    return said;
  }
  const Result<std::string> plan_path = plan_path_of(arguments, *checkpoint);
  if (!plan_path.ok()) return plan_path.diagnostics;
  Result<Plan> plan = read_plan(*plan_path);
  if (!plan.ok()) return plan.diagnostics;
  move_inputs(*plan, fs::path(*plan_path).parent_path().string(), ".");
  const std::string folder = plan->weights.files.empty() ? "" : plan->weights.directory;
  return TrainedModel{std::move(*plan), *checkpoint, folder};
}

}  // namespace

Result<std::string> plan_path_of(const Arguments& arguments, const std::string& checkpoint) {
  if (arguments.has("plan")) return arguments.text("plan");
  std::error_code failure;
  fs::path folder = fs::absolute(checkpoint, failure).lexically_normal();
  for (int i = 0; i < 3; ++i) {
    folder = folder.parent_path();
    if (fs::exists(folder / "plan.json", failure)) return (folder / "plan.json").string();
  }
  return error(code::kMissingArgument, command_line(),
               fmt::format("no plan.json in the folders above '{}', expected the one it was trained with", checkpoint),
               "--plan path/to/plan.json");
}

Result<TrainedModel> find_trained_model(const Arguments& arguments, const Session& session, const std::string& path) {
  std::error_code failure;
  if (fs::exists(path, failure)) return has_weights(path) ? of_weights(arguments, session, path) : of_checkpoint(arguments, path);
  if (!is_hub_id(path)) return of_checkpoint(arguments, path);
  const Result<std::string> downloaded = find_in_hub_cache(path, command_line());
  if (!downloaded.ok()) return downloaded.diagnostics;
  return of_weights(arguments, session, *downloaded);
}

}  // namespace distsetup
