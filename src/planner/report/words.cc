#include "planner/report/words.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quantity.h"
#include "plan/layout.h"
#include "plan/node_reduction.h"
#include "planner/resolve/hardware_facts.h"
#include "planner/search/choice.h"

namespace distsetup {

std::string_view verdict_words(Verdict verdict) {
  return verdict == Verdict::kFits ? "fits" : verdict == Verdict::kTight ? "tight" : "does not fit";
}

std::string verdict_words(Verdict verdict, double fit_probability) {
  std::string words(verdict_words(verdict));
  if (verdict == Verdict::kDoesNotFit || fit_probability >= 1) return words;
  return fmt::format("{} ({} %)", words, static_cast<int>(100 * std::min(fit_probability, 0.99) + 1e-9));
}

std::string_view rank_word(const HardwarePlan& hardware) { return hardware.accelerator == Accelerator::kCpu ? "rank" : "GPU"; }

bool lacks_host_memory(const Plan& plan) {
  const MemoryPlan& m = plan.memory;
  return plan.verdict == Verdict::kDoesNotFit && m.device_bytes <= m.capacity_bytes && plan.hardware.host_memory_bytes > 0 &&
         m.host_bytes_per_node > usable_host_bytes(plan.hardware);
}

std::string memory_words(const Plan& plan) {
  if (lacks_host_memory(plan))
    return fmt::format("{} of {} of host memory per node", format_bytes(plan.memory.host_bytes_per_node),
                       format_bytes(usable_host_bytes(plan.hardware)));
  return fmt::format("{} of {} per {}", format_bytes(plan.memory.device_bytes), format_bytes(plan.memory.capacity_bytes),
                     rank_word(plan.hardware));
}

std::string headline(const Plan& plan) {
  std::string out = fmt::format("{} · {}", verdict_words(plan.verdict, plan.memory.fit_probability), memory_words(plan));
  if (plan.time.step_s > 0) out += fmt::format(" · {} per step", format_duration(plan.time.step_s));
  return fmt::format("{} · {}", out, summary(plan));
}

std::string transfer_words(const Plan& plan) {
  const StrategyPlan& strategy = plan.strategy;
  std::string words;
  if (const int n = strategy.reductions_in_flight; n > 1) words += fmt::format(" · {} reductions in flight", n);
  if (node_ranks(plan, shard_group(plan.mesh, strategy.sharding)) > 0) words += " · reduced within nodes first";
  if (strategy.sync_each_batch) words += " · reduced each micro-batch";
  if (strategy.backward_prefetch == kPrefetchPost) words += " · gathers after each backward";
  if (strategy.backward_prefetch == kNoPrefetch) words += " · no prefetch in backward";
  if (!strategy.overlap_grad_reduce) words += " · reduces after backward";
  if (!strategy.overlap_param_gather && strategy.sharding == Sharding::kZero1) words += " · gathers before forward";
  return words;
}

}  // namespace distsetup
