#include "cli/settings/trials.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/quantity.h"
#include "cli/settings/run_source.h"
#include "planner/report/text_layout.h"
#include "planner/report/words.h"
#include "planner/search/choice.h"
#include "planner/search/goal.h"

namespace distsetup {

Trial try_value(const Arguments& arguments, const Session& session, Spec spec,
                const std::vector<std::pair<std::string, std::string>>& settings, std::string label) {
  Trial trial;
  trial.value = std::move(label);
  Diagnostics said;
  for (const auto& [path, value] : settings) {
    if (path == "hardware.nodes") spec.settings.erase("hardware.total_gpus");
    if (path == "train.global_batch") spec.settings.erase("train.global_batch_tokens");
    append(said, set(spec, path, value, command_line()));
  }
  const auto refuse = [&](const Diagnostics& why) {
    for (const Diagnostic& d : why)
      if (d.severity == Severity::kError && trial.refused.empty()) trial.refused = d.message;
  };
  if (has_error(said)) {
    refuse(said);
    return trial;
  }
  Result<Problem> problem = read_problem(arguments, session, spec);
  if (!problem.ok()) {
    refuse(problem.diagnostics);
    return trial;
  }
  const Result<std::string> goal = choice_flag(arguments, "goal", "throughput", goal_names());
  if (goal.ok()) problem->goal = *goal_of(*goal);
  Result<Plan> plan = make_plan_for_goal(*problem);
  if (!plan.value) {
    refuse(plan.diagnostics);
    return trial;
  }
  trial.plan = std::move(*plan.value);
  return trial;
}

std::string trials_text(const std::string& heading, const std::vector<Trial>& trials, const std::string& chosen,
                        const TextStream& stream) {
  int first = display_width(heading);
  for (const Trial& t : trials) first = std::max(first, display_width(t.value));
  const std::string head = "  " + pad_right(heading, first) + pad_left("per GPU", 12) + "  " + pad_right("verdict", 12) +
                           pad_left("step", 10) + pad_left("tokens/s/GPU", 14) + "  plan\n";
  std::string text = cut(head, stream.width_columns);
  if (text.empty() || text.back() != '\n') text += '\n';
  for (const Trial& t : trials) {
    std::string line = (t.value == chosen ? "* " : "  ") + pad_right(t.value, first);
    if (t.plan.has_value()) {
      const Plan& p = *t.plan;
      line += pad_left(format_gib(p.memory.device_bytes), 12) + "  " + pad_right(std::string(verdict_words(p.verdict)), 12) +
              pad_left(format_duration(p.time.step_s), 10) +
              pad_left(format_count(static_cast<int64_t>(p.time.tokens_per_s_per_gpu)), 14) + "  " + summary(p);
    } else {
      line += "  " + t.refused;
    }
    text += cut(line, stream.width_columns) + "\n";
  }
  return text;
}

Json trials_json(const std::vector<Trial>& trials) {
  Json rows = Json::array();
  for (const Trial& t : trials) {
    Json row = {{"value", t.value}};
    if (t.plan.has_value()) {
      row["verdict"] = name(t.plan->verdict);
      row["device_bytes"] = t.plan->memory.device_bytes;
      row["capacity_bytes"] = t.plan->memory.capacity_bytes;
      row["step_s"] = t.plan->time.step_s;
      row["tokens_per_s_per_gpu"] = t.plan->time.tokens_per_s_per_gpu;
      row["gpus"] = t.plan->mesh.world();
      row["summary"] = summary(*t.plan);
    } else {
      row["verdict"] = nullptr;
      row["refused"] = t.refused;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace distsetup
