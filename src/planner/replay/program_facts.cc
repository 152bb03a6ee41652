#include "planner/replay/program_facts.h"

#include <algorithm>

#include "planner/frameworks/delta_rule.h"
#include "planner/frameworks/experts.h"
#include "planner/replay/built_in_programs.h"

namespace distsetup::replay {
std::string lacks_for(const BlockProgram& program, const Geometry& model) {
  const auto lacks = [&](Condition condition, bool wanted) {
    const uint64_t bit = bit_of(condition);
    return wanted && std::none_of(program.block.weights.begin(), program.block.weights.end(),
                                  [bit](const ProgramWeight& weight) { return (weight.when.all & bit) != 0; });
  };
  if (lacks(Condition::kLatent, model.attention == Attention::kLatent)) return "latent attention";
  if (model.num_experts == 0) return "";
  if (lacks(Condition::kExperts, true)) return "experts";
  if (lacks(Condition::kSharedExperts, model.shared_feed_forward > 0)) return "shared experts";
  if (lacks(Condition::kSharedExpertGate, model.shared_expert_gate)) return "a gate of its shared experts";
  if (lacks(Condition::kRouterScoreBias, model.router_score_bias)) return "a bias of its router's scores";
  const uint64_t biased_experts = bit_of(Condition::kExperts) | bit_of(Condition::kMlpBias);
  if (model.mlp_bias && std::none_of(program.block.ops.begin(), program.block.ops.end(),
                                     [&](const ProgramOp& op) { return (op.when.all & biased_experts) == biased_experts; }))
    return "biases in its experts";
  const uint64_t experts = bit_of(Condition::kExperts), gated = bit_of(Condition::kGated);
  if (!model.gated_mlp && std::none_of(program.block.weights.begin(), program.block.weights.end(), [&](const ProgramWeight& weight) {
        return (weight.when.all & experts) != 0 && (weight.when.none & gated) != 0;
      }))
    return "experts without a gate";
  return "";
}

uint64_t facts_of(const Setup& s) {
  uint64_t facts = 0;
  const auto say = [&](Condition condition, bool holds) {
    if (holds) facts |= bit_of(condition);
  };
  const Geometry& m = s.model;
  say(Condition::kTensorParallel, s.tp > 1);
  say(Condition::kGroupedHeads, m.num_kv_heads < m.num_heads);
  say(Condition::kFusedNorm, s.fused_norm);
  say(Condition::kFusedRope, s.fused_rope);
  say(Condition::kFlash, s.flash_attention);
  say(Condition::kGated, m.gated_mlp);
  say(Condition::kLayerNorm, m.norm != Norm::kRms);
  say(Condition::kQkvBias, m.qkv_bias);
  say(Condition::kOutputBias, m.output_bias);
  say(Condition::kMlpBias, m.mlp_bias);
  say(Condition::kHeadBias, m.head_bias);
  say(Condition::kQkNorm, m.qk_norm_present());
  say(Condition::kParallelBlock, m.parallel_block);
  say(Condition::kTwoNorms, m.norms_per_layer >= 2);
  say(Condition::kFourNorms, m.norms_per_layer >= 4);
  say(Condition::kTied, m.tied_embeddings);
  say(Condition::kLogitsKept, s.software.logits_kept);
  say(Condition::kLogitsCapped, m.logit_soft_cap > 0);
  say(Condition::kFusedLinearLoss,
      s.loss == LossHead::kLiger || s.loss == LossHead::kCutCrossEntropy || s.loss == LossHead::kChunkedHead);
  say(Condition::kLearnedPositions, m.learned_positions > 0);
  const bool adapters = s.finetune != Finetune::kFull;
  say(Condition::kAdapterQuery, adapters && s.lora.query);
  say(Condition::kAdapterKey, adapters && s.lora.key);
  say(Condition::kAdapterValue, adapters && s.lora.value);
  say(Condition::kAdapterOutput, adapters && s.lora.output);
  say(Condition::kAdapterGate, adapters && s.lora.gate);
  say(Condition::kAdapterUp, adapters && s.lora.up);
  say(Condition::kAdapterDown, adapters && s.lora.down);
  say(Condition::kAdapterDropout, adapters && s.lora.dropout > 0);
  say(Condition::kAdapterCast, adapters && s.lora.dtype == Dtype::kF32 && s.compute != Dtype::kF32);
  say(Condition::kQuantized, s.finetune == Finetune::kQlora);
  say(Condition::kAttentionCopied, s.software.attention_output_copied);
  say(Condition::kAdapters, adapters);
  say(Condition::kKvHeadsRepeated, s.software.kv_heads_repeated && m.num_kv_heads < m.num_heads);
  say(Condition::kLogitsStayLow,
      (m.family.starts_with("gpt") && m.family != "gpt_oss") ||
          m.family == "qwen");  // qwen: the first one, whose model file came with it
  say(Condition::kExperts, m.num_experts > 0);
  say(Condition::kSharedExperts, m.num_experts > 0 && m.shared_feed_forward > 0);
  say(Condition::kSharedExpertGate, m.num_experts > 0 && m.shared_expert_gate);
  say(Condition::kRouterScoreBias, m.num_experts > 0 && m.router_score_bias);
  say(Condition::kExpertParallel, m.num_experts > 0 && s.ep > 1);
  say(Condition::kLatent, m.attention == Attention::kLatent);
  say(Condition::kQueryLatent, m.attention == Attention::kLatent && m.q_lora_rank > 0);
  const bool fp8_linears = s.fp8 == Fp8Recipe::kTensorwise || s.fp8 == Fp8Recipe::kRowwise;
  say(Condition::kFp8Linears, fp8_linears);
  say(Condition::kFp8WeightsSaved, fp8_linears && s.software.fp8_weights_saved);
  say(Condition::kFp8AbsSaved, fp8_linears && s.software.fp8_abs_saved);
  say(Condition::kFp8RowwiseAbsSaved, s.fp8 == Fp8Recipe::kRowwise && s.software.fp8_abs_saved);
  say(Condition::kAttentionRecomputed, s.software.attention_recomputed);
  say(Condition::kExchangesRecomputed, s.software.exchanges_recomputed);
  say(Condition::kLossGathers, s.tp > 1 && s.software.compiled_loss_gathers);
  say(Condition::kOnlineSoftmax, s.software.online_softmax);
  say(Condition::kFusedQkv, s.software.fused_qkv);
  say(Condition::kManySamples, s.micro_batch > 1);
  say(Condition::kCompiled, s.compiled);
  // An interpreted graph frees what no later operation reads; in Python local names hold it until the function returns.
  say(Condition::kSplitLoss, s.tp > 1 && !s.software.traced && !s.software.interpreted);
  say(Condition::kAutocast, s.autocast);
  // A gather makes the compute type of a sharded matrix; a compiled backward casts again, as the weight lives on. Casts of trained
  // matrices are the engine's (fsdp_unsharded.cc).
  say(Condition::kCastsKept, s.autocast && s.framework == Framework::kDdp && s.finetune == Finetune::kLora && !s.compiled &&
                                 s.compute != Dtype::kF32 && s.frozen_dtype != s.compute);
  say(Condition::kLogitsShifted, s.software.logits_shifted);
  say(Condition::kLowPrecisionLogitsKept, s.software.low_precision_logits_kept);
  say(Condition::kResidualInFp32, s.software.residual_in_fp32);
  say(Condition::kHeadInFp32, s.stays_in_fp32());
  say(Condition::kFusedSwiglu, s.fused_swiglu);
  say(Condition::kUlysses, s.cp > 1 && s.cp_method == CpMethod::kUlysses);
  constexpr int kLogitsStayFrom = 202412, kShareCastFrom = 202508;  // Liger-Kernel 90fb5e4a, 2845fe83
  const int released = s.software.released;
  say(Condition::kLigerCastsLogits, released > 0 && released < kLogitsStayFrom);
  say(Condition::kLigerCastsShare, released >= kShareCastFrom && !adapters);
  say(Condition::kEmbeddingScaled, m.family.starts_with("granite") || m.family.starts_with("gemma"));
  return facts;
}

uint64_t facts_of_layer(uint64_t facts, bool experts) {
  if (experts) return facts;
  for (const Condition only : {Condition::kExperts, Condition::kSharedExperts, Condition::kSharedExpertGate,
                               Condition::kRouterScoreBias, Condition::kExpertParallel})
    facts &= ~bit_of(only);
  return facts;
}

namespace {

// A kernel of several makes tensors that are neither its results nor kept.
bool is_one_kernel(const Kernel& kernel) {
  return std::all_of(kernel.forward.begin(), kernel.forward.end(), [&](const KernelStep& step) {
    const bool is_result = step.name < kernel.first_write() + kernel.num_writes;
    return step.kind != KernelStep::Kind::kNew || is_result ||
           std::find(kernel.saves.begin(), kernel.saves.end(), step.name) != kernel.saves.end();
  });
}

}  // namespace

FusedKernels fused_kernels(const Setup& s) {
  const BlockProgram* program = s.own_program ? s.own_program.get() : find_program(s.program);
  if (program == nullptr) return {};
  const uint64_t facts = facts_of(s);
  int norms = 0, split_norms = 0, rotations = 0, activations = 0, split_activations = 0;
  for (const ProgramOp& op : program->block.ops) {
    if (op.kernel == nullptr || !op.when.holds(facts)) continue;
    const std::string& name = op.kernel->name;
    norms += op.kernel->kind == "norm";
    split_norms += op.kernel->kind == "norm" && !is_one_kernel(*op.kernel);
    rotations += name.starts_with("rope_");
    activations += name == "swiglu" || name == "swiglu_in_place" || name == "swiglu_compiled";
    split_activations += name == "silu" || name == "swiglu_halves";  // act(gate) * up of one tensor's halves
  }
  FusedKernels out;
  out.norm = norms > 0 && split_norms == 0;
  out.activation = activations > 0 && split_activations == 0;
  out.rotation = out.norm && out.activation && rotations == 0;  // one that is copied and not rotated piece by piece
  return out;
}

void fill_symbols(const Setup& s, int64_t* values) {
  const auto put = [&](Symbol symbol, int64_t value) { values[static_cast<size_t>(symbol)] = value; };
  const Geometry& m = s.model;
  const int64_t tokens = s.tokens();
  put(Symbol::kTokens, tokens);
  put(Symbol::kSequence, s.sequence_length / s.cp);
  put(Symbol::kHidden, m.hidden);
  put(Symbol::kHeads, m.num_heads);
  put(Symbol::kKvHeads, m.num_kv_heads);
  put(Symbol::kHeadSize, m.head_size);
  put(Symbol::kFeedForward, m.feed_forward);
  put(Symbol::kVocabulary, m.vocabulary);
  put(Symbol::kExperts, m.num_experts);
  put(Symbol::kExpertsPerToken, experts_computed(s));
  put(Symbol::kExpertFeedForward, m.expert_feed_forward);
  put(Symbol::kSharedFeedForward, m.shared_feed_forward);
  // Without expert parallelism every rank of the tensor-parallel group holds a part of all experts and sees all rows; with it whole
  // experts, and the group's ranks route a part of the tokens each (torchtitan's expert_tensor_parallel_degree 1).
  const int64_t rows = experts_computed(s) * tokens / (s.ep > 1 ? s.tp : 1);
  put(Symbol::kLocalExperts, m.num_experts / s.ep);
  put(Symbol::kExpertTensorParallel, s.ep > 1 ? 1 : s.tp);
  put(Symbol::kRoutedRows, s.ep > 1 ? static_cast<int64_t>(static_cast<double>(rows) * s.expert_imbalance) : rows);
  put(Symbol::kQueryLatent, m.q_lora_rank);
  put(Symbol::kKvLatent, m.kv_lora_rank);
  put(Symbol::kNopeHeadSize, m.qk_nope_head_size);
  put(Symbol::kRopeHeadSize, m.qk_rope_head_size);
  put(Symbol::kValueHeadSize, m.v_head_size);
  put(Symbol::kTensorParallel, s.tp);
  put(Symbol::kSequenceShards, s.sequence_parallel ? s.tp : 1);
  // 4-bit matrices hand out what they were given (bitsandbytes nn/modules.py, Linear4bit.forward).
  put(Symbol::kComputeBytes, s.compute == Dtype::kF32 || s.stays_in_fp32() ? 4 : 2);
  // TRL's chunked_nll makes head and loss of 256 tokens at a time (trl/trainer/sft_trainer.py).
  constexpr int64_t kTrlChunk = 256;
  const bool in_trl = s.loss == LossHead::kChunkedHead && s.is_transformers_fsdp2();
  put(Symbol::kGroup, in_trl ? std::max<int64_t>(1, tokens / kTrlChunk) : s.loss_chunks);
  // Liger's fused linear cross entropy: a chunk's logits are about as large as the hidden states, its rows rounded up to a power of
  // two (liger_kernel/ops/fused_linear_cross_entropy.py).
  const auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  int64_t rows_of_chunk = 1;
  while (rows_of_chunk < ceil_div(tokens, ceil_div(std::max<int64_t>(m.vocabulary, 1), std::max<int64_t>(m.hidden, 1))))
    rows_of_chunk *= 2;
  put(Symbol::kLossRows, std::min(rows_of_chunk, tokens));
  put(Symbol::kMlpRows, s.mlp_tile > 0 ? std::min(s.mlp_tile, tokens) : tokens);
  // Of recomputed layers one is there at a time: one of those. Else the mean of all layers.
  const double delta_share = s.recompute == ActivationRecompute::kFull ? 1 : delta_layers_share(s);
  put(Symbol::kDeltaRule, static_cast<int64_t>(delta_rule_work(s).kept_bytes * delta_share));
  put(Symbol::kUlyssesKvHeads, std::max<int64_t>(m.num_kv_heads, std::min<int64_t>(s.cp, m.num_heads)));
  put(Symbol::kAdapterRank, s.lora.rank);
  put(Symbol::kAdapterBytes, s.lora.dtype == Dtype::kF32 ? 4 : 2);
  put(Symbol::kResidualBytes, s.software.residual_in_fp32 ? 4 : values[static_cast<size_t>(Symbol::kComputeBytes)]);
}

}  // namespace distsetup::replay
