// Multiplications follow the published architectures (the order of Hugging Face's modules: q, k, v, o, gate, up, down). Traffic counts
// reads and writes of every kernel that is not a multiplication, in bytes per token, 16-bit activations:
//   eager RMSNorm      34 h   cast to fp32, square, mean, scale, cast, weight: each a kernel
//   fused norm          4 h
//   residual add        6 h
//   eager rotary       24 (q + kv)   in fp32 or with cat and negation
//   SwiGLU             10 f eager (silu, product), 6 f fused; GELU 4 f
//   dropout             + 1 mask byte and two passes where the era trained with it (unfused attention stands for it)
// Where all of it stays fp32 an RMSNorm casts nothing (26 h), and the rest is twice that. Backward moves 1.5 times that. Compiled: a
// norm and the residual add before it are one kernel, rotary another (complex numbers stay PyTorch's kernels: Inductor generates no
// code for them). Leaves out: layout copies of particular attention back ends, dropout probabilities of newer models.
#include "planner/time/layer.h"

#include "model/count.h"
#include "model/geometry.h"
#include "planner/frameworks/delta_rule.h"
#include "planner/frameworks/experts.h"
#include "planner/replay/program_facts.h"

namespace distsetup {
namespace {

constexpr int kFusedRmsNormSince = 202508;
// Forward, per channel and token of a state-space mixer: what the in-projection makes goes through a convolution, states of chunks in
// fp32 are written, passed on and read (Mamba-2, arXiv 2405.21060, section 6), then gate and norm. Some forty reads and writes of 32
// bits.
constexpr double kScanBytes = 160;

void add(LayerWork& w, const LayerGemm& gemm) { w.gemms[static_cast<size_t>(w.num_gemms++)] = gemm; }

double norm_traffic(const Setup& s, ProgramClass program, bool listed_as_one) {
  if (program == ProgramClass::kCompiled) return 4;
  // PyTorch's own RMSNorm is one kernel from 2.9 on (nightlies of August 2025); Hugging Face's modules spell it out.
  const bool one_kernel =
      s.program.starts_with("torchtitan") && (s.software.released == 0 || s.software.released >= kFusedRmsNormSince);
  return program == ProgramClass::kFused || s.fused_norm || listed_as_one || one_kernel || s.model.norm != Norm::kRms ? 4
         : s.stays_in_fp32() || s.compute == Dtype::kF32                                                              ? 13
                                                                                                                      : 34;
}

double split_n(const LayerGemm& g, double tp) { return g.column && !g.replicated ? g.n / tp : g.n; }
double split_k(const LayerGemm& g, double tp) { return g.column || g.replicated ? g.k : g.k / tp; }

void add_attention(LayerWork& w, const Setup& s, bool one_qkv) {
  const Geometry& g = s.model;
  const auto h = static_cast<double>(g.hidden), a = static_cast<double>(g.num_heads);
  const bool lora = s.finetune != Finetune::kFull;
  const auto rank = [&](bool target) { return lora && target ? static_cast<double>(s.lora.rank) : 0.0; };
  if (g.attention == Attention::kLatent) {
    const auto rq = static_cast<double>(g.q_lora_rank), rk = static_cast<double>(g.kv_lora_rank),
               dr = static_cast<double>(g.qk_rope_head_size), dn = static_cast<double>(g.qk_nope_head_size),
               dv = static_cast<double>(g.v_head_size);
    if (rq > 0) add(w, {rq, h, true, true, false, 0, 1, rank(s.lora.query)});
    add(w, {a * (dn + dr), rq > 0 ? rq : h, true, false, false, 0, 1, rank(s.lora.query)});
    add(w, {rk + dr, h, true, true, false, 0, 1, rank(s.lora.key)});
    add(w, {a * (dn + dv), rk, true, false, false, 0, 1, rank(s.lora.value)});
    add(w, {h, a * dv, false, false, false, 0, 1, rank(s.lora.output)});
    w.qk_size = dn + dr;
    w.v_size = dv;
    return;
  }
  const auto d = static_cast<double>(g.head_size), q = a * d, kv = static_cast<double>(g.num_kv_heads) * d;
  if (one_qkv) {
    add(w, {q + 2 * kv, h, true, false, true, 0, 1, rank(s.lora.query)});
  } else {
    add(w, {q, h, true, false, false, 0, 1, rank(s.lora.query)});
    add(w, {kv, h, true, false, true, 0, 1, rank(s.lora.key)});
    add(w, {kv, h, true, false, false, 0, 1, rank(s.lora.value)});
  }
  add(w, {h, q, false, false, true, 0, 1, rank(s.lora.output)});
  w.qk_size = w.v_size = d;
}

void add_mlp(LayerWork& w, const Setup& s, double f, bool one_gate_up) {
  const auto h = static_cast<double>(s.model.hidden);
  const bool lora = s.finetune != Finetune::kFull;
  const auto rank = [&](bool target) { return lora && target ? static_cast<double>(s.lora.rank) : 0.0; };
  if (s.model.gated_mlp && one_gate_up) {
    add(w, {2 * f, h, true, false, false, 0, 1, rank(s.lora.up)});
  } else {
    if (s.model.gated_mlp) add(w, {f, h, true, false, false, 0, 1, rank(s.lora.gate)});
    add(w, {f, h, true, false, true, 0, 1, rank(s.lora.up)});
  }
  add(w, {h, f, false, false, false, 0, 1, rank(s.lora.down)});
}

// Routed experts and those that every token passes. Returns the width of the MLPs that a token passes through on this rank.
double add_experts(LayerWork& w, const Setup& s, bool one_gate_up) {
  const Geometry& g = s.model;
  const double h = static_cast<double>(g.hidden), tp = s.tp;
  const double e = static_cast<double>(g.num_experts), f = static_cast<double>(g.expert_feed_forward),
               top = static_cast<double>(experts_computed(s)), local = e / s.ep;
  // torchtitan: tensor-parallel ranks split the experts' matrices, or with expert parallelism the rows they route.
  const bool borrows = !s.traits().expert_tensor_axis, splits_rows = borrows && s.ep > 1;
  // Megatron: with sequence parallelism a rank sends its part of the tokens, and those who share an expert's matrices gather theirs.
  const bool splits_sequence = !borrows && s.sequence_parallel && s.tp > 1;
  const double etp = !borrows      ? s.expert_tp
                     : splits_rows ? 1
                                   : tp,
               rows = splits_rows       ? top / tp
                      : splits_sequence ? top * etp / tp
                                        : top;
  w.expert_ranks = borrows || splits_sequence ? tp : etp;
  w.rows_per_token = rows;
  w.chosen_share = static_cast<double>(g.experts_per_token) / top;
  add(w, {e, h, true, true});
  const auto width = static_cast<double>(g.expert_width());
  if (g.expert_hidden > 0) {  // LatentMoE: down before the rows are sent, up after they are summed
    add(w, {width, h, true, true});
    add(w, {h, width, false, true});
  }
  add(w, {(g.gated_mlp ? 2 : 1) * f / etp, width, true, true, false, local, rows});
  add(w, {width, f / etp, false, true, false, local, rows});
  if (g.shared_feed_forward > 0) add_mlp(w, s, static_cast<double>(g.shared_feed_forward), one_gate_up);
  return rows * f / etp + static_cast<double>(g.shared_feed_forward) / tp;
}

// Of all multiplications that were added.
void count_parameters(LayerWork& w, const Setup& s) {
  const double tp = s.tp;
  for (int i = 0; i < w.num_gemms; ++i) {
    const LayerGemm& m = w.gemms[static_cast<size_t>(i)];
    const double held = split_n(m, tp) * split_k(m, tp) * (m.experts > 0 ? m.experts : 1);
    w.parameters += held;
    if (m.experts > 0) w.expert_parameters += held;
    w.lora_parameters += m.lora_rank * (split_n(m, tp) + split_k(m, tp));
  }
  // A slice's gradient is a stack of zeros with the slice in it, and is added to the others' (torch/csrc/autograd, select_backward):
  // written, then two stacks read and one written, for every expert.
  if (s.finetune == Finetune::kFull && expert_kernels(s) == ExpertKernels::kSlicesInTurn)
    w.sliced_bytes = 4 * static_cast<double>(s.model.num_experts) * w.expert_parameters *
                     (s.traits().never_shards ? bytes_of(s.parameter_dtype) : 2);
}

// Norms, residuals, rotary positions and activations: bytes that a token moves forward. `activated`: the width of its MLP.
double dense_traffic(const LayerWork& w, const Setup& s, const TimeConstants& c, double activated) {
  const Geometry& g = s.model;
  const double h = static_cast<double>(g.hidden), tp = s.tp, norm_split = s.tp > 1 && s.sequence_parallel ? tp : 1;
  const double q = w.heads * w.qk_size,
               kv = g.attention == Attention::kLatent ? q : static_cast<double>(g.num_kv_heads * g.head_size) / tp;
  const bool rotary = g.learned_positions == 0 && g.rotary_fraction > 0, dropout = c.attention_kernel == AttentionKernel::kUnfused;
  const double norms = static_cast<double>(g.norms_per_layer);
  // What a compiler keeps is listed of a traced graph, too, whose kernels are PyTorch's own.
  const bool runs_the_list = c.program == ProgramClass::kEager && !s.compiled;
  const replay::FusedKernels listed = runs_the_list ? replay::fused_kernels(s) : replay::FusedKernels{};
  const double norm_bytes = norm_traffic(s, c.program, listed.norm);
  double bytes = 0;
  switch (c.program) {
    case ProgramClass::kEager:
      bytes = (norms * norm_bytes + 12) * h / norm_split + (rotary ? (s.fused_rope || listed.rotation ? 4 : 24) * (q + kv) : 0) +
              4 * q + (g.gated_mlp ? (s.fused_swiglu || listed.activation ? 6 : 10) : 4) * activated;
      break;
    case ProgramClass::kCompiled:
      bytes = norms * 8 * h / norm_split + (rotary ? (s.software.complex_rotary ? 24 : 8) * (q + kv) : 0) + 4 * q +
              (g.gated_mlp ? 6 : 4) * activated;
      break;
    case ProgramClass::kFused:
      bytes = (norms * 4 + 12) * h / norm_split + (rotary ? 4 * (q + kv) : 0) + (g.gated_mlp ? 6 : 4) * activated;
      break;
    case ProgramClass::kHandWritten:  // a norm with the residual add before it
      bytes = norms * 8 * h / norm_split + (rotary ? 4 * (q + kv) : 0) + (g.gated_mlp ? 6 : 4) * activated;
      break;
  }
  if (dropout) bytes += (c.program == ProgramClass::kFused ? 2 : 2 * 3) * h / norm_split;  // fused: the mask alone
  if (g.qk_norm_present()) bytes += norm_bytes * (q + kv);
  return bytes;
}

// What rows of experts move besides.
void add_expert_traffic(LayerWork& w, const Setup& s, const TimeConstants& c) {
  const Geometry& g = s.model;
  // Permute, unpermute, weighted sum; kernels that send rows themselves put them where they belong. torchtitan's Python runs rows
  // gathered (4 bytes an element), weighted in fp32 (20), padded and ordered by expert (8), put back (6) and added up (6), each apart
  // (torchtitan/models/moe/moe.py).
  const bool apart = c.program == ProgramClass::kEager && s.program.starts_with("torchtitan");
  const double passes = s.expert_dispatch == ExpertDispatch::kDirect && s.ep > 1 ? 6 : apart ? 44 : 16;
  w.traffic_per_token += passes * w.rows_per_token * static_cast<double>(g.expert_width());
  // Biases of experts are added in passes of their own: each row has its expert's.
  if (!g.mlp_bias) return;
  const double outputs = static_cast<double>((g.gated_mlp ? 2 : 1) * g.expert_feed_forward + g.expert_width());
  w.traffic_per_token += 4 * w.rows_per_token * outputs;
}

void add_scan(LayerWork& w, const Setup& s) {
  const double by_kernels = kScanBytes * static_cast<double>(s.model.scan_channels) / s.tp, tokens = static_cast<double>(s.tokens());
  const DeltaRuleWork delta = delta_rule_work(s);
  if (delta.forward_kernels == 0) {
    w.traffic_per_token += by_kernels;
    return;
  }
  w.traffic_per_token += delta.forward_bytes / tokens;
  w.sliced_bytes += delta.backward_bytes - kBackwardTraffic * delta.forward_bytes;
  w.fp32_flops = delta.flops;
}

}  // namespace

LayerWork layer_work(const Setup& s, const TimeConstants& c, int64_t layer) {
  const Geometry& g = s.model;
  const double tp = s.tp;
  const bool joined = s.traits().joined_matrices || !g.gated_mlp;
  LayerWork w;
  w.heads = static_cast<double>(g.num_heads) / tp;
  w.experts = g.num_experts > 0 && is_expert_layer(g, layer);
  w.window = has_window(g, layer) ? static_cast<double>(g.sliding_window) : 0;
  add_attention(w, s, joined);
  double activated = static_cast<double>(g.feed_forward) / tp;
  if (w.experts)
    activated = add_experts(w, s, joined);
  else
    add_mlp(w, s, static_cast<double>(g.feed_forward), joined);
  count_parameters(w, s);
  if (!joined) w.gradient_sums_per_token = (c.program == ProgramClass::kEager ? 18 : 10) * static_cast<double>(g.hidden);
  w.traffic_per_token = dense_traffic(w, s, c, activated);
  if (w.experts) add_expert_traffic(w, s, c);
  w.traffic_per_token *= c.value_bytes / 2;
  if (g.scan_channels > 0 && w.window > 0) add_scan(w, s);
  return w;
}

}  // namespace distsetup
