// One step as a sum of layers: what step.cc composes and layer_time.cc fills in. Private to planner/time.
#pragma once
#include <algorithm>

#include "model/flops.h"
#include "planner/time/collective.h"
#include "planner/time/layer.h"
#include "planner/time/step.h"

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

inline double wire_bytes(Dtype dtype) { return dtype == Dtype::kF32 ? 4 : 2; }

// The mean layer and what a step asks of it.
struct StepLayer {
  LayerTime time;
  double forward_s = 0, backward_s = 0;  // backward with what is recomputed
  double head_s = 0, head_flops = 0;     // head and loss of a micro-batch
  double forwards = 1;                   // of a micro-batch
  double trained = 0;                    // parameters of a layer that get a gradient
};

// The stage of a pipeline that sets the pace; without one, all of the model.
struct SlowestStage {
  double layers = 0;
  double head_share = 1;  // 1: it has the head
  double ends_s = 0;      // embedding and head that it has, of a micro-batch
  double mean_s = 0;      // a micro-batch of the mean stage
};

class StepModel {
 public:
  StepModel(const Setup& s, const TimeConstants& c)
      : s_(s),
        c_(c),
        traits_(s.traits()),
        tokens_(static_cast<double>(s.tokens())),
        hidden_(static_cast<double>(s.model.hidden)),
        shards_(s.dp_shard * s.cp),
        low_(s.fp8 != Fp8Recipe::kNone),
        full_(s.finetune == Finetune::kFull),
        micro_batches_(static_cast<double>(s.gradient_accumulation)) {
    tp_group_ = group_span(c.fabric, s.tp, 1);
    cp_group_ = group_span(c.fabric, s.cp, s.tp);
    shard_group_ = group_span(c.fabric, shards_, s.tp);
    replicate_group_ = group_span(c.fabric, s.dp_replicate, s.tp * shards_);
    // torchtitan's experts borrow the tensor ranks first; what is left of the shard group shares each expert.
    experts_apart_ = traits_.experts_borrow_tensor_ranks && s.ep > 1;
    expert_group_ = group_span(c.fabric, s.ep, experts_apart_ ? 1 : s.tp);
    expert_shards_ = experts_apart_ ? std::max(1, shards_ * s.tp / s.ep) : shards_;
    expert_shard_group_ = group_span(c.fabric, expert_shards_, s.ep);
    pipe_group_ = group_span(c.fabric, s.pp, s.tp * shards_ * s.dp_replicate);
  }

  TimeEstimate run();

 private:
  // Seconds a micro-batch, over the layers of the stage: not hidden behind compute; by which compute slows beside transfers.
  struct Transfers {
    double exposed_s = 0, contended_s = 0;
  };

  // Each layer's parameters are gathered and its gradients scattered in every micro-batch.
  bool gathers_parameters() const {
    return s_.sharding == Sharding::kZero3 || (traits_.zero2_shards_parameters && s_.sharding == Sharding::kZero2);
  }
  SlowestStage slowest_stage(const StepLayer& one) const;
  Transfers sharded_transfers(const StepLayer& one, const SlowestStage& stage, TimeEstimate& t) const;
  void add_micro_batches(const StepLayer& one, const SlowestStage& stage, const Transfers& transfers, TimeEstimate& t) const;
  double gradient_reduction_s(const StepLayer& one, const SlowestStage& stage, double stage_parameters) const;
  void add_rates(const StepLayer& one, TimeEstimate& t) const;
  PassTime gemm_pass(const LayerGemm& m, bool forward) const;
  PassTime forward_pass(const LayerWork& w, bool op_selected_only) const;
  PassTime backward_pass(const LayerWork& w) const;
  PassTime attention_pass(const LayerWork& w, bool forward) const;
  PassTime recompute_pass(const LayerWork& w) const;
  double orthogonalise_s(const LayerWork& w) const;
  LayerTime layer_time(const LayerWork& w) const;
  LayerTime mean_layer() const;
  double tensor_parallel_s(bool forward) const;
  double sequence_copies_s() const;
  bool gathers_in_8_bits() const;
  double gathers_again_s() const;
  void add_expert_parallel(const LayerWork& w, PassTime& p) const;
  double head_s(double& flops) const;
  double embedding_s() const;
  double gather_s(double parameters) const;
  double scatter_s(double parameters) const;
  double gather_layer_s(const LayerTime& layer) const;
  double scatter_layer_s(const LayerTime& layer, double trained) const;
  double gathered_bytes(double parameters) const;
  double optimizer_s(double parameters, TimeEstimate& t) const;
  double activation_transfer_s() const;
  double stage_send_s() const;
  double copies_s(double parameters, double trained) const;

  const Setup& s_;
  const TimeConstants& c_;
  const FrameworkTraits& traits_;
  double tokens_, hidden_;
  int shards_, expert_shards_ = 1;
  bool low_, full_, experts_apart_ = false;
  double micro_batches_;
  GroupSpan tp_group_, cp_group_, shard_group_, replicate_group_, expert_group_, expert_shard_group_, pipe_group_;
};

}  // namespace distsetup
