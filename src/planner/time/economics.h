// What a step time means for a whole run: days, GPU-hours, money, and how often to save.
#pragma once

namespace distsetup {

// Hours between failures that stop a job, per GPU: 419 unexpected interruptions in 54 days on 16,384 H100 (Llama 3, arXiv 2407.21783,
// section 3.3.4).
inline constexpr double kGpuHoursPerFailure = 54.0 * 24 * 16384 / 419;

// What is stated (0: nothing is), else that.
inline double gpu_hours_per_failure(double stated) { return stated > 0 ? stated : kGpuHoursPerFailure; }

// Where nothing is said of them; stated as an assumption wherever they count.
inline constexpr double kAssumedSaveTime_s = 60, kAssumedRestartTime_s = 600;

inline double save_time_s(double stated) { return stated > 0 ? stated : kAssumedSaveTime_s; }

struct RunCost {
  double days = 0, gpu_hours = 0;
  double usd = 0, usd_per_million_tokens = 0;  // 0 without a price
};
// goodput: share of the time that makes progress (1: no failures, no saves).
RunCost run_cost(double tokens, double tokens_per_s_per_gpu, double gpus, double usd_per_gpu_hour, double goodput);

double failures_per_s(double gpus, double gpu_hours_per_failure = kGpuHoursPerFailure);

// Seconds between checkpoints that lose the least: saving takes save_s, failures come at this rate. 0 failures: 0, save at the end.
double checkpoint_interval_s(double save_s, double failures_per_s);

// Share of the time that makes progress: saves, work lost to failures (half an interval each), restarts.
double goodput(double interval_s, double save_s, double restart_s, double failures_per_s);

}  // namespace distsetup
