// Seconds of a layer forward, backward and recomputed, on one rank.
#pragma once
#include <algorithm>

#include "planner/frameworks/experts.h"
#include "planner/time/collective.h"
#include "planner/time/layer.h"

namespace distsetup {

// One direction through one layer, on one rank.
struct PassTime {
  double gemm = 0, attention = 0, elementwise = 0, exposed = 0;  // seconds; exposed: communication inside the layer
  double network = 0;                                            // of `exposed`: on the wire that parameters are gathered over
  double flops = 0;
  double compute() const { return gemm + attention + elementwise; }
  double total() const { return compute() + exposed; }
  PassTime& operator+=(const PassTime& o) {
    gemm += o.gemm;
    attention += o.attention;
    elementwise += o.elementwise;
    exposed += o.exposed;
    network += o.network;
    flops += o.flops;
    return *this;
  }
  PassTime scaled(double by) const { return {gemm * by, attention * by, elementwise * by, exposed * by, network * by, flops * by}; }
};

struct LayerTime {
  PassTime forward, backward, recompute;
  double parameters = 0, expert_parameters = 0,
         lora_parameters = 0;  // on one rank before data sharding; experts are part of the first
  double token_flops = 0;      // of the model, forward, not of the hardware
  double orthogonalise_s = 0;  // Muon, of all its matrices
};

// What a rank computes in a micro-batch, and with whom it shares what.
class LayerModel {
 public:
  LayerModel(const Setup& setup, const TimeConstants& constants);

  LayerTime mean_layer() const;

  const Setup& s;
  const TimeConstants& c;
  const FrameworkTraits& traits;
  const double tokens, hidden;
  const int shards;          // ranks that share the parameters outside of experts
  const bool low, full;      // products in 8 bits or fewer; all parameters are trained
  const bool experts_apart;  // experts borrow the tensor ranks first; what is left of the shard group shares each of them
  const int expert_shards;
  const ExpertKernels kernels;
  const GroupSpan tp_group, cp_group, shard_group, replicate_group, expert_group, expert_shard_group, pipe_group;

 private:
  PassTime gemm_pass(const LayerGemm& m, bool forward) const;
  double experts_s(const LayerGemm& m, double rows, double n, double k, bool forward) const;
  double fp32_products_s(const LayerWork& work) const;
  PassTime forward_pass(const LayerWork& w, bool op_selected_only) const;
  PassTime backward_pass(const LayerWork& w) const;
  PassTime attention_pass(const LayerWork& w, bool forward) const;
  PassTime whole_heads_pass(const LayerWork& w, bool forward) const;
  PassTime recompute_pass(const LayerWork& w) const;
  PassTime recomputed_parts(const LayerWork& w) const;
  double orthogonalise_s(const LayerWork& w) const;
  LayerTime layer_time(const LayerWork& w) const;
  double tensor_parallel_s(bool forward) const;
  double sequence_copies_s() const;
  bool gathers_in_8_bits() const;
  double gathers_again_s() const;
  double exchange_s() const;
  PassTime recomputed_modules(const LayerWork& w) const;
  void add_expert_parallel(const LayerWork& w, PassTime& p) const;
};

}  // namespace distsetup
