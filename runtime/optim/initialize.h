// First values of parameters. Every element is a function of (seed, parameter name, element index) alone: any mesh, any rank, any
// order gives the same model, and a rank computes only what it owns.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "plan/layout.h"
#include "weights/frozen_source.h"

namespace distsetup {

// Standard deviation 0.02 for matrices and embeddings (GPT-2's, Radford et al. 2019), 0.02 / sqrt(2 L) for projections into the
// residual stream, with L the number of blocks; norms one, biases zero.
float initial_value(uint64_t seed, std::string_view parameter, ParameterDecl::Init init, int64_t element, int64_t num_layers);

// The same of a parameter whose matrix has so many columns; adapters' first matrix is uniform in ± 1 / sqrt(columns), PEFT's
// kaiming_uniform_(a=sqrt(5)).
float initial_value(uint64_t seed, const Parameter& parameter, int64_t element, int64_t num_layers);

// Fills this rank's flat shard (layout.shard_numel elements); padding becomes zero.
void initialize_shard(const Layout& layout, const Coordinates& at, uint64_t seed, std::span<float> shard);

// The same of what is frozen. kAdapters: of the reference's copies of adapters alone.
enum class FrozenPart { kAll, kAdapters };
void initialize_frozen(const Layout& layout, const Coordinates& at, uint64_t seed, FrozenPart part, const StoreFrozen& store);

}  // namespace distsetup
