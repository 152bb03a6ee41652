// The newest numbers of a run, for who scrapes them (open_metrics.h), and its goodput: the share of this process's time that was steps
// that changed the parameters; loading, evaluating, saving and skipped steps are the rest.
#pragma once
#include <string>

#include "plan/plan.h"
#include "runtime/monitor/open_metrics.h"
#include "runtime/monitor/step_line.h"

namespace distsetup {

class LiveNumbers {
 public:
  LiveNumbers();
  // Of rank 0; "": nobody scrapes. Errors: MetricsServer::start().
  Diagnostics serve(const std::string& address, const Plan& plan);
  void step(const StepFacts& facts, const StepStats& stats, int64_t skipped_steps, int64_t peak_bytes);
  bool is_serving() const { return server_.is_started(); }
  void evaluation(double held_out_loss);
  double goodput() const;

 private:
  MetricsServer server_;
  RunNumbers numbers_;
  double begin_s_ = 0, counted_s_ = 0;
};

}  // namespace distsetup
