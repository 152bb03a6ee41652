// torchtitan, torchao and torchtune (and two trainers built of the same parts). What a torchtitan version does follows from the day of
// its commit (presets/releases).
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "planner/resolve/releases.h"
#include "row_setup.h"

namespace distsetup::accuracy {
namespace {

// yyyymmdd of the torchtitan that ran: the day of its commit, the middle of a month; of 2026-01 where the row says neither.
int titan_date(const Row& row) {
  const std::string& software = row.text("software");
  const int month = date_in(software);
  if (month == 0) return 20260101;
  const size_t day = software.find(fmt::format("{}-{:02}-", month / 100, month % 100));
  return month * 100 + (day == std::string::npos ? 15 : std::atoi(software.c_str() + day + 8));
}

void titan_software(Setup& s, const Row& row, int date) {
  const std::string& notes = row.text("notes");
  const bool graph = row.says("framework", "graph_trainer");
  const ReleaseTable& releases = built_in_releases(graph ? "graph_trainer" : "torchtitan");
  set_release(s, built_in_releases("torchtitan"), date);
  if (graph) set_release(s, releases, date);
  s.software.expandable_segments =
      (s.software.expandable_segments && !row.says("software", "a launcher of its own")) || contains(notes, "expandable_segments");
  if (contains(notes, "wrapping PR")) {
    s.software.wrapping = UnitWrapping::kAllApart;
    s.software.last_block_stays_gathered = false;
  }
  if (contains(notes, "bug fixed")) s.software.fp8_abs_saved = false;
  s.software.traced = row.says("strategy", "SimpleFSDP");
  if (contains(notes, "fused AdamW") && !contains(notes, "non-fused")) s.optimizer_implementation = OptimizerImplementation::kFused;
  // graph_trainer under SimpleFSDP traces the model, and the loss runs outside of the graph.
  const bool outside = s.software.traced && row.says("compile", "aot_fx_trace");
  // Its graph runs PyTorch's own kernels, but for what a whole-graph compiler makes, and its policy saves every matmul
  // (memory_policy.py).
  if (graph && s.compiled) s.software.eager_kernels = !row.says("compile", "full inductor");
  if (s.loss == LossHead::kChunkedHead) return;
  if (contains(notes, "chunked cross-entropy")) {
    s.loss = LossHead::kChunked;
  } else if (contains(notes, "compile inferred from memory")) {
    s.loss = LossHead::kCompiled;  // what says that the run was compiled is one fp32 copy of the logits less
  } else {
    Setup model_alone = s;
    model_alone.compiled = s.compiled && !outside;
    s.loss = *loss_of_release(model_alone, releases, date);
  }
}

bool is_compiled(const Row& row) {
  const std::string& cell = row.text("compile");
  if (row.says("notes", "compile inferred from memory")) return true;
  if (cell.empty() && row.says("framework", "torchtitan") && row.says("model", "405B")) return true;  // its llama3_405b.toml says so
  return cell.starts_with("yes") && !contains(cell, "aot_eager");
}

void set_recompute(Setup& s, const Row& row) {
  const std::string& cell = row.text("activation_ckpt");
  const std::string& notes = row.text("notes");
  if (contains(notes, "budget = full-recompute peak")) {
    s.recompute = ActivationRecompute::kFull;  // the solver keeps more only where the peak of full recomputation stands
  } else if (cell == "full") {
    s.recompute = ActivationRecompute::kFull;
  } else if (cell == "none" || contains(notes, "memory suggests none")) {
    s.recompute = ActivationRecompute::kNone;
  } else if (!contains(notes, "per-op") && (contains(notes, "every other layer") || contains(notes, "every 2nd layer"))) {
    s.recompute = ActivationRecompute::kEveryK;
    s.recompute_every_k = 2;
  } else {
    s.recompute = ActivationRecompute::kOpSelective;  // selective_ac_option = "op" is the default of its configurations
  }
  if (contains(notes, "activation CPU offload") || contains(notes, "min budget")) s.offload.activations = OffloadPlace::kHost;
}

// Batches that the source prints for all GPUs, or for a pipeline.
void set_titan_batch(Setup& s, const Row& row) {
  const std::string& notes = row.text("notes");
  if (s.micro_batch == 0) {
    if (const auto per_gpu = number_after(notes, "i.e. ")) s.micro_batch = static_cast<int64_t>(*per_gpu);
    if (const auto all = number_after(notes, " bs")) s.micro_batch = static_cast<int64_t>(*all) / s.dp_shard;
    if (const auto local = number_after(notes, "local batch "); local && s.pp > 1) {
      // pipeline_parallel_microbatches: as many as there are stages unless given, two on a rank where they interleave
      s.gradient_accumulation = static_cast<int64_t>(s.pp) * (row.says("notes", "interleaved") ? 2 : 1);
      s.micro_batch = static_cast<int64_t>(*local) / s.gradient_accumulation;
    }
    if (s.gradient_accumulation == 0) s.gradient_accumulation = 1;
  }
  if (s.sequence_length == 0 && row.says("framework", "graph_trainer")) s.sequence_length = 4096;  // qwen3_14b's configuration
  if (s.sequence_length == 0) {
    if (const auto sibling = number_after(notes, "seq not stated (")) s.sequence_length = static_cast<int64_t>(*sibling);
  }
}

Setup titan_row(const Row& row, Setup s) {
  const std::string& strategy = row.text("strategy");
  const int date = titan_date(row);
  s.framework = s.dp_shard * s.tp * s.pp == 1 ? Framework::kDdp : Framework::kFsdp2;
  if (strategy.starts_with("FSDP1")) s.framework = Framework::kFsdp1;
  s.sharding = s.dp_shard * s.cp > 1 ? Sharding::kZero3 : Sharding::kDdp;
  s.reshard_after_forward = !contains(strategy, "SHARD_GRAD_OP") && s.pp == 1;  // pipelines keep parameters between micro-batches
  s.compiled = is_compiled(row);
  s.program = s.compiled ? "torchtitan_compiled" : "torchtitan_eager";
  s.overlap_tp = row.says("notes", "AsyncTP") || row.says("precision", "AsyncTP");
  s.fp8_all_gather = row.says("precision", "fp8 all-gather");
  s.cp_method = CpMethod::kRing;
  if (s.pp > 1 && row.says("notes", "interleaved")) s.virtual_stages = 2;
  set_recompute(s, row);
  set_titan_batch(s, row);
  titan_software(s, row, date);
  if (row.says("notes", "reshard always")) {
    s.reshard_root = true;
    s.software.last_block_stays_gathered = false;
  }
  s.software.cast_kernels = row.says("precision", "nocompile");
  if (row.says("framework", "graph_trainer")) {
    s.software.inductor_kernels = row.says("compile", "full inductor");
    if (row.says("software", "without CUDA graphs")) s.software.cuda_graphs = false;
  }
  if (row.says("framework", "KempnerForge")) s.software.name = "KempnerForge";
  return s;
}

// recipes/configs of torchtune: the single-device full recipe is PagedAdamW8bit applied in backward; LoRA is rank 8 on q, v, output
// and the MLP; alpaca_dataset truncates at 512 tokens; batches of 2. The output is cross-entropy in 8 chunks since 2024-09.
Result<Setup> tune_row(const Row& row, Setup s) {
  const std::string& notes = row.text("notes");
  const std::string& optimizer = row.text("optimizer");
  const bool early = s.software.released > 0 && s.software.released < 202409;
  s.software.released = early ? 202405 : 202501;
  s.framework = s.dp_shard == 1 ? Framework::kDdp : row.says("strategy", "FSDP2") ? Framework::kFsdp2 : Framework::kFsdp1;
  s.sharding = s.dp_shard == 1 ? Sharding::kDdp : Sharding::kZero3;
  s.compiled = row.text("compile").starts_with("yes");
  s.program = s.compiled ? "torchtitan_compiled" : "torchtitan_eager";
  s.recompute = row.text("activation_ckpt") == "none" ? ActivationRecompute::kNone : ActivationRecompute::kFull;
  s.loss = early ? LossHead::kEager : LossHead::kChunked;
  s.parameter_dtype = s.gradient_dtype = s.state_dtype = s.reduce_dtype = Dtype::kBf16;
  s.software.expandable_segments = !early;
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
    s.lora = lora_targets(contains(notes, "Q,V") ? "qv" : "all", static_cast<int64_t>(number_after(notes, "rank ").value_or(8)));
    if (!contains(notes, "Q,V") && !contains(notes, "all layers")) s.lora.key = false;
    s.lora.dtype = Dtype::kBf16;
  }
  if (s.micro_batch == 0) {
    s.micro_batch = static_cast<int64_t>(number_after(notes, "batch ").value_or(2));
    s.gradient_accumulation = 1;
  }
  if (s.sequence_length == 0) s.sequence_length = 512;
  // The LoRA recipes read alpaca_cleaned: 177.9 +- 126.4 tokens, at least 26 (ms-swift,
  // docs/source_en/LLM/Supported-models-datasets.md).
  if (contains(notes, "variable length")) s.sample_lengths = {177.9, 126.4, 26, true};
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

Result<Setup> torch_row(const Row& row) {
  Result<Setup> common = common_setup(row);
  if (!common) return common;
  if (row.says("framework", "benchmark script")) return torchao_script_row(row, *common);
  if (row.says("framework", "torchtune")) return tune_row(row, *common);
  if (common->pp > 1 && common->dp_shard * common->cp == 1 && row.text("micro_batch_per_gpu").empty()) {
    // Issue 773: with that version's defaults (even stages, as many micro-batches as stages, fp32) the rank with the head would need
    // 20.8 GiB for its states alone, of 17.97 printed, and compute 20 TFLOP/s, of 19.5 that the GPU has.
    return unmapped(row, "precision, layers of the stages and micro-batches of a pipeline alone are not stated");
  }
  Setup s = titan_row(row, *common);
  if (row.says("framework", "Automodel")) {
    s.software.own_container = true;
    s.program = "torchtitan_compiled";  // Transformer Engine's norm and attention keep what compiled blocks keep
    s.loss = LossHead::kFusedKernel;
    s.fused_norm = s.fused_rope = true;
    s.software.expandable_segments = false;
    s.parameter_dtype = s.gradient_dtype = s.state_dtype = Dtype::kF32;
    if (row.text("activation_ckpt").empty()) s.recompute = ActivationRecompute::kNone;
    if (s.finetune != Finetune::kFull) {
      s.parameter_dtype = Dtype::kBf16;
      s.lora = lora_targets("all", static_cast<int64_t>(number_after(row.text("notes"), "LoRA r").value_or(16)));
    }
  }
  return s;
}

}  // namespace distsetup::accuracy
