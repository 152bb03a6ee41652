#include "planner/resolve/resolve_native_optimizer.h"

#include <fmt/format.h>

#include "base/diagnostic_codes.h"

namespace distsetup {
namespace {

// A setting that this optimizer does not read is refused: it would have no effect.
void refuse_unread(Resolving& r) {
  const std::string& optimizer = r.plan().train.optimizer;
  const bool is_sgd = optimizer == "sgd", is_lion = optimizer == "lion";
  const auto unread = [&](const char* path, bool is_read, const char* who) {
    if (r.spec.find(path) == nullptr || is_read) return;
    r.fail(code::kConflict, path, fmt::format("{} is of {}, this run's optimizer is {}", path, who, optimizer), "leave it out");
  };
  unread("train.beta1", !is_sgd, "AdamW and Lion");
  unread("train.beta2", !is_sgd, "AdamW and Lion");
  unread("train.epsilon", !is_sgd && !is_lion, "AdamW");
  unread("train.momentum", is_sgd, "SGD");
}

}  // namespace

void resolve_native_optimizer(Resolving& r, MethodDefaults usual) {
  TrainPlan& t = r.plan().train;
  if (Diagnostics said = apply_optimizer_defaults(r.presets, t.optimizer, usual); has_error(said)) return append(r.said, said);
  refuse_unread(r);
  t.weight_decay = r.spec.number("train.weight_decay").value_or(usual.weight_decay);
  t.beta1 = r.spec.number("train.beta1").value_or(usual.beta1);
  t.beta2 = r.spec.number("train.beta2").value_or(usual.beta2);
  t.epsilon = r.spec.number("train.epsilon").value_or(usual.epsilon);
  t.momentum = t.optimizer == "sgd" ? r.spec.number("train.momentum").value_or(0) : 0;
  if (!usual.learning_rate_note.empty() && r.spec.find("train.learning_rate") == nullptr)
    r.assume(fmt::format("learning rate {}: {}", t.learning_rate, usual.learning_rate_note));
}

void refuse_momentum(Resolving& r) {
  if (r.spec.find("train.momentum") != nullptr)
    r.fail(code::kUnsupportedFeature, "train.momentum",
           "train.momentum is a setting of the bundled trainer; other trainers have settings of their own for it",
           "plan with --trainer native, or set it where that trainer reads it");
}

}  // namespace distsetup
