#include "runtime/monitor/step_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/json.h"
#include "base/quantity.h"
#include "runtime/monitor/preference_metrics.h"

namespace distsetup {

namespace {

// "2.0 of 3.0 MiB"
std::string memory_text(int64_t peak_bytes, int64_t predicted_bytes) {
  const std::string predicted = format_bytes(predicted_bytes), unit = predicted.substr(predicted.rfind(' '));
  std::string peak = format_bytes(peak_bytes);
  if (peak.ends_with(unit)) peak.resize(peak.size() - unit.size());
  return fmt::format("{} of {}", peak, predicted);
}

}  // namespace

Json step_line(const StepFacts& facts, const StepStats& stats, const StepGuard::Judgement& judgement, const Json& memory) {
  Json line = {{"kind", "step"},
               {"step", facts.step},
               {"learning_rate", facts.learning_rate},
               {"tokens", facts.tokens},
               {"valid_tokens", facts.valid_tokens},
               {"step_s", facts.step_s},
               {"tokens_per_s", facts.tokens_per_s()},
               {"wait_s", stats.wait_s}};
  if (facts.peak_bytes > 0) line["peak_bytes"] = facts.peak_bytes;
  if (!memory.is_null()) line["memory"] = memory;
  if (std::isfinite(stats.loss)) line["loss"] = stats.loss;
  if (std::isfinite(stats.gradient_norm)) line["gradient_norm"] = stats.gradient_norm;
  if (stats.loss_scale > 0) line["loss_scale"] = stats.loss_scale;
  if (judgement.usual > 0) line["spike"] = judgement.usual;
  if (!stats.is_updated) line["skipped"] = judgement.why;
  if (stats.preference && std::isfinite(stats.loss)) add_preference_metrics(*stats.preference, line);
  return line;
}

bool has_line(int64_t step, int64_t steps, int64_t every) {
  constexpr int64_t kUsualNumber = 100;
  return step == steps || step % (every > 0 ? every : std::max<int64_t>(1, steps / kUsualNumber)) == 0;
}

int terminal_columns() {
  winsize size = {};
  if (::isatty(STDOUT_FILENO) == 1 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* const passed_on = std::getenv("DISTSETUP_COLUMNS");
  return passed_on == nullptr ? 0 : std::max(0, std::atoi(passed_on));
}

std::string step_text(const StepFacts& facts, const StepStats& stats, const Plan& plan, const RunSoFar& run, int columns) {
  const std::string preference = stats.preference ? preference_text(*stats.preference) : "";
  const std::string speed = fmt::format("{} tokens/s", format_count(std::llround(facts.tokens_per_s())));
  const std::string left = run.left_s > 0 ? fmt::format("{} left", format_duration(run.left_s)) : "";
  const std::string took = fmt::format("{} (predicted {})", format_duration(facts.step_s), format_duration(plan.time.step_s));
  const std::string rate = fmt::format("lr {:.2e}", facts.learning_rate), norm = fmt::format("grad norm {:.3f}", stats.gradient_norm);
  const std::string scale = stats.loss_scale > 0 ? fmt::format("scale {:g}", stats.loss_scale) : "";
  if (columns == 0) {
    return fmt::format("step {:>6}  loss {:.4f}{}  {}  {}{}  {}  {}{}\n", facts.step, stats.loss, preference, rate, norm,
                       scale.empty() ? "" : "  " + scale, speed, took, left.empty() ? "" : "  " + left);
  }
  const std::string memory = run.peak_bytes > 0 ? memory_text(run.peak_bytes, plan.memory.peak_allocated_bytes) : "";
  std::string line = fmt::format("step {}/{}  loss {:.4f}", facts.step, plan.train.steps, stats.loss);
  line.resize(std::min(line.size(), static_cast<size_t>(columns)));
  for (const std::string& part : {speed, left, memory, fmt::format("goodput {:.0f} %", 100 * run.goodput), took, norm, scale, rate}) {
    if (!part.empty() && line.size() + 2 + part.size() <= static_cast<size_t>(columns)) line += "  " + part;
  }
  if (line.size() + preference.size() <= static_cast<size_t>(columns)) line += preference;
  return line + "\n";
}

}  // namespace distsetup
