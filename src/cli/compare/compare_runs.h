// Two training curves side by side, and whether they are the same within a threshold: the parity test of two backends, two strategies
// or two trainers on one set-up.
//
// The losses agree when the first, the mean and the last loss differ by at most the threshold, relative to the larger, and so does
// every stretch of the curves: means over windows of a twentieth of the steps. Without the stretches two curves that cross (one learns
// early, one late) would pass. Only steps that both logged are compared. Losses at or below 0 and above 100 are left out and counted;
// a loss that is no number fails.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "base/json_fwd.h"
#include "cli/compare/run_log.h"

namespace distsetup {

struct CurveStatistics {
  int64_t num_steps = 0;  // compared
  double first = 0, mean = 0, last = 0, min = 0, max = 0, deviation = 0;
};

struct ComparedValue {
  std::string name;  // "first loss", "gradient norm, mean"
  double a = 0, b = 0;
  double difference = 0;  // relative, |a - b| over the larger
  bool decides = false;   // held against the threshold; else for information
  bool is_bytes = false;
};

struct RunComparison {
  RunLog a, b;
  CurveStatistics of_a, of_b;
  std::vector<ComparedValue> values;
  int64_t worst_first_step = 0, worst_last_step = 0;  // of the window in which the curves differ most
  int64_t num_left_out = 0;                           // steps with a loss outside (0, 100] in one of them
  int64_t diverged_step = -1;                         // the first whose loss is no number; -1: none
  double threshold = 0;
  bool agree = false;
};

// kConflict: they have no step in common.
Result<RunComparison> compare_runs(RunLog a, RunLog b, double threshold);

Json to_json(const RunComparison& comparison);
std::string to_text(const RunComparison& comparison, int width_columns);

}  // namespace distsetup
