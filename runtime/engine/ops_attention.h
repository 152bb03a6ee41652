// Attention that libtorch's CPU kernels do not have: with a window shorter than the sequence, a soft cap, or of
// queries with keys that are elsewhere in the sequence.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "runtime/engine/ops.h"

namespace distsetup {

bool needs_own_attention(const std::string& kernel, const Call& call);
// For a call that needs it. Returns why it cannot; empty: bound.
std::string bind_own_attention(const std::string& kernel, Call& call);

// Keys and values of one layer's tokens so far, in the compute type: room for as many rows of kv · d elements as there will be tokens.
struct KeyValueCache {
  std::vector<std::byte> keys, values;
};
// In place of an "attention" or "attention_split" call over one sequence: its rows are the tokens behind the first num_before, whose
// keys and values are in the cache. Theirs join them.
void attend_to_cache(const Call& call, KeyValueCache& cache, int64_t num_before);

}  // namespace distsetup
