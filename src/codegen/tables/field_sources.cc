#include "codegen/tables/field_sources.h"

namespace distsetup {

const std::map<std::string, std::vector<std::string>, std::less<>>& field_sources() {
  static const std::map<std::string, std::vector<std::string>, std::less<>> kSources = {
      {"derived.source", {}},
      {"derived.world", {"hardware.nodes", "hardware.gpus_per_node"}},
      {"derived.one_process", {"hardware.nodes", "hardware.gpus_per_node"}},
      {"derived.data_parallel", {"mesh.dp_replicate", "mesh.dp_shard"}},
      {"derived.model_parallel", {"mesh.pp", "mesh.cp", "mesh.tp", "mesh.ep"}},
      {"derived.hybrid", {"mesh.dp_replicate", "strategy.sharding"}},
      {"derived.zero_stage", {"strategy.sharding"}},
      {"derived.hidden_squared", {"model.hidden"}},
      {"derived.feed_forward_factor", {"model.feed_forward", "model.hidden"}},
      {"derived.learned_positions", {"model.learned_positions"}},
      {"derived.prefetch_elements", {"model.hidden"}},
      {"derived.persistence_elements", {"model.hidden"}},
      {"derived.largest_partition", {"model.hidden", "model.vocabulary", "model.feed_forward", "mesh.dp_replicate", "mesh.dp_shard"}},
      {"derived.group_ranks", {"mesh.dp_shard"}},
      {"derived.nvme", {"offload.optimizer", "offload.parameters"}},
      {"derived.several_axes", {"mesh.dp_replicate", "mesh.tp", "mesh.cp", "strategy.sharding"}},
      {"derived.shard_is_node", {"mesh.dp_shard", "hardware.gpus_per_node"}},
      {"derived.layer_import", {"model.layer_class", "model.family"}},
      {"derived.data_paths", {"data.root"}},
      // Read alone: of data that a plan holds as token ids there is no more to say.
      {"derived.sources", {"data.files"}},
      {"derived.source_weights", {"data.files"}},
      {"derived.source_field.text", {"data.files"}},
      {"derived.source_field.prompt", {"data.files"}},
      {"derived.source_field.completion", {"data.files"}},
      {"derived.source_field.instruction", {"data.files"}},
      {"derived.source_field.output", {"data.files"}},
      {"derived.source_field.messages", {"data.files"}},
      {"derived.tokenizer", {"data.tokenizer"}},
      {"derived.chat_template", {"data.files"}},
      {"derived.prompt_format", {"data.files"}},
      {"derived.synthetic", {"data.files"}},
      {"derived.packing", {"data.packing"}},
      {"derived.attention", {"strategy.program"}},
      {"derived.held_out", {"data.files"}},
      {"derived.data_epochs", {"train.steps"}},
      {"derived.epochs", {"train.steps"}},
      {"derived.epoch_micro_batches", {"train.steps", "gradient_accumulation"}},
      {"derived.samples", {"train.global_batch", "train.steps"}},
      {"derived.layers_per_virtual_stage", {"strategy.virtual_stages", "mesh.pp", "model.num_layers"}},
      {"derived.lightning",
       {"strategy.sharding", "strategy.reshard_after_forward", "mesh.dp_replicate", "strategy.trainer", "offload.optimizer",
        "offload.parameters"}},
      {"derived.mesh_2d", {"mesh.dp_replicate", "mesh.dp_shard"}},
      {"derived.engine",
       {"strategy.sharding", "strategy.reshard_after_forward", "offload.optimizer", "offload.parameters", "mesh.dp_replicate",
        "strategy.trainer"}},
      {"derived.pipeline_batch", {"micro_batch", "gradient_accumulation", "mesh.pp"}},
      {"derived.min_learning_rate_factor", {"train.min_learning_rate", "train.learning_rate"}},
      {"derived.lora_alpha_factor", {"train.lora_alpha", "train.lora_rank"}},
      {"derived.lr_decay_ratio", {"train.lr_decay_steps", "train.steps"}},
      {"derived.warmup_ratio", {"train.warmup_steps", "train.steps"}},
      {"derived.save_interval", {"checkpoint.every_steps", "train.steps"}},
      {"derived.grouped_queries", {"model.num_heads", "model.num_kv_heads"}},
      {"derived.offloaded_layers", {"model.num_layers"}},
      {"derived.recomputed_layers", {"recompute.every_k", "strategy.virtual_stages", "mesh.pp", "model.num_layers"}},
      {"derived.positive_seed", {"train.seed"}},
      {"derived.momentum", {"train.optimizer"}},
      {"derived.betas", {"train.beta1", "train.beta2"}},
      {"derived.timeout_minutes", {"launch.collective_timeout_s"}},
      {"derived.single_node", {"hardware.nodes"}},
      {"derived.offload", {"offload.optimizer", "offload.parameters"}},
      {"options.layer_classes", {"model.layer_class"}},
      {"job.time_limit", {"launch.time_limit_s"}},
      {"job.time_limit_s", {"launch.time_limit_s"}},
      {"job.time_limit_hm", {"launch.time_limit_s"}},
      {"job.signal", {"launch.time_limit_s"}},
      {"job.tasks_per_node", {"hardware.gpus_per_node"}},
      {"job.gpus_per_node", {"hardware.gpus_per_node", "hardware.accelerator"}},
      {"job.gpus", {"hardware.gpus_per_node", "hardware.accelerator"}},
      {"job.gres", {"hardware.gpus_per_node", "hardware.accelerator"}},
      {"job.site", {"launch.site"}},
      {"job.last_node", {"hardware.nodes"}},
  };
  return kSources;
}

std::vector<std::string> sources_of(std::string_view field) {
  const auto found = field_sources().find(field);
  return found == field_sources().end() ? std::vector<std::string>{} : found->second;
}

}  // namespace distsetup
