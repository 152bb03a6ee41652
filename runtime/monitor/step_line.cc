#include "runtime/monitor/step_line.h"

#include <fmt/format.h>

#include <cmath>

#include "base/json.h"
#include "base/quantity.h"
#include "runtime/monitor/preference_metrics.h"

namespace distsetup {

Json step_line(const StepFacts& facts, const StepStats& stats, const StepGuard::Judgement& judgement) {
  Json line = {{"kind", "step"},
               {"step", facts.step},
               {"learning_rate", facts.learning_rate},
               {"tokens", facts.tokens},
               {"valid_tokens", facts.valid_tokens},
               {"step_s", facts.step_s},
               {"tokens_per_s", facts.tokens_per_s()},
               {"wait_s", stats.wait_s}};
  if (std::isfinite(stats.loss)) line["loss"] = stats.loss;
  if (std::isfinite(stats.gradient_norm)) line["gradient_norm"] = stats.gradient_norm;
  if (judgement.usual > 0) line["spike"] = judgement.usual;
  if (!stats.is_updated) line["skipped"] = judgement.why;
  if (stats.preference && std::isfinite(stats.loss)) add_preference_metrics(*stats.preference, line);
  return line;
}

std::string step_text(const StepFacts& facts, const StepStats& stats, const Plan& plan, double left_s) {
  return fmt::format("step {:>6}  loss {:.4f}{}  lr {:.2e}  grad norm {:.3f}  {} tokens/s  {} (predicted {}){}\n", facts.step,
                     stats.loss, stats.preference ? preference_text(*stats.preference) : "", facts.learning_rate, stats.gradient_norm,
                     format_count(std::llround(facts.tokens_per_s())), format_duration(facts.step_s),
                     format_duration(plan.time.step_s), left_s > 0 ? fmt::format("  {} left", format_duration(left_s)) : "");
}

}  // namespace distsetup
