#include "cli/deliver/targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "cli/line/output.h"
#include "cli/settings/job_flags.h"
#include "planner/resolve/starter.h"
#include "planner/resolve/trainers.h"

namespace distsetup {
namespace {

bool starts_scripts(const TemplateSet& templates, const std::string& target) {
  return target_uses(templates, target, {"job.node_script"});
}

std::vector<std::string> starters(const TemplateSet& templates) {
  std::vector<std::string> out;
  for (const std::string& target : target_names(templates)) {
    if (starts_scripts(templates, target)) out.push_back(target);
  }
  return out;
}

bool has_node_script(const TemplateSet& templates, const std::string& target) {
  const Result<TargetDescription> described = describe_target(templates, target, command_line());
  return described.ok() && !described->node_script.empty();
}

Diagnostics check_pair(const Arguments& arguments, const TemplateSet& templates, const Targets& targets) {
  if (!starts_scripts(templates, targets.via)) {
    return {error(code::kUnknownTarget, command_line(), fmt::format("'--via {}' starts no trainer", targets.via),
                  suggest(targets.via, starters(templates)))};
  }
  if (targets.description.node_script.empty()) {
    return {error(code::kConflict, command_line(),
                  fmt::format("target '{}' has no script that '--via {}' could start on every node", targets.target, targets.via),
                  fmt::format("--target {} alone, or --target of a trainer, such as torchtitan", targets.target))};
  }
  const std::string& needed = targets.description.needs_words;
  if (needed.empty() || !arguments.passed_on.empty()) return {};
  return {error(code::kMissingArgument, command_line(),
                fmt::format("the job would start {} of target '{}', which needs more words than the plan has, and none is given",
                            targets.description.node_script, targets.target),
                fmt::format("name them behind --: -- {}", needed))};
}

}  // namespace

Result<Targets> settle_targets(const Arguments& arguments, const TemplateSet& templates, const LaunchPlan& wanted, const Plan* plan) {
  Targets out;
  out.target = wanted.target;
  out.via = wanted.via;
  settle_via(out.target, out.via);
  Diagnostics diagnostics;
  const bool is_of_trainer = plan != nullptr && !is_native(*plan) && arguments.passed_on.empty();
  if (out.via.empty() && starts_scripts(templates, out.target) && is_of_trainer && has_node_script(templates, plan->launch.target)) {
    out.via = std::exchange(out.target, plan->launch.target);
    diagnostics.push_back(note(code::kNoForm, command_line(),
                               fmt::format("the plan was made for target {}, which {} starts", out.target, out.via),
                               fmt::format("the same in words: --target {} --via {}", out.target, out.via)));
  }
  Result<TargetDescription> described = describe_target(templates, out.target, command_line());
  append(diagnostics, described.diagnostics);
  if (!described.ok()) return diagnostics;
  out.description = std::move(*described);
  out.start = out.description.start;
  if (out.via.empty()) return {std::move(out), std::move(diagnostics)};
  append(diagnostics, check_pair(arguments, templates, out));
  if (has_error(diagnostics)) return diagnostics;
  const Result<TargetDescription> starter = describe_target(templates, out.via, command_line());
  if (!starter.ok()) return starter.diagnostics;
  out.start = starter->start_via.empty() ? starter->start : starter->start_via;
  return {std::move(out), std::move(diagnostics)};
}

int64_t steps_between_checkpoints(const Plan& plan) {
  constexpr double kHalfAnHour_s = 1800;
  const double every_s = plan.time.checkpoint_every_s > 0 ? plan.time.checkpoint_every_s : kHalfAnHour_s;
  const double steps = plan.time.step_s > 0 ? every_s / plan.time.step_s : static_cast<double>(plan.train.steps) / 10;
  return std::clamp<int64_t>(std::llround(steps), 1, std::max<int64_t>(plan.train.steps, 1));
}

bool starts_again(const TemplateSet& templates, const Targets& targets, bool is_requeued) {
  const std::string& starter = targets.via.empty() ? targets.target : targets.via;
  if (target_uses(templates, starter, {"job.requeue"})) return is_requeued;
  return target_uses(templates, starter, {"job.max_restarts"});
}

std::string usual_target(const Plan& plan) {
  const std::string& trainer = plan.strategy.trainer;
  if (trainer == "fsdp2") {
    const Result<Presets> presets = load_presets();
    const Result<TrainerFacts> facts = presets.ok() ? find_trainer(*presets, trainer) : Result<TrainerFacts>(presets.diagnostics);
    return !facts.ok() || facts->has_family(plan.model.family) ? "torchtitan" : "accelerate-fsdp2";
  }
  if (trainer == "fsdp1" || trainer == "ddp") return "accelerate-fsdp1";
  return trainer == "megatron" ? "megatron-lm" : trainer == "deepspeed" ? "deepspeed" : std::string(kNative);
}

}  // namespace distsetup
