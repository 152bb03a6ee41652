// DeepSpeed under transformers (ml-engineering), xtuner, InternEvo, ATorch, EasyContext.
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
  if (framework.starts_with("DeepSpeed")) {  // ml-engineering: Liger kernels, CPU Adam, DeepSpeed 0.19
    s.software.released = row.says("notes", "torch 2.13") ? 202610 : 202606;
    s.loss = LossHead::kLiger;
    s.fused_norm = s.fused_rope = true;
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
