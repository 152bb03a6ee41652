// What measured runs do not cover of a setup. The errors of one trainer's runs say little of a code base, an axis, a GPU or a
// precision that was not among them, so each widens the interval, by what leaving out one code base at a time shows
// (presets/calibration/residuals.yaml: `measured` lists what is covered, `distance` how far predictions err beyond it).
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

// Half-width of all of them together, as a logarithm over the uncertain share of the prediction.
double distance(const Setup& setup, Predicted quantity, const Calibration& residuals);

// "no measured run of Megatron with tensor parallelism: memory ±12 %, tokens/s ±20 %", one per feature.
std::vector<std::string> distance_reasons(const Setup& setup, double uncertain_memory_share);

}  // namespace distsetup
