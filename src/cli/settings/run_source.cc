#include "cli/settings/run_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "cli/line/flags.h"
#include "cli/settings/prepared_sources.h"
#include "cli/settings/target_limits.h"
#include "plan/plan_json.h"
#include "planner/report/uncertainty.h"
#include "planner/resolve/resolve.h"
#include "planner/search/choice.h"
#include "planner/search/goal.h"
#include "planner/spec/spec_lookup.h"
#include "planner/spec/spec_table.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

// Where a plan runs and for how long may be said beside it; anything else would be another plan.
bool is_about_plan(const Arguments::RunFlag& flag) {
  const SpecKey* key = find_spec_flag(flag.spelling);
  return key == nullptr || (key->path != "launch.site" && key->path != "launch.time_limit" && key->path != "launch.via");
}

std::string directory_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

// What is read is told with the inputs, and again with what was made of them: it is said once.
void append_new(Diagnostics& said, const Diagnostics& more) {
  for (const Diagnostic& d : more)
    if (std::find(said.begin(), said.end(), d) == said.end()) said.push_back(d);
}

// A script of one's own behind -- runs instead of the bundled trainer: what it does is not known, unless --trainer says so. Where a
// plain script cannot do what the settings ask for, they are planned as if there were none.
std::optional<Result<Problem>> problem_of_own_script(const Arguments& arguments, const Session& session, const Spec& spec,
                                                     const Inputs& inputs) {
  if (arguments.command->after_dashes != AfterDashes::kPassedOn || arguments.passed_on.empty()) return std::nullopt;
  if (spec.find("trainer.name") != nullptr || has_trainers(spec, session.templates)) return std::nullopt;
  Spec own = spec;
  if (has_error(set(own, "trainer.name", kUnknownProgram, {}))) return std::nullopt;
  Result<Problem> problem = resolve(own, session.presets, inputs);
  if (!problem.ok()) return std::nullopt;
  problem->base.assumptions.insert(
      problem->base.assumptions.begin(),
      fmt::format("'{}' is not known here: planned as a plain PyTorch script under FSDP2, with the intervals of unseen code; "
                  "--trainer says which trainer it is like",
                  arguments.passed_on[0]));
  return problem;
}

Result<Problem> problem_of(const Arguments& arguments, const Session& session, const Spec& spec, const Inputs& inputs,
                           const std::vector<PassedOver>& passed_over = {}) {
  if (std::optional<Result<Problem>> own = problem_of_own_script(arguments, session, spec, inputs); own.has_value())
    return std::move(*own);
  return resolve_for_target(spec, session.presets, inputs, session.templates, arguments.text("fsdp-version") == "1", passed_over);
}

// The best plan for the target that the settings name, within what that target has a form for. passed_over: as resolve() takes it.
Result<PlanSource> plan_of_trainer(const Arguments& arguments, const Session& session, const Spec& spec, const Inputs& inputs,
                                   const std::vector<PassedOver>& passed_over) {
  Diagnostics diagnostics;
  const auto failed = [&diagnostics](Diagnostics said) {
    append(diagnostics, std::move(said));
    return has_error(diagnostics);
  };
  const Result<std::string> goal = choice_flag(arguments, "goal", "throughput", goal_names());
  if (failed(goal.diagnostics)) return diagnostics;
  Result<Problem> problem = problem_of(arguments, session, spec, inputs, passed_over);
  if (failed(problem.diagnostics)) return diagnostics;
  const size_t num_assumptions = problem->base.assumptions.size();
  if (failed(narrow_to_target(*problem, problem->base.launch.target, session.templates))) return diagnostics;
  problem->goal = *goal_of(*goal);
  if (problem->goal == Goal::kMaxContext) {
    const Location length = spec.at("train.sequence_length");
    const bool is_flag = spec.find("train.sequence_length") != nullptr && length == command_line();
    if (is_flag &&
        failed({error(code::kConflict, length,
                      "'--goal max-context' looks for the longest sequences, and '--sequence-length' says how long they are",
                      "leave one of them away")}))
      return diagnostics;
  }
  const bool is_of_target = !problem->chosen_for.empty() || problem->base.assumptions.size() > num_assumptions;
  Result<Plan> plan = make_plan_for_goal(*problem);
  if (failed(plan.diagnostics)) return diagnostics;
  return {PlanSource{std::move(*plan), std::move(*problem), is_of_target, "", {}}, std::move(diagnostics)};
}

// Where nobody names a trainer and others stand in for the bundled one: of the first of them that the run fits, else of the first with
// which it is tight, else of the first.
Result<PlanSource> best_plan(const Arguments& arguments, const Session& session, const Spec& spec, const Inputs& inputs) {
  std::optional<Result<PlanSource>> best;
  std::vector<PassedOver> passed_over;
  for (;;) {
    Result<PlanSource> next = plan_of_trainer(arguments, session, spec, inputs, passed_over);
    if (!next.ok()) return best.has_value() ? std::move(*best) : std::move(next);
    const Verdict verdict = next->plan.verdict;
    if (next->problem->stands_in.empty() || verdict == Verdict::kFits) return next;
    passed_over.push_back({next->problem->trainer.label, verdict == Verdict::kTight});
    const bool is_better = !best.has_value() || ((*best)->plan.verdict == Verdict::kDoesNotFit && verdict == Verdict::kTight);
    if (is_better) best = std::move(next);
  }
}

// What `distsetup plan` shows for the settings as they are, where that is another plan than the one for the target that a command
// names: its choices. "" = the same, or none.
std::string other_preview(const Arguments& arguments, const Session& session, const Spec& spec, const Inputs& inputs,
                          const Plan& plan) {
  const Result<PlanSource> shown = best_plan(arguments, session, spec, inputs);
  if (!shown.ok()) return "";
  const std::string choices = summary(shown->plan);
  return choices == summary(plan) ? "" : choices;
}

// A plan that was made before, and nothing beside it that would make another.
Result<PlanSource> read_made_plan(const Arguments& arguments) {
  const std::string path = arguments.text("plan");
  const auto changes_plan = std::find_if(arguments.run_flags.begin(), arguments.run_flags.end(), is_about_plan);
  if (changes_plan != arguments.run_flags.end() || !arguments.positionals.empty() || arguments.has("config")) {
    const std::string other = changes_plan != arguments.run_flags.end() ? "--" + changes_plan->spelling
                              : arguments.positionals.empty()           ? "--config"
                                                                        : arguments.positionals[0];
    return error(code::kConflict, command_line(),
                 fmt::format("'{}' and '--plan {}' given, expected one: a plan is complete", other, path),
                 fmt::format("leave '{}' away, or plan again without --plan", other));
  }
  if (Diagnostics idle = refuse_idle(arguments, {"from", "use", "distributed", "stage", "set"}, "without --plan: a plan is complete");
      !idle.empty())
    return idle;
  Result<Plan> plan = read_plan(path);
  if (!plan.ok()) return plan.diagnostics;
  move_inputs(*plan, directory_of(path), ".");
  return {PlanSource{std::move(*plan), std::nullopt, false, "", {}}, std::move(plan.diagnostics)};
}

}  // namespace

Result<Problem> read_problem(const Arguments& arguments, const Session& session, const Spec& as_said) {
  const Result<Spec> spec = with_prepared_sources(arguments, session.presets, as_said);
  Diagnostics diagnostics = spec.diagnostics;
  if (has_error(diagnostics)) return diagnostics;
  Result<Inputs> inputs = read_inputs(*spec, session.presets);
  append(diagnostics, std::move(inputs.diagnostics));
  if (has_error(diagnostics)) return diagnostics;
  Result<Problem> problem = problem_of(arguments, session, *spec, *inputs);
  append_new(diagnostics, problem.diagnostics);
  if (has_error(diagnostics)) return diagnostics;
  return {std::move(*problem), std::move(diagnostics)};
}

Result<Plan> read_plan(const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) {
    Diagnostics failed = text.diagnostics;
    for (Diagnostic& d : failed) {
      if (d.help.empty()) d.help = fmt::format("make one: distsetup plan --model 7B --output {}", path);
    }
    return failed;
  }
  return plan_from_json(*text, path);
}

Result<PlanSource> read_or_make_plan(const Arguments& arguments, const Session& session, const std::string& target) {
  if (arguments.has("plan")) return read_made_plan(arguments);
  SaidByFiles beside;
  Result<Spec> spec = read_spec(arguments, session, &beside);
  Diagnostics diagnostics = std::move(spec.diagnostics);
  if (has_error(diagnostics)) return diagnostics;
  spec = with_prepared_sources(arguments, session.presets, *spec);
  append(diagnostics, std::move(spec.diagnostics));
  if (has_error(diagnostics)) return diagnostics;
  const Spec as_said = *spec;
  if (!target.empty()) append(diagnostics, set(*spec, "launch.target", target, command_line()));
  Result<Inputs> inputs = read_inputs(*spec, session.presets);
  append(diagnostics, std::move(inputs.diagnostics));
  if (has_error(diagnostics)) return diagnostics;
  Result<PlanSource> source = best_plan(arguments, session, *spec, *inputs);
  append_new(diagnostics, source.diagnostics);
  if (has_error(diagnostics)) return diagnostics;
  const bool is_other = !target.empty() && target != as_said.text("launch.target").value_or("");
  if (is_other && source->is_of_target) source->preview = other_preview(arguments, session, as_said, *inputs, source->plan);
  source->beside = std::move(beside);
  Plan& plan = source->plan;
  const auto see_from_here = [](std::string& directory) {  // move_inputs() goes on from there
    std::error_code ignored;
    const fs::path relative = fs::proximate(directory, ignored);
    directory = relative.empty() ? "." : relative.string();
  };
  if (!plan.data.files.empty()) see_from_here(plan.data.root);
  if (!plan.weights.files.empty()) see_from_here(plan.weights.directory);
  if (!plan.adapter.files.empty()) see_from_here(plan.adapter.directory);
  return {std::move(*source), std::move(diagnostics)};
}

Diagnostics said_of(const Result<PlanSource>& source) {
  Diagnostics said = source.diagnostics;
  if (source.value) append_new(said, source->plan.diagnostics);
  return said;
}

void move_inputs(Plan& plan, const std::string& from_directory, const std::string& to_directory) {
  const auto move = [&](std::string& directory) {
    if (fs::path(directory).is_absolute()) return;
    const fs::path from = fs::path(from_directory) / (directory.empty() ? "." : directory);
    fs::path moved = fs::weakly_canonical(fs::absolute(from)).lexically_relative(fs::weakly_canonical(fs::absolute(to_directory)));
    directory = moved.empty() ? "." : moved.string();
  };
  if (!plan.data.files.empty()) move(plan.data.root);
  if (!plan.weights.files.empty()) move(plan.weights.directory);
  if (!plan.adapter.files.empty()) move(plan.adapter.directory);
}

std::string machines_line(int nodes, int gpus_per_node, std::string_view kind) {
  return fmt::format("{} {} × {} {}{} = {}\n", nodes, nodes == 1 ? "node" : "nodes", gpus_per_node, kind,
                     gpus_per_node == 1 ? "" : "s", static_cast<int64_t>(nodes) * gpus_per_node);
}

std::string machines_line(const Plan& plan) {
  const bool is_cpu = plan.hardware.accelerator == Accelerator::kCpu;
  return machines_line(plan.hardware.nodes, plan.hardware.gpus_per_node, is_cpu ? "CPU rank" : "GPU");
}

Flag plan_flag() { return {"plan", {}, FlagKind::kValue, "PLAN.JSON", "a plan made before, instead of keys of a run", 0}; }
Flag config_flag() { return {"config", {"run"}, FlagKind::kValue, "RUN.YAML", "the run file, as without a flag", 0}; }
std::vector<Flag> layer_flags() {
  return {
      {"from",
       {},
       FlagKind::kList,
       "FILE",
       "a file of another tool (DeepSpeed, accelerate, a job script …), below the run file; may be repeated",
       0},
      {"use", {"recipe"}, FlagKind::kList, "NAME", "a named preset (presets/recipes), below the run file; may be repeated", 0},
      {"distributed",
       {"distributed-preset", "fsdp-config"},
       FlagKind::kValue,
       "NAME",
       "named machines and sharding, over the file: single_node_fsdp, multi_node_fsdp, large_scale_fsdp, multi_node_ddp, or one of "
       "the file's own (distributed_examples)",
       0},
      {"stage", {}, FlagKind::kValue, "NAME", "one of the file's stages, over the rest of it", 0},
      {"set",
       {"override", "pin"},
       FlagKind::kList,
       "KEY=VALUE",
       "a key by its path or flag, such as train.steps=50 or tp=2, or one of the file's own; may be repeated",
       0}};
}
Flag goal_flag() {
  return {"goal", {},          FlagKind::kValue, "GOAL", "what is best: throughput, min-gpus, max-context, min-cost or min-memory",
          0,      goal_names()};
}
Flag presets_flag() {
  return {"presets", {}, FlagKind::kValue, "DIR", "GPUs, machines and models of your own, over the built-in ones", 0};
}
Flag templates_flag() { return {"templates", {}, FlagKind::kValue, "DIR", "templates of your own, over the built-in ones", 0}; }
Flag output_flag(std::string help) { return {"output", {"out"}, FlagKind::kValue, "PATH", std::move(help), 'o'}; }
Flag dry_run_flag() { return {"dry-run", {}, FlagKind::kSwitch, "", "write nothing, print the files as they would be", 'n'}; }
Flag force_flag() { return {"force", {}, FlagKind::kSwitch, "", "replace files that exist with other content", 'f'}; }

}  // namespace distsetup
