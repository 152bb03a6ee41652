#include "planner/search/make_plan.h"

#include <fmt/format.h>

#include "base/diagnostic_codes.h"
#include "base/quantity.h"
#include "model/count.h"
#include "plan/schedule.h"
#include "plan/schedule_text.h"
#include "planner/report/words.h"
#include "planner/resolve/hardware_facts.h"
#include "planner/search/answer.h"
#include "planner/search/fixes.h"
#include "planner/time/economics.h"

namespace distsetup {
namespace {

// GPU-hours and money of the whole run, and how often to save.
void account(Plan& plan, const Problem& problem) {
  TimePlan& t = plan.time;
  if (t.step_s <= 0) return;
  const auto steps = static_cast<double>(plan.train.steps);
  const double tokens = steps * static_cast<double>(tokens_per_step(plan));
  const RunCost cost = run_cost(tokens, t.tokens_per_s_per_gpu, plan.mesh.world(), plan.hardware.price_usd_per_gpu_hour, 1);
  t.gpu_hours = cost.gpu_hours;
  t.cost_usd = cost.usd;
  if (problem.save_time_s > 0) {
    const double failures = failures_per_s(plan.mesh.world(), gpu_hours_per_failure(problem.gpu_hours_per_failure));
    t.checkpoint_every_s = checkpoint_interval_s(static_cast<double>(problem.save_time_s), failures);
  }
  if (t.step_low_s == 0) t.step_low_s = t.step_high_s = t.step_s;
  MemoryPlan& m = plan.memory;
  if (m.device_low_bytes == 0) m.device_low_bytes = m.device_high_bytes = m.device_bytes;
}

// What would fit, as reasons, and why nothing does, as an error with the cheapest of them.
void explain_shortfall(Plan& plan, const std::vector<Fix>& fixes) {
  const MemoryPlan& m = plan.memory;
  for (const Fix& fix : fixes) plan.reasons.push_back(fmt::format("fits with {}: {}", fix.flags, fix.effect));
  const bool is_host = m.device_bytes <= m.capacity_bytes && m.host_bytes_per_node > 0;
  const std::string why =
      is_host ? fmt::format("the host needs {} per node and has {}, of which {:.0f} % are for training",
                            format_bytes(m.host_bytes_per_node), format_bytes(plan.hardware.host_memory_bytes), 100 * kUsableHostShare)
              : fmt::format("the smallest plan needs {} per {}, {} has {}: {} too much", format_bytes(m.device_bytes),
                            rank_word(plan.hardware), plan.hardware.gpu_name, format_bytes(m.capacity_bytes),
                            format_bytes(m.device_bytes - m.capacity_bytes));
  plan.diagnostics.push_back(error(code::kNothingFits, {}, "nothing fits: " + why, fixes.empty() ? "" : fixes.front().flags));
}

}  // namespace

Result<Plan> make_plan(const Problem& problem) {
  Diagnostics why;
  std::optional<Plan> plan = solve(problem, why, Shortfall::kFind);
  if (!plan.has_value()) return why;
  settle_length(problem.length, plan->train);
  if (is_native(*plan)) plan->schedule_digest = schedule_digest(*plan);
  if (plan->verdict == Verdict::kDoesNotFit) explain_shortfall(*plan, find_fixes(problem, *plan));
  account(*plan, problem);
  return std::move(*plan);
}

std::vector<SmallestFit> smallest_that_fits(const Problem& problem) {
  std::vector<SmallestFit> rows;
  if (problem.other_hardware.empty()) return rows;
  std::vector<HardwarePlan> all = {problem.base.hardware};
  all.insert(all.end(), problem.other_hardware.begin(), problem.other_hardware.end());
  for (const HardwarePlan& hardware : all) {
    Problem other = problem;
    other.base.hardware = hardware;
    other.base.data.files.clear();
    if (problem.hybrid) other.dp_shard = hardware.gpus_per_node;
    SmallestFit row;
    row.gpu = hardware.gpu;
    row.gpu_name = hardware.gpu_name;
    row.gpus_per_node = hardware.gpus_per_node;
    row.capacity_bytes = hardware.memory_bytes;
    Diagnostics why;
    const std::optional<Plan> plan = solve(other, why, Shortfall::kSkip);
    if (plan.has_value() && is_answer(*plan)) {
      row.nodes = plan->hardware.nodes;
      row.total_gpus = plan->mesh.world();
      row.device_bytes = plan->memory.device_bytes;
      row.step_s = plan->time.step_s;
      row.tokens_per_s_per_gpu = plan->time.tokens_per_s_per_gpu;
      row.strategy = summary(*plan);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace distsetup
