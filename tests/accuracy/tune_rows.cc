// torchtune, and torchao's own script for quantised training.
#include <algorithm>

#include "row_setup.h"

namespace distsetup::accuracy {
namespace {

// recipes/configs of torchtune: the single-device full recipe is PagedAdamW8bit applied in backward; LoRA is rank 8 on q, v, output
// and the MLP; alpaca_dataset truncates at 512 tokens until 2024-08 (8295cc350), then nowhere: its longest sample has 1,044 tokens;
// batches of 2. The output is cross-entropy in 8 chunks since 2024-09. No launcher of it asks for expandable segments.
constexpr int64_t kLongestAlpaca = 1044;

Result<Setup> recipe_row(const Row& row, Setup s) {
  const std::string& notes = row.text("notes");
  const std::string& optimizer = row.text("optimizer");
  const bool early = s.software.released > 0 && s.software.released < 202409;
  s.software.released = early ? 202405 : 202501;
  s.framework = s.dp_shard == 1 ? Framework::kDdp : row.says("strategy", "FSDP2") ? Framework::kFsdp2 : Framework::kFsdp1;
  s.sharding = s.dp_shard == 1 ? Sharding::kDdp : Sharding::kZero3;
  s.compiled = row.text("compile").starts_with("yes");
  s.program = s.compiled ? "torchtitan_compiled" : "torchtitan_eager";
  s.recompute = row.text("activation_ckpt") == "none" ? ActivationRecompute::kNone : ActivationRecompute::kFull;
  // An ablation that adds one thing after the other: steps before the chunks.
  const bool before = row.says("notes", "unpacked baseline") || row.says("notes", "+ packed") || row.says("notes", "+ compile");
  s.loss = early || before ? LossHead::kEager : LossHead::kChunkedLogits;
  if (s.loss == LossHead::kEager && s.compiled) s.loss = LossHead::kCompiled;
  // Qwen3 came two weeks after LinearCrossEntropyLoss (c9861c94a, eb01f0765): head and loss chunk by chunk, of the labels that count
  // alone: of samples of unlike lengths a sixth.
  if (row.says("model", "Qwen3")) {
    s.loss = LossHead::kChunkedHead;
    s.loss_chunks = contains(notes, "variable length") ? 8 * 6 : 8;
  }
  // The last steps of the ablation offload activations, adapters too (README.md of v0.5.0).
  const auto step = [&](std::string_view name) { return contains(notes, "ablation step: " + std::string(name)); };
  if (step("+ activation offloading") || step("+ 8-bit") || step("LoRA") || step("QLoRA")) s.offload.activations = OffloadPlace::kHost;
  s.parameter_dtype = s.gradient_dtype = s.state_dtype = s.reduce_dtype = Dtype::kBf16;
  s.optimizer_implementation =
      contains(optimizer, "fused") || !early ? OptimizerImplementation::kFused : OptimizerImplementation::kForeach;
  const bool low_memory =
      contains(notes, "low-memory recipe") || (optimizer.empty() && s.finetune == Finetune::kFull && s.dp_shard == 1);
  if (contains(optimizer, "8bit") || contains(optimizer, "8-bit") || (low_memory && s.finetune == Finetune::kFull))
    s.optimizer = OptimizerKind::kAdamW8bit;
  if (contains(optimizer, "4-bit")) s.optimizer = OptimizerKind::kAdamW4bit;
  s.paged_optimizer = contains(optimizer, "Paged") || (low_memory && s.finetune == Finetune::kFull);
  if (contains(optimizer, "in backward") || contains(optimizer, "Paged") || low_memory)
    s.optimizer_implementation = OptimizerImplementation::kInBackward;
  if (contains(optimizer, "bnb 8-bit") || contains(optimizer, "ao ")) s.optimizer_implementation = OptimizerImplementation::kFused;
  if (s.finetune != Finetune::kFull) {
    s.optimizer = OptimizerKind::kAdamW;
    s.paged_optimizer = false;
    s.optimizer_implementation = OptimizerImplementation::kFused;
    s.frozen_dtype = s.finetune == Finetune::kQlora ? Dtype::kNf4Double : Dtype::kBf16;
    const bool narrow = contains(notes, "Q,V") || contains(notes, "q_proj and v_proj");
    const auto rank = number_after(notes, contains(notes, "r=") ? "r=" : "rank ");
    s.lora = lora_targets(narrow ? "qv" : "all", static_cast<int64_t>(rank.value_or(8)));
    if (!narrow && !contains(notes, "all layers")) s.lora.key = false;
    s.lora.dtype = Dtype::kBf16;
  }
  const bool stated = s.micro_batch > 0;
  if (!stated) {
    s.micro_batch = static_cast<int64_t>(number_after(notes, "batch ").value_or(2));
    s.gradient_accumulation = 1;
  }
  if (s.sequence_length == 0) s.sequence_length = 512;
  // Where the batch is not stated, its lengths are not drawn: both together are as good as two samples of 512 tokens.
  // The LoRA recipes read alpaca_cleaned: 177.9 +- 126.4 tokens, at least 26 (ms-swift,
  // docs/source_en/LLM/Supported-models-datasets.md).
  const bool unlike = contains(notes, "variable length") || contains(notes, "unpacked");
  if (unlike && !early) s.sequence_length = row.text("seq_len").empty() ? kLongestAlpaca : std::min(s.sequence_length, kLongestAlpaca);
  if (stated && unlike) s.sample_lengths = {177.9, 126.4, 26, true};
  s.padding_counted = false;  // tokens of labels that are not ignored
  return s;
}

// torchao benchmarks/quantized_training/pretrain_llama2.py: Transformer of torchao._models.llama in bf16 with its own AdamW (states in
// bf16, one compiled kernel), no option for fewer kv heads; the table's "Llama2-1B" recomputes every block.
Result<Setup> torchao_script_row(const Row& row, Setup s) {
  s.framework = Framework::kDdp;
  s.sharding = Sharding::kDdp;
  s.compiled = row.text("compile").starts_with("yes");
  s.program = s.compiled ? "torchtitan_compiled" : "torchtitan_eager";
  s.recompute = ActivationRecompute::kFull;
  s.loss = s.compiled ? LossHead::kCompiled : LossHead::kLowPrecision;
  s.parameter_dtype = s.gradient_dtype = s.state_dtype = s.reduce_dtype = Dtype::kBf16;
  s.optimizer_implementation = OptimizerImplementation::kFused;
  s.software.expandable_segments = true;
  s.software.released = 202410;
  s.gradient_accumulation = 1;
  return s;
}

}  // namespace

Result<Setup> tune_row(const Row& row) {
  Result<Setup> common = common_setup(row);
  if (!common) return common;
  return row.says("framework", "benchmark script") ? torchao_script_row(row, *common) : recipe_row(row, *common);
}

}  // namespace distsetup::accuracy
