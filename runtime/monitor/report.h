// Prediction beside measurement, in the same words: the table at the start (predicted), the one at the end (predicted | measured |
// difference), and report.json. The predicted column is what plan.json says, never computed here.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "plan/plan.h"
#include "runtime/engine/engine.h"
#include "runtime/monitor/memory_moments.h"

namespace distsetup {

enum class Quantity { kBytes, kSeconds };

struct Comparison {
  std::string what;  // buffer class, "arena", "peak allocated", instruction, "step"
  Quantity quantity = Quantity::kBytes;
  double predicted = 0, measured = 0;
};

// Means over the optimizer steps of this process, the first left out when there are others (it pays for first touches of memory).
struct MeasuredTime {
  int64_t num_steps = 0;
  double step_s = 0, wait_s = 0;
  std::map<std::string, double> by_instruction_s;
};

class TimeMeter {
 public:
  void add(const StepStats& stats, double step_s);
  MeasuredTime mean() const;

 private:
  struct Sums {
    int64_t num_steps = 0;
    double step_s = 0, wait_s = 0;
    std::map<std::string, double> by_instruction_s;
  };
  Sums first_, rest_;
};

std::vector<Comparison> compare(const Plan& plan, const MemoryReport& memory, const MeasuredTime& time);
// A table of 80 columns, and one sentence that says it.
std::string format_comparison(const std::vector<Comparison>& rows);
Json comparison_json(const std::vector<Comparison>& rows);
// {"held_bytes": what is held all the time, "comparison": [rows of bytes], "phases": [{"phase", "predicted_bytes",
// "measured_bytes"}]}. A phase's bytes are what is live in it, by the list, and what its ops were metered to allocate beside that.
Json memory_json(const Plan& plan, const MemoryReport& memory);

// Where a run stands when it ends, or stops.
struct FinishedRun {
  std::string status;  // "completed", "stopped"
  int64_t step = 0, steps = 0, steps_here = 0, skipped_steps = 0;
  std::optional<LossScaleState> loss_scale;
  double loss = 0;
  std::optional<double> held_out_loss;
  int64_t tokens = 0;
  std::string plan_digest, schedule_digest, predicted_peak_instruction;
  std::vector<double> peaks;  // metered bytes, by rank
  double goodput = 0;         // LiveNumbers::goodput()
  std::vector<MemoryMoment> memory;
};
// Collective: the most bytes that were ever allocated at once, by rank.
std::vector<double> peaks_of_all(Communicator& communicator, const MemoryReport& memory);
// Prints how the run ended, with the table, and writes report.json into the folder.
Diagnostics report_end(const FinishedRun& end, const Plan& plan, const MemoryReport& memory, const MeasuredTime& time,
                       const std::string& folder);

// The line of a run that stops before its last step: by a signal, or (0) because it was asked to do so many steps.
std::string stopped_text(int signal, int64_t steps_here, int64_t step, int64_t steps, const std::string& checkpoint);

struct RunFacts {
  std::string data, checkpoint, start, device;  // one phrase each
};
std::string format_start(const Plan& plan, const RunFacts& facts);

}  // namespace distsetup
