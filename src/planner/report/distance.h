// What measured runs do not cover of a setup. The errors of one trainer's runs say little of a code base, an axis, a GPU or a
// precision that was not among them: there the interval is what code bases show that nothing was fitted to, by leaving out one at a
// time (presets/calibration/residuals.yaml: `measured` lists what is covered, `unseen` how far predictions err beyond it). Those code
// bases had been read, and their programs described. What is planned for code that nobody has read errs by more, as many times as
// predictions at first sight did (`unseen.<memory|time>.first_sight.<below|above>`; `first_sight_offloading` of what uses a host's
// memory and cores, of which a run seldom says more).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "planner/frameworks/setup.h"
#include "planner/report/verdict.h"
#include "planner/time/calibration.h"

namespace distsetup {

enum class Predicted { kAllocated, kReserved, kDevice, kTokensPerSecond };
std::string_view name(Predicted quantity);  // allocated, reserved, device, tokens_per_s_per_gpu

// One property of a run that its prediction depends on.
struct Feature {
  std::string kind;    // "software", "program", "axis", "gpu", "precision", "experts", "scale"
  std::string key;     // behind measured.<memory|time>.: "axis.megatron.tensor"
  std::string reason;  // "no measured run of Megatron with tensor parallelism"
};
std::vector<Feature> features(const Setup& setup);
std::string_view measured_group(Predicted quantity);  // "memory", "time"

// Those that no measured run has.
std::vector<Feature> unmeasured(const Setup& setup, Predicted quantity, const Calibration& residuals);

// Of a model planned by its sizes alone also what is counted is uncertain: half-width over the whole prediction, as a logarithm.
double width_of_sizes(const Setup& setup, Predicted quantity);

// What makes errors larger in code that nothing was fitted to, whatever else was measured: experts, adapters, unlike lengths. "any" is
// always among them.
struct Difficulty {
  std::string_view key;    // behind unseen.<memory|time>.
  std::string_view words;  // "experts"
};
std::vector<Difficulty> difficulties(const Setup& setup, Predicted quantity);

// Nothing of the run's code base was measured, so nobody has read it. The bundled trainer is ours.
bool is_at_first_sight(const Setup& setup, Predicted quantity, const Calibration& residuals);

// How far the truth may be from a prediction of code that nothing was fitted to: the difficulties' widths add like variances, at first
// sight each times what first sights show. A script whose operations no program lists ("own_script") is as doubtful once it is read.
// Where no code base is named (Software::is_assumed), it may be one that was read.
Spread unseen_spread(const Setup& setup, Predicted quantity, const Calibration& residuals);

// "no measured run of megatron with context parallelism: as other code bases show, memory ±9 %, tokens/s ±17 %"; "less sure there with
// experts: tokens/s ±60 %". None where everything is measured.
std::vector<std::string> distance_reasons(const Setup& setup);

}  // namespace distsetup
