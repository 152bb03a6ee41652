// What each target has a form for is data of its own: `search` of templates/<target>/target.yaml.
#include "cli/settings/target_limits.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "cli/line/flags.h"
#include "codegen/tables/target.h"
#include "planner/resolve/starter.h"

namespace distsetup {
namespace {

// Keeps of `from` what is in `known` (texts); what went is added to `left_out`. A pinned choice stays, and so does the last one.
template <class T>
void keep(std::vector<T>& from, const std::vector<std::string>& known, std::string_view kind, std::vector<std::string>& left_out) {
  if (from.size() < 2 || known.empty()) return;
  std::vector<T> kept, gone;
  for (const T& one : from) {
    const bool is_known = std::find(known.begin(), known.end(), name(one)) != known.end();
    (is_known ? kept : gone).push_back(one);
  }
  if (kept.empty()) return;
  for (const T& one : gone) left_out.push_back(fmt::format("{}{}", kind, name(one)));
  from = std::move(kept);
}

void narrow_axes(Problem& problem, const std::optional<std::vector<std::string>>& known, std::vector<std::string>& left_out) {
  if (!known.has_value()) return;
  const auto narrow = [&](int& axis, const char* name, std::string_view feature) {
    if (axis != 0 || !problem.trainer.has(feature) || std::find(known->begin(), known->end(), name) != known->end()) return;
    axis = 1;
    left_out.emplace_back(name);
  };
  narrow(problem.pp, "pp", "pipeline_parallel");
  narrow(problem.tp, "tp", "tensor_parallel");
  narrow(problem.cp, "cp", "context_parallel");
  narrow(problem.ep, "ep", "expert_parallel");
}

// Who runs what the target writes, the usual one first; empty: the bundled trainer, or no such target.
std::vector<std::string> trainers_of(std::string_view target, const TemplateSet& templates) {
  const std::vector<std::string> targets = target_names(templates);
  if (std::find(targets.begin(), targets.end(), target) == targets.end()) return {};  // emit says so
  const Result<TargetSearch> search = target_search(templates, target);
  return search.ok() ? search->trainers : std::vector<std::string>{};  // narrow_to_target() says what is wrong with it
}

}  // namespace

bool has_trainers(const Spec& spec, const TemplateSet& templates) {
  return !trainers_of(with_settled_via(spec).text("launch.target").value_or(std::string(kNative)), templates).empty();
}

Result<Problem> resolve_for_target(const Spec& spec, const Presets& presets, const Inputs& inputs, const TemplateSet& templates,
                                   bool is_fsdp1, const std::vector<PassedOver>& passed_over) {
  const std::string target = with_settled_via(spec).text("launch.target").value_or(std::string(kNative));
  const std::vector<std::string> trainers =
      spec.find("trainer.name") != nullptr ? std::vector<std::string>{} : trainers_of(target, templates);
  if (trainers.empty()) return resolve(spec, presets, inputs, passed_over);
  std::optional<Result<Problem>> first;
  for (const std::string& trainer : trainers) {
    Spec with_trainer = spec;
    Diagnostics said = set(with_trainer, "trainer.name", is_fsdp1 && trainer == "fsdp2" ? "fsdp1" : trainer,
                           {fmt::format("templates/{}/target.yaml", target)});
    if (has_error(said)) return said;
    Result<Problem> problem = resolve(with_trainer, presets, inputs);
    if (problem.ok()) {
      problem->chosen_for = target;  // the plan says what it was made for
      std::vector<std::string>& assumed = problem->base.assumptions;
      assumed.insert(assumed.begin(), fmt::format("trainer {}, which target {} is for", problem->trainer.label, target));
      return problem;
    }
    if (!first.has_value()) first = std::move(problem);
  }
  return std::move(*first);
}

Diagnostics narrow_to_target(Problem& problem, std::string_view target, const TemplateSet& templates) {
  const std::vector<std::string> targets = target_names(templates);
  if (std::find(targets.begin(), targets.end(), target) == targets.end())
    return {error(code::kUnknownTarget, command_line(), fmt::format("unknown target '{}'", target), suggest(target, targets))};
  const Result<TargetSearch> search = target_search(templates, target, problem.trainer.name);
  if (!search.ok()) return search.diagnostics;
  std::vector<std::string> left_out;
  keep(problem.recomputes, search->recomputes, "recompute ", left_out);
  keep(problem.shardings, search->shardings, "", left_out);
  keep(problem.cp_methods, search->cp_methods, "cp by ", left_out);
  const bool is_mesh_free = problem.dp_replicate == 0 && problem.dp_shard == 0 && !problem.hybrid;
  if (!search->hybrid && is_mesh_free && problem.shardings != std::vector{Sharding::kDdp}) {
    problem.dp_replicate = 1;
    left_out.emplace_back("copies of the shard group");
  }
  if (!search->keeps_parameters && problem.reshard_after_forward.size() > 1) {
    problem.reshard_after_forward = {1};
    left_out.emplace_back("parameters kept after forward");
  }
  narrow_axes(problem, search->axes, left_out);
  if (!left_out.empty()) {
    problem.base.assumptions.push_back(
        fmt::format("target {}: without {}, which it has no form for", target, fmt::join(left_out, ", ")));
  }
  return {};
}

}  // namespace distsetup
