#include "planner/resolve/resolve.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/diagnostic_codes.h"
#include "planner/resolve/adapters.h"
#include "planner/resolve/resolve_trainer.h"
#include "planner/resolve/starter.h"

namespace distsetup {
namespace {

// What a variant of the trainer lacks is planned as the trainer itself does it.
Result<Problem> resolve_variant(const Spec& spec, const Presets& presets, const Inputs& inputs) {
  const std::string name = spec.text("trainer.name").value_or(""), code_base = spec.text("trainer.code_base").value_or("");
  std::string target = spec.text("launch.target").value_or("");
  const bool is_open = target.empty() || target == kNative;  // a target is written for a program of its own
  if (code_base == "torchtitan" || (has_variant(presets, name, code_base) && is_open)) target = code_base;
  // Dropout of adapters is PEFT's: torchtitan's have none (torchtitan/components/lora.py, 0.3.0). sync_each_batch and wrap policies
  // are accelerate's. Releases of Transformers say whose layers they are.
  const bool is_of_the_trainer =
      spec.number("adapter.dropout").value_or(0) > 0 || spec.boolean("parallel.sync_each_batch").value_or(false) ||
      spec.text("parallel.auto_wrap_policy") == kWrapsNothing || spec.text("trainer.transformers").has_value();
  if (is_of_the_trainer && target.empty() && has_variant(presets, name, "transformers")) target = "transformers";
  Result<Problem> problem = resolve_trainer(spec, presets, inputs, target);
  if (problem.ok() || !has_variant(presets, name, target)) return problem;
  Result<Problem> whole = resolve_trainer(spec, presets, inputs, "");
  // What neither of them does is said of the one that is asked for.
  const auto lacks = [](const Diagnostic& d) { return d.severity == Severity::kError && d.code == code::kUnsupportedFeature; };
  const bool is_lacking = !whole.ok() && std::any_of(whole.diagnostics.begin(), whole.diagnostics.end(), lacks);
  const Result<TrainerFacts> facts = find_trainer(presets, name, {}, target);
  const bool stands_for_none = whole.ok() && facts.ok() && adapts_experts_unplanned(*facts, whole->base);
  if (is_lacking || stands_for_none) return problem;
  const auto lacked = std::find_if(problem.diagnostics.begin(), problem.diagnostics.end(), lacks);
  if (whole.ok() && target == code_base && lacked != problem.diagnostics.end())
    whole->base.assumptions.push_back(fmt::format("as {} does it: {}", whole->trainer.label, lacked->message));
  return whole;
}

// Weights without an fp32 master train worse: who wants them names the trainer, too.
bool only_unsupported(const Spec& spec, const Diagnostics& said) {
  if (spec.text("precision.master").value_or("fp32") != "fp32") return false;
  return std::all_of(said.begin(), said.end(),
                     [](const Diagnostic& d) { return d.severity != Severity::kError || d.code == code::kUnsupportedFeature; });
}

// Who runs what the bundled trainer cannot, in the order in which they are tried; `as_for`: a target, whose variant it is then.
struct OtherTrainer {
  std::string_view name, as_for;
};
constexpr OtherTrainer kOtherTrainers[] = {
    {"fsdp2", ""}, {"fsdp2", "transformers"}, {"megatron", ""}, {"deepspeed", ""}, {"fsdp1", ""}};

// Why it is this trainer: "the first trainer that can", or what was the matter with the others.
std::string why_this_one(const std::vector<PassedOver>& passed_over) {
  if (passed_over.empty()) return "the first trainer that can";
  std::vector<std::string> too_large, tight;
  for (const PassedOver& one : passed_over) (one.is_tight ? tight : too_large).push_back(one.label);
  std::vector<std::string> why;
  if (!too_large.empty()) why.push_back(fmt::format("does not fit with {}", fmt::join(too_large, " or ")));
  if (!tight.empty()) why.push_back(fmt::format("is tight with {}", fmt::join(tight, " and ")));
  return fmt::format("since it {}", fmt::join(why, " and "));
}

std::optional<Result<Problem>> resolve_elsewhere(const Spec& spec, const Presets& presets, const Inputs& inputs,
                                                 const Diagnostics& refused, const std::vector<PassedOver>& passed_over) {
  for (const OtherTrainer& trainer : kOtherTrainers) {
    Spec with_trainer = spec;
    if (has_error(set(with_trainer, "trainer.name", trainer.name, {}))) continue;
    Result<Problem> problem = trainer.as_for.empty() ? resolve_variant(with_trainer, presets, inputs)
                                                     : resolve_trainer(with_trainer, presets, inputs, trainer.as_for);
    if (!problem.ok() || !problem->trainer.has_family(problem->base.model.family)) continue;
    const auto is_this = [&](const PassedOver& one) { return one.label == problem->trainer.label; };
    if (std::any_of(passed_over.begin(), passed_over.end(), is_this)) continue;
    const auto why = std::find_if(refused.begin(), refused.end(), [](const Diagnostic& d) { return d.severity == Severity::kError; });
    problem->stands_in = fmt::format("{}: {}", why_this_one(passed_over), why->message);
    std::vector<std::string>& assumed = problem->base.assumptions;
    assumed.insert(assumed.begin(), fmt::format("trainer {}, {}", problem->trainer.label, problem->stands_in));
    return problem;
  }
  return std::nullopt;
}

}  // namespace

Result<Problem> resolve(const Spec& spec, const Presets& presets, const Inputs& inputs, const std::vector<PassedOver>& passed_over) {
  const Spec settled = with_settled_via(spec);
  Result<Problem> problem = resolve_variant(settled, presets, inputs);
  if (settled.text("trainer.name").has_value()) return problem;
  if (problem.ok()) {
    std::vector<std::string>& assumed = problem->base.assumptions;
    assumed.insert(assumed.begin(), "the bundled trainer, which runs this model (--trainer names another)");
    return problem;
  }
  const bool is_for_native = settled.text("launch.target") == std::string(kNative);
  if (is_for_native || !only_unsupported(settled, problem.diagnostics)) return problem;
  std::optional<Result<Problem>> other = resolve_elsewhere(settled, presets, inputs, problem.diagnostics, passed_over);
  return other.has_value() ? std::move(*other) : std::move(problem);
}

}  // namespace distsetup
