// Seconds of one optimizer step, composed the way the trainers run it: layers forward and backward per micro-batch, each with its
// transfers beside or after it; micro-batches through a pipeline; gradients reduced; optimizer.
//   layer forward     F = multiplications + attention + memory-bound kernels + tensor/context/expert-parallel transfers not hidden
//   layer backward    input and weight gradients (twice the multiplications), 2.5 times attention, 1.5 times the traffic, +
//   recomputation sharded parameters (ZeRO-3, FSDP): forward layer max(F, gather), backward layer max(B, gather + reduce-scatter);
//   compute that a
//                     transfer runs beside slows by `contention` of the shared time; first gather and last reduction are exposed
//   unsharded         gradients reduced beside the backward of the last micro-batch (DDP, ZeRO-1) or of each (ZeRO-2)
//   pipeline          m micro-batches of the slowest stage + (p-1)/v of the mean stage (1F1B interleaved, Megatron-LM, arXiv
//                     2104.04473, section 2.2)
//   everything · (1 + straggler · log2(GPUs)): the slowest of many ranks sets the pace
// The terms of TimeEstimate sum to step_s.
// Leaves out: data loading, checkpoints, evaluation, CUDA graph capture, experts that get uneven loads, zero-bubble schedules.
#include <algorithm>
#include <cmath>

#include "planner/frameworks/frameworks.h"
#include "planner/time/attention.h"
#include "planner/time/collective.h"
#include "planner/time/gemm.h"
#include "planner/time/layer.h"

namespace distsetup {
namespace {

// Of forward's bytes: a fused norm reads x and dy and writes dx (6 for 4), SwiGLU reads three and writes two (10 for 6).
constexpr double kBackwardTraffic = 1.5;

// One direction through one layer, on one rank.
struct Pass {
  double gemm = 0, attention = 0, elementwise = 0, exposed = 0;  // seconds; exposed: communication inside the layer
  double flops = 0;
  double compute() const { return gemm + attention + elementwise; }
  double total() const { return compute() + exposed; }
  Pass& operator+=(const Pass& o) {
    gemm += o.gemm;
    attention += o.attention;
    elementwise += o.elementwise;
    exposed += o.exposed;
    flops += o.flops;
    return *this;
  }
  Pass scaled(double by) const { return {gemm * by, attention * by, elementwise * by, exposed * by, flops * by}; }
};

struct LayerTime {
  Pass forward, backward, recompute;
  double parameters = 0, lora_parameters = 0;  // on one rank before data sharding
  double token_flops = 0;                      // of the model, forward, not of the hardware
};

double wire_bytes(StorageDtype dtype) { return dtype == StorageDtype::kF32 ? 4 : 2; }

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
  Pass gemm_pass(const LayerGemm& m, bool forward) const;
  Pass forward_pass(const LayerWork& w, bool op_selected_only) const;
  Pass backward_pass(const LayerWork& w) const;
  Pass attention_pass(const LayerWork& w, bool forward) const;
  Pass recompute_pass(const LayerWork& w) const;
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

// Forward: one product. Backward: the input gradient, and the weight gradient where the weight is trained.
Pass StepModel::gemm_pass(const LayerGemm& m, bool forward) const {
  const double tp = m.replicated ? 1 : s_.tp, n = m.column ? m.n / tp : m.n, k = m.column ? m.k : m.k / tp;
  const double rows = tokens_ * m.rows_per_token, element = low_ ? 1 : 2;
  const GemmRate& rate = low_ ? c_.gemm_low_precision : c_.gemm;
  const double products = forward ? 1 : full_ ? 2 : 1;
  Pass p;
  p.flops = 2 * rows * n * k * products;
  if (m.experts > 0) {
    p.gemm = products * grouped_gemm_s(rate, m.experts, rows, n, k, element, c_.grouped_share);
  } else if (forward) {
    p.gemm = gemm_s(rate, rows, n, k, element, 2);
  } else {
    p.gemm = gemm_s(rate, rows, k, n, element, 2);
    if (full_) p.gemm += gemm_s(rate, n, k, rows, element, c_.accumulate_cost > 0 ? 8 : 2) * (1 + c_.accumulate_cost);
  }
  // Operands are cast (and for transposed use cast again in backward): activations or gradients, and the weight, which Transformer
  // Engine casts once a step.
  const double weight_casts = s_.framework == Framework::kMegatron ? 1.0 / static_cast<double>(s_.gradient_accumulation) : 1;
  if (low_) p.elementwise += c_.cast_bytes * (rows * (forward ? k : n) + n * k * weight_casts) / c_.memory_bytes_per_s;
  if (m.lora_rank > 0) {
    const double adapter = gemm_s(c_.gemm, rows, m.lora_rank, k, 2, 2) + gemm_s(c_.gemm, rows, n, m.lora_rank, 2, 2);
    p.gemm += adapter * (forward ? 1 : 2);
    p.flops += 2 * rows * m.lora_rank * (n + k) * (forward ? 1 : 2);
    p.elementwise += (c_.program == ProgramClass::kEager ? 6 : 2) * rows * n / c_.memory_bytes_per_s;  // added to the base's output
  }
  if (s_.finetune == Finetune::kQlora) p.elementwise += n * k * (2 + bytes_of(s_.frozen_dtype)) / c_.dequantise_bytes_per_s;
  return p;
}

Pass StepModel::attention_pass(const LayerWork& w, bool forward) const {
  const auto sequence = static_cast<double>(s_.sequence_length);
  AttentionShape shape{tokens_, mean_attended(sequence, w.window, s_.mean_sequence_fraction), sequence, w.heads, w.qk_size, w.v_size};
  Pass p;
  p.attention = forward ? attention_forward_s(c_, shape) : attention_backward_s(c_, shape);
  p.flops = attention_flops(shape) * (forward ? 1 : c_.attention_kernel == AttentionKernel::kUnfused ? 2 : 2.5);
  if (c_.attention_kernel == AttentionKernel::kUnfused) p.flops *= 2;  // all positions
  if (s_.cp > 1) {
    const double kv = s_.model.attention == Attention::kLatent ? w.heads : static_cast<double>(s_.model.num_kv_heads) / s_.tp;
    const double keys = tokens_ * 2 * kv * (w.qk_size + w.v_size);  // K and V of one rank, 16 bits
    double transfer = 0;
    if (s_.cp_method == CpMethod::kUlysses) {
      const double activations = tokens_ * 2 * w.heads * (w.qk_size + w.v_size);
      transfer = all_to_all_s(c_.fabric, cp_group_, keys) + all_to_all_s(c_.fabric, cp_group_, activations);
      p.exposed = transfer;
      return p;
    }
    if (s_.cp_method == CpMethod::kAllGather) {
      p.exposed = (forward ? 1 : 2) * all_gather_s(c_.fabric, cp_group_, keys * s_.cp);
      return p;
    }
    transfer = (s_.cp - 1.0) * send_s(c_.fabric, cp_group_, keys * (forward ? 1 : 2));
    p.exposed = std::max(transfer * (1 - c_.cp_hidden), transfer - p.attention);
  }
  return p;
}

// With sequence parallelism a gather before and a reduce-scatter after attention and MLP; else an all-reduce after each. Megatron runs
// backward's reduction beside the weight gradient, and gathers the layer's input again beside the input gradient (arXiv 2205.05198).
double StepModel::tensor_parallel_s(bool forward) const {
  if (s_.tp == 1) return 0;
  const double bytes = 2 * tokens_ * hidden_;
  const double gather = s_.sequence_parallel ? all_gather_s(c_.fabric, tp_group_, bytes) : 0;
  const double reduce =
      s_.sequence_parallel ? reduce_scatter_s(c_.fabric, tp_group_, bytes) : all_reduce_s(c_.fabric, tp_group_, bytes);
  if (forward || c_.tp_backward_hidden == 0) return 2 * (gather + reduce) * (1 - c_.tp_hidden);
  return 2 * (gather + (reduce + gather) * (1 - c_.tp_backward_hidden)) * (1 - c_.tp_hidden);
}

// PyTorch's functional collectives gather and scatter along dimension 0; sequences are dimension 1, so each of the four a layer and
// direction also copies its tensor (all_gather_tensor and reduce_scatter_tensor, chunk and cat). Async TP fuses them into the product.
double StepModel::sequence_copies_s() const {
  if (s_.tp == 1 || !s_.sequence_parallel || s_.overlap_tp || s_.framework == Framework::kMegatron) return 0;
  return 4 * 4 * tokens_ * hidden_ / c_.memory_bytes_per_s;
}

double StepModel::expert_parallel_s() const {
  const double bytes = 2 * tokens_ * hidden_ * static_cast<double>(s_.model.experts_per_token);
  return 2 * all_to_all_s(c_.fabric, expert_group_, bytes);
}

Pass StepModel::forward_pass(const LayerWork& w, bool op_selected_only) const {
  Pass p;
  for (int i = 0; i < w.num_gemms; ++i) {
    const LayerGemm& m = w.gemms[static_cast<size_t>(i)];
    if (!op_selected_only || m.recomputed_by_op) p += gemm_pass(m, true);
  }
  if (!op_selected_only) p += attention_pass(w, true);
  p.elementwise += w.traffic_per_token * tokens_ / c_.memory_bytes_per_s + (op_selected_only ? 0 : sequence_copies_s());
  p.exposed += op_selected_only ? 0 : tensor_parallel_s(true) + (w.experts ? expert_parallel_s() : 0);
  return p;
}

Pass StepModel::backward_pass(const LayerWork& w) const {
  Pass p = attention_pass(w, false);
  for (int i = 0; i < w.num_gemms; ++i) p += gemm_pass(w.gemms[static_cast<size_t>(i)], false);
  p.elementwise += kBackwardTraffic * w.traffic_per_token * tokens_ / c_.memory_bytes_per_s + sequence_copies_s();
  p.exposed += tensor_parallel_s(false) + (w.experts ? expert_parallel_s() : 0);
  return p;
}

Pass StepModel::recompute_pass(const LayerWork& w) const {
  switch (s_.recompute) {
    case ActivationRecompute::kNone: return {};
    case ActivationRecompute::kOpSelective: return forward_pass(w, true);
    case ActivationRecompute::kAttentionOnly: return attention_pass(w, true);
    case ActivationRecompute::kEveryK: return forward_pass(w, false).scaled(1.0 / std::max(s_.recompute_every_k, 1));
    case ActivationRecompute::kFull: return forward_pass(w, false);
  }
  return {};
}

LayerTime StepModel::layer_time(const LayerWork& w) const {
  double flops = 2 * mean_attended(static_cast<double>(s_.sequence_length), w.window, 1) * w.heads * s_.tp * (w.qk_size + w.v_size);
  for (int i = 0; i < w.num_gemms; ++i) {
    const LayerGemm& m = w.gemms[static_cast<size_t>(i)];
    flops += 2 * m.n * m.k * m.rows_per_token * (m.experts > 0 ? s_.expert_tp : 1);
  }
  return {forward_pass(w, false), backward_pass(w), recompute_pass(w), w.parameters, w.lora_parameters, flops};
}

// Layers differ by experts or none, window or none: one of each kind is timed, and the mean over the model taken.
LayerTime StepModel::mean_layer() const {
  const Geometry& g = s_.model;
  const bool mixed = (g.num_experts > 0 && !g.expert_layer.empty()) || (g.sliding_window > 0 && g.global_layer_every > 0);
  if (!mixed) return layer_time(layer_work(s_, c_, 0));
  std::array<int64_t, 4> first = {-1, -1, -1, -1}, count = {};
  for (int64_t i = 0; i < g.num_layers; ++i) {
    const bool global = g.global_layer_every > 0 && (i + 1) % g.global_layer_every == 0;
    const auto kind = static_cast<size_t>((g.num_experts > 0 && is_expert_layer(g, i) ? 1 : 0) + (global ? 2 : 0));
    if (count[kind]++ == 0) first[kind] = i;
  }
  LayerTime mean;
  for (size_t kind = 0; kind < count.size(); ++kind) {
    if (count[kind] == 0) continue;
    const double share = static_cast<double>(count[kind]) / static_cast<double>(g.num_layers);
    const LayerTime t = layer_time(layer_work(s_, c_, first[kind]));
    mean.forward += t.forward.scaled(share);
    mean.backward += t.backward.scaled(share);
    mean.recompute += t.recompute.scaled(share);
    mean.parameters += t.parameters * share;
    mean.token_flops += t.token_flops * share;
    mean.lora_parameters += t.lora_parameters * share;
  }
  return mean;
}

// Head and loss forward and backward, the embedding's gradient; of one micro-batch. The head stays in 16 bits with fp8 layers.
double StepModel::head_s(double& flops) const {
  const double vocabulary = static_cast<double>(s_.model.vocabulary) / s_.tp, products = full_ ? 3 : 2;
  flops = 2 * tokens_ * vocabulary * hidden_ * products;
  double seconds = gemm_s(c_.gemm, tokens_, vocabulary, hidden_, 2, 2) + gemm_s(c_.gemm, tokens_, hidden_, vocabulary, 2, 2);
  if (full_) seconds += gemm_s(c_.gemm, vocabulary, hidden_, tokens_, 2, 2);
  if (s_.loss == LossHead::kLiger || s_.loss == LossHead::kCutCrossEntropy)
    seconds += s_.loss == LossHead::kCutCrossEntropy ? gemm_s(c_.gemm, tokens_, vocabulary, hidden_, 2, 2) : 0;
  seconds += tokens_ * vocabulary * c_.loss_bytes_per_logit / c_.memory_bytes_per_s;
  seconds += (8 * tokens_ * hidden_ + (full_ ? 8 * vocabulary * hidden_ : 0)) / c_.memory_bytes_per_s;
  return seconds;
}

double frozen_or_compute_bytes(const Setup& s) { return s.finetune == Finetune::kFull ? 2 : bytes_of(s.frozen_dtype); }

double StepModel::gather_s(double parameters) const {
  const bool gathered_in_8_bits = s_.fp8 == Fp8Recipe::kTensorwise && s_.framework == Framework::kFsdp2;
  return all_gather_s(c_.fabric, shard_group_, parameters * (gathered_in_8_bits ? 1 : frozen_or_compute_bytes(s_)));
}

// Reduce-scatter inside the shard group; with replicas the all-reduce of the shards runs beside it, on the network.
double StepModel::scatter_s(double parameters) const {
  const double bytes = parameters * wire_bytes(s_.reduce_dtype);
  return std::max(reduce_scatter_s(c_.fabric, shard_group_, bytes), all_reduce_s(c_.fabric, replicate_group_, bytes / shards_));
}

// Copies that sharding or accumulation make of a layer's parameters and gradients in every micro-batch, on the compute stream.
//   FSDP2 copies a gathered parameter out of the flat buffer (4 bytes each, twice when resharded) and gradients into one (2 + wire);
//   FSDP1 gathers in place and casts gradients to the wire's type; DeepSpeed copies gradients into its bucket and parameters back;
//   Megatron before 2022-03 adds gradients to the main buffer in a kernel of its own (gradient_accumulation_fusion came then).
double StepModel::copies_s(double parameters, double trained) const {
  const double wire = wire_bytes(s_.reduce_dtype), gathers = s_.sharding == Sharding::kZero3 && s_.reshard_after_forward ? 2 : 1;
  const bool old_megatron = s_.software.released > 0 && s_.software.released < 202203;
  double bytes = 0;
  switch (s_.framework) {
    case Framework::kFsdp2: bytes = shards_ > 1 ? 4 * gathers * parameters + (2 + wire) * trained : 0; break;
    case Framework::kFsdp1: bytes = shards_ > 1 && wire > 2 ? (2 + wire) * trained : 0; break;
    case Framework::kDeepspeed: bytes = 4 * trained + (s_.sharding == Sharding::kZero3 ? 4 * gathers * parameters : 0); break;
    case Framework::kMegatron: bytes = old_megatron ? (s_.gradient_dtype == StorageDtype::kF32 ? 10 : 6) * trained : 0; break;
    case Framework::kDdp: break;
  }
  return bytes / c_.optimizer_bytes_per_s;
}

// Bytes that a layer saves for backward, over the host link, one way: its input; or what torchtitan's list keeps (input, two of q, k,
// v, attention, one of gate and up, down); or all of it. Megatron offloads as many layers as the transfers hide behind, half at most.
double StepModel::activation_transfer_s() const {
  const Geometry& g = s_.model;
  const double width = g.gated_mlp ? 3 : 2, f = static_cast<double>(g.feed_forward) / s_.tp;
  double saved = 12 * hidden_ + 2 * width * f;
  if (s_.recompute == ActivationRecompute::kFull) saved = 2 * hidden_;
  if (s_.recompute == ActivationRecompute::kOpSelective) saved = 8 * hidden_ + 2 * f;
  return tokens_ * saved / c_.pcie_bytes_per_s * (s_.framework == Framework::kMegatron ? 0.5 : 1);
}

double StepModel::optimizer_s(double parameters, TimeEstimate& t) const {
  const StateBytes bytes = state_bytes(s_);
  const double traffic = 2 * bytes.optimizer + 3 * bytes.gradient + (s_.master_copy ? 1 : 2) * bytes.parameter;
  if (s_.offload.optimizer == OffloadPlace::kNone) {
    const double cost = s_.optimizer_implementation == OptimizerImplementation::kFused ? 1 : c_.foreach_cost;
    return parameters * traffic * cost / c_.optimizer_bytes_per_s;
  }
  // Gradients down, Adam on the host (its memory is the node's), parameters up. NVMe: states read and written.
  const double on_node = parameters * s_.gpus_per_node;
  double host = on_node * traffic / c_.cpu_adam_bytes_per_s;
  if (s_.offload.optimizer == OffloadPlace::kNvme) host = std::max(host, 2 * on_node * bytes.optimizer / c_.nvme_bytes_per_s);
  t.offload_exposed_s += host + parameters * (bytes_of(s_.gradient_dtype) + 2) / c_.pcie_bytes_per_s;
  return 0;
}

TimeEstimate StepModel::run() {
  const Geometry& g = s_.model;
  TimeEstimate t;
  const LayerTime layer = mean_layer();
  const bool sharded = s_.sharding == Sharding::kZero3, fsdp = s_.framework == Framework::kFsdp1 || s_.framework == Framework::kFsdp2;
  const double m = static_cast<double>(s_.gradient_accumulation), layers = static_cast<double>(g.num_layers), stages = s_.pp;

  // The slowest stage. Layers that do not divide leave their places to the embedding and the head.
  double head_flops = 0;
  const double head = head_s(head_flops), forward_s = layer.forward.total(),
               backward_s = layer.backward.total() + layer.recompute.total();
  double own = layers, head_share = 1, mean_stage = layers * (forward_s + backward_s) + head;
  if (s_.pp > 1) {
    const bool even = g.num_layers % s_.pp == 0 && s_.framework == Framework::kMegatron;  // torchtitan counts both as a layer
    const double places = (layers + 2) / stages;
    const double usual = even ? layers / stages : std::ceil(places), last = even ? usual : std::max(0.0, std::floor(places) - 1);
    const double with_head = last * (forward_s + backward_s) + head, without = usual * (forward_s + backward_s);
    own = with_head >= without ? last : usual;
    head_share = with_head >= without ? 1 : 0;
    mean_stage /= stages;
  }

  // Sharded parameters: gathers and reductions beside the layers of every micro-batch.
  const double trained = full_ ? layer.parameters : layer.lora_parameters, copies = copies_s(layer.parameters, trained);
  double exposed = own * (layer.forward.exposed + layer.backward.exposed + layer.recompute.exposed), contended = 0;
  if (shards_ > 1 && (sharded || (fsdp && s_.sharding == Sharding::kZero2))) {
    const double gather = gather_s(layer.parameters), scatter = scatter_s(trained);
    const bool again = sharded && s_.reshard_after_forward;
    const auto beside = [&](double compute, double transfer) {
      exposed += own * std::max(0.0, transfer - compute);
      contended += own * c_.contention * std::min(compute, transfer);
    };
    beside(forward_s, gather);
    beside(backward_s, (again ? gather : 0) + scatter);
    const double root = (g.tied_embeddings ? 1 : 2) * static_cast<double>(g.vocabulary) * hidden_ / s_.tp;
    exposed += gather_s(root) * head_share + gather;  // before the first layer can start
    exposed += (full_ ? scatter_s(root) * head_share : 0) + scatter;
    if (s_.offload.parameters != OffloadPlace::kNone) {
      const double up = layer.parameters / shards_ * 2 / c_.pcie_bytes_per_s;
      t.offload_exposed_s += m * own * (std::max(0.0, up - forward_s) + std::max(0.0, up - backward_s));
    }
  }
  if (s_.offload.activations != OffloadPlace::kNone) {
    const double moved = activation_transfer_s();
    t.offload_exposed_s += m * own * (std::max(0.0, moved - forward_s) + std::max(0.0, moved - backward_s));
  }

  const double gpu_micro = own * (forward_s + backward_s + copies) + head_share * head + contended;
  const double passes = 1 + 1.5 + (s_.recompute == ActivationRecompute::kNone ? 0 : 1);
  const double launch = std::max(0.0, own * c_.launch_layer_s * passes - gpu_micro);

  t.gemm_s = m * own * (layer.forward.gemm + layer.backward.gemm);
  t.attention_s = m * own * (layer.forward.attention + layer.backward.attention);
  t.elementwise_s = m * (own * (layer.forward.elementwise + layer.backward.elementwise + copies) + contended);
  t.recompute_s = m * own * layer.recompute.compute();
  t.loss_s = m * head_share * head;
  t.launch_s = m * launch;
  t.communication_exposed_s = m * exposed;

  if (s_.pp > 1) {
    const double v = std::max(s_.virtual_stages, 1),
                 send = send_s(c_.fabric, pipe_group_, 2 * tokens_ * hidden_ / (s_.sequence_parallel ? s_.tp : 1));
    t.bubble_s = (stages - 1) / v * (mean_stage + contended / 1.0) + 2 * (stages - 1) * send;
    t.communication_exposed_s +=
        2 * m * v * send *
        (v > 1 && s_.framework == Framework::kMegatron ? 0.2 : 1);  // Megatron posts the receives of interleaved stages ahead
  }

  // Gradients that are not sharded: one reduction a step (ZeRO-2 outside FSDP: one a micro-batch), beside backward.
  const double embeddings = (s_.pp > 1 ? 1 : g.tied_embeddings ? 1 : 2) * static_cast<double>(g.vocabulary) * hidden_ / s_.tp;
  const double stage_parameters = full_ ? own * layer.parameters + embeddings : own * layer.lora_parameters;
  if (!sharded && !(fsdp && s_.sharding == Sharding::kZero2)) {
    const double bytes = stage_parameters * wire_bytes(s_.reduce_dtype), replicas = shards_ * s_.dp_replicate;
    if (replicas > 1) {
      const GroupSpan all = group_span(c_.fabric, static_cast<int>(replicas), s_.tp);
      const double times = s_.sharding == Sharding::kZero2 ? m : 1;
      const double window = c_.dp_hidden * own * backward_s / (s_.pp > 1 ? s_.virtual_stages : 1);
      if (s_.sharding == Sharding::kDdp) {
        const double reduce = all_reduce_s(c_.fabric, all, bytes);
        t.communication_exposed_s += std::max(reduce - window, reduce * 0.02);
      } else {
        const double reduce =
            reduce_scatter_s(c_.fabric, shard_group_, bytes) + all_reduce_s(c_.fabric, replicate_group_, bytes / shards_);
        const double gather = all_gather_s(c_.fabric, shard_group_, stage_parameters * 2);
        const double hidden = s_.framework == Framework::kMegatron ? c_.dp_hidden * own * forward_s / s_.virtual_stages : 0;
        t.communication_exposed_s += times * std::max(reduce - window, reduce * 0.02) + std::max(gather - hidden, gather * 0.02);
      }
    }
  }

  const double split = s_.sharding == Sharding::kDdp ? 1 : shards_;
  t.optimizer_s = optimizer_s(stage_parameters / split, t) + c_.step_s;

  const double work = t.gemm_s + t.attention_s + t.elementwise_s + t.recompute_s + t.loss_s + t.launch_s + t.bubble_s + t.optimizer_s +
                      t.offload_exposed_s + t.communication_exposed_s;
  const double waiting = work * c_.straggler * std::log2(static_cast<double>(std::max(s_.world(), 1)));
  t.communication_exposed_s += waiting;
  t.step_s = work + waiting;

  const double tokens = s_.tokens_per_step() / s_.world();
  t.tokens_per_s_per_gpu = tokens / t.step_s;
  const double peak = c_.gemm.flops_per_s > 0
                          ? (s_.compute == Compute::kF16 || s_.gpu.peak_bf16_flops_per_s <= 0 ? s_.gpu.peak_fp16_flops_per_s
                                                                                              : s_.gpu.peak_bf16_flops_per_s)
                          : 0;
  if (peak > 0) {
    const double forward = layers * layer.token_flops + 2 * static_cast<double>(g.vocabulary) * hidden_;
    t.mfu = t.tokens_per_s_per_gpu * 3 * forward / peak;
    const double done =
        m * (layers / stages * (layer.forward.flops + layer.backward.flops + layer.recompute.flops) + head_flops / stages);
    t.hfu = done / t.step_s / peak;
  }
  return t;
}

}  // namespace

TimeEstimate estimate_time(const Setup& setup, const TimeConstants& constants) { return StepModel(setup, constants).run(); }

}  // namespace distsetup
