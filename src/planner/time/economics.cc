// Intervals by Young's first-order optimum sqrt(2 save M), M the mean time between failures, with Daly's higher-order terms (J. T.
// Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", 2006, equation 37); when saving takes more
// than 2 M nothing helps and the interval is M. Leaves out: failures that cluster, saves that run beside training (pass only the part
// that stalls).
#include "planner/time/economics.h"

#include <algorithm>
#include <cmath>

namespace distsetup {

RunCost run_cost(double tokens, double tokens_per_s_per_gpu, double gpus, double usd_per_gpu_hour, double goodput) {
  RunCost cost;
  const double seconds = tokens / (tokens_per_s_per_gpu * gpus * goodput);
  cost.days = seconds / 86400;
  cost.gpu_hours = seconds / 3600 * gpus;
  cost.usd = cost.gpu_hours * usd_per_gpu_hour;
  cost.usd_per_million_tokens = tokens > 0 ? cost.usd / tokens * 1e6 : 0;
  return cost;
}

double failures_per_s(double gpus, double gpu_hours_per_failure) { return gpus / (gpu_hours_per_failure * 3600); }

double checkpoint_interval_s(double save_s, double failures_per_s) {
  if (failures_per_s <= 0) return 0;
  const double between = 1 / failures_per_s, ratio = save_s / (2 * between);
  if (ratio >= 1) return between;
  return std::sqrt(2 * save_s * between) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - save_s;
}

double goodput(double interval_s, double save_s, double restart_s, double failures_per_s) {
  const double saved = interval_s > 0 ? interval_s / (interval_s + save_s) : 1;
  const double lost = failures_per_s * (restart_s + (interval_s + save_s) / 2);
  return saved * std::max(0.0, 1 - lost);
}

}  // namespace distsetup
