#include "codegen/tables/trainer_fields.h"

#include <algorithm>

namespace distsetup {
namespace {

bool is_hybrid(const Plan& plan) { return plan.mesh.dp_replicate > 1 && plan.strategy.sharding != Sharding::kDdp; }

bool is_for_fsdp(const Plan& plan) { return plan.strategy.trainer == "fsdp1" || plan.strategy.trainer == "fsdp2"; }

// FSDP offloads all or nothing.
bool fsdp_offloads(const Plan& plan) {
  return plan.offload.optimizer == plan.offload.parameters && plan.offload.optimizer != OffloadPlace::kNvme;
}

// DeepSpeed has no form for copies of the shard group, nor for parameters kept between forward and backward.
bool deepspeed_has_form(const Plan& plan) {
  const bool keeps_parameters = plan.strategy.sharding == Sharding::kZero3 && !plan.strategy.reshard_after_forward;
  return plan.strategy.sharding == Sharding::kZero1 || (!is_hybrid(plan) && !keeps_parameters);
}

// Which of the engines below the Hugging Face trainers runs the plan: the one that it was made for where that has a form for it. Else
// FSDP, which shards parameters with everything else, for zero3 and DeepSpeed for the rest.
std::string engine(const Plan& plan) {
  const Sharding sharding = plan.strategy.sharding;
  if (sharding == Sharding::kDdp && fsdp_offloads(plan)) return "ddp";
  if (sharding == Sharding::kZero1 || !fsdp_offloads(plan)) return "deepspeed";
  if (is_for_fsdp(plan)) return "fsdp";
  if (plan.strategy.trainer == "deepspeed" && deepspeed_has_form(plan)) return "deepspeed";
  return sharding == Sharding::kZero3 || is_hybrid(plan) ? "fsdp" : "deepspeed";
}

// Lightning's FSDP strategy cannot clip by norm: it is for plans that were made for FSDP, and for what DeepSpeed has no form for.
std::string lightning_strategy(const Plan& plan) {
  const Sharding sharding = plan.strategy.sharding;
  if (sharding == Sharding::kDdp) return "ddp";
  const bool is_fsdp = is_for_fsdp(plan) && sharding != Sharding::kZero1 && fsdp_offloads(plan);
  return is_fsdp || !deepspeed_has_form(plan) ? "fsdp" : "deepspeed";
}

// Where transformers has the class of a block. "gemma3_text" is the text half of a family and in the family's module; models whose
// code is in their own repository have no place there.
std::string layer_import(const Geometry& model) {
  for (const char* own_code : {"baichuan", "chatglm", "internlm", "mpt", "qwen"}) {
    if (model.family == own_code) return "";
  }
  if (model.layer_class.empty() || model.family.empty()) return "";
  constexpr std::string_view kText = "_text";
  std::string module = model.family;
  if (module.size() > kText.size() && module.compare(module.size() - kText.size(), kText.size(), kText) == 0)
    module.resize(module.size() - kText.size());
  return "transformers.models." + module + ".modeling_" + module + "." + model.layer_class;
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace

void set_trainer_fields(Fields& fields, const Plan& plan) {
  const Mesh& mesh = plan.mesh;
  const Geometry& model = plan.model;
  const TrainPlan& train = plan.train;
  const auto set = [&fields](std::string_view name, Json value) { set_field(fields, name, std::move(value)); };
  set("derived.engine", engine(plan));
  set("derived.lightning", lightning_strategy(plan));
  // DeepSpeed's buffers in elements, as its Hugging Face integration fills them (transformers/integrations/deepspeed.py).
  set("derived.prefetch_elements", model.hidden * model.hidden * 9 / 10);
  set("derived.persistence_elements", 10 * model.hidden);
  // A file that was read may say 0 of any size.
  const int64_t ranks = std::max<int64_t>(1, int64_t{mesh.dp_replicate} * mesh.dp_shard);
  const int64_t chunks = int64_t{mesh.pp} * plan.strategy.virtual_stages;
  const int64_t largest = model.hidden * std::max(model.vocabulary, model.feed_forward);
  set("derived.largest_partition", (largest + ranks - 1) / ranks);
  set("derived.group_ranks", mesh.dp_shard);
  set("derived.nvme", plan.offload.optimizer == OffloadPlace::kNvme || plan.offload.parameters == OffloadPlace::kNvme);
  set("derived.several_axes", is_hybrid(plan) || mesh.tp > 1 || mesh.cp > 1);
  set("derived.shard_is_node", mesh.dp_shard == plan.hardware.gpus_per_node);
  set("derived.mesh_2d", Json::array({mesh.dp_replicate, mesh.dp_shard}));
  // Where a pipeline is fed by one local batch: all of a step's micro-batches.
  set("derived.pipeline_batch", mesh.pp > 1 ? plan.micro_batch * plan.gradient_accumulation : plan.micro_batch);
  if (mesh.pp > 1 && chunks > 0) set("derived.layers_per_virtual_stage", model.num_layers / chunks);
  set("derived.momentum", train.optimizer == "sgd" && train.momentum > 0);
  set("derived.betas", Json::array({train.beta1, train.beta2}));
  set("derived.samples", train.global_batch * train.steps);
  set("derived.min_learning_rate_factor", ratio(train.min_learning_rate, train.learning_rate));
  set("derived.lora_alpha_factor", ratio(train.lora_alpha, static_cast<double>(train.lora_rank)));
  if (train.lr_schedule == LearningRateSchedule::kWsd)
    set("derived.lr_decay_ratio", ratio(static_cast<double>(train.lr_decay_steps), static_cast<double>(train.steps)));
  set("derived.warmup_ratio", ratio(static_cast<double>(train.warmup_steps), static_cast<double>(train.steps)));
  set("derived.save_interval", plan.checkpoint.every_steps > 0 ? plan.checkpoint.every_steps : train.steps);
  set("derived.grouped_queries", model.num_kv_heads != model.num_heads);
  set("derived.positive_seed", std::max<int64_t>(1, train.seed));  // Megatron refuses 0
  set("derived.timeout_minutes", (plan.launch.collective_timeout_s + 59) / 60);
  set("derived.offloaded_layers", model.num_layers - 1);  // Megatron keeps the last layer
  // Megatron's block method: the first layers of every chunk of a stage, as many as one in k are. A file that was read may not say k.
  if (plan.recompute.policy == Recompute::kEveryK && plan.recompute.every_k > 0 && chunks > 0)
    set("derived.recomputed_layers", model.num_layers / chunks / plan.recompute.every_k);
  if (const std::string path = layer_import(model); !path.empty()) set("derived.layer_import", path);
}

}  // namespace distsetup
