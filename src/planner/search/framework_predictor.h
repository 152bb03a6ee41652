// Predictions for trainers other than the bundled one: states as the bound, seconds in closed form, memory simulated, and replayed
// through a model of PyTorch's caching allocator where it decides. Choices that differ in nothing that memory depends on are simulated
// and replayed once.
#pragma once
#include <memory>

#include "planner/search/predictor.h"

namespace distsetup {

inline constexpr double kStructureTie = 0.1;  // SelectionRules::structure_tie

std::unique_ptr<Predictor> framework_predictor(const Problem& problem);

// What the memory models do not read stands at one value.
MemoryKey memory_key(const Problem& problem, const Choice& choice);

// A run that fits allocates no more than this: what the intervals of its class leave of the GPU, also where it is replayed on a
// smaller one (uncertainty.h).
int64_t most_that_fits(const Setup& setup);

}  // namespace distsetup
