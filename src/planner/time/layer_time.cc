// Seconds of a layer forward, backward and recomputed, on one rank: its multiplications, attention, memory-bound kernels, and what
// tensor, context and expert parallelism expose inside it. Backward does two products for one (one where the weight is frozen), 2.5
// times attention's FLOPs and 1.5 times the traffic; recomputation is a forward, or the part of it that the policy drops. Leaves out:
// experts with uneven loads, kernels that overlap on one GPU.
#include "planner/time/layer_time.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "model/count.h"
#include "model/flops.h"
#include "planner/time/attention.h"
#include "planner/time/context.h"
#include "planner/time/gemm.h"

namespace distsetup {
namespace {

// Of forward's bytes: a fused norm reads x and dy and writes dx (6 for 4), SwiGLU reads three and writes two (10 for 6).

// bitsandbytes unpacks in one kernel, in forward and again in backward. GPTQ's integers (auto_gptq's qlinear_cuda, which trains) are
// unpacked by PyTorch's operations: shifted as int32 (4 bytes written), cast (5), masked (2), zero points subtracted (2), scaled to 16
// bits (3); autograd keeps the result for backward.
double unpacking_s_per_weight(const Setup& s, const TimeConstants& c, bool forward) {
  if (!unpacks_by_operations(s)) return (2 + bytes_of(s.frozen_dtype)) / c.dequantise_bytes_per_s;
  constexpr double kOperationBytes = 16;
  return forward ? (kOperationBytes + bytes_of(s.frozen_dtype)) / c.memory_bytes_per_s : 0;
}

}  // namespace

LayerModel::LayerModel(const Setup& setup, const TimeConstants& constants)
    : s(setup),
      c(constants),
      traits(s.traits()),
      tokens(static_cast<double>(s.tokens())),
      hidden(static_cast<double>(s.model.hidden)),
      shards(s.dp_shard * s.cp),
      low(s.fp8 != Fp8Recipe::kNone),
      full(s.finetune == Finetune::kFull),
      experts_apart(traits.experts_borrow_tensor_ranks && s.ep > 1),
      expert_shards(experts_apart ? std::max(1, shards * s.tp / s.ep) : shards),
      kernels(expert_kernels(s)),
      tp_group(group_span(c.fabric, s.tp, 1)),
      cp_group(group_span(c.fabric, s.cp, s.tp)),
      shard_group(group_span(c.fabric, shards, s.tp)),
      replicate_group(group_span(c.fabric, s.dp_replicate, s.tp * shards)),
      expert_group(group_span(c.fabric, s.ep,
                              traits.expert_tensor_axis ? s.expert_tp
                              : experts_apart           ? 1
                                                        : s.tp)),
      expert_shard_group(group_span(c.fabric, expert_shards, s.ep)),
      pipe_group(group_span(c.fabric, s.pp, s.tp * shards * s.dp_replicate)) {}

// The experts' products over `rows` in total: grouped, or one after the other.
double LayerModel::experts_s(const LayerGemm& m, double rows, double n, double k, bool forward) const {
  const GemmRate& rate = low ? c.gemm_low_precision : c.gemm;
  const double element = low ? 1 : 2, each = rows / m.experts;
  if (kernels == ExpertKernels::kGrouped) {
    if (forward) return grouped_gemm_s(rate, m.experts, rows, n, k, element, c.grouped_share);
    const double gradient_bytes = c.accumulate_cost > 0 ? 8 : 2;
    return grouped_gemm_s(rate, m.experts, rows, k, n, element, c.grouped_share) +
           (full ? grouped_gradient_s(rate, m.experts, rows, n, k, element, gradient_bytes, c.grouped_share) : 0);
  }
  if (forward) return m.experts * gemm_s(rate, each, n, k, element, 2);
  return m.experts *
         (gemm_s(rate, each, k, n, element, 2) + (full ? gemm_s(rate, n, k, each, element, 2, SummedOver::kUnevenRows) : 0));
}

// Forward: one product. Backward: the input gradient, and the weight gradient where the weight is trained.
PassTime LayerModel::gemm_pass(const LayerGemm& m, bool forward) const {
  const double tp = m.replicated ? 1 : s.tp, n = m.column ? m.n / tp : m.n, k = m.column ? m.k : m.k / tp;
  // The busiest rank's experts set the pace.
  const double rows = tokens * m.rows_per_token * (m.experts > 0 ? std::max(1.0, s.expert_imbalance) : 1), element = low ? 1 : 2;
  const GemmRate& rate = low ? c.gemm_low_precision : c.gemm;
  const double products = forward ? 1 : full ? 2 : 1;
  PassTime p;
  p.flops = 2 * rows * n * k * products;
  if (m.experts > 0) {
    p.gemm = experts_s(m, rows, n, k, forward);
  } else if (forward) {
    p.gemm = gemm_s(rate, rows, n, k, element, 2);
  } else {
    p.gemm = gemm_s(rate, rows, k, n, element, 2);
    if (full) p.gemm += gemm_s(rate, n, k, rows, element, c.accumulate_cost > 0 ? 8 : 2, SummedOver::kRows) * (1 + c.accumulate_cost);
  }
  // Operands are cast (and for transposed use cast again in backward): activations or gradients, and the weight, which Transformer
  // Engine casts once a step.
  const double weight_casts = traits.transformer_engine ? 1.0 / static_cast<double>(s.gradient_accumulation) : 1;
  if (low) {
    const bool sharded = gathers_in_8_bits() && !m.replicated && forward == m.column;
    const double values = rows * (forward ? k : n) / (sharded ? s.tp : 1);
    p.elementwise += c.cast_bytes * (values + std::max(1.0, m.experts) * n * k * weight_casts) / c.memory_bytes_per_s;
  }
  if (m.lora_rank > 0) {
    const bool wide = s.lora.dtype == Dtype::kF32 && !s.autocast;  // peft casts what goes in to the adapters' type
    const GemmRate& rate_of_adapters = wide ? c.gemm_fp32 : c.gemm;
    const double bytes = wide ? 4 : 2;
    const double adapter =
        gemm_s(rate_of_adapters, rows, m.lora_rank, k, bytes, bytes) + gemm_s(rate_of_adapters, rows, n, m.lora_rank, bytes, bytes);
    p.gemm += adapter * (forward ? 1 : 2);
    p.flops += 2 * rows * m.lora_rank * (n + k) * (forward ? 1 : 2);
    // What the last cache holds between two operations costs no memory traffic.
    const bool is_cached = 4 * rows * std::max(k, n) <= static_cast<double>(s.gpu.l2_bytes);
    if (wide && !is_cached) {
      // peft/tuners/lora/layer.py, Linear.forward, an operation a kernel: the input cast and dropped out; the output scaled, added to
      // the base's in fp32 and cast back; in backward the same casts the other way, and the input's two gradients added up.
      const double dropped = s.lora.dropout > 0 ? 9 : 0;
      p.elementwise += (((forward ? 6 : 12) + dropped) * rows * k + (forward ? 24 : 20) * rows * n) / c.memory_bytes_per_s;
    } else {
      p.elementwise += (c.program == ProgramClass::kEager ? 6 : 2) * rows * n / c.memory_bytes_per_s;  // added to the base's output
    }
  }
  // Every expert's matrices are unpacked, however few rows it has.
  const bool packed = s.finetune == Finetune::kQlora && (m.experts == 0 || quantises_experts(s));
  // 4-bit matrices cast what goes in to their compute type, and what comes out back (bitsandbytes nn/modules.py, Linear4bit.forward).
  if (packed && s.stays_in_fp32()) p.elementwise += 6 * rows * (n + k) / c.memory_bytes_per_s;
  if (packed) p.elementwise += std::max(1.0, m.experts) * n * k * unpacking_s_per_weight(s, c, forward);
  return p;
}

PassTime LayerModel::attention_pass(const LayerWork& w, bool forward) const {
  const auto sequence = static_cast<double>(s.sequence_length);
  AttentionShape shape{tokens,    mean_attended(sequence * s.mean_sequence_fraction, w.window, s.model.bidirectional),
                       sequence,  w.heads,
                       w.qk_size, w.v_size};
  PassTime p;
  p.attention = forward ? attention_forward_s(c, shape) : attention_backward_s(c, shape);
  p.flops = attention_flops(shape) * (forward ? 1 : c.attention_kernel == AttentionKernel::kUnfused ? 2 : 2.5);
  if (c.attention_kernel == AttentionKernel::kUnfused) p.flops *= 2;  // all positions
  if (s.cp > 1) {
    const double kv = s.model.attention == Attention::kLatent ? w.heads : static_cast<double>(s.model.num_kv_heads) / s.tp;
    const double keys = tokens * 2 * kv * (w.qk_size + w.v_size);  // K and V of one rank, 16 bits
    double transfer = 0;
    if (s.cp_method == CpMethod::kUlysses) {
      const double activations = tokens * 2 * w.heads * (w.qk_size + w.v_size);
      transfer = all_to_all_s(c.fabric, cp_group, keys) + all_to_all_s(c.fabric, cp_group, activations);
      p.exposed = transfer;
      return p;
    }
    if (traits.functional_collectives && !s.software.flex_attention) {
      const ContextShape part{
          tokens,     w.heads, w.qk_size, w.v_size, s.cp_method == CpMethod::kAllGather, c.program == ProgramClass::kCompiled,
          p.attention};
      const ContextTime around = forward ? context_forward_s(c, cp_group, part) : context_backward_s(c, cp_group, part);
      p.exposed = around.exposed_s;
      p.elementwise = around.elementwise_s;
      return p;
    }
    if (s.cp_method == CpMethod::kAllGather) {
      p.exposed = (forward ? 1 : 2) * all_gather_s(c.fabric, cp_group, keys * s.cp);
      return p;
    }
    transfer = (s.cp - 1.0) * send_s(c.fabric, cp_group, keys * (forward ? 1 : 2));
    p.exposed = std::max(transfer * (1 - c.cp_hidden), transfer - p.attention);
  }
  return p;
}

// With sequence parallelism a gather before and a reduce-scatter after attention and MLP; else an all-reduce after each. Megatron runs
// backward's reduction beside the weight gradient, and gathers the layer's input again beside the input gradient (arXiv 2205.05198).
double LayerModel::tensor_parallel_s(bool forward) const {
  if (s.tp == 1) return 0;
  const double bytes = 2 * tokens * hidden;
  const double gather = s.sequence_parallel ? all_gather_s(c.fabric, tp_group, gathers_in_8_bits() ? bytes / 2 : bytes) : 0;
  const double reduce = s.sequence_parallel ? reduce_scatter_s(c.fabric, tp_group, bytes) : all_reduce_s(c.fabric, tp_group, bytes);
  if (s.software.gathers_each_input) {
    // Five inputs of a layer, not two; a compiler sees that they are the same tensors, but their gradients are not.
    constexpr double kInputs = 2.5;
    const double gathers = forward && c.program != ProgramClass::kCompiled ? kInputs : 1, reductions = forward ? 1 : kInputs;
    return 2 * (gather * gathers + reduce * reductions);
  }
  if (forward || c.tp_backward_hidden == 0) return 2 * (gather + reduce) * (1 - c.tp_hidden);
  return 2 * (gather + (reduce + gather) * (1 - c.tp_backward_hidden)) * (1 - c.tp_hidden);
}

// torchao's tensorwise linears under torchtitan's tensor parallelism cast their shard of the sequence, then gather it.
bool LayerModel::gathers_in_8_bits() const {
  return s.fp8 == Fp8Recipe::kTensorwise && traits.functional_collectives && s.sequence_parallel && s.tp > 1;
}

// torchtitan's list of what is saved has reduce-scatters and no gathers: those of the inputs are repeated.
double LayerModel::gathers_again_s() const {
  if (s.tp == 1 || !s.sequence_parallel || !traits.functional_collectives) return 0;
  const double bytes = 2 * tokens * hidden / (gathers_in_8_bits() ? 2 : 1);
  return 2 * all_gather_s(c.fabric, tp_group, bytes) * (1 - c.tp_hidden);
}

// PyTorch's functional collectives gather and scatter along dimension 0; sequences are dimension 1, so each of the four a layer and
// direction also copies its tensor (all_gather_tensor and reduce_scatter_tensor, chunk and cat). Async TP fuses them into the product.
double LayerModel::sequence_copies_s() const {
  if (s.tp == 1 || !s.sequence_parallel || !traits.functional_collectives) return 0;
  return 4 * 4 * tokens * hidden / c.memory_bytes_per_s * (s.overlap_tp ? 0.5 : 1);
}

// q and k of all heads on every tensor-parallel rank (Software::normed_heads_gathered): gathered after their norms, copied into
// place and rotated whole; backward gathers the gradients of queries and of keys that are repeated for every query by then.
PassTime LayerModel::whole_heads_pass(const LayerWork& w, bool forward) const {
  PassTime p;
  if (!s.software.normed_heads_gathered || s.tp == 1) return p;
  const double q = tokens * w.heads * w.qk_size * s.tp, k = tokens * static_cast<double>(s.model.num_kv_heads) * w.qk_size;
  const double sent = 2 * (forward ? q + k : 2 * q), others = (s.tp - 1.0) / s.tp;
  p.exposed = all_gather_s(c.fabric, tp_group, sent);
  const double rotated = c.program == ProgramClass::kCompiled && !s.software.complex_rotary ? 8 : 24;
  p.elementwise = (2 * sent + others * rotated * (q + k) * (forward ? 1 : kBackwardTraffic)) / c.memory_bytes_per_s;
  return p;
}

// Rows to their experts, or back. NCCL's all-to-all sends a row once per expert. DeepEP and HybridEP send it once to each node that
// has one of its experts and from there once to each rank: with k of E experts drawn evenly, k draws of n nodes (ranks) meet n (1 - (1
// - 1/n)^k) of them. Their README reports 153 of 160 GB/s of NVLink and 43 to 58 of 50 GB/s of RDMA on H800 (2025-02).
double LayerModel::exchange_s() const {
  const double split = traits.experts_borrow_tensor_ranks || s.sequence_parallel ? s.tp : 1;
  const double sent = tokens / split, top = static_cast<double>(s.model.experts_per_token);
  const double row = 2 * static_cast<double>(s.model.expert_width());
  if (s.expert_dispatch == ExpertDispatch::kAllToAll) return all_to_all_s(c.fabric, expert_group, sent * top * row);
  const auto met = [top](double n) { return n * (1 - std::pow(1 - 1 / n, top)); };
  const double ranks = expert_group.ranks, nodes = expert_group.domains();
  const double inside = sent * row * met(ranks) * (ranks - 1) / ranks / c.fabric.link_bytes_per_s;
  const double outside = nodes > 1 ? sent * row * met(nodes) * (nodes - 1) / nodes / c.fabric.nic_bytes_per_s : 0;
  constexpr double kLatency_s = 20e-6;
  return kLatency_s + std::max(inside, outside);
}

// Both ways. Beside another micro-batch's products only what those do not cover is seen, and a tenth that starts and ends alone.
void LayerModel::add_expert_parallel(const LayerWork& w, PassTime& p) const {
  if (!w.experts || s.ep == 1) return;
  const double both = 2 * exchange_s() * std::max(1.0, s.expert_imbalance);
  const double seen = s.overlap_experts ? std::max(0.1 * both, both - p.compute()) : both;
  p.exposed += seen;
  if (experts_apart && expert_group.domains() > 1) p.network += seen;
}

// Of small matrices outside tensor cores, forward.
double LayerModel::fp32_products_s(const LayerWork& w) const {
  const double peak = s.gpu.peak_fp32_flops_per_s * s.gpu.gemm_efficiency;
  return w.fp32_flops > 0 && peak > 0 ? w.fp32_flops / peak : 0;
}

PassTime LayerModel::forward_pass(const LayerWork& w, bool op_selected_only) const {
  PassTime p;
  for (int i = 0; i < w.num_gemms; ++i) {
    const LayerGemm& m = w.gemms[static_cast<size_t>(i)];
    if (!op_selected_only || m.recomputed_by_op) p += gemm_pass(m, true);
  }
  if (!op_selected_only) {
    p += attention_pass(w, true);
    p += whole_heads_pass(w, true);
    p.gemm += fp32_products_s(w);
  }
  p.elementwise += w.traffic_per_token * tokens / c.memory_bytes_per_s + sequence_copies_s() * (op_selected_only ? 0.5 : 1);
  p.exposed += op_selected_only ? gathers_again_s() : tensor_parallel_s(true);
  if (!op_selected_only) add_expert_parallel(w, p);
  return p;
}

PassTime LayerModel::backward_pass(const LayerWork& w) const {
  PassTime p = attention_pass(w, false);
  p += whole_heads_pass(w, false);
  p.gemm += 2 * fp32_products_s(w);
  for (int i = 0; i < w.num_gemms; ++i) p += gemm_pass(w.gemms[static_cast<size_t>(i)], false);
  const double bytes = (kBackwardTraffic * w.traffic_per_token + w.gradient_sums_per_token) * tokens + w.sliced_bytes;
  p.elementwise += bytes / c.memory_bytes_per_s + sequence_copies_s();
  p.exposed += tensor_parallel_s(false);
  add_expert_parallel(w, p);
  return p;
}

// Parts of a layer by the names that hand-written engines give them; their matrices are joined (qkv, out, up with gate, down).
PassTime LayerModel::recomputed_parts(const LayerWork& w) const {
  const auto named = [&](std::string_view part) {
    return std::find(s.recompute_modules.begin(), s.recompute_modules.end(), part) != s.recompute_modules.end();
  };
  const double f = static_cast<double>(s.model.feed_forward), bytes = s.model.gated_mlp ? 6 * f : 4 * f;
  PassTime p;
  if (named("att") || named("qkv")) p += gemm_pass(w.gemms[0], true);
  if (named("att")) p += attention_pass(w, true);
  if (named("ffn")) p += gemm_pass(w.gemms[static_cast<size_t>(w.num_gemms - 2)], true);
  if (named("ffn") || named("swiglu")) p.elementwise += bytes * tokens / c.memory_bytes_per_s;
  if (named("norm")) p.elementwise += 8 * hidden * tokens / c.memory_bytes_per_s;
  return p;
}

// Megatron's --recompute-modules: products of the ones that have any, and the passes of norms and activations.
PassTime LayerModel::recomputed_modules(const LayerWork& w) const {
  PassTime p;
  for (const std::string& module : s.recompute_modules) {
    if (module == "core_attn") p += attention_pass(w, true);
    if (module == "layernorm") p.elementwise += 8 * tokens * hidden / c.memory_bytes_per_s;
    if (module == "moe_act" && w.experts)
      p.elementwise += 6 * tokens * w.rows_per_token * static_cast<double>(s.model.expert_feed_forward) / c.memory_bytes_per_s;
    for (int i = 0; i < w.num_gemms; ++i) {
      const LayerGemm& m = w.gemms[static_cast<size_t>(i)];
      const bool up = module == "mla_up_proj" && i < 4 && m.column && !m.replicated && s.model.attention == Attention::kLatent;
      const bool mlp = module == "mlp" && !w.experts && i >= w.num_gemms - 2;
      if (up || mlp || (module == "moe" && m.experts > 0)) p += gemm_pass(m, true);
    }
    if (module == "moe") add_expert_parallel(w, p);
  }
  return p;
}

PassTime LayerModel::recompute_pass(const LayerWork& w) const {
  if (c.program == ProgramClass::kHandWritten && !s.recompute_modules.empty()) return recomputed_parts(w);
  if (!s.recompute_modules.empty() && s.recompute == ActivationRecompute::kNone) return recomputed_modules(w);
  switch (s.recompute) {
    case ActivationRecompute::kNone: return {};
    case ActivationRecompute::kOpSelective: {
      PassTime p = forward_pass(w, true);
      if (s.software.attention_recomputed) p += attention_pass(w, true);
      if (s.software.exchanges_recomputed) add_expert_parallel(w, p);
      return p;
    }
    case ActivationRecompute::kAttentionOnly: return attention_pass(w, true);
    case ActivationRecompute::kEveryK: return forward_pass(w, false).scaled(1.0 / std::max(s.recompute_every_k, 1));
    case ActivationRecompute::kFull: return forward_pass(w, false);
  }
  return {};
}

// Muon: five Newton-Schulz steps on each whole matrix, X X', its square, and their sum times X, in 16 bits (arXiv 2502.16982, 2.1).
double LayerModel::orthogonalise_s(const LayerWork& w) const {
  if (s.optimizer != OptimizerKind::kMuon || !full) return 0;
  constexpr double kSteps = 5;
  double seconds = 0;
  for (int i = 0; i < w.num_gemms; ++i) {
    const LayerGemm& m = w.gemms[static_cast<size_t>(i)];
    const double small = std::min(m.n, m.k), large = std::max(m.n, m.k), matrices = m.experts > 0 ? m.experts * s.ep : 1;
    const double once = gemm_s(c.gemm, small, small, large, 2, 2) + gemm_s(c.gemm, small, small, small, 2, 2) +
                        gemm_s(c.gemm, small, large, small, 2, 2);
    seconds += matrices * kSteps * once;
  }
  return seconds;
}

LayerTime LayerModel::layer_time(const LayerWork& w) const {
  double flops = 2 * mean_attended(static_cast<double>(s.sequence_length), w.window, s.model.bidirectional) * w.heads * s.tp *
                 (w.qk_size + w.v_size);
  for (int i = 0; i < w.num_gemms; ++i) {
    const LayerGemm& m = w.gemms[static_cast<size_t>(i)];
    flops += 2 * m.n * m.k * m.rows_per_token * (m.experts > 0 ? w.expert_ranks * w.chosen_share : 1);
  }
  return {forward_pass(w, false), backward_pass(w), recompute_pass(w), w.parameters, w.expert_parameters, w.lora_parameters, flops,
          orthogonalise_s(w)};
}

// Layers differ by experts or none, window or none: one of each kind is timed, and the mean over the model taken.
LayerTime LayerModel::mean_layer() const {
  const Geometry& g = s.model;
  const bool mixed = (g.num_experts > 0 && !g.expert_layer.empty()) || (g.sliding_window > 0 && g.global_layer_every != 0);
  if (!mixed) return layer_time(layer_work(s, c, 0));
  std::array<int64_t, 4> first = {-1, -1, -1, -1}, count = {};
  for (int64_t i = 0; i < g.num_layers; ++i) {
    const size_t kind = (is_expert_layer(g, i) ? 1U : 0U) + (has_window(g, i) ? 0U : 2U);
    if (count[kind]++ == 0) first[kind] = i;
  }
  LayerTime mean;
  for (size_t kind = 0; kind < count.size(); ++kind) {
    if (count[kind] == 0) continue;
    const double share = static_cast<double>(count[kind]) / static_cast<double>(g.num_layers);
    const LayerTime t = layer_time(layer_work(s, c, first[kind]));
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
