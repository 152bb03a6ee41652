#include "planner/resolve/resolve_native_optimizer.h"

#include <fmt/format.h>

#include "base/diagnostic_codes.h"
#include "plan/optimizer.h"

namespace distsetup {
namespace {

constexpr const char* kMuonSettings[] = {"train.nesterov", "train.newton_schulz_steps", "train.adjust_lr", "train.adam_learning_rate"};
constexpr const char* kAdafactorSettings[] = {"train.beta2_decay", "train.epsilon2", "train.clip_threshold"};

// A setting that this optimizer does not read is refused: it would have no effect.
void refuse_unread(Resolving& r) {
  const std::string& optimizer = r.plan().train.optimizer;
  const bool is_sgd = optimizer == "sgd", is_lion = optimizer == "lion", is_muon = optimizer == kMuon,
             is_adafactor = optimizer == kAdafactor;
  const auto unread = [&](const char* path, bool is_read, const char* who) {
    if (r.spec.find(path) == nullptr || is_read) return;
    r.fail(code::kConflict, path, fmt::format("{} is of {}, this run's optimizer is {}", path, who, optimizer), "leave it out");
  };
  unread("train.beta1", !is_sgd && !is_adafactor, "AdamW and Lion");
  unread("train.beta2", !is_sgd && !is_adafactor, "AdamW and Lion");
  unread("train.epsilon", !is_sgd && !is_lion, "AdamW and Adafactor");
  unread("train.momentum", is_sgd || is_muon, "SGD and Muon");
  for (const char* path : kMuonSettings) unread(path, is_muon, "Muon");
  for (const char* path : kAdafactorSettings) unread(path, is_adafactor, "Adafactor");
}

void resolve_muon(Resolving& r) {
  TrainPlan& t = r.plan().train;
  t.muon.nesterov = r.spec.boolean("train.nesterov").value_or(true);
  t.muon.newton_schulz_steps = r.spec.integer("train.newton_schulz_steps").value_or(t.muon.newton_schulz_steps);
  t.muon.adjust_lr = r.spec.text("train.adjust_lr").value_or(t.muon.adjust_lr);
  t.muon.adam_learning_rate = r.spec.number("train.adam_learning_rate").value_or(t.learning_rate);
  if (t.learning_rate == 0 && t.muon.adam_learning_rate > 0)
    r.fail(code::kConflict, "train.adam_learning_rate",
           "a learning rate of 0 beside one for AdamW: both follow one schedule, as its shares", "give a learning rate above 0");
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
  t.momentum = t.optimizer == "sgd" || t.optimizer == kMuon ? r.spec.number("train.momentum").value_or(usual.momentum) : 0;
  if (t.optimizer == kMuon) resolve_muon(r);
  if (t.optimizer == kAdafactor) {
    t.adafactor.beta2_decay = r.spec.number("train.beta2_decay").value_or(t.adafactor.beta2_decay);
    t.adafactor.epsilon2 = r.spec.number("train.epsilon2").value_or(t.adafactor.epsilon2);
    t.adafactor.clip_threshold = r.spec.number("train.clip_threshold").value_or(t.adafactor.clip_threshold);
  }
  const int64_t tp = r.spec.integer("parallel.tp").value_or(1);
  if (tp > 1 && !keeps_elements(t.optimizer))
    r.fail(code::kUnsupportedFeature, "parallel.tp",
           fmt::format(
               "{} sees whole matrices, and the bundled trainer does not bring together what {} tensor-parallel ranks have of them",
               t.optimizer, tp),
           "--tp 1, or --optimizer adamw");
  if (!usual.learning_rate_note.empty() && r.spec.find("train.learning_rate") == nullptr)
    r.assume(fmt::format("learning rate {}: {}", t.learning_rate, usual.learning_rate_note));
}

void refuse_momentum(Resolving& r) {
  if (r.spec.find("train.momentum") != nullptr)
    r.fail(code::kUnsupportedFeature, "train.momentum",
           "train.momentum is a setting of the bundled trainer; other trainers have settings of their own for it",
           "plan with --trainer native, or set it where that trainer reads it");
  for (const char* path : kMuonSettings) r.refuse_elsewhere(path);
  for (const char* path : kAdafactorSettings) r.refuse_elsewhere(path);
}

}  // namespace distsetup
