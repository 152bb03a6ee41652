// Trainers with loops of their own that no constant and no list of kernels was made for: prime-rl, nanotron and the like. What their
// sources say of a run whose settings the row does not name.
#include <algorithm>

#include "row_setup.h"
#include "support/nanotron.h"

namespace distsetup::accuracy {

Setup own_script(const Row& row, Setup s) {
  s.framework = row.text("strategy").starts_with("FSDP1")  ? Framework::kFsdp1
                : row.text("strategy").starts_with("FSDP") ? Framework::kFsdp2
                                                           : Framework::kDdp;
  s.sharding = s.framework == Framework::kDdp ? Sharding::kDdp : Sharding::kZero3;
  if (row.says("strategy", "ZeroRedundancyOptimizer")) s.sharding = Sharding::kZero1;
  if (row.text("strategy").starts_with("ZeRO-")) {  // DeepSpeed's engine over the script's own modules
    s.framework = Framework::kDeepspeed;
    s.sharding = row.says("strategy", "ZeRO-3")   ? Sharding::kZero3
                 : row.says("strategy", "ZeRO-2") ? Sharding::kZero2
                                                  : Sharding::kZero1;
    s.parameter_dtype = s.gradient_dtype = s.reduce_dtype = row.says("precision", "fp16") ? Dtype::kF16 : Dtype::kBf16;
    s.state_dtype = Dtype::kF32;
    s.master_copy = true;
    s.reduce_bucket_elements = static_cast<int64_t>(number_after(row.text("notes"), "reduce bucket ").value_or(0));
  }
  s.compiled = row.text("compile") == "yes";
  s.program = s.compiled ? "unknown_compiled" : "unknown";
  s.recompute = row.text("activation_ckpt") == "full" ? ActivationRecompute::kFull : ActivationRecompute::kNone;
  s.loss = s.compiled ? LossHead::kCompiled : LossHead::kEager;
  // One graph from tokens to loss: its logits stay in 16 bits, and are most often returned beside the loss.
  s.software.online_softmax = s.compiled;
  s.software.logits_kept = s.compiled && !row.says("notes", "returns the loss alone");
  s.optimizer_implementation = row.says("optimizer", "foreach") ? OptimizerImplementation::kForeach
                               : row.says("optimizer", "loop")  ? OptimizerImplementation::kForLoop
                                                                : OptimizerImplementation::kFused;
  // Under autocast an embedding's fp32 rows start the residual stream, and norms compute in fp32.
  s.autocast = row.says("precision", "autocast");
  s.software.residual_in_fp32 = s.autocast && s.parameter_dtype == Dtype::kF32;
  s.flash_package = row.says("flash_attention", "FA3") ? 3 : row.says("flash_attention", "FA2") ? 2 : 0;
  if (row.text("precision").starts_with("fp32")) s.compute = Dtype::kF32;
  s.software.tf32_products = row.says("precision", "TF32");
  // FSDP(model) without a policy of precision: autocast casts what was gathered.
  s.software.gathers_as_stored = s.framework == Framework::kFsdp1 && s.autocast && !row.says("notes", "MixedPrecision policy");
  if (row.says("notes", "one unit")) s.software.wrapping = UnitWrapping::kWhole;
  return s;
}

namespace {

// prime-rl of 2026-01 (src/prime_rl/trainer/model.py, lora.py, models/layers/lora): FSDP2 over fp32 shards with bf16 gathers and fp32
// reductions, every block compiled, PyTorch's AdamW; embedding, and head with norm, in units of their own where they are not tied. Its
// RL trainer computes log-probabilities in chunks of the vocabulary, its SFT trainer the loss of whole fp32 logits, which the loop
// holds. Frozen weights stay fp32. Adapters of experts are one product on Hopper; elsewhere each expert's rows pass by themselves.
Setup prime_row(const Row& row, Setup s) {
  constexpr int kReleased = 202601;
  s.framework = Framework::kFsdp2;  // of one GPU, too
  s.sharding = s.dp_shard > 1 ? Sharding::kZero3 : Sharding::kDdp;
  s.program = "torchtitan_compiled";
  s.compiled = true;
  s.software.released = kReleased;
  s.software.wrapping = s.model.tied_embeddings ? UnitWrapping::kRoot : UnitWrapping::kAllApart;
  s.recompute = ActivationRecompute::kFull;
  s.optimizer_implementation = OptimizerImplementation::kForeach;
  const bool rl = row.says("notes", "RL trainer");
  s.loss = rl ? LossHead::kCutCrossEntropy : LossHead::kFloatInModel;  // cast_float_and_contiguous
  // Its log-probabilities and entropy by PyTorch's operations in fp32, chunk by chunk, and again in backward
  // (models/layers/lm_head.py, _ChunkedLogProbEntropyFn): 56 bytes a logit and 60.
  if (rl) s.loss_bytes_per_logit = 56 + 60;
  s.software.logits_kept = !rl;
  s.flash_package = row.says("flash_attention", "FA3") ? 3 : 2;
  if (row.says("notes", "activation CPU offload")) s.offload.activations = OffloadPlace::kHost;
  if (s.finetune == Finetune::kFull) return s;
  s.lora = lora_targets("all", 16);
  s.lora.dtype = Dtype::kBf16;
  s.frozen_dtype = Dtype::kF32;
  s.adapters_in_turn = !s.gpu.name.starts_with("h");
  return s;
}

// nanotron of 2024-07 under bench_cluster's template: 1F1B, FlashAttention 2, reductions without overlap.
Setup nanotron_row(const Row& row, Setup s) {
  constexpr int kReleased = 202407;
  set_nanotron(s);
  s.optimizer_implementation = OptimizerImplementation::kFused;
  s.fused_norm = true;
  s.recompute = row.text("activation_ckpt") == "full" ? ActivationRecompute::kFull : ActivationRecompute::kNone;
  s.flash_package = 2;
  s.model.tied_embeddings = true;
  s.software.released = kReleased;
  return s;
}

// canifinetune (bench/runner.py, 2026-07): the model in bf16 or 4 bits, peft's preparation of the latter, adapters on the attention's
// projections in fp32, no autocast, the loss read before backward.
Setup canifinetune_row(Setup s) {
  constexpr int kReleased = 202606;
  const bool quantised = s.finetune == Finetune::kQlora;
  s.framework = Framework::kDdp;
  s.sharding = Sharding::kDdp;
  s.program = "hf_eager";
  s.parameter_dtype = Dtype::kBf16;
  s.frozen_dtype = quantised ? Dtype::kNf4Double : Dtype::kBf16;
  s.software.residual_in_fp32 = s.software.unquantised_in_fp32 = quantised;
  s.lora = lora_targets("attention", 16);
  s.lora.dtype = Dtype::kF32;
  s.gradient_dtype = s.state_dtype = Dtype::kF32;
  s.loss = LossHead::kEager;
  s.software.logits_kept = true;  // in the model's output
  s.optimizer = OptimizerKind::kAdamW8bit;
  s.optimizer_implementation = OptimizerImplementation::kFused;
  s.paged_optimizer = true;
  s.reentrant_checkpoint = true;
  s.software.released = kReleased;
  s.software.gradients_freed_after_step = true;
  return s;
}

// fitcheck (scripts/measure.py): the same in fp16, PyTorch's AdamW, checkpoints without reentry.
Setup fitcheck_row(const Row& row, Setup s) {
  s.recompute = ActivationRecompute::kFull;
  s = canifinetune_row(s);
  s.parameter_dtype = Dtype::kF16;
  if (s.finetune == Finetune::kQlora) s.frozen_dtype = Dtype::kNf4;
  if (s.finetune == Finetune::kLora) s.frozen_dtype = Dtype::kF16;
  s.lora = lora_targets("attention", static_cast<int64_t>(number_after(row.text("notes"), "LoRA r").value_or(16)));
  s.lora.dtype = Dtype::kF32;
  s.optimizer = OptimizerKind::kAdamW;
  s.optimizer_implementation = OptimizerImplementation::kForeach;
  s.paged_optimizer = false;
  s.reentrant_checkpoint = false;
  return s;
}

// universal-llm-trainer (src/models/llama3.py, trainer/trainer.py, 2025-08): Transformers' modules under a loop of its own; the loss
// of the model's 16-bit logits without their last position; adapters in fp32 and no autocast; 4-bit models as peft prepares them.
Setup universal_row(const Row& row, Setup s) {
  constexpr int kReleased = 202502;
  const bool sharded = row.text("strategy").starts_with("FSDP"), quantised = s.finetune == Finetune::kQlora;
  s.framework = sharded ? Framework::kFsdp1 : Framework::kDdp;
  s.sharding = sharded ? Sharding::kZero3 : Sharding::kDdp;
  s.program = "hf_eager";
  s.parameter_dtype = s.gradient_dtype = s.state_dtype = s.reduce_dtype = Dtype::kBf16;
  s.recompute = ActivationRecompute::kFull;
  s.reentrant_checkpoint = true;
  s.loss = quantised ? LossHead::kEager : LossHead::kLowPrecision;
  s.optimizer_implementation = OptimizerImplementation::kForeach;
  s.software.released = kReleased;
  s.software.residual_in_fp32 = s.software.unquantised_in_fp32 = quantised;
  if (s.finetune == Finetune::kFull) return s;
  s.frozen_dtype = quantised ? Dtype::kNf4Double : Dtype::kBf16;
  s.lora = lora_targets("all", 8);
  s.lora.dtype = sharded ? Dtype::kBf16 : Dtype::kF32;
  s.lora.dropout = 0.05;
  if (!sharded) s.gradient_dtype = s.state_dtype = Dtype::kF32;
  return s;
}

// VectorLM (profiling/configs, 2024-05): Transformers' modules under FSDP1, every block a unit.
Setup vectorlm_row(const Row& row, Setup s) {
  constexpr int kReleased = 202404;
  s = own_script(row, s);
  s.program = "hf_eager";
  s.state_dtype = Dtype::kBf16;
  s.optimizer_implementation = OptimizerImplementation::kForeach;
  s.software.released = kReleased;
  if (s.finetune == Finetune::kFull) return s;
  s.frozen_dtype = Dtype::kBf16;
  s.lora = lora_targets("qv", 8);
  s.lora.dtype = Dtype::kBf16;
  return s;
}

// minGPT under Lightning Lite (2022-12) and PyTorch 1.13, whose FSDP gathers without a limit.
Setup mingpt_row(const Row& row, Setup s) {
  constexpr int kReleased = 202212;
  s = own_script(row, s);
  s.software.released = kReleased;
  s.software.limit_all_gathers = false;
  return s;
}

// forgather's trainer (examples/tiny_experiments/peak_memory, 2025): Adafactor of its own, in backward where the configuration says
// so.
Setup forgather_row(const Row& row, Setup s) {
  s = own_script(row, s);
  s.optimizer = OptimizerKind::kAdafactor;
  s.optimizer_implementation =
      row.says("optimizer", "in backward") ? OptimizerImplementation::kInBackward : OptimizerImplementation::kForLoop;
  return s;
}

// Transformers' modules in a loop of PyTorch's: nntile's reference, an exercise in DDP, vsa_embed, SmolLM3 on FSDP2. Plain SGD has no
// temporaries. vsa_embed's adapters are PEFT's, in fp32.
Setup module_loop_row(const Row& row, Setup s) {
  s = own_script(row, s);
  s.program = "hf_eager";
  if (row.text("optimizer") == "SGD") s.optimizer = OptimizerKind::kSgd;
  s.reshard_after_forward = !row.says("strategy", "SHARD_GRAD_OP");
  s.software.released = date_in(row.text("notes"));
  if (s.finetune == Finetune::kFull) return s;
  s.frozen_dtype = s.parameter_dtype;
  s.lora = lora_targets("all", static_cast<int64_t>(number_after(row.text("notes"), "LoRA r=").value_or(8)));
  s.lora.dtype = s.gradient_dtype = s.state_dtype = Dtype::kF32;
  return s;
}

}  // namespace

bool is_own_loop(const Row& row) {
  const std::string& framework = row.text("framework");
  if (begins_any(row, {"canifinetune",
                       "fitcheck",
                       "LLMs-from-scratch",
                       "lai-proj",
                       "llm_TII",
                       "distributed-training-guide",
                       "adana",
                       "nanogpt-speedrun",
                       "universal-llm-trainer",
                       "single-file GPT-2",
                       "Paxml",
                       "nanoGPT",
                       "OKE benchmark",
                       "GPT-2 study",
                       "VectorLM",
                       "minGPT",
                       "nntile HF",
                       "vsa_embed",
                       "DDP exercise",
                       "SmolLM3 on",
                       "CS336",
                       "mini-llm-pretraining",
                       "GPT2-Optimization",
                       "build-nanogpt",
                       "forgather"}))
    return true;
  return framework == "prime-rl" || framework == "nanotron";
}

Result<Setup> loop_row(const Row& row) {
  Result<Setup> common = common_setup(row);
  if (!common) return common;
  const std::string& framework = row.text("framework");
  if (framework == "prime-rl") return prime_row(row, *common);
  if (framework == "nanotron") return nanotron_row(row, *common);
  if (framework.starts_with("fitcheck")) return fitcheck_row(row, *common);
  if (framework.starts_with("universal-llm")) return universal_row(row, *common);
  if (framework.starts_with("VectorLM")) return vectorlm_row(row, *common);
  if (framework.starts_with("minGPT")) return mingpt_row(row, *common);
  if (framework.starts_with("forgather")) return forgather_row(row, *common);
  if (begins_any(row, {"nntile HF", "vsa_embed", "DDP exercise", "SmolLM3 on"})) return module_loop_row(row, *common);
  if (!framework.starts_with("canifinetune")) return own_script(row, *common);
  common->recompute = row.text("activation_ckpt") == "full" ? ActivationRecompute::kFull : ActivationRecompute::kNone;
  return canifinetune_row(*common);
}

}  // namespace distsetup::accuracy
