// See resolve_checkpoints.h.
#include "planner/resolve/resolve_checkpoints.h"

#include <fmt/format.h>

#include <cmath>

#include "base/diagnostic_codes.h"
#include "base/quantity.h"
#include "plan/plan_spellings.h"
#include "planner/resolve/data_scan.h"
#include "planner/time/economics.h"

namespace distsetup {
namespace {

void resolve_times(Resolving& r) {
  r.problem.save_time_s = r.spec.integer("checkpoint.save_time").value_or(0);
  r.problem.gpu_hours_per_failure = r.spec.number("checkpoint.failure_hours").value_or(0);
  if (r.problem.gpu_hours_per_failure > 0 && r.problem.save_time_s == 0) {
    r.problem.save_time_s = std::llround(kAssumedSaveTime_s);
    r.assume(fmt::format("a save stops training for {} (--checkpoint-save-time)", format_duration(kAssumedSaveTime_s)));
  }
  if (r.problem.save_time_s > 0 && r.problem.gpu_hours_per_failure == 0)
    r.assume(fmt::format("a failure every {} GPU-hours (Llama 3, arXiv 2407.21783)", format_count(std::llround(kGpuHoursPerFailure))));
}

void check_held_out(Resolving& r) {
  const Plan& plan = r.plan();
  if (!r.native() || plan.data.files.empty() || held_out_bytes(plan.data) > 0) return;
  const char* const help = "hold data out: --held-out 20, for a prepared set distsetup data prepare --held-out";
  if (plan.train.patience > 0)
    r.fail(code::kData, "train.patience", "patience counts evaluations without a smaller held-out loss, and no data are held out",
           help);
  if (plan.checkpoint.keep_best > 0 && plan.checkpoint.metric == CheckpointMetric::kHeldOutLoss)
    r.fail(code::kData, "checkpoint.keep_best",
           "the best checkpoints are those with the smallest held-out loss, and no data are held out",
           "--checkpoint-metric loss goes by the training loss");
}

}  // namespace

void resolve_checkpoints(Resolving& r) {
  CheckpointPlan& c = r.plan().checkpoint;
  c.directory = r.spec.text("checkpoint.directory").value_or(c.directory);
  c.every_steps = r.spec.integer("checkpoint.every_steps").value_or(c.every_steps);
  c.keep = r.spec.integer("checkpoint.keep").value_or(c.keep);
  c.keep_every = r.spec.integer("checkpoint.keep_every").value_or(c.keep_every);
  c.keep_best = r.spec.integer("checkpoint.keep_best").value_or(c.keep_best);
  const std::string metric = r.spec.text("checkpoint.metric").value_or("held_out_loss");
  for (const auto& s : spellings<CheckpointMetric>())
    if (s.text == metric) c.metric = s.value;
  c.async = r.spec.boolean("checkpoint.async").value_or(c.async);
  r.plan().train.evaluate_every = r.spec.integer("train.evaluate_every").value_or(0);
  r.plan().train.patience = r.spec.integer("train.patience").value_or(0);
  resolve_times(r);
  for (const char* path : {"checkpoint.keep_every", "checkpoint.keep_best", "checkpoint.metric", "checkpoint.async",
                           "train.evaluate_every", "train.patience"})
    r.refuse_elsewhere(path);
  check_held_out(r);
}

}  // namespace distsetup
