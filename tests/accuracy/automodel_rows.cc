// NeMo Automodel and OLMo-core: trainers of their own over FSDP2.
#include <algorithm>

#include "model/count.h"
#include "row_setup.h"

namespace distsetup::accuracy {
namespace {

constexpr Dtype kStored = Dtype::kBf16;  // of Automodel's parameters: torch_dtype "auto" of checkpoints, bf16 of configurations

// Lengths where samples are not packed: each micro-batch is padded to its longest. HellaSwag 79 tokens in the mean (the rows say so),
// SQuAD's contexts with question and answer 180 (arXiv 1606.05250: 120 words of context), Tulu 3's conversations 600.
void set_lengths(Setup& s, const Row& row) {
  const std::string& notes = row.text("notes");
  s.padding_counted = false;  // train_ft.py leaves the tail's padding out (count_tail_padding)
  const bool short_samples = contains(notes, "HellaSwag") && !contains(notes, "packed HellaSwag");
  if (short_samples || contains(notes, "sequences padded to")) {
    s.sample_lengths = {79, 35, 15, true, contains(notes, "sequences padded to")};
    if (s.sequence_length == 0) s.sequence_length = 160;
  }
  if (s.sequence_length > 0) return;
  if (const auto packed = number_after(notes, "packed to ")) {
    s.sequence_length = static_cast<int64_t>(*packed);
  } else if (contains(notes, "SQuAD")) {
    s.sequence_length = 1024;
    s.sample_lengths = {180, 80, 40, true};
  } else if (contains(notes, "tulu")) {
    s.sequence_length = 4096;
    s.sample_lengths = {600, 600, 20, true};
  } else {
    s.sequence_length = s.model.num_experts > 0 ? 4096 : 512;
  }
}

// nemo_automodel/components/loss: MaskedCrossEntropy makes its logits fp32 unless told not to, which the benchmarks of expert models
// do.
LossHead loss_of(const Row& row) {
  const std::string& notes = row.text("notes");
  if (contains(notes, "LC-CE") || contains(notes, "FusedLinear") || contains(notes, "cut cross")) return LossHead::kCutCrossEntropy;
  if (contains(notes, "chunked")) return LossHead::kChunked;
  if (contains(notes, "TE parallel") || contains(notes, "TEParallel")) return LossHead::kFusedKernel;
  const bool benchmark = contains(notes, "fake balanced gate") || contains(notes, "without fp32 upcast");
  return benchmark ? LossHead::kLowPrecision : LossHead::kEager;
}

void set_optimizer(Setup& s, const Row& row) {
  const std::string& optimizer = row.text("optimizer");
  s.parameter_dtype = s.gradient_dtype = s.state_dtype = row.text("param_dtype").starts_with("fp32") ? Dtype::kF32 : kStored;
  s.optimizer_implementation = OptimizerImplementation::kForeach;
  if (contains(optimizer, "TE FusedAdam")) {
    s.optimizer_implementation = OptimizerImplementation::kFused;
    if (contains(optimizer, "fp32 moments")) s.state_dtype = Dtype::kF32;
    s.master_copy = s.parameter_dtype != Dtype::kF32;
    s.master_bytes = contains(optimizer, "remainders") ? 2 : 4;
  }
  if (contains(optimizer, "24-bit master")) {  // 8 bits beside bf16, moments in 8 bits
    s.optimizer = OptimizerKind::kAdamW8bit;
    s.master_copy = true;
    s.master_bytes = 1;
    s.optimizer_implementation = OptimizerImplementation::kFused;
  }
  if (contains(optimizer, "fp32 states")) s.state_dtype = Dtype::kF32;
  if (contains(optimizer, "uon")) s.optimizer = OptimizerKind::kMuon;
}

// Pipelines keep what they gathered; expert models always do, and with enable_fsdp_optimizations (in all recipes with DeepEP) reduce
// gradients once a step; dense ones do by defer_fsdp_grad_sync, unless that would not leave room: it is off in those of 70B.
void set_sharding(Setup& s) {
  const bool experts = s.model.num_experts > 0;
  s.framework = s.dp_shard * s.tp * s.pp * s.cp * s.ep == 1 ? Framework::kDdp : Framework::kFsdp2;
  s.sharding = s.dp_shard * s.cp > 1 ? Sharding::kZero3 : Sharding::kDdp;
  s.reshard_after_forward = !experts && s.pp == 1;
  s.software.wrapping = experts ? UnitWrapping::kAllApart : UnitWrapping::kRoot;
  s.software.last_block_stays_gathered = !experts;
  s.software.lone_experts_apart = true;
  s.software.stays_gathered = experts;
  constexpr double kDeferred = 4e10;  // bytes of whole fp32 gradients
  const double whole = 4.0 * static_cast<double>(count_parameters(s.model).total) / s.tp / s.pp;
  s.software.accumulates_whole = s.gradient_accumulation > 1 && s.finetune == Finetune::kFull && (experts || whole < kDeferred);
}

Setup nemo_row(const Row& row, Setup s) {
  const std::string& notes = row.text("notes");
  const std::string& framework = row.text("framework");
  set_expert_ranks(s, row);
  set_lengths(s, row);
  if (s.micro_batch == 0) s.micro_batch = static_cast<int64_t>(number_after(notes, "lbs ").value_or(1));
  if (s.gradient_accumulation == 0) s.gradient_accumulation = 1;
  // Its schedule runs once for each local batch (components/distributed/pipelining).
  if (s.pp > 1) s.scheduled_micro_batches = static_cast<int64_t>(number_after(notes, "local batch ").value_or(0)) / s.micro_batch;
  set_optimizer(s, row);
  set_sharding(s);
  const bool fused = contains(framework, "TE kernels") || s.model.num_experts > 0;
  // Transformer Engine's norm and attention keep what compiled blocks keep; Hugging Face's models get Liger's kernels.
  const bool as_titan = fused || s.model.attention == Attention::kLatent;
  s.compiled = row.text("compile").starts_with("yes");
  s.program = as_titan || s.compiled ? "torchtitan_compiled" : "hf_fused";
  s.fused_norm = s.fused_rope = true;
  s.software.own_container = true;
  s.software.logits_kept = true;  // the training loop holds the model's output
  s.software.gradients_freed_after_step = true;
  s.software.flex_attention = contains(row.text("flash_attention"), "flex") || contains(notes, "FlexAttn");
  if (contains(notes, "DeepEP") || contains(notes, "HybridEP")) s.expert_dispatch = ExpertDispatch::kDirect;
  s.loss = loss_of(row);
  const std::string& recompute = row.text("activation_ckpt");
  s.recompute = recompute == "full"        ? ActivationRecompute::kFull
                : recompute == "selective" ? ActivationRecompute::kOpSelective
                                           : ActivationRecompute::kNone;
  // components/distributed/activation_checkpointing.py: each norm, attention and MLP by itself; blocks of experts as one.
  if (s.model.num_experts == 0) s.recompute_parts = 4;
  if (s.finetune == Finetune::kFull) return s;
  s.lora =
      lora_targets("all", static_cast<int64_t>(number_after(notes, "LoRA r").value_or(number_after(notes, "rank ").value_or(16))));
  s.lora.dtype = kStored;
  s.frozen_dtype = s.finetune == Finetune::kQlora ? Dtype::kNf4 : Dtype::kBf16;
  return s;
}

// NeMo-RL's DTensor policy of 2025 (nemo_rl/models/policy/dtensor_policy_worker.py, nemo_rl/models/dtensor/parallelize.py):
// Transformers' modules with fp32 shards, gathers in bf16 and fp32 reductions, tensors split by DTensor without sequence parallelism,
// log-probabilities of logits that stay split over the vocabulary. A pair of DPO is two sequences; the reference's weights wait on the
// host.
Setup policy_row(const Row& row, Setup s) {
  s.framework = Framework::kFsdp2;
  s.sharding = Sharding::kZero3;
  s.program = "torchtitan_eager";  // Transformers' own split gathers the logits; here they stay split
  s.sequence_parallel = false;
  s.loss = LossHead::kVocabularyParallel;
  s.optimizer_implementation = OptimizerImplementation::kForLoop;
  s.software.released = date_in(row.text("notes"));
  if (row.says("notes", "DPO")) s.micro_batch *= 2;
  if (row.text("activation_ckpt") == "full") {
    s.recompute = ActivationRecompute::kFull;
    s.recompute_parts = 4;  // norms, attention and MLP each by itself
  }
  return s;
}

// OLMo-core: blocks compiled, fp32 shards, bf16 gathers and fp32 reductions, SkipStepAdamW, cross-entropy in fp32 compiled with the
// head (src/olmo_core/train/train_module/transformer, scripts/train/OLMo2).
Setup olmo_row(const Row& row, Setup s) {
  const std::string& notes = row.text("notes");
  set_expert_ranks(s, row);
  set_replicas(s, row);
  if (s.sequence_length == 0) s.sequence_length = row.says("model", "OLMo-3") ? 8192 : 4096;
  if (s.micro_batch == 0) s.micro_batch = 2 * 4096 / std::min<int64_t>(s.sequence_length, 8192);
  if (s.gradient_accumulation == 0) s.gradient_accumulation = 1;
  if (s.software.released == 0) s.software.released = row.says("model", "OLMo-2") ? 202503 : 202510;  // when these were trained
  const bool alone = s.dp_shard * s.dp_replicate * s.tp * s.cp * s.pp == 1;
  s.framework = alone || row.says("strategy", "DDP") ? Framework::kDdp : Framework::kFsdp2;
  if (row.says("strategy", "DDP")) {
    s.dp_replicate *= s.dp_shard;
    s.dp_shard = 1;
  }
  s.sharding = s.dp_shard * s.cp > 1 ? Sharding::kZero3 : Sharding::kDdp;
  s.reshard_after_forward = s.pp == 1;
  s.compiled = row.text("compile") != "no";
  s.program = s.compiled ? "torchtitan_compiled" : "torchtitan_eager";
  s.loss = contains(notes, "fused") && contains(notes, "loss") ? LossHead::kLiger
           : s.compiled                                        ? LossHead::kCompiled
                                                               : LossHead::kEager;
  s.software.wrapping = UnitWrapping::kAllApart;
  s.software.gradients_freed_after_step = true;
  s.optimizer_implementation = OptimizerImplementation::kForeach;
  s.overlap_tp = contains(notes, "async TP");
  s.cp_method = contains(notes, "ulysses") ? CpMethod::kUlysses : CpMethod::kRing;
  const std::string& recompute = row.text("activation_ckpt");
  if (recompute == "full") s.recompute = ActivationRecompute::kFull;
  if (recompute == "selective") s.recompute = ActivationRecompute::kOpSelective;
  return s;
}

}  // namespace

Result<Setup> automodel_row(const Row& row) {
  Result<Setup> common = common_setup(row);
  if (!common) return common;
  if (row.says("framework", "NeMo-RL")) return policy_row(row, *common);
  return row.says("framework", "OLMo-core") ? olmo_row(row, *common) : nemo_row(row, *common);
}

}  // namespace distsetup::accuracy
