// What evaluations of held-out data found over a run, and whether it should go on.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "plan/plan.h"
#include "runtime/monitor/curve.h"
#include "weights/manifest.h"

namespace distsetup {

class Evaluations {
 public:
  // What the run had found when it was stopped.
  void resume(const std::optional<HeldOutRecord>& record) { record_ = record; }
  // A loss that is not finite is not the best, and counts as one that is no smaller.
  void add(int64_t step, double loss);

  bool has(int64_t step) const { return newest_step_ == step; }
  std::optional<double> loss() const { return newest_loss_; }  // the last one's; nullopt: there is none, or it is not finite
  const std::optional<HeldOutRecord>& record() const { return record_; }
  const std::vector<LossPoint>& curve() const { return curve_; }  // of those that are finite
  // Adds what was found up to `step` to what a checkpoint of that step says.
  void describe(CheckpointMetadata& metadata) const;

 private:
  int64_t newest_step_ = -1;
  std::optional<double> newest_loss_;
  std::vector<LossPoint> curve_;
  std::optional<HeldOutRecord> record_;
};

// In steps; besides, there is one at the start and one at the end.
int64_t evaluation_interval(const TrainPlan& train);
// So many evaluations in a row found no smaller loss; never with patience 0.
bool lost_patience(const std::optional<HeldOutRecord>& record, int64_t patience);

// What metrics.jsonl has of an evaluation, and what a reader sees (step_line.h).
Json evaluation_line(int64_t step, double loss);
std::string evaluation_text(int64_t step, double loss, int columns);  // a line; columns as in step_text()

std::string patience_text(int64_t step, int64_t patience);  // a line

}  // namespace distsetup
