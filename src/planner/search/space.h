// The space that is searched: every combination that multiplies out, that the pins of the problem allow and that the trainer has. One
// space for all trainers; what one has and another has not is read off its facts (resolve/trainers.h). Left out, and why: tensor
// parallelism across nodes (its collectives wait for the network in every layer); context parallelism that leaves a rank fewer than
// kFewestContextTokens (unless pinned, or where others leave nothing); shards that are neither part of a node nor whole nodes (unless
// pinned).
#pragma once
#include <cstdint>
#include <vector>

#include "planner/search/choice.h"

namespace distsetup {

inline constexpr int64_t kFewestContextTokens = 2048;

// Ascending.
std::vector<int64_t> divisors(int64_t n);
// Sequences per step on `ranks` data-parallel ranks; 0: the batch that is asked for does not divide.
int64_t sequences_per_step(const Problem& problem, int64_t ranks);
// Of a step, as they are asked for; 0: by nobody.
int64_t sequences_wished(const Problem& problem);
// Adding nodes ends where a GPU would be left without a sequence: beyond, the batch would grow with the machine.
bool more_ranks_than_sequences(const Problem& problem, int nodes);

// In a fixed order. Empty: `why` says which rule leaves none.
std::vector<Choice> legal_choices(const Problem& problem, int nodes, Diagnostics* why = nullptr);

}  // namespace distsetup
