// DeepSpeed under transformers (ml-engineering, ArcticTraining, gdGPT, benchmark_tp) or under a model of one's own, xtuner, InternEvo,
// ATorch, EasyContext.
#include <algorithm>
#include <cmath>

#include "row_setup.h"

namespace distsetup::accuracy {
namespace {

void mixed(Setup& s) {
  s.parameter_dtype = s.gradient_dtype = s.reduce_dtype = Dtype::kBf16;
  s.state_dtype = Dtype::kF32;
  s.master_copy = true;
  s.optimizer_implementation = OptimizerImplementation::kFused;
}

Sharding stage(const Row& row) {
  if (row.says("strategy", "ZeRO-3") || row.says("strategy", "FULL_SHARD")) return Sharding::kZero3;
  return row.says("strategy", "ZeRO-2") ? Sharding::kZero2 : Sharding::kZero1;
}

// bf16_master_weights_and_grads: no fp32 master; bf16_optimizer_states: 16-bit moments (DeepSpeed's configuration).
void low_precision_states(Setup& s, const Row& row) {
  const std::string& stored = row.text("param_dtype");
  if (!stored.empty() && !contains(stored, "master")) s.master_copy = false;
  if (row.says("optimizer", "bf16 states")) s.state_dtype = Dtype::kBf16;
  if (row.says("optimizer", "Muon")) s.optimizer = OptimizerKind::kMuon;
}

void liger(Setup& s) {
  s.loss = LossHead::kLiger;
  s.fused_norm = s.fused_rope = s.fused_swiglu = true;
}

// projects/sequence-parallelism of ArcticTraining: DeepSpeed's own defaults, expandable segments. Without Liger the loss of a split
// sequence goes through the head in shards of 1 GiB of fp32 logits, that of a whole one through the model's own loss. An MLP's tile
// has as many tokens as the model is wide.
void arctic(Setup& s, const Row& row) {
  s.software.released = 202505;
  s.software.expandable_segments = true;
  s.loss = LossHead::kEager;
  const bool tiled_loss = has_feature(row, {"tiled logits", "tiled loss", "tiled fused", "tiledfused"});
  if (s.cp > 1 || tiled_loss) {
    s.loss = LossHead::kChunkedHead;
    const double gib = 4.0 * static_cast<double>(s.model.vocabulary) * static_cast<double>(s.tokens()) / (1 << 30);
    s.loss_chunks = static_cast<int>(std::max(1.0, std::ceil(gib)));
  }
  if (has_feature(row, {"liger"})) liger(s);
  if (has_feature(row, {"tiled mlp", "tiled_mlp", "tiledmlp", "mlp tiling", "tiled compute"})) {
    s.mlp_tile = s.model.hidden;
    s.fused_swiglu = false;
  }
  if (has_feature(row, {"checkpoint offload", "activation offload", "act offload", "act-offload", "checkpoints offload", "cpu_offload",
                        "activation checkpoints to cpu", "checkpoint cpu offload", "checkpointing offload"}))
    s.offload.activations = OffloadPlace::kHost;
}

// gdGPT (CoinCheung, 2023-11): Transformers' LLaMA in fp16 under stage 3, as configs/ds_config_zero.yml has it. Its pipeline splits
// these modules into stages of its own; the planner's DeepSpeed has stages for Megatron's layers, which are the nearest.
Setup gdgpt(const Row& row, Setup s) {
  constexpr int64_t kBucket = 10000000;
  s.software.released = 202311;
  s.parameter_dtype = s.gradient_dtype = s.reduce_dtype = Dtype::kF16;
  s.loss = LossHead::kHfShift;
  s.reentrant_checkpoint = false;
  if (s.pp > 1) {
    s.sharding = Sharding::kDdp;
    s.program = "megatron_gpt";
    s.loss = LossHead::kEager;
    return s;
  }
  s.reduce_bucket_elements = kBucket;
  if (row.says("notes", "mem_efficient_linear off")) s.max_live_parameters = 1e12;
  return s;
}

// benchmark_tp (tohtana, 2025-12): Transformers' modules in bf16 with bf16 states, split by DTensor without FSDP, since one rank has
// all data.
Result<Setup> tensor_benchmark(const Row& row, Setup s) {
  if (row.says("strategy", "AutoTP")) return unmapped(row, "DeepSpeed is planned without tensor parallelism of Transformers' modules");
  s.software.released = 202512;
  s.master_copy = false;
  s.parameter_dtype = s.gradient_dtype = s.reduce_dtype = s.state_dtype = Dtype::kBf16;
  s.optimizer_implementation = OptimizerImplementation::kForLoop;
  s.flash_package = 2;
  s.loss = LossHead::kVocabularyParallel;
  s.sequence_parallel = false;
  s.framework = Framework::kFsdp2;
  s.sharding = Sharding::kDdp;
  return s;
}

}  // namespace

Result<Setup> deepspeed_row(const Row& row) {
  Result<Setup> common = common_setup(row);
  if (!common) return common;
  Setup s = *common;
  const std::string& framework = row.text("framework");
  s.program = "hf_eager";
  s.framework = Framework::kDeepspeed;
  s.sharding = stage(row);
  s.recompute = row.text("activation_ckpt") == "full" ? ActivationRecompute::kFull : ActivationRecompute::kNone;
  s.reentrant_checkpoint = true;
  mixed(s);
  if (s.cp > 1) s.cp_method = row.says("strategy", "ring") ? CpMethod::kRing : CpMethod::kUlysses;
  if (row.says("flash_attention", "FA3")) s.flash_package = 3;
  if (row.says("flash_attention", "FA4")) s.flash_package = 4;
  if (framework.starts_with("ArcticTraining")) {
    arctic(s, row);
  } else if (framework.starts_with("gdGPT")) {
    s = gdgpt(row, s);
  } else if (framework.starts_with("benchmark_tp")) {
    return tensor_benchmark(row, s);
  } else if (framework.starts_with("DeepSpeed") && !contains(framework, "transformers")) {
    s.software.released = 202601;
    low_precision_states(s, row);
    s.loss = LossHead::kLowPrecision;  // CrossEntropyLoss on the model's own logits
    s.software.logits_kept = true;
    s.flash_attention = !row.text("flash_attention").starts_with("no");
    s.reentrant_checkpoint = false;
    s.autocast = row.says("precision", "autocast");
    if (s.micro_batch == 0) s.micro_batch = 1;
    if (s.sequence_length == 0) s.sequence_length = 2048;
  } else if (framework.starts_with("DeepSpeed")) {  // ml-engineering: Liger kernels, CPU Adam, DeepSpeed 0.19
    s.software.released = row.says("notes", "torch 2.13") ? 202610 : 202606;
    liger(s);
  } else if (framework.starts_with("xtuner")) {
    s.software.released = 202404;
    s.loss = LossHead::kHfShift;
    s.fused_norm = s.fused_rope = true;  // its dispatch replaces both with Triton kernels
    s.mean_sequence_fraction = 1;
  } else if (framework.starts_with("InternEvo")) {
    s.software.released = 202401;
    s.program = "torchtitan_eager";
    s.fused_norm = s.fused_rope = true;
    s.loss = LossHead::kFusedKernel;
    s.sequence_parallel = false;
    if (s.sharding == Sharding::kZero3 && (s.gpus_per_node % 8 != 0) && row.says("strategy", "TP")) {
      return unmapped(row, "the shard group of fsdp with tp is not documented");
    }
  } else if (framework.starts_with("ATorch")) {
    if (s.sequence_length == 0) return unmapped(row, "the sequence length is not stated");
  } else if (s.sequence_length == 0 || s.micro_batch == 0) {
    return unmapped(row, "the batch is not stated");
  }
  if (s.gradient_accumulation == 0) s.gradient_accumulation = 1;
  return s;
}

}  // namespace distsetup::accuracy
