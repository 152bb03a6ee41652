// Buffers as the engines allocate them (karpathy/llm.c train_gpt2.cu, fill_in_activation_sizes; IST-DASLab/llmq
// src/models/llama_run_state.cpp, 2026-05): per layer what backward reads, and beside the layers what one layer works in. With T
// tokens, in elements of the activation's type unless a size is given:
//   a layer keeps      both residuals (2 h), both norm outputs (2 h), qkv, attention's output, up (and gate), activated f, and
//                      logsumexp and statistics in fp32; with fp8 the two norm outputs and the activated f in 8 bits instead
//   recomputation      norm: its outputs; swiglu: the activated f; ffn: that and up and gate; qkv; att: that and attention's output;
//                      full: all but the second residual, which `offload activations` moves to the host
//   beside the layers  six hidden states; what is recomputed, of one layer; gradients of up and gate and of the activated f, with fp8
//                      two transposed operands; or a chunk of logits; attention's fp32 sums of the query's gradient
// Leaves out: alignment, tables of rotary factors, what cuDNN adds for its own scheduling.
#include "planner/frameworks/lean.h"

#include <algorithm>

#include "model/count.h"
#include "planner/frameworks/libraries.h"
#include "planner/frameworks/state_bytes.h"

namespace distsetup {
namespace {

bool drops(const Setup& s, std::string_view module) {
  const auto& modules = s.recompute_modules;
  return s.recompute == ActivationRecompute::kFull || std::find(modules.begin(), modules.end(), module) != modules.end();
}

struct LeanActivations {
  double kept = 0;    // of all layers
  double shared = 0;  // beside them
  double logits = 0;  // a chunk
};

LeanActivations activations(const Setup& s) {
  const Geometry& g = s.model;
  const double tokens = static_cast<double>(s.tokens()), h = static_cast<double>(g.hidden), f = static_cast<double>(g.feed_forward);
  const double q = static_cast<double>(g.num_heads * g.head_size), kv = static_cast<double>(g.num_kv_heads * g.head_size);
  const double qkv = q + 2 * kv, up = g.gated_mlp ? 2 * f : f;
  const bool low = s.fp8 != Fp8Recipe::kNone, full = s.recompute == ActivationRecompute::kFull;
  const bool no_ffn = drops(s, "ffn"), no_att = drops(s, "att"), no_qkv = no_att || drops(s, "qkv"), no_norm = drops(s, "norm");
  const bool no_activated = no_ffn || drops(s, "swiglu");
  double wide = 0, low_bytes = 0, again = 0;  // elements a token: kept in 16 bits, in 8; recomputed for one layer
  const auto keep = [&](bool dropped, double elements) { (dropped ? again : wide) += elements; };
  if (s.offload.activations == OffloadPlace::kNone) wide += h;  // the second residual
  keep(full, h);
  keep(low || no_norm || no_att, h);
  if (!low && !no_norm && !no_ffn) wide += h;  // else in one of the hidden states beside the layers
  keep(no_qkv, qkv);
  keep(no_att, q);
  keep(low || no_activated, f);
  if (!no_ffn) wide += up;  // else in what backward works in
  if (low) low_bytes = (no_norm ? 0 : 2 * h) + (no_activated ? 0 : f);
  const double statistics = 4 * (2 + static_cast<double>(g.num_heads));
  LeanActivations a;
  a.kept = static_cast<double>(g.num_layers) * tokens * (2 * wide + low_bytes + statistics);
  const double residuals = s.offload.activations == OffloadPlace::kNone ? 0 : 2 * h;
  const double backward = up + f + (low ? f + h : 0), attention = up + qkv + 2 * q;
  a.logits = 2 * tokens * static_cast<double>(g.vocabulary) / std::max(s.loss_chunks, 1);
  a.shared = 2 * tokens * (6 * h + again + residuals) + std::max(a.logits, 2 * tokens * std::max(backward, attention));
  a.logits = std::min(a.logits, a.shared);
  return a;
}

struct LeanStates {
  double parameters = 0, gradients = 0, optimizer = 0, host = 0;
};

LeanStates states(const Setup& s) {
  const ParameterCount count = count_parameters(s.model);
  const double all = static_cast<double>(count.total), outside = static_cast<double>(count.embedding + count.head + count.final_norm);
  const double ranks = s.dp_shard, sharded = s.sharding == Sharding::kZero3 ? ranks : 1;
  const StateBytes b = state_bytes(s);
  const bool low = s.fp8 != Fp8Recipe::kNone;
  LeanStates out;
  // With fp8 the blocks' matrices are kept in 8 bits beside their masters.
  const double weights = low ? (all - outside) + 2 * outside : b.parameter * all;
  const double master = low ? b.parameter * all : 0;
  const double streamed = s.offload.parameters != OffloadPlace::kNone ? (all - outside) * (low ? 1 : b.parameter) : 0;
  out.parameters = (weights - streamed) / sharded + 2 * streamed / static_cast<double>(s.model.num_layers);  // two layers at a time
  const double gradient_ranks = s.sharding == Sharding::kZero3 || s.sharding == Sharding::kZero2 ? ranks : 1;
  out.gradients = b.gradient * all / gradient_ranks;
  const double kept_by_optimizer = (b.optimizer * all + master) / (s.sharding == Sharding::kDdp ? 1 : ranks);
  if (s.offload.optimizer == OffloadPlace::kNone) out.optimizer = kept_by_optimizer;
  out.host = (s.offload.optimizer == OffloadPlace::kNone ? 0 : kept_by_optimizer) + streamed / sharded;
  if (s.host_gradients) {  // two layers and what is outside of them stay
    out.host += out.gradients;
    out.gradients = b.gradient * (outside + 2 * (all - outside) / static_cast<double>(s.model.num_layers));
  }
  return out;
}

}  // namespace

MemoryEstimate lean_memory(const Setup& s, Depth) {
  const LeanStates held = states(s);
  const LeanActivations a = activations(s);
  const auto bytes = [](double value) { return static_cast<int64_t>(value); };
  MemoryEstimate out;
  const auto add = [&](const char* what, double value) {
    if (value <= 0) return;
    out.terms.push_back({what, bytes(value), bytes(value), "backward"});
    out.allocated_bytes += bytes(value);
  };
  add("parameter shard", held.parameters);
  add("gradient", held.gradients);
  add("optimizer state", held.optimizer);
  add("activation", a.kept + a.shared - a.logits);
  add("logits", a.logits);
  add("workspace", static_cast<double>(cublas_workspace_bytes(s.gpu)));
  out.by_phase = {{"load", out.allocated_bytes}, {"backward", out.allocated_bytes}};
  out.peak_phase = "backward";
  out.reserved_bytes = out.allocated_bytes;
  out.device_bytes = out.reserved_bytes + s.gpu.context_bytes + communicator_bytes(s);
  const int64_t outside = s.gpu.context_bytes + communicator_bytes(s);
  out.ran_out = s.gpu.usable_memory_bytes > outside && out.allocated_bytes > s.gpu.usable_memory_bytes - outside;
  const double residuals =
      s.offload.activations == OffloadPlace::kNone ? 0 : 2.0 * static_cast<double>(s.tokens() * s.model.hidden * s.model.num_layers);
  out.host_bytes_per_node = bytes((held.host + residuals) * s.gpus_per_node);
  out.checkpoint_bytes =
      bytes(static_cast<double>(count_parameters(s.model).total) * (bytes_of(s.parameter_dtype) + state_bytes(s).optimizer));
  return out;
}

}  // namespace distsetup
