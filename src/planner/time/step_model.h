// One step as a sum of layers: what step.cc composes and layer_time.cc fills in. Private to planner/time.
#pragma once
#include "planner/time/collective.h"
#include "planner/time/layer.h"

namespace distsetup {

// One direction through one layer, on one rank.
struct PassTime {
  double gemm = 0, attention = 0, elementwise = 0, exposed = 0;  // seconds; exposed: communication inside the layer
  double flops = 0;
  double compute() const { return gemm + attention + elementwise; }
  double total() const { return compute() + exposed; }
  PassTime& operator+=(const PassTime& o) {
    gemm += o.gemm;
    attention += o.attention;
    elementwise += o.elementwise;
    exposed += o.exposed;
    flops += o.flops;
    return *this;
  }
  PassTime scaled(double by) const { return {gemm * by, attention * by, elementwise * by, exposed * by, flops * by}; }
};

struct LayerTime {
  PassTime forward, backward, recompute;
  double parameters = 0, lora_parameters = 0;  // on one rank before data sharding
  double token_flops = 0;                      // of the model, forward, not of the hardware
};

inline double wire_bytes(StorageDtype dtype) { return dtype == StorageDtype::kF32 ? 4 : 2; }

class StepModel {
 public:
  StepModel(const Setup& s, const TimeConstants& c)
      : s_(s),
        c_(c),
        tokens_(static_cast<double>(s.tokens())),
        hidden_(static_cast<double>(s.model.hidden)),
        shards_(s.dp_shard * s.cp),
        low_(s.fp8 != Fp8Recipe::kNone),
        full_(s.finetune == Finetune::kFull) {
    tp_group_ = group_span(c.fabric, s.tp, 1);
    cp_group_ = group_span(c.fabric, s.cp, s.tp);
    shard_group_ = group_span(c.fabric, shards_, s.tp);
    replicate_group_ = group_span(c.fabric, s.dp_replicate, s.tp * shards_);
    expert_group_ = group_span(c.fabric, s.ep, s.tp);
    pipe_group_ = group_span(c.fabric, s.pp, s.tp * shards_ * s.dp_replicate);
  }

  TimeEstimate run();

 private:
  PassTime gemm_pass(const LayerGemm& m, bool forward) const;
  PassTime forward_pass(const LayerWork& w, bool op_selected_only) const;
  PassTime backward_pass(const LayerWork& w) const;
  PassTime attention_pass(const LayerWork& w, bool forward) const;
  PassTime recompute_pass(const LayerWork& w) const;
  LayerTime layer_time(const LayerWork& w) const;
  LayerTime mean_layer() const;
  double tensor_parallel_s(bool forward) const;
  double sequence_copies_s() const;
  double expert_parallel_s() const;
  double head_s(double& flops) const;
  double gather_s(double parameters) const;
  double scatter_s(double parameters) const;
  double optimizer_s(double parameters, TimeEstimate& t) const;
  double activation_transfer_s() const;
  double copies_s(double parameters, double trained) const;

  const Setup& s_;
  const TimeConstants& c_;
  double tokens_, hidden_;
  int shards_;
  bool low_, full_;
  GroupSpan tp_group_, cp_group_, shard_group_, replicate_group_, expert_group_, pipe_group_;
};

}  // namespace distsetup
