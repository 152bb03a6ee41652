#include "planner/resolve/resolve_preference.h"

#include <fmt/format.h>

#include "base/diagnostic_codes.h"
#include "plan/reference.h"

namespace distsetup {

void resolve_preference(Resolving& r) {
  TrainPlan& t = r.plan().train;
  for (const char* path : {"train.loss", "train.beta", "train.label_smoothing", "train.reference"}) {
    if (r.spec.find(path) == nullptr || r.refuse_elsewhere(path)) continue;
    if (!learns_preferences(t))
      r.fail(code::kMissingKey, path, fmt::format("{} is read by method dpo alone, the method is {}", path, t.method), "--method dpo");
  }
  if (!r.native() || !learns_preferences(t)) return;
  PreferencePlan& p = t.preference;
  p.loss = r.spec.text("train.loss").value_or(p.loss);
  p.beta = r.spec.number("train.beta").value_or(p.beta);
  p.label_smoothing = r.spec.number("train.label_smoothing").value_or(p.label_smoothing);
  p.reference = r.spec.text("train.reference").value_or(p.reference);
  if (p.label_smoothing != 0 && p.loss != "sigmoid")
    r.fail(code::kConflict, "train.label_smoothing",
           fmt::format("label_smoothing is read by the loss sigmoid alone, the loss is {}", p.loss),
           "leave label_smoothing out, or --loss sigmoid");
  if (!r.spec.find("train.loss") || !r.spec.find("train.beta"))
    r.assume(fmt::format("loss {} with beta {:g}, reference {}", p.loss, p.beta, p.reference));
}

void check_reference_setting(Resolving& r) {
  const Plan& plan = r.plan();
  if (!runs_reference(plan.train)) return;
  for (const Diagnostic& d : check_reference(plan)) r.fail(d.code.c_str(), "train.reference", d.message, d.help);
  if (plan.train.preference.reference == "shared" && r.inputs.adapter.has_value())
    r.assume(fmt::format("reference shared: the model without the adapters of '{}', not what training starts from (cached, sharded)",
                         plan.adapter.directory));
}

void check_pairs(Resolving& r) {
  if (!r.inputs.data.has_value()) return;
  constexpr const char* kHelp = "distsetup data prepare pairs.jsonl --tokenizer MODEL-FOLDER --output SET, then --data SET";
  const bool wants_pairs = learns_preferences(r.plan().train);
  const bool is_prepared = r.plan().data.tokenizer == kPreparedTokens;
  if (wants_pairs && !is_prepared)
    r.fail(code::kData, "train.method", "dpo learns from preference pairs, and files of text hold none", kHelp);
  else if (wants_pairs && !r.inputs.data_holds_pairs)
    r.fail(code::kData, "train.method", "dpo learns from preference pairs, and this set holds none",
           "--method sft, or a set of rows with chosen and rejected");
  else if (!wants_pairs && r.inputs.data_holds_pairs)
    r.fail(code::kData, "data.paths", fmt::format("this set holds preference pairs, the method is {}", r.plan().train.method),
           "--method dpo");
}

}  // namespace distsetup
