// What one layer is made of, in parameters, for count.cc and flops.cc. Private to src/model.
#pragma once
#include <cstdint>

#include "model/geometry.h"

namespace distsetup {

struct LayerParameters {
  int64_t attention_matmul = 0;
  int64_t attention_other = 0;    // biases, norms over q and k or over latents
  int64_t mlp_matmul = 0;         // all experts, router, shared experts
  int64_t mlp_matmul_active = 0;  // of one token
  int64_t mlp_other = 0;          // biases, router correction
  int64_t norms = 0;
  int64_t total() const { return attention_matmul + attention_other + mlp_matmul + mlp_other + norms; }
  int64_t active() const { return total() - mlp_matmul + mlp_matmul_active; }
};
LayerParameters layer_parameters(const Geometry& geometry, int64_t layer);

}  // namespace distsetup
