// Parameters of a model and of one of its layers, exact.
#pragma once
#include <cstdint>
#include <optional>

#include "base/diagnostic.h"
#include "model/geometry.h"

namespace distsetup {

struct ParameterCount {
  int64_t total = 0;
  int64_t active = 0;     // per token
  int64_t per_layer = 0;  // of the first layer
  int64_t embedding = 0;  // V·h (+ learned positions, a norm)
  int64_t head = 0;       // 0 when tied
  int64_t final_norm = 0;
};
ParameterCount count_parameters(const Geometry& geometry);

// Whether layer `layer` has experts instead of the dense MLP.
bool is_expert_layer(const Geometry& geometry, int64_t layer);
// Whether its queries see a window of keys only.
bool has_window(const Geometry& geometry, int64_t layer);
// Whether its queries and keys are rotated by their positions.
bool is_rotated(const Geometry& geometry, int64_t layer);

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

// kLabelOff (a note) when the label is more than 5 % off: "'llama3.2_1b' is called 1B but has 1,235,814,400 parameters (+24 %)".
std::optional<Diagnostic> label_note(const Geometry& geometry);

}  // namespace distsetup
