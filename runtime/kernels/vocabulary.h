// What kernels over a vocabulary are told, on every device: whose ids they have, and how logits are formed.
#pragma once
#include <cstdint>

namespace distsetup {

// Ids whose rows (or columns) are here: row 0 is id `begin`. Rows from end - begin on are padding and count as absent.
struct VocabularyRange {
  int64_t begin = 0, end = INT64_MAX;
};

// Logits are multiplied first, and then capped: cap · tanh(z / cap), cap 0: not.
struct LogitShape {
  float multiplier = 1, soft_cap = 0;
};

inline constexpr int64_t kLossStats = 3;  // numbers that cross_entropy_local leaves for each row

}  // namespace distsetup
