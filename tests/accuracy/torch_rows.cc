// torchtitan, also with torchao's linears, and two trainers built of the same parts (KempnerForge, PithTrain). What a torchtitan
// version does follows from the day of its commit (presets/releases).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "planner/resolve/releases.h"
#include "row_setup.h"

namespace distsetup::accuracy {
namespace {

// Where a row names neither day nor release, what it runs says from when it is. torchtitan's flag enable_float8_linear made way for
// recipes early in 2025; its experts came in the middle of 2025, graph_trainer in 2026; PyTorch's releases are half a year apart; else
// the time when torchtitan was measured with models of that name most.
int undated(const Row& row) {
  const std::string& notes = row.text("notes");
  if (const auto minor = number_after(notes, "torch 2."); minor && *minor >= 5) {
    const int half_years = static_cast<int>(*minor) - 5;  // 2.5: October 2024
    return (2024 + (10 + 3 * half_years) / 12) * 10000 + ((10 + 3 * half_years) % 12 + 1) * 100;
  }
  if (row.says("framework", "graph_trainer")) return 20260415;
  if (row.says("model", "DeepSeek") || row.says("model", "-A3B") || row.says("model", "Qwen") || row.says("model", "OSS"))
    return 20251001;
  if (row.says("precision", "Float8 linear")) return 20241223;
  if (row.says("model", "Llama-2")) return 20240615;
  if (row.says("model", "Llama-3.1") && !row.says("precision", "wise")) return 20241223;
  return 20250615;
}

// yyyymmdd of the torchtitan that ran: the day of its commit, the middle of a month.
int titan_date(const Row& row) {
  std::string software = row.text("software");
  // transfer.csv has no column for it.
  if (const size_t at = row.text("notes").find("torchtitan of "); at != std::string::npos) software = row.text("notes").substr(at);
  const int month = date_in(software);
  if (month == 0) return undated(row);
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
    model_alone.compiled = model_alone.compiled || row.text("compile") == "loss only";
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

// Batches that the source prints for all GPUs, or for a pipeline; where it prints none, those of the model's own configuration
// (torchtitan/models/*/train_configs, config_registry.py): Llama 8192 tokens, other families 4096; sequences by size.
void set_titan_batch(Setup& s, const Row& row, int date) {
  const std::string& notes = row.text("notes");
  if (s.micro_batch == 0) {
    if (const auto per_gpu = number_after(notes, "i.e. ")) s.micro_batch = static_cast<int64_t>(*per_gpu);
    if (const auto all = number_after(notes, " bs")) s.micro_batch = static_cast<int64_t>(*all) / s.dp_shard;
    const auto local = number_after(notes, "local batch ");
    const double global = std::atof(row.text("global_batch_tokens_or_seqs").c_str());
    if (s.pp > 1 && (local || global > 0)) {
      // pipeline_parallel_microbatches: as many as ranks unless given, until pipeline_parallel_microbatch_size came with 1
      // (5e2033c75).
      const int64_t sequences = std::llround(local ? *local : global / s.dp_shard / s.dp_replicate);
      s.gradient_accumulation = date < 20250407 ? s.pp : sequences;
      s.micro_batch = std::max<int64_t>(1, sequences / s.gradient_accumulation);
    }
    if (s.gradient_accumulation == 0) s.gradient_accumulation = 1;
  }
  if (s.sequence_length == 0 && row.says("framework", "graph_trainer")) s.sequence_length = 4096;  // qwen3_14b's configuration
  if (s.sequence_length == 0) {
    if (const auto sibling = number_after(notes, "seq not stated (")) s.sequence_length = static_cast<int64_t>(*sibling);
  }
  // experiments/transformers_modeling_backend/config_registry.py: two sequences of 2048.
  const bool own_defaults = contains(notes, "transformers modeling backend");
  if (own_defaults && s.micro_batch == 0) s.micro_batch = 2;
  if (own_defaults && s.sequence_length == 0) s.sequence_length = 2048;
  if (s.sequence_length == 0) s.sequence_length = s.model.family == "llama" ? 8192 : 4096;
  if (s.micro_batch == 0) s.micro_batch = s.model.num_experts > 0 ? 4 : s.model.hidden <= 4096 ? 1 : s.model.hidden <= 8192 ? 8 : 2;
}

Setup titan_row(const Row& row, Setup s) {
  const std::string& strategy = row.text("strategy");
  const std::string& notes = row.text("notes");
  const int date = titan_date(row);
  set_expert_ranks(s, row);
  s.framework = s.dp_shard * s.cp * s.tp * s.pp == 1 ? Framework::kDdp : Framework::kFsdp2;
  if (strategy.starts_with("FSDP1")) s.framework = Framework::kFsdp1;
  s.sharding = s.dp_shard * s.cp > 1 ? Sharding::kZero3 : Sharding::kDdp;
  s.reshard_after_forward = !contains(strategy, "SHARD_GRAD_OP") && s.pp == 1;  // pipelines keep parameters between micro-batches
  s.compiled = is_compiled(row);
  s.program = s.compiled ? "torchtitan_compiled" : "torchtitan_eager";
  s.overlap_tp = row.says("notes", "AsyncTP") || row.says("precision", "AsyncTP");
  s.fp8_all_gather = row.says("precision", "fp8 all-gather");
  s.cp_method = CpMethod::kAllGather;  // context_parallel_rotate_method's default
  // Interleaved schedules have two stages on a rank (torchtitan/distributed/pipeline_parallel.py).
  if (s.pp > 1 && (contains(notes, "interleaved") || contains(strategy, "Interleaved"))) s.virtual_stages = 2;
  s.software.flex_attention = contains(row.text("flash_attention"), "flex");
  set_recompute(s, row);
  set_titan_batch(s, row, date);
  titan_software(s, row, date);
  if (row.says("notes", "reshard always")) {
    s.reshard_root = true;
    s.software.last_block_stays_gathered = false;
  }
  s.software.cast_kernels = row.says("precision", "nocompile");
  if (contains(notes, "FAKE communication")) {
    // One process stands for all: nothing is moved. What its "selective rematerialization" pass recomputes is any policy's
    // (selective_activation_remat.py); the default one would keep ten times what the GPU has.
    s.recompute = ActivationRecompute::kFull;
    s.nic_bytes_per_s = s.gpu.link.bytes_per_s = 1e15;
  }
  if (row.says("framework", "graph_trainer")) {
    s.software.inductor_kernels = row.says("compile", "full inductor");
    if (row.says("software", "without CUDA graphs")) s.software.cuda_graphs = false;
  }
  return s;
}

// KempnerForge: parameters and states as the row stores them; the model compiled as a whole, its loss not, on 16-bit logits that every
// tensor-parallel rank has whole; every projection is split by itself; no sequence parallelism in pipelines; "selective" is attention
// (kempnerforge/distributed/{parallel,tensor_parallel}.py, training/loss.py, config/training.py, of 2026-06).
Setup kempner_row(const Row& row, Setup s) {
  constexpr int kReleased = 20260630;
  set_release(s, built_in_releases("torchtitan"), kReleased);
  s.software.name = "KempnerForge";
  s.software.expandable_segments = false;
  s.software.wrapping = UnitWrapping::kRoot;
  s.software.fused_qkv = s.software.complex_rotary = false;
  s.software.gathers_each_input = s.software.compiled_loss_gathers = true;
  s.program = s.compiled ? "torchtitan_compiled" : "torchtitan_eager";
  s.loss = LossHead::kLowPrecision;
  s.sequence_parallel = s.pp == 1;
  s.optimizer_implementation = OptimizerImplementation::kFused;
  if (row.text("activation_ckpt") == "selective") s.recompute = ActivationRecompute::kAttentionOnly;
  if (row.text("activation_ckpt").empty()) s.recompute = ActivationRecompute::kNone;
  return s;
}

// A run whose source does not say on how many GPUs: llama3_8b's configuration is made for 64, others are started on one machine.
Row on_usual_gpus(const Row& row) {
  if (!row.text("gpus").empty()) return row;
  Row stated = row;
  stated.set("gpus", row.says("model", "Llama-3") && row.says("model", "8B") ? "64" : "8");
  return stated;
}

}  // namespace

Result<Setup> torch_row(const Row& row) {
  Result<Setup> common = common_setup(on_usual_gpus(row));
  if (!common) return common;
  if (common->pp > 1 && common->dp_shard * common->cp == 1 && row.text("micro_batch_per_gpu").empty() &&
      row.says("framework", "torchtitan")) {
    // Issue 773: with that version's defaults (even stages, as many micro-batches as stages, fp32) the rank with the head would need
    // 20.8 GiB for its states alone, of 17.97 printed, and compute 20 TFLOP/s, of 19.5 that the GPU has.
    return unmapped(row, "precision, layers of the stages and micro-batches of a pipeline alone are not stated");
  }
  if (row.says("notes", "zero bubble")) return unmapped(row, "schedules that split backward in two have no model");
  const Setup titan = titan_row(row, *common);
  return row.says("framework", "KempnerForge") ? kempner_row(row, titan) : titan;
}

}  // namespace distsetup::accuracy
