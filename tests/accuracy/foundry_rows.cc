// llm-foundry on Composer (FSDP1, MPT blocks) and IBM's fms-fsdp (FSDP1, Llama).
#include "row_setup.h"

namespace distsetup::accuracy {

// scripts/train/benchmarking of llm-foundry: fp32 masters, bf16 units; PURE also reduces in bf16, DEFAULT in what Composer's version
// does (fp32 since 2023-06). Flash attention is the Triton kernel in the first table, flash-attn 2 later. full = every block.
Result<Setup> foundry_row(const Row& row) {
  Result<Setup> common = common_setup(row);
  if (!common) return common;
  Setup s = *common;
  const std::string& strategy = row.text("strategy");
  s.framework = Framework::kFsdp1;
  s.sharding = Sharding::kZero3;
  s.reshard_after_forward = !contains(strategy, "SHARD_GRAD_OP");
  s.parameter_dtype = s.gradient_dtype = s.state_dtype = Dtype::kF32;
  s.optimizer_implementation = OptimizerImplementation::kForeach;
  s.software.gradients_freed_after_step = true;
  const std::string& recompute = row.text("activation_ckpt");
  s.recompute = recompute == "full" ? ActivationRecompute::kFull : ActivationRecompute::kNone;
  if (row.says("framework", "llm-foundry")) {
    s.program = "hf_eager";  // MPT blocks: LayerNorm, GELU, biases as the geometry says
    const bool old = row.says("software", "torch 1.13");
    s.software.released = old ? 202303 : row.says("gpu", "H100") ? 202309 : 202306;
    s.software.name = old ? "llm-foundry, torch 1.13" : "llm-foundry";
    s.reduce_dtype = row.says("notes", "PURE") ? Dtype::kBf16 : Dtype::kF32;
    s.loss = LossHead::kLowPrecision;  // loss_fn: fused_crossentropy, flash-attn's kernel on the 16-bit logits
    s.reentrant_checkpoint = false;
    return s;
  }
  // fms-fsdp: bf16 policy over fp32 parameters for compute and reduction; selective recomputes every k-th block.
  s.compiled = row.text("compile").starts_with("yes");
  s.program = s.compiled ? "torchtitan_compiled" : "torchtitan_eager";
  s.software.released = 202403;
  s.reduce_dtype = Dtype::kBf16;
  s.optimizer_implementation = OptimizerImplementation::kFused;
  s.loss = LossHead::kEager;
  if (s.micro_batch == 0 || s.sequence_length == 0) return unmapped(row, "the batch is not stated");
  if (recompute == "selective") {
    s.recompute = ActivationRecompute::kEveryK;
    s.recompute_every_k = 3;  // selective checkpointing of a third of the blocks (README: p = 1/3)
  }
  return s;
}

}  // namespace distsetup::accuracy
