// FLOPs of one token. The idea: two per matmul parameter on the token's path, plus attention scores and their weighted sum over
// the positions a token sees on average. Backward is twice forward.
// Source: PaLM appendix B (arXiv 2204.02311), with causal attention counted half, an encoder's whole, and latent attention by its own
// head sizes. Leaves out: the embedding lookup, norms, activations, softmax, recomputation.
#include "model/flops.h"

#include "model/count.h"

namespace distsetup {
namespace {

double mean_positions(const Geometry& g, int64_t layer, double sequence_length) {
  return mean_attended(sequence_length, has_window(g, layer) ? static_cast<double>(g.sliding_window) : 0, g.bidirectional);
}

}  // namespace

double mean_attended(double length, double window, bool bidirectional) {
  const double ends = bidirectional ? 4 : 2;  // a window of w lacks w / 2 at one end of the sequence, or w / 4 at both
  if (window <= 0 || window >= length) return bidirectional ? length : length / 2;
  return window * (1 - window / (ends * length));
}

TokenFlops token_flops(const Geometry& g, int64_t sequence_length) {
  const bool latent = g.attention == Attention::kLatent;
  const int64_t qk_head_size = latent ? g.qk_nope_head_size + g.qk_rope_head_size : g.head_size;
  const int64_t v_head_size = latent ? g.v_head_size : g.head_size;
  const double per_position = 2.0 * static_cast<double>(g.num_heads * (qk_head_size + v_head_size));
  double forward = 2.0 * static_cast<double>(g.vocabulary * g.hidden);  // the head; tied or not
  for (int64_t i = 0; i < g.num_layers; ++i) {
    const LayerParameters layer = layer_parameters(g, i);
    forward += 2.0 * static_cast<double>(layer.attention_matmul + layer.mlp_matmul_active);
    forward += per_position * mean_positions(g, i, static_cast<double>(sequence_length));
  }
  return {forward, 3 * forward};
}

}  // namespace distsetup
