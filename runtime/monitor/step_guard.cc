#include "runtime/monitor/step_guard.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "runtime/monitor/failure.h"

namespace distsetup {
namespace {

constexpr size_t kNamed = 4;  // ranks, rows and parameters that a message names

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class T>
std::string some(const std::vector<T>& all) {
  const std::vector<T> named(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), kNamed)));
  return fmt::format("{}{}", fmt::join(named, ", "), all.size() > kNamed ? fmt::format(" and {} more", all.size() - kNamed) : "");
}

// What every rank says about itself, on every rank.
std::vector<double> from_all(Communicator& communicator, const std::vector<double>& mine) {
  std::vector<double> all(static_cast<size_t>(communicator.world()) * mine.size(), 0.0);
  std::copy(mine.begin(), mine.end(),
            all.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(communicator.rank()) * mine.size()));
  communicator.control_sum(all.data(), static_cast<int64_t>(all.size()));
  return all;
}

std::string losses_text(Communicator& communicator, const StepStats& stats, const std::vector<int64_t>& own_rows) {
  std::vector<double> mine = {std::isfinite(stats.own_loss) ? 0.0 : 1.0, static_cast<double>(own_rows.size())};
  for (size_t k = 0; k < kNamed; ++k) mine.push_back(k < own_rows.size() ? static_cast<double>(own_rows[k]) : -1);
  const std::vector<double> all = from_all(communicator, mine);
  std::vector<std::string> ranks;
  for (int r = 0; r < communicator.world(); ++r) {
    const double* const said = all.data() + static_cast<size_t>(r) * mine.size();
    if (said[0] == 0) continue;
    const auto count = static_cast<size_t>(said[1]);
    std::vector<int64_t> rows(count, 0);
    for (size_t k = 0; k < std::min(count, kNamed); ++k) rows[k] = std::llround(said[2 + k]);
    ranks.push_back(count == 0 ? fmt::format("rank {}", r) : fmt::format("rank {}, windows {} of the training data", r, some(rows)));
  }
  return ranks.empty() ? ""
                       : fmt::format("it began on {}",
                                     fmt::join(ranks.begin(),
                                               ranks.begin() + static_cast<std::ptrdiff_t>(std::min(ranks.size(), kNamed)), "; "));
}

// Parameters of the model, counted over units; those of this rank with a gradient that is not finite are named by their unit's place.
std::string gradients_text(Communicator& communicator, const Layout& layout, const Coordinates& place,
                           std::span<const float> gradient) {
  std::vector<std::string> names;
  for (const UnitLayout& unit : layout.units) {
    if (unit.is_frozen) continue;
    for (const Parameter& parameter : unit.parameters) {
      bool bad = false;
      for (const Box& box : boxes_of(layout, unit, parameter, place)) {
        const auto values = gradient.subspan(static_cast<size_t>(box.shard_offset), static_cast<size_t>(box.numel()));
        bad = bad || std::any_of(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
      }
      if (bad) names.push_back(parameter.name);
    }
  }
  const std::vector<double> counts = from_all(communicator, {static_cast<double>(names.size())});
  const auto first = std::find_if(counts.begin(), counts.end(), [](double count) { return count > 0; });
  if (first == counts.end()) return "";
  const int root = static_cast<int>(first - counts.begin());
  std::string text = some(names);
  text.resize(256, ' ');
  communicator.broadcast(text.data(), static_cast<int64_t>(text.size()), root);
  text.erase(text.find_last_not_of(' ') + 1);
  return fmt::format("every rank's loss is finite; on rank {} the gradient is not in {}", root, text);
}

}  // namespace

StepGuard::Judgement StepGuard::look(double loss, double gradient_norm) const {
  const auto answer = [](const std::string& policy) {
    return policy == kStop ? Answer::kStop : policy == kSkip ? Answer::kSkip : Answer::kTake;
  };
  if (!std::isfinite(loss)) return {answer(plan_.on_nan), fmt::format("the loss is {}", loss), 0};
  if (!std::isfinite(gradient_norm)) return {answer(plan_.on_nan), fmt::format("the gradient norm is {}", gradient_norm), 0};
  if (!plan_.watches_spikes() || history_.recent.size() < kLeastLosses) return {};
  const double usual = median(history_.recent);
  if (!(loss > plan_.spike_factor * usual)) return {};
  return {answer(plan_.on_spike),
          fmt::format("the loss is {:.4f}, more than {:g} times {:.4f}, the median of the last {}", loss, plan_.spike_factor, usual,
                      history_.recent.size()),
          usual};
}

const StepGuard::Judgement& StepGuard::judge(double loss, double gradient_norm) {
  last_ = look(loss, gradient_norm);
  if (last_.answer == Answer::kTake) {
    history_.skipped_in_a_row = 0;
    if (plan_.watches_spikes()) history_.recent.push_back(loss);
    if (history_.recent.size() > kSpikeWindow) history_.recent.erase(history_.recent.begin());
  } else if (last_.answer == Answer::kSkip) {
    ++history_.skipped;
    if (++history_.skipped_in_a_row >= plan_.max_skips) {
      last_.answer = Answer::kStop;
      last_.why += fmt::format(", and so {} steps in a row would be skipped", history_.skipped_in_a_row);
    }
  }
  return last_;
}

const StepGuard::Judgement& StepGuard::overflow(const StepStats& stats) {
  const std::string next = stats.next_loss_scale < stats.loss_scale ? fmt::format(", the next is {:g}", stats.next_loss_scale) : "";
  last_ = {Answer::kSkip, fmt::format("the gradient overflows fp16 at loss scale {:g}{}", stats.loss_scale, next), 0};
  ++history_.skipped;
  return last_;
}

std::string origin_of_nan(Communicator& communicator, const StepStats& stats, const std::vector<int64_t>& rows, const Layout& layout,
                          const Coordinates& place, std::span<const float> gradient) {
  if (stats.is_overflow || (std::isfinite(stats.loss) && std::isfinite(stats.gradient_norm))) return "";
  std::vector<int64_t> own;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(own), [](int64_t row) { return row >= 0; });
  const std::string losses = losses_text(communicator, stats, own);
  const std::string origin = losses.empty() ? gradients_text(communicator, layout, place, gradient) : losses;
  return origin.empty() ? "" : "; " + origin;
}

void check_evaluation(double loss, const GuardPlan& plan) {
  if (std::isfinite(loss) || plan.on_nan == kSkip) return;
  throw Failure(kExitFailed, fmt::format("the held-out loss is {}", loss),
                "look at the held-out data; --on-nan skip goes on without such an evaluation");
}

std::string help_after(const StepGuard::Judgement& judgement, const GuardPlan& plan) {
  if (judgement.usual > 0)
    return "go on from the last checkpoint with other data or a smaller learning rate, or plan with --on-spike skip";
  return plan.on_nan == kSkip ? "a smaller learning rate, or look at these rows"
                              : "a smaller learning rate or a longer warm-up; --on-nan skip leaves such steps out";
}

}  // namespace distsetup
