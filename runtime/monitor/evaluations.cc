// See evaluations.h.
#include "runtime/monitor/evaluations.h"

#include <fmt/format.h>

#include <algorithm>

namespace distsetup {

void Evaluations::add(int64_t step, double loss) {
  curve_.push_back({step, loss});
  if (!record_ || loss < record_->best)
    record_ = HeldOutRecord{loss, 0};
  else
    ++record_->num_worse;
}

std::optional<double> Evaluations::loss() const {
  if (curve_.empty()) return std::nullopt;
  return curve_.back().loss;
}

void Evaluations::describe(CheckpointMetadata& metadata) const {
  metadata.held_out = record_;
  if (has(metadata.step)) metadata.held_out_loss = loss();
}

int64_t evaluation_interval(const TrainPlan& train) {
  constexpr int64_t kUsualNumber = 10;
  return train.evaluate_every > 0 ? train.evaluate_every : std::max<int64_t>(1, train.steps / kUsualNumber);
}

bool lost_patience(const std::optional<HeldOutRecord>& record, int64_t patience) {
  return patience > 0 && record && record->num_worse >= patience;
}

std::string patience_text(int64_t step, int64_t patience) {
  return fmt::format("step {:>6}  {} evaluations without a smaller held-out loss: the run ends here\n", step, patience);
}

}  // namespace distsetup
