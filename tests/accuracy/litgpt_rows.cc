// litgpt (LoRA and full fine-tuning on one to four GPUs) and thunder's benchmark of litgpt models.
// litgpt: Fabric's bf16-true keeps everything in bf16, AdamW is torch.optim.AdamW (foreach on CUDA); one GPU runs without
// recomputation, FSDP with it. Sequence lengths of dynamically padded data are the longest example, as the rows state them.
#include <algorithm>

#include "row_setup.h"

namespace distsetup::accuracy {
namespace {

void set_lora(Setup& s, const Row& row) {
  const std::string& notes = row.text("notes");
  if (contains(notes, "Adapter v2") || contains(notes, "Adapter;")) {
    // LLaMA-Adapter (arXiv 2303.16199): prompts in the attention of all but two layers. As adapters of the same trainable size on q
    // and v; v2 adds a scale and a bias to every linear, which makes all of them keep their input.
    s.lora = lora_targets(contains(notes, "Adapter v2") ? "all" : "qv", 1);
  } else {
    s.lora =
        lora_targets(contains(notes, "all linear") ? "all" : "qv", static_cast<int64_t>(number_after(notes, "LoRA r").value_or(8)));
    s.lora.dropout = 0.05;
  }
  s.lora.dtype = s.parameter_dtype;
}

void set_storage(Setup& s, const Row& row) {
  const std::string& precision = row.text("precision");
  s.parameter_dtype = s.gradient_dtype = s.state_dtype = s.reduce_dtype = contains(precision, "mixed") ? Dtype::kF32 : Dtype::kBf16;
  s.autocast = contains(precision, "mixed");
  s.frozen_dtype = s.parameter_dtype;
  const bool double_quantised = row.says("param_dtype", "dq");
  if (s.finetune == Finetune::kQlora) s.frozen_dtype = double_quantised ? Dtype::kNf4Double : Dtype::kNf4;
}

// A model's block size in litgpt: what "seq = model block size" means.
int64_t block_size(const Row& row) {
  const std::string& model = row.text("model");
  if (model.starts_with("LongChat-13B-16k") || model.starts_with("Vicuna-7B-16k") || model.starts_with("CodeLlama-34B")) return 16384;
  if (model.starts_with("stablecode-completion-alpha-3b")) return 16384;
  if (const auto stated = number_after(row.text("notes"), "block size ")) return static_cast<int64_t>(*stated);
  if (model.starts_with("Mistral-7B")) return 32768;
  if (model.starts_with("Llama-3-")) return 8192;
  if (model.starts_with("Llama-2-") || model.starts_with("Phi-3")) return 4096;
  return 0;
}

Result<Setup> thunder_row(const Row& row, Setup s) {
  const std::string& strategy = row.text("strategy");
  const std::string& compile = row.text("compile");
  set_storage(s, row);
  // litgpt without the copy came into thunder's benchmark with its pull requests of 2024-12.
  s.software.attention_output_copied = s.software.released < 202412;
  s.software.released = 202408;
  s.software.own_container = true;
  s.compiled = compile != "no";
  s.program = s.compiled ? "litgpt_compiled" : "litgpt_eager";
  if (strategy.starts_with("single") || strategy == "DDP") {
    s.framework = Framework::kDdp;
    s.sharding = Sharding::kDdp;
  } else {
    s.framework = contains(strategy, "FSDP2") ? Framework::kFsdp2 : Framework::kFsdp1;
    s.sharding = Sharding::kZero3;
    s.reshard_after_forward = !contains(strategy, "zero2");
  }
  if (s.framework == Framework::kDdp && strategy == "DDP" && s.dp_shard > 1) std::swap(s.dp_shard, s.dp_replicate);
  s.recompute = row.text("activation_ckpt") == "full" ? ActivationRecompute::kFull : ActivationRecompute::kNone;
  s.loss = LossHead::kLowPrecision;  // cross-entropy on bf16 logits
  s.software.logits_kept = true;
  s.optimizer_implementation = OptimizerImplementation::kFused;
  // thunder/benchmarks/benchmark_litgpt.py. Pull request 1528 sets force_recompute_fp8_weight_in_bwd; its rows before the change print
  // the same bytes as those with fp8 all-gather of bdc1e8ae1, and have it.
  if (row.says("precision", "torchao")) {
    s.fp8_all_gather = row.says("notes", "fp8 all-gather");
    s.software.fp8_weights_saved = !row.says("notes", "after (grad buffer freed earlier)");
  }
  if (s.sequence_length == 0) s.sequence_length = block_size(row);
  if (s.micro_batch == 0) {  // the benchmark's default
    s.micro_batch = 1;
    s.gradient_accumulation = 1;
  }
  if (row.says("notes", "torchtitan comparison row")) {
    s.program = "torchtitan_eager";
    s.compiled = false;
    s.recompute = ActivationRecompute::kOpSelective;
    s.loss = LossHead::kEager;
    s.software.logits_kept = false;
  }
  return s;
}

}  // namespace

Result<Setup> litgpt_row(const Row& row) {
  Row stated = row;
  if (row.text("gpus").empty() && row.says("strategy", "DDP")) {  // memory of a replica does not depend on how many there are
    for (size_t i = 0; i < columns().size(); ++i) {
      if (columns()[i] == "gpus") stated.cells[i] = "8";  // the machine of the other rows; two replicas need as much each
    }
  }
  Result<Setup> common = common_setup(stated);
  if (!common) return common;
  Setup s = *common;
  s.model.tied_embeddings = false;  // litgpt copies a tied embedding into lm_head.weight
  if (row.says("framework", "benchmark")) return thunder_row(row, s);
  // extensions/thunder/pretrain.py: the same model and loss (chunk_size 0), PyTorch's AdamW unasked.
  if (row.text("framework").starts_with("litgpt + thunder") || (row.text("framework") == "litgpt" && s.finetune == Finetune::kFull)) {
    Result<Setup> pretrain = thunder_row(row, s);
    if (pretrain) pretrain->optimizer_implementation = OptimizerImplementation::kForeach;
    if (pretrain && row.says("notes", "unsloth")) pretrain->loss = LossHead::kFusedKernel;
    return pretrain;
  }
  s.software.accumulates_whole = true;  // finetune/*.py: fabric.no_backward_sync
  // The tables of 2024 cut samples at 512 tokens, so that long ones follow each other; those of 2023 pad to the one longest sample.
  s.software.graph_outlives_backward = s.finetune == Finetune::kQlora && s.software.released >= 202401;
  set_storage(s, row);
  s.software.released = 202402;
  s.software.own_container = true;
  s.program = "litgpt_eager";
  s.software.attention_output_copied = true;
  s.framework = s.dp_shard > 1 ? Framework::kFsdp1 : Framework::kDdp;
  s.sharding = s.dp_shard > 1 ? Sharding::kZero3 : Sharding::kDdp;
  s.recompute = row.text("activation_ckpt") == "full" ? ActivationRecompute::kFull : ActivationRecompute::kNone;
  // Adapters under Fabric's FSDP: the memory of its table is that of parameters that stay gathered from forward to backward.
  if (s.dp_shard > 1 && s.finetune != Finetune::kFull) s.reshard_after_forward = false;
  s.optimizer_implementation = OptimizerImplementation::kForeach;
  s.loss = LossHead::kChunked;  // chunked_cross_entropy over 128 tokens of the logits
  s.loss_chunks = static_cast<int>(std::max<int64_t>(1, s.sequence_length * s.micro_batch / 128));
  if (s.finetune != Finetune::kFull) set_lora(s, row);
  if (s.micro_batch > 0 && s.gradient_accumulation == 0) s.gradient_accumulation = 1;
  return s;
}

}  // namespace distsetup::accuracy
