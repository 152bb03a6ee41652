// What a setup answers to a program: which of its conditions hold, and the values of its symbols.
#pragma once
#include <cstdint>
#include <string>

#include "planner/frameworks/setup.h"
#include "planner/replay/program_file.h"

namespace distsetup::replay {

// What of the model's experts the program has no weights for: "experts", "shared experts", ...; empty: it has all.
std::string lacks_for(const BlockProgram& program, const Geometry& model);

uint64_t facts_of(const Setup& setup);
// Of a layer with or without experts, where a model has both.
uint64_t facts_of_layer(uint64_t facts, bool experts);
// Which operations of a block its program lists as one kernel each; none of a program that lists no operations.
struct FusedKernels {
  bool norm = false, rotation = false, activation = false;
};
FusedKernels fused_kernels(const Setup& setup);
void fill_symbols(const Setup& setup, int64_t* values);

}  // namespace distsetup::replay
