// A measured row as a Setup: what the source states, and the documented defaults of the tool and version it names. Decided by the text
// columns, never by the row's id. A row that states too little is refused with the reason; nothing is guessed to make it fit.
#pragma once
#include <initializer_list>

#include "planner/frameworks/setup.h"
#include "row.h"

namespace distsetup::accuracy {

Result<Setup> row_setup(const Row& row);

// What follows is shared by the files of the families.

// Model, GPU, nodes, links, mesh, batch, dtypes as far as the columns state them alike for every framework.
Result<Setup> common_setup(const Row& row);
Result<Geometry> row_geometry(const Row& row);
Result<Gpu> row_gpu(const Row& row);
// A model as Megatron's flags in the notes describe it (flag_models.cc).
Result<Geometry> flags_geometry(const Row& row);
void read_expert_flags(std::string_view notes, Geometry& g, int64_t& dense_layers);
double flag(std::string_view notes, std::string_view name, double absent);  // "num-experts=8"
Diagnostic unmapped(const Row& row, std::string reason);
void set_mesh(Setup& setup, int tp, int cp, int pp, int gpus);  // dp_shard = the rest
Fp8Recipe fp8_recipe(const Row& row);
// yyyymm of the first date in the text ("2024-12", "202412", "(2025)"); 0: none.
int date_in(std::string_view text);
// Expert parallelism of PyTorch's trainers: what the notes say ("EP=8", "EP4"); as wide as the ranks that share parameters, at most
// one rank per expert, where only the strategy or a dispatcher (DeepEP) says that there is some.
void set_expert_ranks(Setup& setup, const Row& row);
// Notes that count the ranks of HSDP's replicas do so in dp_replicate; else one per node.
void set_replicas(Setup& setup, const Row& row);
// The notes name the feature and do not deny it ("no Liger", "without tiled MLP").
bool has_feature(const Row& row, std::initializer_list<std::string_view> names);
Lora lora_targets(std::string_view which, int64_t rank);  // "qv", "all", "attention", "mlp"

Result<Setup> torch_row(const Row& row);      // torchtitan, KempnerForge, PithTrain
Result<Setup> tune_row(const Row& row);       // torchtune, torchao's script
Result<Setup> automodel_row(const Row& row);  // NeMo Automodel, OLMo-core
Result<Setup> litgpt_row(const Row& row);
Result<Setup> hf_row(const Row& row);        // Hugging Face Trainer and what is built on transformers
Result<Setup> trainer_row(const Row& row);   // tools on Hugging Face's Trainer that say what they set: ms-swift, axolotl, TRL ...
Result<Setup> foundry_row(const Row& row);   // llm-foundry, fms-fsdp
Result<Setup> megatron_row(const Row& row);  // Megatron-Core, NeMo, Megatron-LM, Megatron-DeepSpeed
Result<Setup> lean_row(const Row& row);      // LLM.Q, llm.c, modded-nanogpt, parameter-golf, nanochat, autoresearch
bool is_own_gpt(const Row& row);             // the GPTs of the last four
Result<Geometry> own_gpt_geometry(const Row& row);
bool begins_any(const Row& row, std::initializer_list<std::string_view> names);  // the framework cell
bool is_own_loop(const Row& row);                                                // prime-rl, nanotron, canifinetune
Result<Setup> loop_row(const Row& row);
Setup own_script(const Row& row, Setup setup);  // a script that nothing is known of but what its user says of a run
bool is_unread_row(const Row& row);             // code bases that no program was written for: Soup, Levanter, GPT-NeoX ...
bool is_core_row(const Row& row);               // of these, what is split into Megatron-Core's layers
Result<Setup> unread_row(const Row& row);
bool is_hub_row(const Row& row);  // tinyllama (whyNLP), Stanford Alpaca, FastChat, Unsloth ...
Result<Setup> hub_row(const Row& row);
Result<Setup> deepspeed_row(const Row& row);  // DeepSpeed with transformers, xtuner, InternEvo, ATorch

}  // namespace distsetup::accuracy
