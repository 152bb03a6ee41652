// Trainers on Hugging Face's Trainer of 2023 to 2026, by what a row says: ms-swift, axolotl, LLaMA-Factory, TRL with PEFT,
// accelerate's own scripts. What a tool sets unasked, from its documentation: axolotl loads 4-bit weights double-quantised;
// LLaMA-Factory's Liger switch and ms-swift's replace norms, rotation, MLP and loss; the Trainer gives DeepSpeed PyTorch's AdamW, not
// fused, where the DeepSpeed file names no optimizer ("HF default"), and its "auto" sizes are the hidden size squared
// (transformers/integrations/deepspeed.py, HfTrainerDeepSpeedConfig.trainer_config_finalize).
#include <algorithm>

#include "row_setup.h"

namespace distsetup::accuracy {
namespace {

// A row that leaves these open: one sample of 2,048 tokens at a time.
constexpr int64_t kUsualLength = 2048;
// Nor does it name a release: the last of Transformers 4.
constexpr int kUndated = 202509;
// Samples of instruction data sets (self-cognition, alpaca) that are cut at 2,048 tokens and not packed: the longest have about half
// of it; a pair of DPO's has a quarter.
constexpr int64_t kLongestInstruction = 1024, kLongestAnswer = 512;
// Samples that are packed attend to themselves alone (flash attention takes where each begins).
constexpr double kPackedDocument = 2048;

void parallel(Setup& s, const Row& row) {
  const std::string& strategy = row.text("strategy");
  s.framework = Framework::kDdp;
  s.sharding = Sharding::kDdp;
  if (contains(strategy, "ZeRO")) {
    s.framework = Framework::kDeepspeed;
    s.sharding = contains(strategy, "ZeRO-3") ? Sharding::kZero3 : contains(strategy, "ZeRO-1") ? Sharding::kZero1 : Sharding::kZero2;
    if (contains(strategy, "ZeRO-0")) s.sharding = Sharding::kDdp;
    s.cp_method = CpMethod::kUlysses;
    // dp_shard of a row counts the ranks of a sequence too.
    if (s.model.hidden > 0) s.reduce_bucket_elements = s.model.hidden * s.model.hidden;
    s.prefetch_bucket_elements = s.model.hidden * s.model.hidden * 9 / 10;
    if (const auto elements = number_after(row.text("notes"), "reduce bucket "))
      s.reduce_bucket_elements = static_cast<int64_t>(*elements);
    s.hpz = static_cast<int>(number_after(row.text("notes"), "zero_hpz_partition_size ").value_or(1));
    // zero.Init(mem_efficient_linear=False): PyTorch's own linear holds the gathered weight that it saves until backward.
    if (contains(row.text("notes"), "mem_efficient_linear off")) s.max_live_parameters = 1e12;
  } else if (contains(strategy, "FSDP")) {
    s.framework = contains(strategy, "FSDP2") ? Framework::kFsdp2 : Framework::kFsdp1;
    s.sharding = contains(strategy, "SHARD_GRAD_OP") ? Sharding::kZero2 : Sharding::kZero3;
    s.reshard_after_forward = !contains(strategy, "SHARD_GRAD_OP");
  }
  const bool whole = contains(strategy, "NO_SHARD") || contains(strategy, "DDP") || contains(strategy, "DP (no ZeRO)");
  if (s.framework != Framework::kDeepspeed && (whole || s.framework == Framework::kDdp)) {
    s.framework = Framework::kDdp;
    s.sharding = Sharding::kDdp;
    s.dp_replicate *= s.dp_shard;
    s.dp_shard = 1;
  }
}

// What is trained, and how it is stored.
void storage(Setup& s, const Row& row) {
  const std::string& precision = row.text("precision");
  const std::string& stored = row.text("param_dtype");
  const bool sharded_by_deepspeed = s.framework == Framework::kDeepspeed, full = s.finetune == Finetune::kFull;
  const Dtype half = contains(precision, "fp16") ? Dtype::kF16 : Dtype::kBf16;
  if (precision == "fp32") {
    s.parameter_dtype = s.gradient_dtype = s.state_dtype = s.reduce_dtype = s.compute = Dtype::kF32;
    s.master_copy = false;
    return;
  }
  s.compute = half;
  // FSDP and DDP under a mixed precision flag keep fp32 where the row says so; DeepSpeed keeps a master copy; else the model's own 16
  // bits.
  const Dtype kept = full && !sharded_by_deepspeed && stored.starts_with("fp32") ? Dtype::kF32 : half;
  s.parameter_dtype = s.gradient_dtype = s.state_dtype = kept;
  s.reduce_dtype = s.framework == Framework::kDdp ? kept : half;  // DDP reduces gradients as they are
  if (sharded_by_deepspeed) {
    s.master_copy = true;
    s.state_dtype = Dtype::kF32;
    // bf16_master_weights_and_grads, bf16_optimizer_states
    if (row.says("optimizer", "bf16 states") || row.says("notes", "bf16_optimizer_states")) s.state_dtype = Dtype::kBf16;
    const bool low = contains(row.text("notes"), "bf16_master_weights") || contains(precision, "bf16 pure");
    if (low || (full && !stored.empty() && !contains(stored, "master"))) s.master_copy = false;
  }
  if (full) return;
  s.frozen_dtype = stored.starts_with("gptq int4")  ? Dtype::kInt4
                   : stored.starts_with("int8")     ? Dtype::kInt8
                   : s.finetune == Finetune::kQlora ? Dtype::kNf4Double
                   : stored.starts_with("fp16")     ? Dtype::kF16
                                                    : Dtype::kBf16;
  // What peft prepares becomes fp32 where it is not 4-bit; the Trainer's autocast computes in 16 bits all the same.
  if (contains(row.text("notes"), "prepare_model_for_kbit_training"))
    s.software.residual_in_fp32 = s.software.unquantised_in_fp32 = true;
  // axolotl quantises stacks of experts where it is told to; Llama 4's it makes linear layers first.
  s.quantized_experts = has_feature(row, {"experts quantized"}) || row.text("model").starts_with("Llama-4");
  // PEFT's adapters are fp32 (autocast_adapter_dtype); DeepSpeed casts the whole model, and units of FSDP have one type.
  s.lora.dtype = s.framework == Framework::kDdp ? Dtype::kF32 : half;
  s.autocast = s.framework == Framework::kDdp;
  if (s.framework == Framework::kDdp) s.gradient_dtype = s.state_dtype = Dtype::kF32;
}

void optimizer(Setup& s, const Row& row) {
  const std::string& name = row.text("optimizer");
  if (contains(name, "8bit") || contains(name, "8-bit")) s.optimizer = OptimizerKind::kAdamW8bit;
  if (contains(name, "Muon")) s.optimizer = OptimizerKind::kMuon;
  s.paged_optimizer = contains(name, "paged");
  const bool own = contains(name, "FusedAdam") || contains(name, "CPUAdam") || contains(name, "fused");
  // What is on the host is DeepSpeed's own Adam's, unless a script brings PyTorch's.
  const bool on_host =
      s.offload.optimizer != OffloadPlace::kNone && s.framework == Framework::kDeepspeed && !row.says("notes", "not DeepSpeedCPUAdam");
  s.optimizer_implementation =
      own || on_host || s.optimizer == OptimizerKind::kAdamW8bit ? OptimizerImplementation::kFused : OptimizerImplementation::kForeach;
}

void loss(Setup& s, const Row& row) {
  const std::string& notes = row.text("notes");
  s.loss = s.software.released > 0 && s.software.released < 202411 ? LossHead::kHfShift : LossHead::kEager;
  if (has_feature(row, {"liger"})) {
    s.loss = LossHead::kLiger;
    s.fused_norm = s.fused_rope = s.fused_swiglu = !contains(notes, "Liger's loss alone");
  }
  // LLaMA-Factory asks Liger for kernels without its loss where a stage needs logits (model_utils/liger_kernel.py, require_logits).
  if (contains(notes, "its loss is not fused")) s.loss = s.software.released < 202411 ? LossHead::kHfShift : LossHead::kEager;
  if (has_feature(row, {"cut cross entropy"})) s.loss = LossHead::kCutCrossEntropy;
  if (has_feature(row, {"chunked_nll"})) {  // TRL: the head and its loss in chunks, each under a checkpoint
    constexpr int64_t kChunk = 256;
    s.loss = LossHead::kChunkedHead;
    s.loss_chunks = static_cast<int>(std::max<int64_t>(1, s.tokens() / kChunk));
  }
  constexpr int kCutSince = 202411;  // unsloth fa8e59eb1b; before it logits are kept, and their gradient takes their place
  if (contains(row.text("framework"), "unsloth") || contains(notes, "unsloth"))
    s.loss = s.software.released < kCutSince ? LossHead::kFusedKernel : LossHead::kCutCrossEntropy;
}

void lengths(Setup& s, const Row& row) {
  const std::string& notes = row.text("notes");
  if (s.sequence_length == 0) s.sequence_length = kUsualLength;
  if (s.micro_batch == 0) s.micro_batch = 1;
  if (s.gradient_accumulation == 0) s.gradient_accumulation = 1;
  const bool pairs = contains(notes, "DPO"), unpacked = contains(notes, "NOT packed");
  if (unpacked && pairs) s.sequence_length = std::min(s.sequence_length, kLongestAnswer);
  if (unpacked && s.sequence_length <= 2048) s.sequence_length = std::min(s.sequence_length, kLongestInstruction);
  if (contains(notes, "packed to") || contains(notes, "sample packing"))
    s.mean_sequence_fraction = std::min(1.0, kPackedDocument / static_cast<double>(s.sequence_length));
  if (pairs) {  // chosen and rejected
    s.micro_batch *= 2;
    s.frozen_reference = s.finetune == Finetune::kFull;
  }
}

void adapters(Setup& s, const Row& row) {
  if (s.finetune == Finetune::kFull) return;
  const std::string& notes = row.text("notes");
  const Dtype dtype = s.lora.dtype;
  int64_t rank = 0;
  for (const char* before : {"LoRA r=", "LoRA r", "rank "}) {
    if (rank == 0) rank = static_cast<int64_t>(number_after(notes, before).value_or(0));
  }
  const bool some = contains(notes, "q_proj") || contains(notes, "q and v") || contains(notes, "qv");
  const bool attention = contains(notes, "on the attention projections");
  s.lora = lora_targets(some ? "qv" : attention ? "attention" : "all", rank > 0 ? rank : 8);
  s.lora.dropout = number_after(notes, "dropout ").value_or(0);
  s.lora.dtype = dtype;
}

// torch.compile over the whole model, its loss in the graph.
void compile(Setup& s) {
  s.compiled = true;
  s.program = "unknown_compiled";
  s.loss = LossHead::kCompiled;
  s.software.online_softmax = true;
}

// Halo (whitecircle/halo): Transformers' modules under TRL's trainer, FSDP2 and an expert parallelism of its own.
void halo(Setup& s, const Row& row) {
  const std::string& notes = row.text("notes");
  if (contains(notes, "Liger cross-entropy")) s.loss = LossHead::kFusedKernel;
  set_expert_ranks(s, row);
  s.software.lone_experts_apart = true;
  if (contains(notes, "DeepEP")) s.expert_dispatch = ExpertDispatch::kDirect;
  s.cp_method = CpMethod::kUlysses;
  if (row.says("flash_attention", "flash-attn 2")) s.flash_package = 2;
  s.software.flex_attention = row.says("flash_attention", "flex");
  if (s.finetune == Finetune::kFull) return;
  s.lora.dtype = Dtype::kBf16;  // _cast_peft_params_to_compute_dtype
  s.gradient_dtype = s.state_dtype = Dtype::kBf16;
}

}  // namespace

Result<Setup> trainer_row(const Row& row) {
  Row stated = row;
  // The memory of one GPU does not depend on which it is; where none is named, one of 80 GB stands for it.
  for (size_t i = 0; i < columns().size(); ++i) {
    std::string& cell = stated.cells[i];
    if (columns()[i] == "gpu" && (cell.empty() || contains(cell, "not printed")))
      cell = contains(cell, "24GB") ? "RTX 3090" : "A100-80GB";
    if (columns()[i] == "gpus" && cell.empty()) cell = row.says("strategy", "single") ? "1" : "8";
  }
  Result<Setup> common = common_setup(stated);
  if (!common) return common;
  Setup s = *common;
  s.program = "hf_eager";
  if (const size_t at = row.text("notes").find("software of "); at != std::string::npos)
    s.software.released = date_in(row.text("notes").substr(at));
  if (s.software.released == 0) s.software.released = kUndated;
  s.grouped_experts = has_feature(row, {"scattermoe", "grouped_mm"});
  parallel(s, row);
  storage(s, row);
  optimizer(s, row);
  loss(s, row);
  adapters(s, row);
  lengths(s, row);
  const std::string& notes = row.text("notes");
  const std::string& recompute = row.text("activation_ckpt");
  // Open: fine-tuning tools turn it on, and so does what prepares a 4-bit model; plain scripts do not.
  const bool script = row.says("framework", "accelerate run_clm") || row.says("framework", "HF accelerate") ||
                      (row.says("framework", "HF Trainer / PEFT") && s.finetune != Finetune::kQlora);
  s.recompute = recompute == "full" || (recompute.empty() && !script) ? ActivationRecompute::kFull : ActivationRecompute::kNone;
  s.reentrant_checkpoint = !contains(notes, "use_reentrant False") && s.framework != Framework::kFsdp2;
  // accelerate's FSDP2 until 2026-08-19 (its pull request 4172): two norms, attention and MLP of a layer, each from its own input.
  if (contains(notes, "checkpoints each child")) s.recompute_parts = 4;
  if (has_feature(row, {"checkpoints offloaded"})) s.offload.activations = OffloadPlace::kHost;
  // accelerate's cp_comm_strategy: keys and values of all ranks are gathered, unless it is told otherwise.
  if (s.framework == Framework::kFsdp2 && contains(notes, "cp_size")) s.cp_method = CpMethod::kAllGather;
  s.software.gradients_freed_after_step = true;
  // accelerate's no_sync under FSDP: whole gradients until the last micro-batch (concept guide on gradient synchronization).
  // FSDP2 has it since accelerate 1.11 (its pull request 3762).
  constexpr int kFsdp2WholeFrom = 202510;
  s.software.accumulates_whole =
      !contains(notes, "sync_each_batch") &&
      (s.framework == Framework::kFsdp1 || (s.framework == Framework::kFsdp2 && s.software.released >= kFsdp2WholeFrom));
  if (row.says("flash_attention", "FA3")) s.flash_package = 3;
  if (row.says("flash_attention", "FA4")) s.flash_package = 4;
  if (row.text("compile") == "yes") compile(s);
  if (row.says("framework", "Halo")) {
    halo(s, row);
    // benchmark_sft_ep.py trains on filler text.
    if (s.ep > 1) return unmapped(row, "how many rows the busiest expert rank gets is not stated");
  }
  return s;
}

}  // namespace distsetup::accuracy
