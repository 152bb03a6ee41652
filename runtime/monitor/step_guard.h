// What becomes of a step whose loss or gradient norm is not finite, or whose loss is a spike (GuardPlan): decided before the optimizer
// from numbers that are the same on every rank, so that all ranks decide alike. A spike is a loss above spike_factor times the median
// of the newest kSpikeWindow losses that were taken, once there are kLeastLosses of them. The history is in every checkpoint
// (CheckpointMetadata::losses): a run that goes on decides as one that never stopped.
#pragma once
#include <string>
#include <vector>

#include "plan/layout.h"
#include "plan/plan.h"
#include "runtime/comm/communicator.h"
#include "runtime/engine/engine.h"
#include "weights/manifest.h"

namespace distsetup {

inline constexpr size_t kSpikeWindow = 64, kLeastLosses = 16;

class StepGuard {
 public:
  enum class Answer { kTake, kSkip, kStop };
  struct Judgement {
    Answer answer = Answer::kTake;
    std::string why;   // "the loss is nan"; "": nothing is remarkable
    double usual = 0;  // of a spike: the median
  };

  explicit StepGuard(const GuardPlan& plan) : plan_(plan) {}
  void restore(const LossHistory& history) { history_ = history; }
  const LossHistory& history() const { return history_; }
  // Of the next step, once.
  const Judgement& judge(double loss, double gradient_norm);
  // Of the next step, in place of judge(): the loss scale is too large. What a loss that was taken counts for stays as it is.
  const Judgement& overflow(const StepStats& stats);
  const Judgement& last() const { return last_; }

 private:
  Judgement look(double loss, double gradient_norm) const;

  GuardPlan plan_;
  LossHistory history_;
  Judgement last_;
};

// Collective. Where loss or norm is not finite, what can be said about where it began: the ranks whose own part of the loss is not
// finite and their rows (places in the data, of this rank's share; -1 is none), or where every loss is finite the parameters in whose
// gradient it is, with "; " before it. "": nothing. The same on every rank.
std::string origin_of_nan(Communicator& communicator, const StepStats& stats, const std::vector<int64_t>& rows, const Layout& layout,
                          const Coordinates& place, std::span<const float> gradient);

// A held-out loss that is not finite ends the run where such a step does; throws Failure. With on_nan skip the run goes on.
void check_evaluation(double loss, const GuardPlan& plan);

// What to do about a run that ends because of it.
std::string help_after(const StepGuard::Judgement& judgement, const GuardPlan& plan);

}  // namespace distsetup
