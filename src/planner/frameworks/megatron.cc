// What a rank of Megatron-Core holds: every pipeline stage is computed, the fullest one is the answer.
//   all the time   parameters 2, main gradients 4 (in one buffer per dtype), and of the distributed optimizer's share master and
//   moments
//                  12 / (dp x cp); experts over their own data-parallel group of dp x cp x tp / (ep x expert tp) ranks
//                  (megatron/core/distributed/param_and_grad_buffer.py, optimizer/distrib_optimizer.py)
//   in a step      activations of the micro-batches in flight and of the layer or head that runs (stages.h), the gradient that went to
//                  the previous stage and is still named, Transformer Engine's dummy gradients and workspaces
// Megatron-FSDP (sharding zero2, zero3) shards gradients, or parameters too, and gathers two units at a time
// (megatron/core/distributed/fsdp/src/megatron_fsdp/param_and_grad_buffer.py, double buffer).
// Checked against every rank of the 43 runs of SimuMax' B200 table (docs/b200 of MooreThreads/SimuMax v1.2).
#include "planner/frameworks/megatron.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "planner/frameworks/libraries.h"
#include "planner/frameworks/stage_replay.h"
#include "planner/frameworks/stages.h"
#include "planner/frameworks/state_bytes.h"

namespace distsetup {
namespace {

struct RankBytes {
  int64_t parameter = 0, gathered = 0, gradient = 0, optimizer = 0, activation = 0, logits = 0, communication = 0, workspace = 0;
  int64_t loss_activation = 0, layer_activation = 0, evaluate_activation = 0;
  bool forward_peaks = false;
  int64_t offloaded = 0, offloaded_activations = 0, checkpoint = 0 /* of the stage */, dummy = 0, step_temporary = 0;
  std::vector<int64_t> dummies;
  int64_t states() const { return parameter + gradient + optimizer; }
  int64_t fixed() const { return states() + gathered + communication + workspace; }
  int64_t peak() const { return fixed() + std::max(activation + logits, step_temporary); }
};

// Bytes per element between steps; a moment in bf16 or fp8 and a gradient buffer in bf16 come from the precision-aware optimizer.
struct ElementBytes {
  double parameter = 2, gradient = 4, optimizer = 12;
  double vocabulary = 0;  // a parameter of the embedding or the head; 0: as the others
};

ElementBytes element_bytes(const Setup& s) {
  const StateBytes states = state_bytes(s);
  ElementBytes bytes{states.parameter, states.gradient, states.optimizer};
  if (s.compute != Dtype::kF8) return bytes;
  // transformer_engine/pytorch/module/base.py, get_weight_workspace: a quantised copy of each linear weight and its transpose stay
  // over the micro-batches; --fp8-param-gather keeps them instead of the 16-bit weight. From Blackwell on, GEMMs of one scale per
  // tensor need no transpose; block-scaled types are quantised along rows and along columns, a scale per 32 (mxfp8) or 16 values
  // (nvfp4).
  const bool blackwell = s.gpu.peak_fp8_flops_per_s >= 4e15;
  const bool one_scale = s.fp8 != Fp8Recipe::kMxfp8 && s.fp8 != Fp8Recipe::kNvfp4 && s.fp8 != Fp8Recipe::kBlockwise;
  double copies = 2;
  if (blackwell && one_scale) copies = 1;
  if (s.fp8 == Fp8Recipe::kMxfp8) copies = 2 * (1 + 1.0 / 32);
  if (s.fp8 == Fp8Recipe::kNvfp4) copies = 2 * (0.5 + 1.0 / 16);
  bytes.vocabulary = 2;
  bytes.parameter = s.parameter_dtype == Dtype::kF8 ? copies : 2 + copies;
  return bytes;
}

int64_t share(double bytes, double ranks) { return static_cast<int64_t>(std::ceil(bytes / ranks)); }

struct Ranks {
  double dense = 1, expert = 1;  // that share an element's optimizer states
};

Ranks sharing_ranks(const Setup& s) {
  if (s.sharding == Sharding::kDdp) return {};
  const double all = static_cast<double>(s.dp_shard) * s.cp;
  return {all, std::max(1.0, all * s.tp / (static_cast<double>(s.ep) * s.expert_tp))};
}

int64_t fused_adapter_elements(const Setup& s, const StageLayers& stage) {
  const Geometry& g = s.model;
  const Lora& l = s.lora;
  const int64_t q = g.num_heads * g.head_size, kv = g.num_kv_heads * g.head_size, u = g.gated_mlp ? 2 : 1;
  int64_t n = 0;  // rank x (in + out) of each fused linear; the split side is divided among tp ranks
  if (l.query || l.key || l.value) n += g.hidden + (q + 2 * kv) / s.tp;
  if (l.output) n += q / s.tp + g.hidden;
  if (l.gate || l.up) n += g.hidden + u * g.feed_forward / s.tp;
  if (l.down) n += g.feed_forward / s.tp + g.hidden;
  return stage.num_layers * l.rank * n;
}

void add_states(const Setup& s, const StageElements& elements, const StageLayers& stage, RankBytes& rank) {
  const Ranks ranks = sharing_ranks(s);
  const bool shards_gradient = s.sharding == Sharding::kZero2 || s.sharding == Sharding::kZero3;
  const bool shards_parameter = s.sharding == Sharding::kZero3;
  const ElementBytes bytes = element_bytes(s);
  // `apart`: ranks of the stage that hold other elements of the same kind.
  const auto add = [&](double n, double sharing, double held, bool trained, int64_t apart) {
    rank.parameter += share(n * held, shards_parameter ? sharing : 1);
    if (!trained) return;
    rank.gradient += share(n * bytes.gradient, shards_gradient ? sharing : 1);
    rank.optimizer += share(n * bytes.optimizer, sharing);
    rank.checkpoint += apart * share(n * (2 + bytes.optimizer), 1);
    // A 16-bit gradient buffer is copied to fp32 for the share's step (optimizer/distrib_optimizer.py,
    // _copy_model_grads_to_main_grads).
    if (bytes.gradient < 4 && s.state_dtype == Dtype::kF32) rank.step_temporary += share(4 * n, sharing);
  };
  const bool full = s.finetune == Finetune::kFull;
  const double held = full ? bytes.parameter : s.finetune == Finetune::kQlora ? bytes_of(s.frozen_dtype) : 2;
  add(static_cast<double>(elements.dense), ranks.dense, held, full, s.tp);
  add(static_cast<double>(elements.expert), ranks.expert, held, full, int64_t{s.ep} * s.expert_tp);
  if (full && bytes.vocabulary > 0) {
    const double over = (bytes.vocabulary - bytes.parameter) * static_cast<double>(elements.vocabulary);
    rank.parameter += static_cast<int64_t>(over / (shards_parameter ? ranks.dense : 1));
  }
  // Muon takes the matrices of blocks; embedding and head are AdamW's (megatron/core/optimizer/__init__.py).
  if (full && s.optimizer == OptimizerKind::kMuon) {
    const double more = (adam_state_bytes(s).optimizer - bytes.optimizer) * static_cast<double>(elements.vocabulary);
    rank.optimizer += share(more, ranks.dense);
    rank.checkpoint += s.tp * share(more, 1);
  }
  if (!full) add(static_cast<double>(fused_adapter_elements(s, stage)), ranks.dense, bytes.parameter, true, s.tp);
  if (holds_reference(s)) rank.parameter += share(2.0 * static_cast<double>(elements.dense + elements.expert), 1);
  if (shards_parameter || shards_gradient) {
    const double unit =
        static_cast<double>(elements.dense + elements.expert) / static_cast<double>(std::max<int64_t>(1, stage.num_layers));
    if (shards_parameter) rank.gathered += share(2 * 2 * unit, 1);
    rank.communication += share(2 * bytes.gradient * unit, 1);
  }
  if (s.offload.optimizer != OffloadPlace::kNone) {
    rank.offloaded = static_cast<int64_t>(s.offloaded_states * static_cast<double>(rank.optimizer));
    rank.optimizer -= rank.offloaded;
  }
}

RankBytes rank_bytes(const Setup& s, const LifetimeProgram& program, const StageParts& parts, const LayerSymbols& symbols,
                     const StageLayers& stage, bool first) {
  RankBytes rank;
  add_states(s, stage_elements(s, parts, symbols, stage), stage, rank);
  const StageActivations activations = stage_activations(s, parts, symbols, stage);
  const int64_t scattered = s.sequence_parallel ? s.tp : 1, hidden_bytes = 2 * s.model.hidden * s.tokens() / scattered;
  if (s.pp > 1 && !first) rank.communication += hidden_bytes;
  rank.workspace = cublas_workspace_bytes(s.gpu);
  if (program.name == "megatron_te") {
    rank.workspace += transformer_engine_workspace_bytes(s.gpu, stage.num_expert_layers > 0);
    if (s.finetune == Finetune::kFull) {
      rank.dummies = dummy_gradient_bytes(parts, symbols, stage);
      for (const int64_t bytes : rank.dummies) rank.dummy += bytes;
      rank.workspace += rank.dummy;
    }
  }
  rank.workspace += 4 * s.model.head_size * s.sequence_length / s.cp;  // angles of the rotary embedding, fp32
  rank.loss_activation = activations.loss_peak;
  rank.layer_activation = activations.layer_peak;
  rank.evaluate_activation = activations.evaluate_peak;
  rank.forward_peaks = activations.forward_peaks;
  rank.offloaded_activations = activations.offloaded;
  rank.logits = activations.loss_peak > activations.layer_peak ? activations.logits_bytes : 0;
  rank.activation = std::max(activations.loss_peak, activations.layer_peak) - rank.logits;
  return rank;
}

void add_term(MemoryEstimate& out, const char* name, int64_t bytes, const std::string& phase) {
  if (bytes > 0) out.terms.push_back({name, bytes, bytes, phase});
}

// Weights are made one by one and move into a buffer (param_and_grad_buffer.py); master and moments of the share, which is contiguous
// there, are as large as the weights in it (distrib_optimizer.py).
StageBuffers stage_buffers(const Setup& s, const StageParts& parts, const LayerSymbols& symbols, const RankBytes& rank,
                           const StageLayers& stage) {
  StageBuffers out;
  out.initial = weight_sizes(parts, symbols, stage, rank.parameter);
  out.from_start = {rank.parameter, rank.gradient, rank.workspace - rank.dummy, rank.gathered, rank.communication};
  const int64_t master = s.master_copy ? rank.optimizer / 3 : 0;
  const auto pieces = [&](int64_t bytes, std::vector<int64_t>& into) {
    for (const int64_t weight : out.initial) {
      if (bytes <= 0) return;
      into.push_back(std::min(bytes, 2 * weight));  // fp32 of a 16-bit weight
      bytes -= 2 * weight;
    }
    if (bytes > 0) into.push_back(bytes);
  };
  pieces(master, out.from_start);
  pieces((rank.optimizer - master) / 2, out.from_optimizer);
  pieces((rank.optimizer - master) / 2, out.from_optimizer);
  // Frozen weights have no buffer of gradients to move into: they stay where they were made.
  if (s.finetune != Finetune::kFull) {
    out.from_start[0] = 0;
    out.from_start.insert(out.from_start.end(), out.initial.begin(), out.initial.end());
    out.initial.clear();
  }
  out.from_backward = rank.dummies;
  if (rank.step_temporary > 0) out.in_optimizer.push_back(rank.step_temporary);
  return out;
}

MemoryEstimate report(const RankBytes& rank) {
  MemoryEstimate out;
  out.allocated_bytes = rank.peak();
  const bool at_step = rank.step_temporary > rank.activation + rank.logits;
  out.peak_phase = at_step ? "optimizer" : rank.logits > 0 ? "loss" : rank.forward_peaks ? "forward" : "backward";
  add_term(out, "parameter shard", rank.parameter, "load");
  add_term(out, "gathered parameter", rank.gathered, "forward");
  add_term(out, "gradient", rank.gradient + (at_step ? rank.step_temporary : 0), at_step ? "optimizer" : "load");
  add_term(out, "optimizer state", rank.optimizer, "optimizer");
  if (!at_step) {
    add_term(out, "activation", rank.activation, out.peak_phase);
    add_term(out, "logits", rank.logits, "loss");
  }
  add_term(out, "communication", rank.communication, "backward");
  add_term(out, "workspace", rank.workspace, "backward");
  const int64_t held = rank.states() + rank.workspace;
  out.by_phase = {{"load", rank.parameter + rank.gradient},
                  {"forward", rank.fixed() + rank.layer_activation},
                  {"loss", rank.loss_activation > 0 ? rank.fixed() + rank.loss_activation : 0},
                  {"backward", rank.fixed() + rank.layer_activation},
                  {"optimizer", rank.fixed() + rank.step_temporary},
                  {"evaluate", held + rank.gathered + rank.evaluate_activation},
                  {"save", held}};
  std::erase_if(out.by_phase, [](const PhaseMemory& phase) { return phase.allocated_bytes == 0; });
  return out;
}

}  // namespace

MemoryEstimate megatron_memory(const Setup& s, Depth depth) {
  const LifetimeProgram& program = lifetime_program(s);
  const LayerSymbols symbols = layer_symbols(s, program);
  const StageParts parts = stage_parts(s, program);
  RankBytes fullest;
  StageLayers fullest_stage;
  int64_t host_bytes = 0, checkpoint_bytes = 0;
  int index = -1;
  for (const StageLayers& stage : pipeline_stages(s)) {
    ++index;
    const RankBytes rank = rank_bytes(s, program, parts, symbols, stage, index == 0);
    // --optimizer-cpu-offload: master and moments pinned, with the gradient's copy (megatron/core/optimizer/cpu_offloading).
    host_bytes = std::max(host_bytes,
                          pinned_bytes(rank.offloaded) + pinned_bytes(rank.offloaded / 3) + pinned_bytes(rank.offloaded_activations));
    checkpoint_bytes += rank.checkpoint;
    if (s.memory_stage >= 0 ? index == s.memory_stage : rank.peak() > fullest.peak()) {
      fullest = rank;
      fullest_stage = stage;
    }
  }
  MemoryEstimate out = report(fullest);
  out.host_bytes_per_node = host_bytes * s.gpus_per_node;
  out.checkpoint_bytes = checkpoint_bytes;
  if (depth == Depth::kReplay)
    replay_into(out, s, parts, symbols, fullest_stage, stage_buffers(s, parts, symbols, fullest, fullest_stage));
  return out;
}

}  // namespace distsetup
