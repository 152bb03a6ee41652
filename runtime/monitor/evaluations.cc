// See evaluations.h.
#include "runtime/monitor/evaluations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"

namespace distsetup {

void Evaluations::add(int64_t step, double loss) {
  newest_step_ = step;
  newest_loss_ = std::isfinite(loss) ? std::optional<double>(loss) : std::nullopt;
  if (newest_loss_) curve_.push_back({step, loss});
  if (newest_loss_ && (!record_ || loss < record_->best))
    record_ = HeldOutRecord{loss, 0};
  else if (record_)
    ++record_->num_worse;
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

Json evaluation_line(int64_t step, double loss) {
  Json line = {{"kind", "evaluation"}, {"step", step}};
  if (std::isfinite(loss))
    line["held_out_loss"] = loss;
  else
    line["not_finite"] = fmt::format("the held-out loss is {}", loss);
  return line;
}

std::string evaluation_text(int64_t step, double loss, int columns) {
  std::string line = fmt::format("step {:>{}}  held-out loss {:.4f}{}", step, columns == 0 ? 6 : 1, loss,
                                 std::isfinite(loss) ? "" : ": not finite, so it does not count");
  if (columns > 0) line.resize(std::min(line.size(), static_cast<size_t>(columns)));
  return line + "\n";
}

std::string patience_text(int64_t step, int64_t patience) {
  return fmt::format("step {:>6}  {} evaluations without a smaller held-out loss: the run ends here\n", step, patience);
}

}  // namespace distsetup
