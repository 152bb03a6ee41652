// What rows of the Megatron family say in their notes about experts, pipelines, precision and graphs, as settings.
#include <algorithm>
#include <cctype>

#include "megatron_notes.h"

namespace distsetup::accuracy {
namespace {

// "EP=32", and not the end of "DEEP=32".
std::optional<double> word_number(std::string_view notes, std::string_view word) {
  for (size_t at = notes.find(word); at != std::string_view::npos; at = notes.find(word, at + 1)) {
    if (at > 0 && std::isalnum(static_cast<unsigned char>(notes[at - 1]))) continue;
    if (const auto number = number_after(notes.substr(at), word)) return number;
  }
  return std::nullopt;
}

int first_of(std::string_view notes, std::initializer_list<std::string_view> words, int absent) {
  for (const std::string_view word : words) {
    if (const auto number = word_number(notes, word)) return std::max(1, static_cast<int>(*number));
  }
  return absent;
}

void read_pipeline(std::string_view notes, Setup& s) {
  const int per_chunk = first_of(notes, {"num-layers-per-virtual-pipeline-stage="}, 0);
  if (per_chunk > 0) s.virtual_stages = std::max(1, static_cast<int>(s.model.num_layers) / (s.pp * per_chunk));
  s.virtual_stages =
      first_of(notes, {"num-virtual-stages-per-pipeline-rank=", "virtual PP ", "VPP=", "VPP ", "VPP", "VP"}, s.virtual_stages);
  if (s.pp == 1) s.virtual_stages = 1;
  // A layout names a slot a layer more or less; none may be empty.
  while (s.virtual_stages > 1 && int64_t{s.pp} * s.virtual_stages > s.model.num_layers) --s.virtual_stages;
}

// dispatcher=hybridep, HybridEP, DeepEP; else NCCL's all-to-all. TE's graphs of attention, router and preprocessing leave the experts'
// own kernels to Python.
void read_kernels(const Row& row, Setup& s) {
  const std::string& notes = row.text("notes");
  const auto says = [&](std::string_view part) { return contains(notes, part); };
  if (says("hybridep") || says("deepep")) s.expert_dispatch = ExpertDispatch::kDirect;
  // The performance page of 2026 prints no kernels: its recipes for Blackwell and 8-bit experts send rows directly beside other work
  // and replay whole steps from a graph, those of hybrids all but the experts (megatron/bridge/perf_recipes).
  const bool tuned = row.says("framework", "Bridge") && s.model.num_experts > 0 &&
                     ((says("not printed") && !says("no identical preset")) || says("pretrain_performance") || says("WEAK SCALING"));
  const bool blackwell = s.gpu.peak_fp8_flops_per_s >= 4e15;
  if (tuned && says("pretrain_performance") && !blackwell) s.expert_dispatch = ExpertDispatch::kDirect;
  if (row.says("framework", "Bridge") && blackwell && s.gpu.name.starts_with("gb")) s.expert_dispatch = ExpertDispatch::kDirect;
  if (says("dispatcher=None") || says("dispatcher alltoall") || says("alltoall dispatcher"))
    s.expert_dispatch = ExpertDispatch::kAllToAll;
  if (tuned && blackwell && s.fp8 != Fp8Recipe::kDelayed && !says("eager") && !says("TE CUDA graphs") && !says("cuda graphs=")) {
    const bool hybrid = s.model.layer_class == "NemotronHBlock";
    s.expert_dispatch = ExpertDispatch::kDirect;
    s.graphed = s.fp8 == Fp8Recipe::kNone || hybrid ? 0.6 : 1;
    s.overlap_experts = s.graphed == 1;
    return;
  }
  s.overlap_experts = says("a2a_overlap=True") || says("A2A overlap") || says("EP-A2A overlap") ||
                      says("overlap-moe-expert-parallel-comm") || (says("EP overlap") && !says("no EP overlap"));
  if (says("full_iteration") || says("full-iteration") || row.says("compile", "full-iteration")) {
    s.graphed = 1;
  } else if (says("cuda graphs=none")) {
    s.graphed = 0;
  } else if (says("cuda graphs=transformer_engine") || says("CUDA graphs") || says("cuda-graph-impl") ||
             row.says("compile", "CUDA graph")) {
    s.graphed = says("attn") ? 0.6 : 0.3;
  }
}

}  // namespace

void read_megatron_notes(const Row& row, Setup& s) {
  const std::string& notes = row.text("notes");
  const auto says = [&](std::string_view part) { return contains(notes, part); };
  // Off without their flags: of a command line that names none, and of Megatron-SWIFT (swift/megatron/arguments/megatron_args.py).
  if (says("flags: ") || row.says("framework", "SWIFT")) {
    s.overlap_grad_reduce = says("overlap-grad-reduce") || says("overlap_grad_reduce");
    s.overlap_param_gather = says("overlap-param-gather") || says("overlap_param_gather");
  }
  read_pipeline(notes, s);
  if (s.model.num_experts > 0) {
    s.ep = first_of(notes, {"EP=", "EP"}, s.ep);
    // "training [TP,CP,EP,PP]=[1,1,16,16]"
    if (const size_t at = notes.find("[TP,CP,EP,PP]=["); at != std::string::npos) {
      std::string_view rest = std::string_view(notes).substr(at + 15);
      rest.remove_prefix(std::min(rest.size(), rest.find(',') + 1));
      s.ep = static_cast<int>(number_after(rest, ",").value_or(s.ep));
    }
    // One rank an expert's matrices, unless Megatron-LM's command line says nothing: then as many as have the others' parts.
    const bool command_line = says("flags: ");
    s.expert_tp = first_of(notes, {"expert-tensor-parallel-size=", "ETP="}, command_line ? s.tp : 1);
    s.ungrouped_experts = command_line && !says("moe-grouped-gemm");
    // Benchmarks balance their routers by force; fine-tuning and reinforcement learning train on data, and data is uneven.
    const bool on_data = row.says("framework", "SWIFT") || row.says("framework", "RL") || says("packed");
    if (says("natural") || says("imbalance") || on_data) s.expert_imbalance = 1.5;
    const bool dropped = says("tokendrop") || says("token dropping") || says("token drop,") || says("capacity");
    if (dropped) s.graphed = 0.5;  // fixed shapes: the host waits for no counts
    if (dropped) s.expert_imbalance = number_after(notes, "expert capacity ").value_or(1);
  }
  read_kernels(row, s);
  if (s.software.released == 0) s.software.released = date_in(notes);
  s.dropout = says("dropout default 0.1");
  // DeepSeek's and Nemotron's recipes train the prediction layer that the published models have.
  const std::string& model = row.text("model");
  const bool predicts = contains(model, "DeepSeek-V3") || contains(model, "DeepSeek-V4") || contains(model, "Nemotron-3-Super") ||
                        contains(model, "Nemotron-3-Ultra");
  const bool recipe = row.says("framework", "Bridge") && predicts && !says("without MTP") && !says("w/o MTP");
  s.mtp_layers = first_of(notes, {"mtp-num-layers=", "MTP "}, says("with MTP") || recipe ? 1 : 0);
  if (says("fine-grained activation") || says("fine-grained-activation")) s.offload.activations = OffloadPlace::kHost;
  if (says("hybrid-layer-pattern")) s.flash_attention = true;  // of its mixers few are attention
  if (says("without SP") || says("no SP") || says("without sequence parallel") || says("no sequence parallel"))
    s.sequence_parallel = s.overlap_tp = false;
  if (says("last pipeline stage")) s.memory_stage = s.pp - 1;
  if (says("recompute") || says("recompute_modules")) {
    for (const char* module : {"core_attn", "layernorm", "mla_up_proj", "mlp", "moe_act", "shared_experts"}) {
      const size_t at = notes.find("ecompute");
      if (notes.find(module, at) != std::string::npos && !says(std::string("no ") + module)) s.recompute_modules.emplace_back(module);
    }
    for (const char* whole : {"'moe'", "+moe+", " moe ", "[moe]", "layernorm moe;"}) {
      if (says(whole) && row.says("activation_ckpt", "selective")) {
        s.recompute_modules.emplace_back("moe");
        break;
      }
    }
  }
  if (row.text("activation_ckpt") != "selective") s.recompute_modules.clear();
  // Recipes for experts name these; Megatron's own default is the core of attention, which fused attention has no need of.
  if (row.says("activation_ckpt", "selective") && s.recompute_modules.empty() && s.model.num_experts > 0) {
    s.recompute_modules = {"layernorm", "moe_act"};
    if (s.model.attention == Attention::kLatent) s.recompute_modules.emplace_back("mla_up_proj");
    if (s.model.layer_class == "NemotronHBlock") s.recompute_modules.emplace_back("moe");  // Nemotron 3's, on 80 GB
  }
  // What is named is recomputed, and nothing else.
  if (!s.recompute_modules.empty()) s.recompute = ActivationRecompute::kNone;
  for (const char* word : {"fraction ", "fraction=", "fraction: "}) {
    if (const auto fraction = number_after(notes, word)) s.offloaded_states = *fraction > 1 ? *fraction / 100 : *fraction;
  }
  const std::string& reduce = row.text("grad_reduce_dtype");
  if (reduce.starts_with("bf16")) s.gradient_dtype = s.reduce_dtype = Dtype::kBf16;
  if (reduce.starts_with("fp32")) s.gradient_dtype = s.reduce_dtype = Dtype::kF32;
  const std::string& optimizer = row.text("optimizer");
  if (contains(optimizer, "bf16 moments")) s.state_dtype = Dtype::kBf16;
  if (contains(optimizer, "muon")) s.optimizer = OptimizerKind::kMuon;
  const bool gathers_fp8 = says("fp8-param-gather") || says("fp8_param_gather") || says("parameter all-gather");
  if (s.compute == Dtype::kF8 && gathers_fp8 && s.finetune == Finetune::kFull) s.parameter_dtype = Dtype::kF8;
  if (s.finetune != Finetune::kFull) {
    const int rank = first_of(notes, {"LoRA r"}, static_cast<int>(s.lora.rank));
    const bool all = says("all-linear") || says("all linear"), attention = says("linear_qkv and linear_proj");
    s.lora = lora_targets(all ? "all" : attention ? "attention" : "qkv", rank);
    s.lora.dtype = Dtype::kBf16;
    s.frozen_dtype = Dtype::kBf16;
  }
  if (says("DPO")) s.frozen_reference = s.finetune == Finetune::kFull;
  // Instruction data that is not packed: the longest of a batch have about half of what they are cut at (trainer_rows.cc).
  if (says("NOT packed")) {
    s.sequence_length = std::min<int64_t>(s.sequence_length, 1024);
  } else if (says("packed")) {
    s.mean_sequence_fraction = 0.1;  // short samples, one behind the other
  }
}

}  // namespace distsetup::accuracy
