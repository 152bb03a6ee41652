// Seconds of one optimizer step, composed the way the trainers run it: layers forward and backward per micro-batch (layer_time.cc),
// each with its transfers beside or after it; micro-batches through a pipeline; gradients reduced; optimizer. Sharded parameters
// (ZeRO-3, FSDP): a layer takes max(F, gather) forward and max(B, gather + reduce-scatter) backward; compute that a transfer runs
// beside slows by `contention` of the shared time; first gather and last reduction are exposed. Unsharded: gradients are reduced
// beside the backward of the last micro-batch (DDP, ZeRO-1) or of each (ZeRO-2). Pipeline: m micro-batches of the slowest stage +
// (p-1)/v of the mean stage (1F1B interleaved, Megatron-LM, arXiv 2104.04473, 2.2). Everything · (1 + straggler · log2(GPUs)): the
// slowest of many ranks sets the pace. The terms of TimeEstimate sum to step_s. Leaves out: loading, saving, zero-bubble schedules.
#include "planner/time/step.h"

#include <algorithm>
#include <cmath>

#include "model/flops.h"
#include "planner/frameworks/fsdp_lengths.h"
#include "planner/frameworks/lifetimes.h"
#include "planner/frameworks/state_bytes.h"
#include "planner/frameworks/zero_host.h"
#include "planner/time/embedded_calibration.h"
#include "planner/time/gemm.h"
#include "planner/time/launch.h"
#include "planner/time/layer_time.h"
#include "planner/time/offload.h"
#include "planner/time/reduction.h"

namespace distsetup {
namespace {

constexpr int64_t kAligned = 8;         // 2-byte elements of 16 bytes
constexpr double kTensorsPerLayer = 9;  // q, k, v, o, gate, up, down, two norms

double frozen_or_compute_bytes(const Setup& s) { return s.finetune == Finetune::kFull ? 2 : std::min(2.0, bytes_of(s.frozen_dtype)); }

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
      : s_(s), c_(c), traits_(s.traits()), rank_(s, c), micro_batches_(static_cast<double>(s.gradient_accumulation)) {}

  TimeEstimate run();

 private:
  // Seconds a micro-batch, over the layers of the stage: not hidden behind compute; by which compute slows beside transfers.
  struct Transfers {
    double exposed_s = 0, contended_s = 0, in_turn_s = 0;  // in_turn_s: of exposed_s, while the host waits
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
  double head_s(double& flops) const;
  double embedding_s() const;
  double gather_s(double parameters) const;
  double scatter_s(double parameters) const;
  double gather_layer_s(const LayerTime& layer) const;
  double modules_in_turn(const LayerTime& layer) const;
  double gather_in_turn_s(const LayerTime& layer) const;
  double scatter_layer_s(const LayerTime& layer, double trained) const;
  double gathered_bytes(double parameters) const;
  double optimizer_s(double parameters, double backward_s, TimeEstimate& t) const;
  bool pads_head() const;
  double stage_send_s() const;
  double copies_s(double parameters, double trained) const;

  const Setup& s_;
  const TimeConstants& c_;
  const FrameworkTraits& traits_;
  const LayerModel rank_;
  const double micro_batches_;
};

// A script that compiles its model has the head in its graph, where Inductor pads what is misaligned
// (torch/_inductor/fx_passes/pad_mm.py); trainers compile blocks.
bool StepModel::pads_head() const {
  return s_.is_one_graph() && s_.loss == LossHead::kCompiled && padded_vocabulary(s_) / s_.tp % kAligned != 0;
}

// Head and loss forward and backward, of one micro-batch. The head stays in 16 bits with fp8 layers.
double StepModel::head_s(double& flops) const {
  const bool pads = pads_head();
  const double own = static_cast<double>(padded_vocabulary(s_)) / s_.tp,
               vocabulary = pads ? std::ceil(own / kAligned) * kAligned : own;
  const double bytes = c_.value_bytes;
  flops = 2 * rank_.tokens * vocabulary * rank_.hidden * (rank_.full ? 3 : 2);
  double seconds = gemm_s(c_.gemm_wide, rank_.tokens, vocabulary, rank_.hidden, bytes, bytes) +
                   gemm_s(c_.gemm_wide, rank_.tokens, rank_.hidden, vocabulary, bytes, bytes);
  if (rank_.full) seconds += gemm_s(c_.gemm, vocabulary, rank_.hidden, rank_.tokens, 2, 2, SummedOver::kRows);
  if (s_.loss == LossHead::kCutCrossEntropy) seconds += gemm_s(c_.gemm, rank_.tokens, vocabulary, rank_.hidden, 2, 2);  // logits again
  const int split = s_.software.compiled_loss_gathers || s_.is_transformers_fsdp2() ? s_.tp : 1;  // a loss of whole logits: gathered
  if (split > 1) seconds += all_gather_s(c_.fabric, rank_.tp_group, 2 * rank_.tokens * vocabulary * split);
  const double copied = pads ? 3 * 2 * 2 : 0;  // the logits without the padding, their gradient with it for either product
  return seconds + rank_.tokens * vocabulary * split * (c_.loss_bytes_per_logit + copied) / c_.memory_bytes_per_s;
}

// The embedding: rows looked up, its gradient made and added up. In a pipeline the first stage's.
double StepModel::embedding_s() const {
  const double vocabulary = static_cast<double>(s_.model.vocabulary) / s_.tp;
  return (8 * rank_.tokens * rank_.hidden + (rank_.full ? 8 * vocabulary * rank_.hidden : 0)) / c_.memory_bytes_per_s;
}

double StepModel::gathered_bytes(double parameters) const {
  if (s_.software.gathers_as_stored) return parameters * bytes_of(s_.parameter_dtype);
  const bool gathered_in_8_bits = s_.fp8 == Fp8Recipe::kTensorwise && traits_.gathers_fp8_parameters;
  return parameters * (gathered_in_8_bits ? 1 : frozen_or_compute_bytes(s_));
}

double StepModel::gather_s(double parameters) const { return all_gather_s(c_.fabric, rank_.shard_group, gathered_bytes(parameters)); }

// Of a layer's parameters, those of experts that ZeRO-3 gathers module by module, a prefetch bucket at once. The host waits for each
// expert's rows, so that nothing runs beside these gathers.
double StepModel::modules_in_turn(const LayerTime& layer) const {
  return rank_.kernels == ExpertKernels::kModulesInTurn && traits_.python_hooks ? layer.expert_parameters : 0;
}

double StepModel::gather_in_turn_s(const LayerTime& layer) const {
  const double parameters = modules_in_turn(layer);
  if (parameters == 0) return 0;
  constexpr double kPrefetch = 5e7;  // DeepSpeed's stage3_prefetch_bucket_size
  const double bucket = s_.prefetch_bucket_elements > 0 ? static_cast<double>(s_.prefetch_bucket_elements) : kPrefetch;
  const double module = static_cast<double>(s_.model.expert_width() * s_.model.expert_feed_forward);
  const double at_once = std::min(parameters, std::max(module, bucket));
  return parameters / at_once * gather_s(at_once);
}

// With expert parallelism a layer's experts are gathered and reduced by themselves, over the ranks that hold the same ones.
double StepModel::gather_layer_s(const LayerTime& layer) const {
  // A traced graph without passes that bucket and reorder gathers every parameter by itself, where it is used.
  if (s_.software.unbucketed) return kTensorsPerLayer * gather_s(layer.parameters / kTensorsPerLayer);
  if (!rank_.experts_apart) return gather_s(layer.parameters - modules_in_turn(layer));
  return gather_s(layer.parameters - layer.expert_parameters) +
         all_gather_s(c_.fabric, rank_.expert_shard_group, gathered_bytes(layer.expert_parameters));
}

// Reduce-scatter inside the shard group; with replicas the all-reduce of the shards runs beside it, on the network.
double StepModel::scatter_s(double parameters) const {
  const double bytes = parameters * wire_bytes(s_.reduce_dtype);
  return std::max(reduce_scatter_s(c_.fabric, rank_.shard_group, bytes),
                  all_reduce_s(c_.fabric, rank_.replicate_group, bytes / rank_.shards));
}

double StepModel::scatter_layer_s(const LayerTime& layer, double trained) const {
  if (s_.software.unbucketed) return kTensorsPerLayer * scatter_s(trained / kTensorsPerLayer);
  if (!rank_.experts_apart) return scatter_s(trained);
  const double bytes = layer.expert_parameters * wire_bytes(s_.reduce_dtype);
  return scatter_s(trained - layer.expert_parameters) +
         std::max(reduce_scatter_s(c_.fabric, rank_.expert_shard_group, bytes),
                  all_reduce_s(c_.fabric, rank_.replicate_group, bytes / rank_.expert_shards));
}

// Copies that sharding or accumulation make of a layer's parameters and gradients in every micro-batch, on the compute stream.
//   FSDP2 copies a gathered parameter out of the flat buffer (4 bytes each, twice when resharded) and gradients into one (2 + wire);
//   FSDP1 gathers in place and casts gradients to the wire's type; DeepSpeed copies gradients into its bucket and parameters back;
//   Megatron before 2022-03 adds gradients to the main buffer in a kernel of its own (gradient_accumulation_fusion came then).
double StepModel::copies_s(double parameters, double trained) const {
  const double wire = wire_bytes(s_.reduce_dtype), gathers = s_.sharding == Sharding::kZero3 && s_.reshard_after_forward ? 2 : 1;
  const bool old_megatron = s_.software.released > 0 && s_.software.released < 202203;
  double bytes = 0;
  switch (traits_.copies) {
    case BufferCopies::kFlatBuffers:
      if (rank_.shards == 1) break;
      bytes = 4 * gathers * parameters / (s_.stays_gathered() ? micro_batches_ : 1) +
              (2 + wire) * trained / (s_.accumulates_whole() ? micro_batches_ : 1);
      if (s_.accumulates_whole() && wire > 2) bytes += (2 + 2 * wire) * trained;  // added to the sum
      break;
    case BufferCopies::kGradientCast: bytes = rank_.shards > 1 && wire > 2 ? (2 + wire) * trained : 0; break;
    case BufferCopies::kGradientBucket: bytes = 4 * trained + (s_.sharding == Sharding::kZero3 ? 4 * gathers * parameters : 0); break;
    case BufferCopies::kMainGradients: bytes = old_megatron ? (s_.gradient_dtype == Dtype::kF32 ? 10 : 6) * trained : 0; break;
    case BufferCopies::kNone: break;
  }
  return bytes / c_.optimizer_bytes_per_s;
}

double StepModel::optimizer_s(double parameters, double backward_s, TimeEstimate& t) const {
  const StateBytes bytes = state_bytes(s_);
  const double traffic = 2 * bytes.optimizer + 3 * bytes.gradient + (s_.master_copy ? 1 : 2) * bytes.parameter;
  if (s_.offload.optimizer == OffloadPlace::kNone) {
    const bool fused = s_.optimizer_implementation == OptimizerImplementation::kFused;
    // A list of DTensors is unwrapped tensor by tensor in each of foreach's operations: FSDP2 has one per parameter.
    const auto tensors = static_cast<double>(s_.model.num_layers) * kTensorsPerLayer / s_.pp;
    const double dispatch = !fused && traits_.wraps_each_parameter && rank_.full ? tensors * c_.foreach_tensor_s : 0;
    return parameters * traffic * (fused ? 1 : c_.foreach_cost) / c_.optimizer_bytes_per_s + dispatch;
  }
  // Host states pass through the GPU: read and written at once, a direction of the link each.
  if (traits_.streams_host_states) {
    t.offload_exposed_s += parameters * (bytes.optimizer + bytes.parameter) / c_.pcie_bytes_per_s;
    return parameters * traffic / c_.optimizer_bytes_per_s;
  }
  // What stays on the device is updated there.
  const double moved = parameters - optimizer_elements_on_device(s_, parameters);
  t.offload_exposed_s += host_update_s(s_, c_, moved);
  t.offload_exposed_s += host_sums_s(s_, c_, moved, backward_s);
  return (parameters - moved) * traffic * c_.foreach_cost / c_.optimizer_bytes_per_s;
}

// To the next stage. Without sequence parallelism every rank of the TP group holds all of it: Megatron sends a part from each and
// gathers on the other side (arXiv 2104.04473, section 4.1); others send it from all.
double StepModel::stage_send_s() const {
  const double bytes = 2 * rank_.tokens * rank_.hidden;
  if (s_.sequence_parallel || s_.tp == 1) return send_s(c_.fabric, rank_.pipe_group, bytes / s_.tp);
  if (!traits_.stages_split_messages) return send_s(c_.fabric, rank_.pipe_group, bytes);
  return send_s(c_.fabric, rank_.pipe_group, bytes / s_.tp) + all_gather_s(c_.fabric, rank_.tp_group, bytes);
}

// Layers that do not divide leave their places to the embedding and the head.
SlowestStage StepModel::slowest_stage(const StepLayer& one) const {
  // Layers of multi-token prediction are blocks with a head of their own.
  const double layers = static_cast<double>(s_.model.num_layers + s_.mtp_layers), stages = s_.pp;
  const double head = one.head_s * (1 + s_.mtp_layers), embedding = embedding_s();
  SlowestStage stage;
  stage.layers = layers;
  stage.ends_s = head + embedding;
  stage.mean_s = layers * (one.forward_s + one.backward_s) + stage.ends_s;
  if (s_.pp == 1) return stage;
  const bool even = s_.model.num_layers % s_.pp == 0 && traits_.even_stages;  // else both ends count as a layer
  const double places = (layers + 2) / stages, first_end = even ? embedding : 0;
  const double usual = even ? layers / stages : std::ceil(places), last = even ? usual : std::max(0.0, std::floor(places) - 1);
  const double with_head = last * (one.forward_s + one.backward_s) + head,
               without = usual * (one.forward_s + one.backward_s) + first_end;
  stage.layers = with_head >= without ? last : usual;
  stage.head_share = with_head >= without ? 1 : 0;
  stage.ends_s = with_head >= without ? head : first_end;
  stage.mean_s /= stages;
  return stage;
}

// Gathers and reductions beside the layers of every micro-batch; what parameters in host memory add goes to `t`.
StepModel::Transfers StepModel::sharded_transfers(const StepLayer& one, const SlowestStage& stage, TimeEstimate& t) const {
  const LayerTime& layer = one.time;
  const double own = stage.layers;
  Transfers transfers;
  transfers.exposed_s = own * (one.forwards * layer.forward.exposed + layer.backward.exposed + layer.recompute.exposed);
  // Parameters in host memory come up for forward and again for backward, beside the layer before: a rank's shard, or all of them.
  const bool from_host = s_.offload.parameters != OffloadPlace::kNone, whole = traits_.streams_host_parameters;
  const double of_layer = whole ? layer.parameters * (rank_.low ? 1 : 2) : gathered_bytes(layer.parameters) / rank_.shards;
  const double up = from_host ? of_layer / parameters_bytes_per_s(s_, c_) : 0;
  t.offload_exposed_s += micro_batches_ * own * (exposed_copy_s(s_, up, one.forward_s) + exposed_copy_s(s_, up, one.backward_s));
  if (rank_.shards == 1 || !gathers_parameters()) return transfers;
  // Without peer-to-peer transfers a gather goes through host memory over the same link.
  const double shared_link = s_.gpu.p2p || rank_.shard_group.domains() > 1 ? 0 : up;
  const double gather = from_host && whole ? 0 : gather_layer_s(layer) + shared_link;
  // hpZ: backward gathers from the copy that fewer ranks share.
  const bool again = s_.sharding == Sharding::kZero3 && s_.reshard_after_forward;
  const auto of_copy = [&] { return all_gather_s(c_.fabric, group_span(c_.fabric, s_.hpz, s_.tp), gathered_bytes(layer.parameters)); };
  const double again_s = !again ? 0 : s_.hpz > 1 ? of_copy() : gather;
  const double root = (s_.model.tied_embeddings ? 1 : 2) * static_cast<double>(s_.model.vocabulary) * rank_.hidden / s_.tp;
  const double scatter = scatter_layer_s(layer, one.trained);
  // What stays gathered is gathered by the first micro-batch alone, what adds up whole is reduced by the last.
  const double gathers = s_.stays_gathered() ? 1 / micro_batches_ : 1, scatters = s_.accumulates_whole() ? 1 / micro_batches_ : 1;
  if (s_.software.wrapping == UnitWrapping::kWhole) {  // nothing runs beside; the root stays gathered for backward
    const double all = own * layer.parameters + root, trained = own * one.trained + (rank_.full ? root : 0);
    transfers.exposed_s += gather_s(all) * gathers + scatter_s(trained) * scatters;
    return transfers;
  }
  const auto beside = [&](double compute, double transfer, double layers) {
    transfers.exposed_s += layers * (s_.software.unbucketed ? transfer : std::max(0.0, transfer - compute));
    transfers.contended_s += layers * (s_.software.unbucketed ? 0 : c_.contention * std::min(compute, transfer));
  };
  for (int i = 0; i < static_cast<int>(one.forwards); ++i) beside(one.forward_s - layer.forward.network, gather * gathers, own);
  const double backward = one.backward_s - layer.backward.network - layer.recompute.network;
  const double last = in_last_bucket(s_, own * one.trained);  // reduced after backward
  if (s_.pp > 1 && s_.accumulates_whole()) {
    beside(backward, 0, own);
    transfers.exposed_s += own * scatter * scatters;  // after the last backward
  } else if (last > 0) {
    const double beside_layers = own - last / one.trained;
    beside(backward, again_s, own - beside_layers);
    beside(backward, again_s + scatter * scatters, beside_layers);
    transfers.exposed_s += scatter_s(last) * scatters;
  } else {
    const double waited = waited_in_backward_s(s_, again_s, scatter * scatters);
    beside(backward, again_s + scatter * scatters - waited, own);
    transfers.exposed_s += own * waited;
  }
  transfers.in_turn_s = own * (one.forwards * gathers + (again ? 1 : 0)) * gather_in_turn_s(layer);
  transfers.exposed_s += transfers.in_turn_s;
  transfers.exposed_s += (gather_s(root) * stage.head_share + gather) * gathers;  // before the first layer can start
  transfers.exposed_s += ((rank_.full ? scatter_s(root) * stage.head_share : 0) + (last > 0 ? 0 : scatter)) * scatters;
  return transfers;
}

// The micro-batches of the slowest stage.
void StepModel::add_micro_batches(const StepLayer& one, const SlowestStage& stage, const Transfers& transfers, TimeEstimate& t) const {
  const LayerTime& layer = one.time;
  const double m = micro_batches_, own = stage.layers, forwards = one.forwards;
  if (s_.offload.activations != OffloadPlace::kNone) {
    const double moved = activation_copy_s(s_, c_, rank_.tokens, rank_.hidden);
    t.offload_exposed_s += m * own * (std::max(0.0, moved - one.forward_s) + std::max(0.0, moved - one.backward_s));
  }
  const double copies = copies_s(layer.parameters, one.trained), loss = stage.ends_s * (2 + forwards) / 3;
  const double gpu_micro = own * (forwards * one.forward_s + one.backward_s + copies) + loss + transfers.contended_s;
  const double again = s_.recompute == ActivationRecompute::kNone ? 0 : s_.recompute == ActivationRecompute::kFull ? 1 : 0.5;
  const double passes = forwards + 1.5 + again;
  const double host_s = own * (c_.launch_layer_s * passes + c_.delta_forward_s * (forwards + again) + c_.delta_backward_s);
  t.gemm_s = m * own * (forwards * layer.forward.gemm + layer.backward.gemm);
  t.attention_s = m * own * (forwards * layer.forward.attention + layer.backward.attention);
  t.elementwise_s = m * (own * (forwards * layer.forward.elementwise + layer.backward.elementwise + copies) + transfers.contended_s);
  t.recompute_s = m * own * layer.recompute.compute();
  t.loss_s = m * loss;
  t.launch_s = m * launch_exposed_s(host_s, gpu_micro + transfers.exposed_s - transfers.in_turn_s, c_.host_beside_gpu);
  t.communication_exposed_s = m * transfers.exposed_s;
  if (s_.pp == 1) return;
  const double v = std::max(s_.virtual_stages, 1), send = stage_send_s(), stages = s_.pp;
  t.bubble_s = (stages - 1) / v * (stage.mean_s + transfers.contended_s) + 2 * (stages - 1) * send;
  t.communication_exposed_s += (2 * v - stage.head_share) * m * send * (v > 1 && traits_.receives_ahead ? 0.2 : 1);
}

double StepModel::gradient_reduction_s(const StepLayer& one, const SlowestStage& stage, double stage_parameters) const {
  if (gathers_parameters() || rank_.shards * s_.dp_replicate <= 1) return 0;
  const double hidden = c_.dp_hidden * stage.layers;
  return unsharded_reduction_s(rank_, stage_parameters,
                               {.backward_s = hidden * one.backward_s / (s_.pp > 1 ? s_.virtual_stages : 1),
                                .forward_s = hidden * one.forward_s / s_.virtual_stages});
}

void StepModel::add_rates(const StepLayer& one, TimeEstimate& t) const {
  t.tokens_per_s_per_gpu = s_.tokens_per_step() / s_.world() / t.step_s;
  const double peak = c_.gemm.flops_per_s > 0
                          ? (s_.compute == Dtype::kF16 || s_.gpu.peak_bf16_flops_per_s <= 0 ? s_.gpu.peak_fp16_flops_per_s
                                                                                            : s_.gpu.peak_bf16_flops_per_s)
                          : 0;
  if (peak <= 0) return;
  const LayerTime& layer = one.time;
  const double layers = static_cast<double>(s_.model.num_layers), stages = s_.pp;
  const double forward = layers * layer.token_flops + 2 * static_cast<double>(s_.model.vocabulary) * rank_.hidden;
  t.mfu = t.tokens_per_s_per_gpu * 3 * forward / peak;
  const double done = micro_batches_ * (layers / stages * (layer.forward.flops + layer.backward.flops + layer.recompute.flops) +
                                        one.head_flops / stages);
  t.hfu = done / t.step_s / peak;
}

TimeEstimate StepModel::run() {
  TimeEstimate t;
  StepLayer one;
  one.time = rank_.mean_layer();
  one.head_s = head_s(one.head_flops);
  one.forward_s = one.time.forward.total();
  one.backward_s = one.time.backward.total() + one.time.recompute.total();
  one.forwards = s_.frozen_reference ? 2 : 1;  // DPO: the reference runs forward too
  one.trained = rank_.full ? one.time.parameters : one.time.lora_parameters;
  const SlowestStage stage = slowest_stage(one);
  const Transfers transfers = sharded_transfers(one, stage, t);
  add_micro_batches(one, stage, transfers, t);
  const double own = stage.layers;
  const int ends = s_.pp > 1 || s_.model.tied_embeddings ? 1 : 2;
  const double embeddings = ends * static_cast<double>(s_.model.vocabulary) * rank_.hidden / s_.tp;
  const double stage_parameters = rank_.full ? own * one.time.parameters + embeddings : own * one.time.lora_parameters;
  t.communication_exposed_s += gradient_reduction_s(one, stage, stage_parameters);
  const double split = s_.sharding == Sharding::kDdp ? 1 : rank_.shards;
  const double of_experts = rank_.experts_apart ? own * one.time.expert_parameters : 0;
  const double of_rank = (stage_parameters - of_experts) / split + of_experts / rank_.expert_shards;
  t.optimizer_s = optimizer_s(of_rank, own * one.backward_s, t) + c_.step_s;
  t.optimizer_s += own * one.time.orthogonalise_s / split;  // each rank takes whole matrices, as many as the others

  const double work = t.gemm_s + t.attention_s + t.elementwise_s + t.recompute_s + t.loss_s + t.launch_s + t.bubble_s + t.optimizer_s +
                      t.offload_exposed_s + t.communication_exposed_s;
  const double waiting = work * c_.straggler * std::log2(static_cast<double>(std::max(s_.world(), 1)));
  t.communication_exposed_s += waiting;
  t.step_s = work + waiting;
  add_rates(one, t);
  return t;
}

}  // namespace

TimeEstimate estimate_time(const Setup& setup, const TimeConstants& constants) {
  if (setup.sample_lengths.mean <= 0) return StepModel(setup, constants).run();
  const Setup padded = replay::padded(setup);
  TimeEstimate t = StepModel(padded, constants).run();
  t.tokens_per_s_per_gpu *= replay::counted_share(setup, padded.sequence_length);
  return t;
}

TimeEstimate estimate_time(const Setup& setup, const Calibration& calibration) {
  return estimate_time(setup, time_constants(setup, calibration));
}

TimeEstimate estimate_time(const Setup& setup) { return estimate_time(setup, embedded_calibration()); }

}  // namespace distsetup
