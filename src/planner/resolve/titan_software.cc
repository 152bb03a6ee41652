// Dates are those of the repository's history:
//   2024-06-12  logits are deleted before backward (before: kept)            e29b6b4d4
//   mid-2024    reduce-scatter inputs come from the default stream's pool    PyTorch, fully_shard
//   2024-10-22  run_train.sh sets expandable_segments; logits become fp32 in the loss, not in the model   a5e57e4a9, e10cb9494
//   2024-10-22 to 2024-12-18, and from 2025-04: --compile compiles the loss too
//   2024-11-26 to 2025-02-06: aten.abs is on the list of op-selective recompute (88247277c takes it off)
//   2025-02-24  AdamW is fused (before: foreach)                             6e4988550
//   2025-07     PyTorch 2.8: a compiled loss needs no fp32 copy of the logits
//   2025-07-28  embedding, blocks, and norm with head are units of their own (before: one root unit, last block not resharded)
//   83e694105
//   2025-12     cuDNN's attention, which SDPA takes on Blackwell, is on that list                         b39377f9f
//   2026-04-27  cross-entropy in chunks, head included (not in graph_trainer) 786e26f8e, 858a4ac99
//   2026-06-24  q, k and v come from one matrix                              3396a4b37
#include "planner/resolve/titan_software.h"

#include "planner/time/constants.h"

namespace distsetup {

void set_titan_software(Setup& s, int date) {
  Software& w = s.software;
  w.released = date / 100;
  w.logits_kept = date < 20240612;
  w.reduce_scatter_pool = date < 20240701;
  w.expandable_segments = date >= 20241022;
  const bool apart = date >= 20250728;
  w.wrapping = apart ? UnitWrapping::kAllApart : UnitWrapping::kRoot;
  w.last_block_stays_gathered = !apart;
  w.gradients_freed_after_step = false;  // zero_grad() opens the step
  w.fp8_abs_saved = date >= 20241126 && date <= 20250206;
  w.attention_recomputed = date < 20251201 && gpu_generation(s.gpu) == GpuGeneration::kBlackwell;
  w.fused_qkv = date >= 20260624;
  w.compiled_loss_gathers = date < 20250101;
  w.online_softmax = date >= 20250701 && s.gpu.vendor == "nvidia";
  w.complex_rotary = s.program.starts_with("torchtitan") && !s.model.qk_norm_present();  // its Llama; its Qwen3 has sines and cosines
  s.optimizer_implementation = date >= 20250224 ? OptimizerImplementation::kFused : OptimizerImplementation::kForeach;
  s.loss = titan_loss(date, s.compiled);
}

LossHead titan_loss(int date, bool compiled) {
  if (date >= kTitanHeadInChunks) return LossHead::kChunkedHead;
  if (date < 20241022) return LossHead::kFloatInModel;
  return compiled && (date < 20241218 || date >= 20250401) ? LossHead::kCompiled : LossHead::kEager;
}

}  // namespace distsetup
