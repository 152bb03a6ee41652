// Rows on their way to the ranks that share their sequences (src/plan/context_parallel.h) are only moved: columns of a token's row
// into a row of their own, rows into the order of the sequences. So is the latent beside its rotary key (src/plan/latent_rules.h).
// Which bytes go where is the same on every device.
#pragma once
#include <string>
#include <vector>

#include "runtime/engine/ops.h"

namespace distsetup {

// num_rows stretches of row_bytes, from_pitch and to_pitch bytes from one to the next.
struct RowCopy {
  char* to = nullptr;
  const char* from = nullptr;
  int64_t to_pitch = 0, from_pitch = 0, row_bytes = 0, num_rows = 0;
};
// Of kv_pack, heads_sort, latent_part and their like: what they copy. Empty: another kernel.
std::vector<RowCopy> row_copies(const std::string& kernel, const Call& call);

}  // namespace distsetup
