// Plan → instructions over units: each micro-batch runs all units forward and backward. What surrounds a unit is unit_compiler.h's.
#include "plan/compile_schedule.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "plan/activation_writer.h"
#include "plan/compile_pipeline.h"
#include "plan/unit_compiler.h"

namespace distsetup {
namespace {

class Compiler final : public UnitCompiler {
 public:
  Compiler(const Plan& plan, Phase phase, LayoutDetail detail) : UnitCompiler(plan, phase, 0, detail) {
    for (const UnitLayout& unit : s_.layout->units)
      shares_gathers_ =
          shares_gathers_ || (unit.is_frozen && !unit.is_reference && (unit.shard_ranks > 1 || has_host_parameters(plan)));
    if (has_host_activations(plan) && phase == Phase::kStep)
      activations_.emplace(static_cast<ScheduleWriter&>(*this), std::vector<UnitSpan>{{0, head()}});
  }

 private:
  // Nothing that it makes is kept, and its parameters only where the policy reads them next.
  void reference(int u) {
    phase_ = u == head() ? "loss" : "forward";
    const auto gather = [&](int unit) {
      ensure_gathered(unit, Reader::kReference);
      if (shares_gathers_) ensure_gathered(unit, Reader::kForward);
    };
    gather(u);
    for (int k = 1; k <= plan_.strategy.prefetch; ++k) {
      if (u + k < num_units())
        gather(u + k);
      else if (!shares_gathers_)
        ensure_gathered(u + k - num_units(), Reader::kForward);
    }
    Instruction& i = emit_program(InstructionOp::kForward, u, kReference);
    const std::vector<int> next = shares_gathers_ ? needs(u, Reader::kForward) : std::vector<int>{};
    for (const int bucket : needs(u, Reader::kReference))
      if (std::find(next.begin(), next.end(), bucket) == next.end()) release(i, bucket);
  }

  // Where both read gathered parameters, unit by unit on the same ones; else the reference first, before the policy keeps anything.
  void forward_all(bool train) {
    for (int u = 0; u < num_units() && runs_reference(s_) && !shares_gathers_; ++u) reference(u);
    for (int u = 0; u < num_units(); ++u) {
      if (runs_reference(s_) && shares_gathers_) reference(u);
      forward(u, train);
    }
  }

  void forward(int u, bool train) {
    phase_ = u == head() ? "loss" : "forward";
    ensure_gathered(u, Reader::kForward);
    for (int k = 1; k <= plan_.strategy.prefetch; ++k) ensure_gathered(u + k < num_units() ? u + k : -1, Reader::kForward);
    Instruction& i = emit_program(InstructionOp::kForward, u);
    for (const int bucket : needs(u, Reader::kForward)) {
      const bool next_in_backward = u >= head() - 1;  // the head turns round at once, the last block follows it
      const bool of_embedding = bucket == 0 || bucket == s_.layout->frozen_unit(0);
      const bool kept_whole = !plan_.strategy.reshard_after_forward && (!of_embedding || plan_.model.tied_embeddings);
      if (!train || !(next_in_backward || kept_whole) || !is_read_again(u, bucket)) release(i, bucket);
    }
    if (activations_.has_value()) activations_->forward(u, true);
  }

  // By backward, or where it is the embedding's by a tied head.
  bool is_read_again(int u, int bucket) const {
    const std::vector<int>& again = needs(u, Reader::kBackward);
    return u == 0 || std::find(again.begin(), again.end(), bucket) != again.end();
  }

  void backward(int u) {
    phase_ = "backward";
    ensure_gathered(u, Reader::kBackward);
    for (int k = 1; k <= plan_.strategy.prefetch; ++k) ensure_gathered(u - k > 0 ? u - k : -1, Reader::kBackward);
    for (int k = 0; k <= plan_.strategy.prefetch && activations_.has_value(); ++k) activations_->raise(u - k, micro_batch_);
    Instruction& i = emit_backward(u);
    for (const int bucket : needs(u, Reader::kBackward)) release(i, bucket);
    if (u == 0) release(i, 0);
    if (activations_.has_value()) activations_->backward(u);
  }

  void micro_batch(int index, bool last) {
    micro_batch_ = index;
    forward_all(true);
    for (int u = head(); u >= 0 && has_backward(s_, u); --u) {
      backward(u);
      after_program_backward(u, last);
    }
    if (const int shared = s_.layout->shared_unit(head()); shared >= 0) after_backward(shared, last);
    finish_gradients(last);
  }

  void step() override {
    phase_ = "forward";
    start_loss();
    const int64_t m = plan_.gradient_accumulation;
    const int written = static_cast<int>(std::min<int64_t>(m, 3));
    for (int i = 0; i < written; ++i) {
      const bool last = i == written - 1;
      if (i > 0) close_segment(i == 2 ? m - 2 : 1);
      micro_batch(i, last);
    }
    update();
    close_segment(1);
  }

  void evaluate_held_out() override {
    phase_ = "evaluate";
    start_loss();
    micro_batch_ = 0;
    forward_all(false);
    micro_batch_ = -1;
    reduce_loss();
    for (Instruction& i : s_.instructions) i.phase = "evaluate";
    close_segment(1);
  }

  std::optional<ActivationWriter> activations_;  // where they wait on the host
  bool shares_gathers_ = false;                  // the reference and the policy read frozen parameters that are gathered
};

}  // namespace

Schedule compile_schedule(const Plan& plan, Phase phase, int stage, LayoutDetail detail) {
  CHECK(!has_error(validate(plan)), "{}", format_diagnostics(validate(plan)));
  CHECK(stage >= 0 && stage < plan.mesh.pp, "stage {} of {}", stage, plan.mesh.pp);
  if (plan.mesh.pp > 1) return compile_pipeline(plan, phase, stage, detail);
  return Compiler(plan, phase, detail).run();
}

}  // namespace distsetup
