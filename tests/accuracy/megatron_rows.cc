// Megatron-Core (Megatron-Bridge, NeMo, DGX Cloud recipes, SimuMax's runs), Megatron-LM of 2022 and Megatron-DeepSpeed.
#include <algorithm>

#include "megatron_notes.h"
#include "row_setup.h"

namespace distsetup::accuracy {
namespace {

// Megatron's mixed precision: 16-bit parameters, fp32 gradient buffer, fp32 master and moments sharded by the distributed optimizer.
void mixed_precision(Setup& s, Dtype half) {
  s.parameter_dtype = half;
  s.gradient_dtype = s.reduce_dtype = s.state_dtype = Dtype::kF32;
  s.master_copy = true;
  s.optimizer_implementation = OptimizerImplementation::kFused;
}

Result<Setup> core_row(const Row& row, Setup s) {
  const std::string& software = row.text("software");
  const std::string& notes = row.text("notes");
  s.program = "megatron_te";
  s.framework = Framework::kMegatron;
  s.sharding = row.says("strategy", "distributed optimizer") || row.text("strategy").empty() ? Sharding::kZero1 : Sharding::kDdp;
  mixed_precision(s, row.text("precision").starts_with("fp16") ? Dtype::kF16 : Dtype::kBf16);
  // Megatron-LM adds gradients up in fp32 where it trains in bf16, and in fp16 as they are (arguments.py).
  if (s.parameter_dtype == Dtype::kF16 && row.says("grad_reduce_dtype", "fp16")) s.gradient_dtype = s.reduce_dtype = Dtype::kF16;
  s.fused_norm = s.fused_rope = true;
  s.loss = LossHead::kFusedKernel;
  if (s.tp > 1) s.loss = LossHead::kVocabularyParallel;
  const bool command_line = contains(notes, "flags: ");
  s.sequence_parallel = s.tp > 1 && (!command_line || contains(notes, "sequence-parallel"));
  // Megatron's own fusion of the loss, unless Transformer Engine's is named; a command line that names none has none.
  if (contains(notes, "native fused CE") || row.says("framework", "Megatron-SWIFT")) s.loss = LossHead::kCompiled;
  if (command_line) s.loss = contains(notes, "cross-entropy-loss-fusion") ? LossHead::kCompiled : LossHead::kEager;
  if (contains(notes, "cross-entropy-fusion-impl=te")) s.loss = LossHead::kFusedKernel;
  s.overlap_tp = s.tp > 1 && s.sequence_parallel && !row.says("framework", "Megatron-LM") &&
                 !row.says("framework", "Primus");  // NeMo and Bridge recipes turn user buffers on
  s.cp_method = contains(notes, "Ulysses") ? CpMethod::kUlysses : CpMethod::kRing;
  const std::string& recompute = row.text("activation_ckpt");
  // Recipes that print no recomputation have none: flash attention already recomputes its softmax.
  s.recompute = recompute == "full"        ? ActivationRecompute::kFull
                : recompute == "selective" ? ActivationRecompute::kAttentionOnly
                                           : ActivationRecompute::kNone;
  if (!row.says("framework", "Megatron-LM") && !row.says("framework", "SWIFT")) {
    // Megatron-LM's own default is fp32 (arguments.py), and Megatron-SWIFT leaves it there. The performance recipes of NeMo and
    // Megatron-Bridge keep and reduce gradients in bf16 (grad_reduce_in_fp32 = False).
    s.gradient_dtype = s.reduce_dtype = Dtype::kBf16;
    // Their fp8 recipes hold the weights of linear layers in fp8 alone (fp8_param_gather;
    // megatron/bridge/training/mixed_precision.py).
    const bool fp8_weights = s.fp8 == Fp8Recipe::kDelayed || s.fp8 == Fp8Recipe::kTensorwise || s.fp8 == Fp8Recipe::kMxfp8;
    if (s.compute == Dtype::kF8 && fp8_weights && s.finetune == Finetune::kFull) s.parameter_dtype = Dtype::kF8;
  }
  // From d7c7db3ad (2026-02-16) to b10e58df5 (2026-06-18) its switch for fp32 gradients did not reach Megatron-Core; until 4.3.1 the
  // loss is Transformer Engine's.
  if (row.says("framework", "SWIFT") && contains(notes, "ms-swift 4.1")) {
    s.gradient_dtype = s.reduce_dtype = Dtype::kBf16;
    s.loss = LossHead::kFusedKernel;
  }
  if (row.says("strategy", "Megatron-FSDP")) {
    s.sharding = Sharding::kZero3;
    // The 70B and 405B recipes on Megatron-FSDP offload the activations of a third to half of the layers (cpu_offloading_num_layers).
    if (s.model.hidden >= 8192) s.offload.activations = OffloadPlace::kHost;
  }
  if (contains(software, "container 26.")) {
    s.software.released = 202604;
  } else if (contains(software, "container 25.")) {
    s.software.released = 202510;
  } else if (row.says("framework", "24.")) {
    s.software.released = 202407;
  } else if (row.says("framework", "25.04")) {
    s.software.released = 202504;
  }
  // NeMo's performance recipes (nemo/collections/llm/recipes/llama3_8b.py, performance_mode, 2025): gradients reduced in bf16; LoRA on
  // linear_qkv alone.
  if (row.says("framework", "NeMo") || row.says("framework", "Megatron-Bridge")) s.reduce_dtype = Dtype::kBf16;
  if (s.finetune != Finetune::kFull) {
    s.lora =
        lora_targets(contains(notes, "linear_fc1") ? "all" : "qkv", static_cast<int64_t>(number_after(notes, "LoRA r=").value_or(16)));
    s.lora.dtype = Dtype::kBf16;
    s.frozen_dtype = Dtype::kBf16;
  }
  if (row.says("optimizer", "bf16 states")) {  // Apex's DistributedFusedAdam(dtype=bf16): moments and master are of that type
    s.state_dtype = Dtype::kBf16;
    s.master_bytes = 2;
  }
  if (s.gradient_accumulation == 0) s.gradient_accumulation = 1;
  read_megatron_notes(row, s);
  return s;
}

// Before flash attention: softmax and its dropout keep the scores. Megatron-LM of 2022 shards sequences where the notes say so.
Result<Setup> gpt_row(const Row& row, Setup s) {
  const std::string& strategy = row.text("strategy");
  s.program = "megatron_gpt";
  s.framework = Framework::kMegatron;
  mixed_precision(s, row.says("param_dtype", "bf16") ? Dtype::kBf16 : Dtype::kF16);
  s.sharding = contains(strategy, "ZeRO-1") ? Sharding::kZero1 : Sharding::kDdp;
  s.flash_attention = row.says("flash_attention", "yes");
  s.sequence_parallel = row.says("notes", "sequence parallel") && s.tp > 1;
  s.loss = s.tp > 1 ? LossHead::kVocabularyParallel : LossHead::kEager;
  const std::string& recompute = row.text("activation_ckpt");
  s.recompute = recompute == "full"        ? ActivationRecompute::kFull
                : recompute == "selective" ? ActivationRecompute::kAttentionOnly
                                           : ActivationRecompute::kNone;
  s.software.released = 202110;
  if (row.says("framework", "Megatron-LM")) {
    s.software.released = 202205;
    if (!row.says("notes", "overlap")) s.overlap_grad_reduce = s.overlap_param_gather = false;  // since 2023-10 by flags
    // Table 3 of arXiv 2205.05198: the 175B and 530B models interleave 3 stages a rank.
    if (s.pp == 8 || s.pp == 35) s.virtual_stages = 3;
    s.fused_norm = true;
  }
  if (row.says("framework",
               "DeepSpeed")) {  // Megatron's layers under DeepSpeed's engine: ZeRO-1 keeps 16-bit gradients until the step
    s.framework = Framework::kDeepspeed;
    if (contains(strategy, "ZeRO-2")) s.sharding = Sharding::kZero2;
    if (contains(strategy, "ZeRO-3")) s.sharding = Sharding::kZero3;
    if (s.cp > 1) s.cp_method = CpMethod::kUlysses;
    const bool fp32_sums = s.parameter_dtype == Dtype::kBf16 && row.says("grad_reduce_dtype", "fp32");  // BF16_Optimizer
    s.gradient_dtype = s.reduce_dtype = fp32_sums ? Dtype::kF32 : s.parameter_dtype;
  }
  if (row.says("framework", "metaseq")) {  // fairscale's FSDP keeps what it gathered, and no master copy
    s.framework = Framework::kDeepspeed;
    s.sharding = Sharding::kZero2;
    s.master_copy = false;
    s.gradient_dtype = s.reduce_dtype = s.parameter_dtype;
  }
  if (s.gradient_accumulation == 0) s.gradient_accumulation = 1;
  return s;
}

// What a source leaves open, as its tool's defaults or the least that runs it: sequences of 4096, one a micro-batch; tests of whole
// training runs take 8 nodes of 8 GPUs.
Row with_defaults(const Row& row) {
  Row stated = row;
  const auto set_blank = [&](std::string_view column, const std::string& value) {
    for (size_t i = 0; i < columns().size(); ++i) {
      if (columns()[i] == column && stated.cells[i].empty()) stated.cells[i] = value;
    }
  };
  const int64_t ranks = row.integer("tp", 1) * row.integer("cp", 1) * row.integer("pp", 1);
  // Megatron-Bridge's page on memory states TP alone: one model-parallel group.
  set_blank("gpus", row.text("gpu").empty() ? std::to_string(ranks)
                                            : std::to_string((std::max<int64_t>(64, ranks) + ranks - 1) / ranks * ranks));
  set_blank("micro_batch_per_gpu", "1");
  set_blank("seq_len", "4096");
  return stated;
}

}  // namespace

Result<Setup> megatron_row(const Row& given) {
  if (given.says("framework", "zero-bubble")) return unmapped(given, "the sequence length and the micro-batches are not stated");
  if (given.says("notes", "seq/gbs are doubtful"))
    return unmapped(given, "its printed times are more than the GPUs can do: the sequence or the batch is another");
  if (given.says("framework", "SWIFT") && given.says("notes", "filled to an unknown part"))
    return unmapped(given, "how far samples fill the packed length is not stated");
  const Row row = with_defaults(given);
  Result<Setup> common = common_setup(row);
  if (!common) return common;
  const std::string& framework = row.text("framework");
  const bool local_modules =
      (is_unread_row(row) && !is_core_row(row)) || framework == "Megatron-DeepSpeed" ||
      (framework == "Megatron-LM" && row.text("flash_attention") == "no" && !row.says("notes", "transformer-impl"));
  return local_modules ? gpt_row(row, *common) : core_row(row, *common);
}

}  // namespace distsetup::accuracy
