// The planner's door: Spec -> Problem -> Plan -> preview. Each is a function of its arguments alone; only read_inputs() looks at
// files.
//   Spec spec = ...;                                      // spec.h
//   Result<Inputs> inputs = read_inputs(spec, presets);   // model directory, data files
//   Result<Problem> problem = resolve(spec, presets, *inputs);
//   Result<Plan> plan = make_plan(*problem);              // verdict may be kDoesNotFit: exit code 4 is the caller's
//   std::cout << format_preview(*plan, {.smallest_fits = smallest_that_fits(*problem)});
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "model/hardware.h"
#include "plan/plan.h"
#include "planner/spec/spec.h"

namespace distsetup {

struct Presets;

// What was read from disk because the spec names it.
struct Inputs {
  std::optional<Geometry> model;   // of a model directory
  std::string model_text;          // its config.json, for the digest
  std::optional<Machine> machine;  // of a machine file, as `distsetup probe` writes it
  std::string machine_text;        // the file, for the digest
  std::optional<DataPlan> data;    // the files of data.paths
  Diagnostics notes;               // files that were passed over
};
// Reads <model>/config.json when `model` is a directory or a config.json, hardware.machine when it is a .yaml file, and scans
// data.paths. Relative paths start at the folder of the file that says them, those of flags and variables at `root`.
// plan.data.root becomes the absolute path that data.paths start from.
Result<Inputs> read_inputs(const Spec& spec, const Presets& presets, const std::string& root = ".");

// What is best among the plans that fit. kMaxContext and kMinGpus are loops around the search (goal.h).
enum class Goal { kThroughput, kMinGpus, kMaxContext, kMinCost, kMinMemory };

struct TrainerProblem;  // trainer_problem.h

// What is to be solved: nothing optional, checked, not changed afterwards. Axes with one value are pinned.
struct Problem {
  Plan base;                     // all that is settled; mesh, strategy, micro_batch, recompute are the search's
  std::vector<int> node_counts;  // to try, ascending; one when given
  std::vector<Sharding> shardings;
  std::vector<int> reshard_after_forward;  // of zero3: {1}, {0} or {1, 0}
  std::vector<Recompute> recomputes;
  int recompute_every_k = 0;
  int dp_shard = 0, dp_replicate = 0;                  // 0 = searched
  bool hybrid = false;                                 // HYBRID_SHARD: dp_shard = GPUs per node, dp_replicate = nodes
  int64_t micro_batch = 0, gradient_accumulation = 0;  // 0 = searched
  int64_t global_batch = 0;                            // sequences; 0 = from global_batch_tokens
  int64_t global_batch_tokens = 0;                     // rounded to sequences and data-parallel ranks, which is said
  std::vector<HardwarePlan> other_hardware;            // for "smallest that fits"; empty when hardware was given
  std::vector<HardwarePlan> larger_hardware;           // GPUs with more memory, smallest first: what a fix may name
  bool hardware_assumed = false;
  Location batch_at, parallel_at;  // where to point when no combination is legal
  Goal goal = Goal::kThroughput;
  bool gpus_per_node_given = false;
  int64_t save_time_s = 0;                        // of one checkpoint; 0 = not known
  double gpu_hours_per_failure = 0;               // 0: the default (time/economics.h)
  std::shared_ptr<const TrainerProblem> trainer;  // nullptr: the bundled one
};
Result<Problem> resolve(const Spec& spec, const Presets& presets, const Inputs& inputs);

// The best plan that fits, or the one with the smallest shortfall (verdict kDoesNotFit, fixes in plan.diagnostics).
// Errors: no legal combination at all (indivisible batch, mesh that does not multiply out).
Result<Plan> make_plan(const Problem& problem);

// "Smallest that fits": per kind of GPU the fewest nodes whose best plan fits. nodes = 0: none does, up to kMaxNodes and
// one sequence per GPU.
struct SmallestFit {
  std::string gpu;  // preset id
  std::string gpu_name;
  int nodes = 0, gpus_per_node = 0, total_gpus = 0;
  int64_t device_bytes = 0, capacity_bytes = 0;
  double step_s = 0, tokens_per_s_per_gpu = 0;
  std::string strategy;  // "zero3 · micro-batch 2 · recompute selective"
};
inline constexpr int kMaxNodes = 512;
std::vector<SmallestFit> smallest_that_fits(const Problem& problem);

struct PreviewOptions {
  int width = 80;
  Colour colour = Colour::kOff;
  bool utf8 = true;
  std::vector<SmallestFit> smallest_fits = {};
};
std::string format_preview(const Plan& plan, const PreviewOptions& options = {});

std::string_view verdict_words(Verdict verdict);  // "fits", "tight", "does not fit"

// "zero3 · micro-batch 2 · recompute selective": how a plan is called in one line.
std::string summary(const Plan& plan);

}  // namespace distsetup
