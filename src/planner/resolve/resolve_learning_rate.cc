#include "planner/resolve/resolve_learning_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/diagnostic_codes.h"
#include "base/quantity.h"
#include "plan/plan_fields.h"

namespace distsetup {
namespace {

// Steps that nobody gave follow a warm-up that somebody did: a tenth of a run is what a plan takes for one.
void lengthen_assumed(Resolving& r, TrainPlan& t) {
  constexpr int64_t kMostWarmup = 1'000'000'000;
  const auto warmup = r.problem.length.warmup_steps;
  const bool is_assumed = r.spec.find("train.steps") == nullptr && !r.problem.length.is_given();
  if (is_assumed && warmup && *warmup > t.steps && *warmup < kMostWarmup) t.steps = 10 * *warmup;
}

void read_warmup(Resolving& r, TrainPlan& t) {
  RunLength& length = r.problem.length;
  length.warmup_steps = r.spec.integer("train.warmup_steps");
  lengthen_assumed(r, t);
  length.warmup_ratio = r.spec.number("train.warmup_ratio");
  t.warmup_steps = warmup_of(length, t.steps);
  if (!length.warmup_steps || !length.warmup_ratio) return;
  const int64_t part = warmup_steps_of(*length.warmup_ratio, t.steps);
  if (*length.warmup_steps != part)
    r.fail(code::kConflict, "train.warmup_ratio",
           fmt::format("{} of {} steps are {} warm-up steps, not {}", *length.warmup_ratio, t.steps, part, *length.warmup_steps),
           "give warmup_steps or warmup_ratio, not both");
}

// Where the rate ends when nobody says: a tenth of the peak for the cosine, as Llama 2 (arXiv 2307.09288) and others trained; 0 for
// the others, as the tools that have them. A constant rate ends where it is.
double usual_minimum(const TrainPlan& t) {
  if (t.lr_schedule == LearningRateSchedule::kConstant) return t.learning_rate;
  return t.lr_schedule == LearningRateSchedule::kCosine ? std::stod(fmt::format("{:.12g}", t.learning_rate / 10)) : 0;
}

void read_decay(Resolving& r, TrainPlan& t) {
  const bool is_step = t.lr_schedule == LearningRateSchedule::kStep, is_wsd = t.lr_schedule == LearningRateSchedule::kWsd;
  const auto unused = [&r, &t, is_step](const char* path, bool is_used, const char* who) {
    if (r.spec.find(path) != nullptr && !is_used)
      r.fail(code::kConflict, path, fmt::format("{} is of the schedule {}, this run's is {}", path, who, name(t.lr_schedule)),
             fmt::format("leave it out, or give --lr-schedule {}", is_step ? "wsd" : "step"));
  };
  unused("train.lr_decay_steps", is_step || is_wsd, "wsd or step");
  unused("train.lr_decay_factor", is_step, "step");
  r.problem.length.decay_steps = r.spec.integer("train.lr_decay_steps");
  t.lr_decay_steps = decay_of(r.problem.length, t);
  t.lr_decay_factor = is_step ? r.spec.number("train.lr_decay_factor").value_or(0.1) : 0;  // torch's StepLR
  if (is_wsd && !r.problem.length.is_given() && t.warmup_steps + t.lr_decay_steps > t.steps)
    r.fail(code::kConflict, "train.lr_decay_steps",
           fmt::format("{} warm-up steps and {} steps of decay are more than {} steps", t.warmup_steps, t.lr_decay_steps, t.steps),
           fmt::format("--lr-decay-steps {}", std::max<int64_t>(1, t.steps - t.warmup_steps)));
}

}  // namespace

void resolve_learning_rate(Resolving& r, const MethodDefaults& usual) {
  TrainPlan& t = r.plan().train;
  t.learning_rate = r.spec.number("train.learning_rate").value_or(usual.learning_rate);
  const std::string schedule = r.spec.text("train.lr_schedule").value_or("cosine");
  for (const auto& s : spellings<LearningRateSchedule>())
    if (s.text == schedule) t.lr_schedule = s.value;
  t.min_learning_rate = r.spec.number("train.min_learning_rate").value_or(usual_minimum(t));
  read_warmup(r, t);
  read_decay(r, t);
  if (t.min_learning_rate > t.learning_rate)
    r.fail(code::kConflict, "train.min_learning_rate",
           fmt::format("min_learning_rate {} is above learning_rate {}", t.min_learning_rate, t.learning_rate),
           fmt::format("--min-learning-rate {:.3g}", t.learning_rate / 10));
  if (t.lr_schedule == LearningRateSchedule::kConstant && t.min_learning_rate < t.learning_rate) {
    r.said.push_back(warning(code::kConflict, r.spec.at("train.min_learning_rate"),
                             fmt::format("a constant learning rate never falls to the minimum {}", t.min_learning_rate),
                             "--lr-schedule linear falls to it"));
    t.min_learning_rate = t.learning_rate;
  }
  if (t.warmup_steps > t.steps && !r.problem.length.is_given())
    r.fail(code::kConflict, "train.warmup_steps", fmt::format("{} warm-up steps do not end within {} steps", t.warmup_steps, t.steps),
           fmt::format("--warmup-steps {}", t.steps / 10));
  const std::string rates = t.min_learning_rate == t.learning_rate
                                ? fmt::format("learning rate {}", t.learning_rate)
                                : fmt::format("learning rate {} to {}", t.learning_rate, t.min_learning_rate);
  if (r.problem.length.is_given()) {
    if (!r.spec.find("train.learning_rate")) r.assume(rates);
  } else if (!r.spec.find("train.steps") || !r.spec.find("train.learning_rate")) {
    r.assume(fmt::format("{} steps, {}, {} warm-up steps", format_count(t.steps), rates, t.warmup_steps));
  }
}

}  // namespace distsetup
