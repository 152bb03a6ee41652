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
  s.overlap_experts = says("a2a_overlap=True") || says("A2A overlap") || says("EP-A2A overlap") ||
                      says("overlap-moe-expert-parallel-comm") || (says("EP overlap") && !says("no EP overlap"));
  if (says("full_iteration") || says("full-iteration") || row.says("compile", "full-iteration")) {
    s.graphed = 1;
  } else if (says("cuda graphs=none") || says("cuda graphs=None")) {
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
  read_pipeline(notes, s);
  if (s.model.num_experts > 0) {
    s.ep = first_of(notes, {"EP="}, s.ep);
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
    if (says("natural") || says("imbalanced")) s.expert_imbalance = 1.5;
    const bool dropped = says("tokendrop") || says("token dropping") || says("token drop,") || says("capacity");
    if (dropped) s.expert_imbalance = number_after(notes, "expert capacity ").value_or(1);
  }
  read_kernels(row, s);
  s.dropout = says("dropout default 0.1");
  s.mtp_layers = first_of(notes, {"mtp-num-layers=", "MTP "}, says("with MTP") ? 1 : 0);
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
  if (const auto fraction = number_after(notes, "fraction ")) s.offloaded_states = *fraction;
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
  if (says("packed")) s.mean_sequence_fraction = 0.1;  // short samples, one behind the other
}

}  // namespace distsetup::accuracy
