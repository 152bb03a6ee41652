// A row of latent attention (src/plan/latent_rules.h), for the kernels of every device.
#pragma once
#include <cstdint>

namespace distsetup {

struct LatentHeads {
  int64_t num = 0;             // A
  int64_t plain = 0, rot = 0;  // elements of a head's query and key without and with position
  int64_t value = 0;           // elements of its values: at most plain + rot
  int64_t latent = 0;          // elements of the latent, behind which the rotary key lies
  int64_t size() const { return plain + rot; }
  int64_t q_row() const { return num * size(); }
  int64_t kv_row() const { return num * (plain + value); }
  int64_t latent_row() const { return latent + rot; }
  int64_t packed_row() const { return 3 * q_row(); }
};

}  // namespace distsetup
