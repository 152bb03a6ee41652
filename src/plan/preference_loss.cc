// Source of what is refused: TRL 1.16, trainer/dpo_trainer.py and trainer/dpo_config.py (losses by name, and what reads
// label_smoothing).
#include "plan/preference_loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/diagnostic_codes.h"
#include "plan/reference.h"

namespace distsetup {
namespace {

constexpr std::array<std::string_view, 3> kLosses = {"sigmoid", "hinge", "ipo"};

Op with_operands(Op op, std::string_view ending, std::string kernel, std::vector<std::string> reads, std::vector<std::string> writes) {
  op.name += ending;
  op.kernel = std::move(kernel);
  op.reads = std::move(reads);
  op.writes = std::move(writes);
  return op;
}

// The tensor's rows of all ranks of the group; where that is one rank, the tensor.
std::string gathered_over(Group group, int ranks, const Op& loss, const std::string& tensor, ProgramBuilder& builder) {
  if (ranks == 1) return tensor;
  Op gather = with_operands(loss, "_" + tensor + "_gather", "all_gather", {tensor}, {tensor + "_all"});
  gather.group = group;
  gather.attributes = {};
  builder.add(std::move(gather));
  return tensor + "_all";
}

}  // namespace

void add_preference_loss(const Op& loss, const ProgramSplit& split, ProgramBuilder& builder) {
  const std::string &z = loss.reads[0], &targets = loss.reads[1], &scale = loss.reads[2], &numbers = loss.reads[3];
  builder.add(with_operands(loss, "_local", "cross_entropy_local", {z, targets}, {"row_stats"}));
  const std::string stats = gathered_over(Group::kTp, split.tp, loss, "row_stats", builder);
  builder.add(with_operands(loss, "_logps", "sequence_logps", {targets, stats}, {"sequence_logps"}));
  const std::string logps = gathered_over(Group::kCp, split.cp, loss, "sequence_logps", builder);
  Op pairs = with_operands(loss, "_pairs", "dpo_" + split.preference->loss, {logps, "reference_logps", scale, numbers},
                           {"coefficients", numbers, "policy_logps"});
  pairs.attributes = {};
  pairs.attributes.beta = split.preference->beta;
  pairs.attributes.label_smoothing = split.preference->label_smoothing;
  builder.add(std::move(pairs));
  builder.add(with_operands(loss, "_gradient", "logits_gradient", {z, targets, stats, "coefficients"}, {loss.writes[0]}));
}

Diagnostics check_preference(const Plan& plan) {
  Diagnostics out;
  const PreferencePlan& p = plan.train.preference;
  const auto refuse = [&](bool condition, std::string_view code, std::string message, std::string help) {
    if (condition) out.push_back(error(code, {}, std::move(message), std::move(help)));
  };
  if (!learns_preferences(plan.train)) return out;
  refuse(std::find(kLosses.begin(), kLosses.end(), p.loss) == kLosses.end(), code::kUnsupportedFeature,
         fmt::format("the loss of preference pairs is '{}', the trainer has sigmoid, hinge and ipo", p.loss), "--loss sigmoid");
  refuse(!(p.beta > 0), code::kOutOfRange, fmt::format("beta is {}, expected more than 0", p.beta), "--beta 0.1");
  refuse(!(p.label_smoothing >= 0 && p.label_smoothing < 0.5), code::kOutOfRange,
         fmt::format("label_smoothing is {}, expected at least 0 and less than 0.5", p.label_smoothing), "--label-smoothing 0.1");
  refuse(p.label_smoothing != 0 && p.loss != "sigmoid", code::kConflict,
         fmt::format("label_smoothing is {}, and the loss {} does not read it", p.label_smoothing, p.loss),
         "leave label_smoothing out, or --loss sigmoid");
  append(out, check_reference(plan));
  return out;
}

}  // namespace distsetup
