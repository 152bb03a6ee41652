// Code bases that no program was written for, as their users would describe them: those of 2026-11-29 and 30. What they build on
// decides which program is the nearest: Transformers' modules, Megatron's layers, or a script that nothing is known of.
#include "row_setup.h"

namespace distsetup::accuracy {
namespace {

bool on_transformers(const Row& row) {
  return begins_any(row, {"Soup",
                          "small-ablation",
                          "transformers-benchmarks",
                          "BDML25SP",
                          "H2O LLM Studio",
                          "DeepSeed_Zero",
                          "Mai (",
                          "DHS-LLM-Workshop",
                          "struct-lm",
                          "sunzeyeah",
                          "OpenRLHF",
                          "OPT-Benchmark",
                          "ColossalAI llama",
                          "s1 (",
                          "open-r1",
                          "verl SFT",
                          "open-instruct",
                          "Decomposer",
                          "backpropagate",
                          "ds_verify_loss",
                          "ToolBench",
                          "Apertus-Greek",
                          "DeepSpeed-Chat",
                          "HF Trainer (run_clm.py)",
                          "HF Trainer under DeepSpeed",
                          "DeepSeek-Coder finetune"});
}

bool on_megatron(const Row& row) { return begins_any(row, {"OneFlow-GPT", "GPT-NeoX", "metaseq"}); }

bool own(const Row& row) {
  return begins_any(row, {"Levanter",
                          "camelid",
                          "TouchNet",
                          "bionemo",
                          "agi-playground",
                          "Multicore",
                          "ezpz",
                          "jzhang38",
                          "Open-Llama",
                          "Alpa",
                          "flash-attention training",
                          "FIRE_playground",
                          "SamEngine",
                          "NoCap-Test",
                          "quicktalk",
                          "MaxText",
                          "OLMo (",
                          "llm-arch-lab",
                          "min-LLM",
                          "TE benchmark",
                          "nanoops",
                          "gilesthomas harness",
                          "LLaMA2-Accessory"});
}

Result<Setup> transformers_setup(const Row& row) {
  // ColossalAI's ZeRO decides while it runs how much of the states stays on the GPU, unless it is told to keep all on the CPU.
  if (row.says("framework", "ColossalAI") && row.text("offload").empty())
    return unmapped(row, "how much of the states stays on the GPU is decided while it runs");
  if (row.says("notes", "rows average")) return unmapped(row, "of its lengths only the mean is printed");
  Result<Setup> setup = trainer_row(row);
  if (!setup) return setup;
  if (setup->software.released == 0 || row.text("software").empty()) {
    if (const int date = date_in(row.text("notes")); date > 0) setup->software.released = date;
  }
  if (row.says("notes", "pinning and buffers at their defaults")) setup->offload.pin_memory = false;  // DeepSpeed's until 2026-08
  // ColossalAI 0.1 copies tensors without pinning anything (colossalai/gemini/tensor_utils.py).
  if (row.says("framework", "ColossalAI") && setup->offload != OffloadPlan{}) setup->offload.pin_memory = false;
  if (setup->finetune == Finetune::kLora && row.text("param_dtype").starts_with("fp32")) setup->frozen_dtype = Dtype::kF32;
  if (row.says("framework", "Mai (")) {
    const Dtype dtype = setup->lora.dtype;
    setup->lora = lora_targets("mlp", 8);
    setup->lora.dtype = dtype;
  }
  return setup;
}

Result<Setup> own_setup(const Row& row) {
  if (row.says("framework", "huggingface_ref")) return unmapped(row, "whether it recomputes is not stated");
  if (row.says("strategy", "EP")) return unmapped(row, "how many rows the busiest expert rank gets is not stated");
  Result<Setup> common = common_setup(row);
  if (!common) return common;
  Setup s = own_script(row, *common);
  if (row.says("param_dtype", "master")) {
    s.master_copy = true;
    s.state_dtype = Dtype::kF32;
  }
  if (row.says("optimizer", "Muon")) s.optimizer = OptimizerKind::kMuon;
  if (has_feature(row, {"apex's cross entropy", "flash-attn's cross entropy"})) s.loss = LossHead::kFusedKernel;
  if (s.tp > 1 || s.cp > 1 || s.pp > 1) s.framework = Framework::kFsdp2;  // DTensor's, without FSDP where no rank shards
  return s;
}

// Megatron-Core's layers under another trainer, or what is split as they are. Sums are in fp32, and no tensor-parallel transfer waits
// in buffers of its own. FSDP that keeps what it gathered through backward is the distributed optimizer's sharding.
Result<Setup> core_setup(const Row& row) {
  Result<Setup> setup = megatron_row(row);
  if (!setup) return setup;
  setup->gradient_dtype = setup->reduce_dtype = Dtype::kF32;
  setup->overlap_tp = false;
  if (row.text("strategy").starts_with("FSDP")) setup->sharding = Sharding::kZero1;
  return setup;
}

}  // namespace

bool is_core_row(const Row& row) {
  return begins_any(row, {"mcore_adapter", "Llama 3's own trainer", "ForgeTrain", "Pai-Megatron-Patch", "verl_megatron_practice"});
}

bool is_unread_row(const Row& row) { return on_transformers(row) || on_megatron(row) || is_core_row(row) || own(row); }

Result<Setup> unread_row(const Row& row) {
  if (on_transformers(row)) return transformers_setup(row);
  if (on_megatron(row)) return megatron_row(row);
  if (is_core_row(row)) return core_setup(row);
  return own_setup(row);
}

}  // namespace distsetup::accuracy
