// The heads of one row of q, k and v, for the kernels of every device.
#pragma once
#include <cstdint>

namespace distsetup {

struct Heads {
  int64_t num_q = 0, num_kv = 0, size = 0;                            // A, K, D
  int64_t row() const { return (num_q + num_kv) * size; }             // q and k
  int64_t packed_row() const { return (num_q + 2 * num_kv) * size; }  // q, k and v
};

}  // namespace distsetup
