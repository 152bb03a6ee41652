// Seconds of a layer forward, backward and recomputed, on one rank: its multiplications, attention, memory-bound kernels, and what
// tensor, context and expert parallelism expose inside it. Backward does two products for one (one where the weight is frozen), 2.5
// times attention's FLOPs and 1.5 times the traffic; recomputation is a forward, or the part of it that the policy drops. Leaves out:
// experts with uneven loads, kernels that overlap on one GPU.
#include <algorithm>
#include <array>

#include "model/count.h"
#include "model/flops.h"
#include "planner/time/attention.h"
#include "planner/time/gemm.h"
#include "planner/time/step_model.h"

namespace distsetup {
namespace {

// Of forward's bytes: a fused norm reads x and dy and writes dx (6 for 4), SwiGLU reads three and writes two (10 for 6).
constexpr double kBackwardTraffic = 1.5;

}  // namespace

// Forward: one product. Backward: the input gradient, and the weight gradient where the weight is trained.
PassTime StepModel::gemm_pass(const LayerGemm& m, bool forward) const {
  const double tp = m.replicated ? 1 : s_.tp, n = m.column ? m.n / tp : m.n, k = m.column ? m.k : m.k / tp;
  const double rows = tokens_ * m.rows_per_token, element = low_ ? 1 : 2;
  const GemmRate& rate = low_ ? c_.gemm_low_precision : c_.gemm;
  const double products = forward ? 1 : full_ ? 2 : 1;
  PassTime p;
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
  const double weight_casts = traits_.transformer_engine ? 1.0 / static_cast<double>(s_.gradient_accumulation) : 1;
  if (low_) {
    const bool sharded = gathers_in_8_bits() && !m.replicated && forward == m.column;
    const double values = rows * (forward ? k : n) / (sharded ? s_.tp : 1);
    p.elementwise += c_.cast_bytes * (values + n * k * weight_casts) / c_.memory_bytes_per_s;
  }
  if (m.lora_rank > 0) {
    const double adapter = gemm_s(c_.gemm, rows, m.lora_rank, k, 2, 2) + gemm_s(c_.gemm, rows, n, m.lora_rank, 2, 2);
    p.gemm += adapter * (forward ? 1 : 2);
    p.flops += 2 * rows * m.lora_rank * (n + k) * (forward ? 1 : 2);
    p.elementwise += (c_.program == ProgramClass::kEager ? 6 : 2) * rows * n / c_.memory_bytes_per_s;  // added to the base's output
  }
  if (s_.finetune == Finetune::kQlora) p.elementwise += n * k * (2 + bytes_of(s_.frozen_dtype)) / c_.dequantise_bytes_per_s;
  return p;
}

PassTime StepModel::attention_pass(const LayerWork& w, bool forward) const {
  const auto sequence = static_cast<double>(s_.sequence_length);
  AttentionShape shape{tokens_, mean_attended(sequence, w.window, s_.mean_sequence_fraction), sequence, w.heads, w.qk_size, w.v_size};
  PassTime p;
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
  const double gather = s_.sequence_parallel ? all_gather_s(c_.fabric, tp_group_, gathers_in_8_bits() ? bytes / 2 : bytes) : 0;
  const double reduce =
      s_.sequence_parallel ? reduce_scatter_s(c_.fabric, tp_group_, bytes) : all_reduce_s(c_.fabric, tp_group_, bytes);
  if (forward || c_.tp_backward_hidden == 0) return 2 * (gather + reduce) * (1 - c_.tp_hidden);
  return 2 * (gather + (reduce + gather) * (1 - c_.tp_backward_hidden)) * (1 - c_.tp_hidden);
}

// torchao's tensorwise linears under torchtitan's tensor parallelism cast their shard of the sequence, then gather it.
bool StepModel::gathers_in_8_bits() const {
  return s_.fp8 == Fp8Recipe::kTensorwise && traits_.functional_collectives && s_.sequence_parallel && s_.tp > 1;
}

// torchtitan's list of what is saved has reduce-scatters and no gathers: those of the inputs are repeated.
double StepModel::gathers_again_s() const {
  if (s_.tp == 1 || !s_.sequence_parallel || !traits_.functional_collectives) return 0;
  const double bytes = 2 * tokens_ * hidden_ / (gathers_in_8_bits() ? 2 : 1);
  return 2 * all_gather_s(c_.fabric, tp_group_, bytes) * (1 - c_.tp_hidden);
}

// PyTorch's functional collectives gather and scatter along dimension 0; sequences are dimension 1, so each of the four a layer and
// direction also copies its tensor (all_gather_tensor and reduce_scatter_tensor, chunk and cat). Async TP fuses them into the product.
double StepModel::sequence_copies_s() const {
  if (s_.tp == 1 || !s_.sequence_parallel || !traits_.functional_collectives) return 0;
  return 4 * 4 * tokens_ * hidden_ / c_.memory_bytes_per_s * (s_.overlap_tp ? 0.5 : 1);
}

// Rows to their experts and back.
void StepModel::add_expert_parallel(const LayerWork& w, PassTime& p) const {
  if (!w.experts || s_.ep == 1) return;
  const double rows = static_cast<double>(s_.model.experts_per_token) / (traits_.experts_borrow_tensor_ranks ? s_.tp : 1);
  const double bytes = 2 * tokens_ * hidden_ * rows;
  const double both = 2 * all_to_all_s(c_.fabric, expert_group_, bytes);
  p.exposed += both;
  if (experts_apart_ && expert_group_.domains() > 1) p.network += both;
}

PassTime StepModel::forward_pass(const LayerWork& w, bool op_selected_only) const {
  PassTime p;
  for (int i = 0; i < w.num_gemms; ++i) {
    const LayerGemm& m = w.gemms[static_cast<size_t>(i)];
    if (!op_selected_only || m.recomputed_by_op) p += gemm_pass(m, true);
  }
  if (!op_selected_only) p += attention_pass(w, true);
  p.elementwise += w.traffic_per_token * tokens_ / c_.memory_bytes_per_s + sequence_copies_s() * (op_selected_only ? 0.5 : 1);
  p.exposed += op_selected_only ? gathers_again_s() : tensor_parallel_s(true);
  if (!op_selected_only) add_expert_parallel(w, p);
  return p;
}

PassTime StepModel::backward_pass(const LayerWork& w) const {
  PassTime p = attention_pass(w, false);
  for (int i = 0; i < w.num_gemms; ++i) p += gemm_pass(w.gemms[static_cast<size_t>(i)], false);
  p.elementwise +=
      (kBackwardTraffic * w.traffic_per_token + w.gradient_sums_per_token) * tokens_ / c_.memory_bytes_per_s + sequence_copies_s();
  p.exposed += tensor_parallel_s(false);
  add_expert_parallel(w, p);
  return p;
}

PassTime StepModel::recompute_pass(const LayerWork& w) const {
  switch (s_.recompute) {
    case ActivationRecompute::kNone: return {};
    case ActivationRecompute::kOpSelective: {
      PassTime p = forward_pass(w, true);
      if (s_.software.attention_recomputed) p += attention_pass(w, true);
      return p;
    }
    case ActivationRecompute::kAttentionOnly: return attention_pass(w, true);
    case ActivationRecompute::kEveryK: return forward_pass(w, false).scaled(1.0 / std::max(s_.recompute_every_k, 1));
    case ActivationRecompute::kFull: return forward_pass(w, false);
  }
  return {};
}

// Muon: five Newton-Schulz steps on each whole matrix, X X', its square, and their sum times X, in 16 bits (arXiv 2502.16982, 2.1).
double StepModel::orthogonalise_s(const LayerWork& w) const {
  if (s_.optimizer != OptimizerKind::kMuon || !full_) return 0;
  constexpr double kSteps = 5;
  double seconds = 0;
  for (int i = 0; i < w.num_gemms; ++i) {
    const LayerGemm& m = w.gemms[static_cast<size_t>(i)];
    const double small = std::min(m.n, m.k), large = std::max(m.n, m.k), matrices = m.experts > 0 ? m.experts * s_.ep : 1;
    const double once = gemm_s(c_.gemm, small, small, large, 2, 2) + gemm_s(c_.gemm, small, small, small, 2, 2) +
                        gemm_s(c_.gemm, small, large, small, 2, 2);
    seconds += matrices * kSteps * once;
  }
  return seconds;
}

LayerTime StepModel::layer_time(const LayerWork& w) const {
  double flops = 2 * mean_attended(static_cast<double>(s_.sequence_length), w.window, 1) * w.heads * s_.tp * (w.qk_size + w.v_size);
  for (int i = 0; i < w.num_gemms; ++i) {
    const LayerGemm& m = w.gemms[static_cast<size_t>(i)];
    flops += 2 * m.n * m.k * m.rows_per_token * (m.experts > 0 ? w.expert_ranks : 1);
  }
  return {forward_pass(w, false), backward_pass(w), recompute_pass(w), w.parameters, w.expert_parameters, w.lora_parameters, flops,
          orthogonalise_s(w)};
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
    mean.expert_parameters += t.expert_parameters * share;
    mean.token_flops += t.token_flops * share;
    mean.lora_parameters += t.lora_parameters * share;
    mean.orthogonalise_s += t.orthogonalise_s * share;
  }
  return mean;
}

}  // namespace distsetup
