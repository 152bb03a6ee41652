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

}  // namespace distsetup
