// What evaluations of held-out data found over a run, and whether it should go on.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "runtime/monitor/curve.h"
#include "weights/manifest.h"

namespace distsetup {

class Evaluations {
 public:
  // What the run had found when it was stopped.
  void resume(const std::optional<HeldOutRecord>& record) { record_ = record; }
  void add(int64_t step, double loss);

  bool has(int64_t step) const { return !curve_.empty() && curve_.back().step == step; }
  std::optional<double> loss() const;  // the last one's
  const std::optional<HeldOutRecord>& record() const { return record_; }
  const std::vector<LossPoint>& curve() const { return curve_; }
  // Adds what was found up to `step` to what a checkpoint of that step says.
  void describe(CheckpointMetadata& metadata) const;

 private:
  std::vector<LossPoint> curve_;
  std::optional<HeldOutRecord> record_;
};

// In steps; besides, there is one at the start and one at the end.
int64_t evaluation_interval(const TrainPlan& train);
// So many evaluations in a row found no smaller loss; never with patience 0.
bool lost_patience(const std::optional<HeldOutRecord>& record, int64_t patience);

std::string patience_text(int64_t step, int64_t patience);  // a line

}  // namespace distsetup
