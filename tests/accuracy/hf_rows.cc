// Trainers on Hugging Face transformers: fms-acceleration (FMSA), ms-swift, Qwen's script, fsdp_qlora, PEFT.
// transformers' blocks run eagerly; gradient checkpointing is reentrant; AdamW is torch's foreach implementation (Trainer's default
// adamw_torch until 2025); zero_grad comes right after the step.
#include "base/diagnostic_codes.h"
#include "planner/resolve/releases.h"
#include "row_setup.h"

namespace distsetup::accuracy {
namespace {

// fms-acceleration: without a bf16 flag everything stays in the checkpoint's bf16; with it FSDP keeps fp32 shards. foak = fused
// attention-LoRA, cross-entropy, RMSNorm and rope kernels; liger = fused linear cross-entropy.
void fmsa(Setup& s, const Row& row) {
  const std::string& framework = row.text("framework");
  const bool kernels = contains(framework, "foak");
  s.fused_norm = s.fused_rope = kernels;
  s.grouped_experts = contains(framework, "scattermoe");
  s.loss = contains(framework, "liger") ? LossHead::kLiger : kernels ? LossHead::kFusedKernel : LossHead::kHfShift;
  if (row.says("notes", "packed to 2048")) s.sequence_length = 2048;
  if (s.sequence_length == 0 && row.says("notes", "alpaca")) {  // its lengths: tune_rows.cc
    s.sequence_length = 1024;
    s.sample_lengths = {177.9, 126.4, 26, true};
  }
  // The benches of Granite and of Liger came later than a100_80gb.csv, on transformers 4.45.
  if (s.software.released == 0) s.software.released = 202406;
  const bool quantised = s.finetune == Finetune::kQlora;
  if (s.finetune == Finetune::kFull) {
    s.parameter_dtype = row.text("param_dtype").starts_with("fp32") ? Dtype::kF32 : Dtype::kBf16;
    // On one GPU autocast over bf16 weights changes nothing that is stored.
    s.gradient_dtype = s.state_dtype = s.parameter_dtype;
  } else {
    s.frozen_dtype = quantised ? Dtype::kNf4Double : Dtype::kBf16;
    s.parameter_dtype = Dtype::kBf16;
    s.lora = lora_targets("attention", static_cast<int64_t>(number_after(row.text("notes"), "LoRA r=").value_or(16)));
    s.lora.dtype = Dtype::kF32;  // adapters are trained in fp32
    s.gradient_dtype = s.state_dtype = Dtype::kF32;
  }
  s.reduce_dtype = Dtype::kBf16;
  // peft's prepare_model_for_kbit_training, where the plugin does not replace it: one GPU.
  s.software.residual_in_fp32 = contains(framework, "baseline-peft-bnb") && s.dp_shard == 1;
  set_release(s, built_in_releases("transformers"), s.software.released * 100 + 1);
  s.autocast = contains(row.text("precision"), "autocast");
  s.software.logits_kept = true;  // GPT BigCode's rows show it: 2 bytes per logit, 6 under autocast
  s.software.name = quantised && !contains(framework, "accelerated") ? "transformers baseline bnb" : framework;
}

// ms-swift: LoRA of rank 8 on the attention's projections, every model in bf16.
void swift(Setup& s, const Row& row) {
  s.software.released = 202403;
  s.autocast = true;  // dtype bf16 sets the Trainer's bf16
  // use_flash_attn is named where it is set; Baichuan2-7B's own file calls xformers' memory-efficient attention (0.0.23 was installed)
  if (row.text("flash_attention").empty()) s.flash_attention = row.text("model").starts_with("Baichuan2-7B");
  s.loss = LossHead::kHfShift;
  s.parameter_dtype = s.gradient_dtype = s.state_dtype = Dtype::kBf16;
  // cls-fudan-news-zh: the token statistics that the page prints. truncation_strategy is "delete" (swift/llm/utils/argument.py,
  // template.py): samples above max_length are dropped, so that every row sees all lengths up to its own.
  s.sample_lengths = {3234.4, 2547.5, 91};
  if (s.finetune == Finetune::kFull) return;
  s.lora = lora_targets("qkv", 8);
  s.lora.dtype = Dtype::kF32;
  s.lora.dropout = 0.05;
  s.frozen_dtype = Dtype::kBf16;
  const std::string& stored = row.text("param_dtype");
  if (contains(stored, "gptq int4")) s.frozen_dtype = Dtype::kInt4;
  if (contains(stored, "gptq int8")) s.frozen_dtype = Dtype::kInt8;
  if (contains(stored, "bnb int4")) s.frozen_dtype = Dtype::kNf4;
}

// Qwen's finetune.py: LoRA of rank 64 on c_attn, c_proj, w1, w2; the base model's embedding and head are trained too.
void qwen_script(Setup& s, const Row& row) {
  s.software.released = 202312;
  s.loss = LossHead::kHfShift;
  s.parameter_dtype = s.gradient_dtype = s.state_dtype = Dtype::kBf16;
  const std::string& strategy = row.text("strategy");
  if (strategy.starts_with("ZeRO")) {
    s.framework = Framework::kDeepspeed;
    s.sharding = contains(strategy, "ZeRO-3") ? Sharding::kZero3 : Sharding::kZero2;
    s.master_copy = s.finetune == Finetune::kFull;
    s.state_dtype = Dtype::kF32;
  }
  if (s.finetune == Finetune::kFull) return;
  s.lora = lora_targets("all", 64);
  s.lora.dtype = Dtype::kBf16;
  s.frozen_dtype = row.says("param_dtype", "int4") ? Dtype::kInt4 : Dtype::kBf16;
}

// AnswerDotAI/fsdp_qlora train.py: HF model under FSDP1 with bf16 units, LoRA of rank 64 on all linear layers.
void fsdp_qlora(Setup& s, const Row& row) {
  s.software.released = 202403;
  s.loss = LossHead::kHfShift;
  s.parameter_dtype = s.gradient_dtype = s.state_dtype = Dtype::kBf16;
  s.reduce_dtype = Dtype::kBf16;
  s.frozen_dtype = s.finetune == Finetune::kQlora ? Dtype::kNf4 : Dtype::kBf16;
  s.lora = lora_targets("all", 64);
  s.lora.dtype = Dtype::kBf16;
  s.lora.dropout = 0.1;
  s.reentrant_checkpoint = false;
  if (row.says("notes", "activation offl")) s.offload.activations = OffloadPlace::kHost;
}

void peft(Setup& s, const Row& row) {
  const std::string& notes = row.text("notes");
  s.software.released = 202510;
  s.loss = LossHead::kEager;
  s.parameter_dtype = s.gradient_dtype = s.state_dtype = Dtype::kBf16;
  if (s.finetune == Finetune::kFull) return;
  s.parameter_dtype = Dtype::kBf16;
  s.gradient_dtype = s.state_dtype = Dtype::kF32;
  s.lora = lora_targets(contains(notes, "MLP") ? "mlp" : "qv",
                        static_cast<int64_t>(number_after(notes, contains(notes, "DoRA") ? "DoRA r" : "LoRA r").value_or(32)));
  s.lora.dtype = Dtype::kF32;
  s.frozen_dtype = Dtype::kBf16;
}

}  // namespace

Result<Setup> hf_row(const Row& row) {
  Result<Setup> common = common_setup(row);
  if (!common) return common;
  Setup s = *common;
  const std::string& strategy = row.text("strategy");
  const std::string& framework = row.text("framework");
  s.program = "hf_eager";
  s.framework = Framework::kDdp;
  s.sharding = Sharding::kDdp;
  if (strategy.starts_with("FSDP")) {
    s.framework = Framework::kFsdp1;
    s.sharding = contains(strategy, "NO_SHARD") ? Sharding::kDdp : Sharding::kZero3;
    s.reshard_after_forward = !contains(strategy, "SHARD_GRAD_OP");
  }
  if (contains(strategy, "NO_SHARD") || contains(strategy, "DDP")) {
    s.framework = Framework::kDdp;
    s.dp_replicate = s.dp_replicate * s.dp_shard;
    s.dp_shard = 1;
  }
  s.recompute = row.text("activation_ckpt") == "none" ? ActivationRecompute::kNone : ActivationRecompute::kFull;
  s.reentrant_checkpoint = true;
  s.optimizer_implementation = OptimizerImplementation::kForeach;
  s.software.gradients_freed_after_step = true;
  if (framework.starts_with("HF Trainer + accelerate FSDP")) {
    fmsa(s, row);
  } else if (framework.starts_with("ms-swift")) {
    swift(s, row);
  } else if (framework.starts_with("HF Trainer (+DeepSpeed)")) {
    qwen_script(s, row);
  } else if (framework.starts_with("fsdp_qlora")) {
    fsdp_qlora(s, row);
  } else if (framework.starts_with("HF transformers + peft")) {
    peft(s, row);
  } else {
    return unmapped(row, "the batch and the sequence length are not stated");  // llama-recipes
  }
  return s;
}

}  // namespace distsetup::accuracy
