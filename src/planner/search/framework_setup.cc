#include "planner/search/framework_setup.h"

#include <utility>

#include "planner/frameworks/validate.h"

namespace distsetup {
namespace {

// TRL prepares a 4-bit model that is not split for training: norms are fp32, and with them what runs between the blocks; under bf16
// the embedding and the head go back to 16 bits (trl/trainer/utils.py, prepare_peft_model and peft_module_casting_to_bf16). A split
// one is left as it is. Axolotl casts all of it back (loaders/model.py, convert_embedding_modules_dtype), LLaMA-Factory prepares
// nothing (model/model_utils/checkpointing.py, upcast_layernorm: false).
bool is_prepared(const Problem& p, const Setup& s, Sharding sharding) {
  const std::string& target = p.base.launch.target;
  return s.finetune == Finetune::kQlora && p.trainer.has("kbit_preparation") && sharding != Sharding::kZero3 && target != "axolotl" &&
         target != "llamafactory";
}

// A script of one's own on one GPU prepares its 4-bit model as peft does (peft/utils/other.py, prepare_model_for_kbit_training): what
// is not 4-bit is fp32, and nothing casts it back.
bool stays_in_fp32(const Problem& p, const Setup& s) {
  return s.finetune == Finetune::kQlora && p.trainer.has("kbit_in_fp32") && s.world() == 1;
}

}  // namespace

Setup base_setup(const Problem& p, int nodes) {
  Setup s = p.setup;
  const HardwarePlan& h = p.base.hardware;
  if (const auto gpu = p.gpus.find(h.gpu); gpu != p.gpus.end()) s.gpu = gpu->second;
  s.gpu.usable_memory_bytes = h.memory_bytes;
  s.nodes = nodes;
  s.gpus_per_node = h.gpus_per_node;
  s.nic_kind = h.nic_kind;
  s.nic_bytes_per_s = h.nic_bytes_per_s;
  s.sequence_length = p.base.train.sequence_length;
  s.sequence_parallel = p.sequence_parallel;
  set_software(p.trainer, s);
  return s;
}

void apply(const Problem& p, const Choice& c, Setup& s) {
  s.tp = c.tp, s.pp = c.pp, s.cp = c.cp, s.ep = c.ep;
  s.virtual_stages = c.virtual_stages;
  s.hpz = c.hpz;
  s.cp_method = c.cp_method;
  s.sharding = c.sharding;
  s.reshard_after_forward = c.reshard_after_forward;
  s.dp_replicate = c.dp_replicate;
  s.dp_shard = c.dp_shard;
  s.micro_batch = c.micro_batch * sequences_per_sample(p.base);
  s.gradient_accumulation = c.gradient_accumulation;
  s.recompute = p.trainer.recomputes.at(c.recompute);
  s.recompute_every_k = c.recompute == Recompute::kEveryK ? p.recompute_every_k : 0;
  s.software.unquantised_in_fp32 = stays_in_fp32(p, s);
  s.software.residual_in_fp32 = p.setup.software.residual_in_fp32 || s.software.unquantised_in_fp32 || is_prepared(p, s, c.sharding);
}

Setup setup_of(const Problem& p, int nodes, const Choice& c) {
  Setup s = base_setup(p, nodes);
  apply(p, c, s);
  return s;
}

bool copies_kv_heads(const Problem& p) { return p.tp > 1 && p.trainer.later.contains("few_kv_heads"); }

Diagnostics drop_refused(const Problem& p, int nodes, std::vector<Choice>& choices) {
  if (choices.empty()) return {};
  Diagnostics first;
  Setup setup = base_setup(p, nodes);
  std::erase_if(choices, [&](const Choice& choice) {
    apply(p, choice, setup);
    Diagnostics said = validate(setup);
    if (!has_error(said)) return false;
    if (first.empty()) first = std::move(said);
    return true;
  });
  for (Diagnostic& d : first) d.location = p.parallel_at;
  return first;
}

}  // namespace distsetup
