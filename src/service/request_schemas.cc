#include "service/request_schemas.h"

#include <string>

#include "base/check.h"
#include "base/json.h"

namespace distsetup {
namespace {

// Bodies. Both generations of the post-training API: the first has reward_scale, reward_clip, epsilon and gamma, the second beta and
// loss_type; clients send no model there, and the command line of theirs sends both configurations as text. `learning_rate` beside
// optimizer_config is what the guide's program sends.
constexpr char kRequests[] = R"json({
  "Id": {"type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$", "minLength": 1, "maxLength": 128},
  "ModelName": {"type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$"},
  "AnyMap": {"type": ["object", "null"]},
  "JobIdBody": {"type": "object", "properties": {"job_uuid": {"$ref": "#/components/schemas/Id"}}, "additionalProperties": false},
  "DataConfig": {"type": "object", "required": ["dataset_id"], "additionalProperties": false, "properties": {
    "dataset_id": {"$ref": "#/components/schemas/Id"},
    "batch_size": {"type": ["integer", "null"], "minimum": 1, "maximum": 65536},
    "shuffle": {"type": ["boolean", "null"]},
    "data_format": {"enum": ["instruct", "dialog", null]},
    "validation_dataset_id": {"anyOf": [{"$ref": "#/components/schemas/Id"}, {"type": "null"}]},
    "packed": {"type": ["boolean", "null"]},
    "train_on_input": {"type": ["boolean", "null"]},
    "train_split_percentage": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1}}},
  "OptimizerConfig": {"type": ["object", "null"], "additionalProperties": false, "properties": {
    "optimizer_type": {"enum": ["adam", "adamw", "sgd", null]},
    "lr": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 10},
    "weight_decay": {"type": ["number", "null"], "minimum": 0, "maximum": 10},
    "num_warmup_steps": {"type": ["integer", "null"], "minimum": 0, "maximum": 1000000000},
    "warmup_ratio": {"type": ["number", "null"], "minimum": 0, "maximum": 1}}},
  "EfficiencyConfig": {"type": ["object", "null"], "additionalProperties": false, "properties": {
    "enable_activation_checkpointing": {"type": ["boolean", "null"]},
    "enable_activation_offloading": {"type": ["boolean", "null"]},
    "memory_efficient_fsdp_wrap": {"type": ["boolean", "null"]},
    "fsdp_cpu_offload": {"type": ["boolean", "null"]}}},
  "TrainingConfig": {"type": "object", "required": ["data_config"], "additionalProperties": false, "properties": {
    "n_epochs": {"type": ["integer", "null"], "minimum": 1, "maximum": 100000},
    "max_steps_per_epoch": {"type": ["integer", "null"], "minimum": 0, "maximum": 1000000000},
    "gradient_accumulation_steps": {"type": ["integer", "null"], "minimum": 1, "maximum": 65536},
    "max_validation_steps": {"type": ["integer", "null"], "minimum": 0, "maximum": 1000000000},
    "learning_rate": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 10},
    "dtype": {"enum": ["bf16", "bfloat16", "fp32", "float32", "fp16", "float16", null]},
    "data_config": {"$ref": "#/components/schemas/DataConfig"},
    "optimizer_config": {"$ref": "#/components/schemas/OptimizerConfig"},
    "efficiency_config": {"$ref": "#/components/schemas/EfficiencyConfig"}}},
  "PreferenceConfig": {"type": "object", "additionalProperties": false, "properties": {
    "type": {"enum": ["dpo", "DPO"]},
    "reward_scale": {"type": ["number", "null"], "minimum": -1e9, "maximum": 1e9},
    "reward_clip": {"type": ["number", "null"], "minimum": -1e9, "maximum": 1e9},
    "epsilon": {"type": ["number", "null"], "minimum": -1e9, "maximum": 1e9},
    "gamma": {"type": ["number", "null"], "minimum": -1e9, "maximum": 1e9},
    "beta": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1000000},
    "loss_type": {"enum": ["sigmoid", "hinge", "ipo", "kto_pair", null]},
    "label_smoothing": {"type": ["number", "null"], "minimum": 0, "maximum": 0.49}}},
  "LoraConfig": {"type": "object", "required": ["type", "rank", "alpha"], "additionalProperties": false, "properties": {
    "type": {"const": "LoRA"},
    "lora_attn_modules": {"type": ["array", "null"], "maxItems": 16, "items": {"type": "string", "minLength": 1, "maxLength": 64}},
    "apply_lora_to_mlp": {"type": ["boolean", "null"]},
    "apply_lora_to_output": {"type": ["boolean", "null"]},
    "rank": {"type": "integer", "minimum": 1, "maximum": 65536},
    "alpha": {"type": "integer", "minimum": 1, "maximum": 1000000},
    "use_dora": {"type": ["boolean", "null"]},
    "quantize_base": {"type": ["boolean", "null"]}}},
  "QatConfig": {"type": "object", "required": ["type", "quantizer_name", "group_size"], "additionalProperties": false, "properties": {
    "type": {"const": "QAT"},
    "quantizer_name": {"type": "string", "minLength": 1, "maxLength": 64},
    "group_size": {"type": "integer", "minimum": 1, "maximum": 65536}}},
  "PreferenceOptimize": {"type": "object", "required": ["job_uuid", "algorithm_config", "training_config"],
    "additionalProperties": false, "properties": {
    "job_uuid": {"$ref": "#/components/schemas/Id"},
    "model": {"anyOf": [{"$ref": "#/components/schemas/ModelName"}, {"type": "null"}], "description": "without it finetuned_model is the model"},
    "finetuned_model": {"anyOf": [{"$ref": "#/components/schemas/ModelName"}, {"type": "null"}]},
    "algorithm_config": {"$ref": "#/components/schemas/PreferenceConfig"},
    "training_config": {"$ref": "#/components/schemas/TrainingConfig"},
    "hyperparam_search_config": {"$ref": "#/components/schemas/AnyMap"},
    "logger_config": {"$ref": "#/components/schemas/AnyMap"},
    "checkpoint_dir": {"type": ["string", "null"], "maxLength": 1024},
    "priority": {"type": ["integer", "null"], "minimum": -1000, "maximum": 1000}}},
  "SupervisedFineTune": {"type": "object", "required": ["job_uuid", "model", "training_config"],
    "additionalProperties": false, "properties": {
    "job_uuid": {"$ref": "#/components/schemas/Id"},
    "model": {"$ref": "#/components/schemas/ModelName"},
    "finetuned_model": {"anyOf": [{"$ref": "#/components/schemas/ModelName"}, {"type": "null"}]},
    "algorithm_config": {"anyOf": [{"$ref": "#/components/schemas/LoraConfig"}, {"$ref": "#/components/schemas/QatConfig"}, {"type": "null"}]},
    "training_config": {"$ref": "#/components/schemas/TrainingConfig"},
    "hyperparam_search_config": {"$ref": "#/components/schemas/AnyMap"},
    "logger_config": {"$ref": "#/components/schemas/AnyMap"},
    "checkpoint_dir": {"type": ["string", "null"], "maxLength": 1024},
    "priority": {"type": ["integer", "null"], "minimum": -1000, "maximum": 1000}}},
  "PlanRequest": {"type": "object", "required": ["model"], "additionalProperties": false, "properties": {
    "model": {"$ref": "#/components/schemas/ModelName"},
    "method": {"enum": ["dpo", "sft", null]},
    "gpu": {"type": ["string", "null"], "minLength": 1, "maxLength": 64, "pattern": "^[A-Za-z0-9][A-Za-z0-9 ._-]*$"},
    "nodes": {"type": ["integer", "null"], "minimum": 1, "maximum": 10000},
    "gpus_per_node": {"type": ["integer", "null"], "minimum": 1, "maximum": 1024},
    "config": {"$ref": "#/components/schemas/ProviderSettings"},
    "algorithm_config": {"anyOf": [{"$ref": "#/components/schemas/PreferenceConfig"}, {"$ref": "#/components/schemas/LoraConfig"}, {"type": "null"}]},
    "training_config": {"$ref": "#/components/schemas/PlanTraining"}}},
  "PlanTraining": {"type": ["object", "null"], "additionalProperties": false, "properties": {
    "n_epochs": {"type": ["integer", "null"], "minimum": 1, "maximum": 100000},
    "max_steps_per_epoch": {"type": ["integer", "null"], "minimum": 0, "maximum": 1000000000},
    "gradient_accumulation_steps": {"type": ["integer", "null"], "minimum": 1, "maximum": 65536},
    "max_validation_steps": {"type": ["integer", "null"], "minimum": 0, "maximum": 1000000000},
    "learning_rate": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 10},
    "dtype": {"enum": ["bf16", "bfloat16", "fp32", "float32", "fp16", "float16", null]},
    "data_config": {"anyOf": [{"$ref": "#/components/schemas/PlanData"}, {"type": "null"}]},
    "optimizer_config": {"$ref": "#/components/schemas/OptimizerConfig"},
    "efficiency_config": {"$ref": "#/components/schemas/EfficiencyConfig"}}},
  "PlanData": {"type": "object", "additionalProperties": false, "properties": {
    "dataset_id": {"anyOf": [{"$ref": "#/components/schemas/Id"}, {"type": "null"}]},
    "batch_size": {"type": ["integer", "null"], "minimum": 1, "maximum": 65536},
    "shuffle": {"type": ["boolean", "null"]},
    "packed": {"type": ["boolean", "null"]}}},
  "ProviderSettings": {"type": ["object", "null"], "additionalProperties": false, "properties": {
    "fsdp_config": {"type": "object", "additionalProperties": false, "properties": {
      "sharding_strategy": {"enum": ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"]},
      "mixed_precision_policy": {"enum": ["bf16", "fp16", null]},
      "cpu_offload": {"type": "boolean"},
      "limit_all_gathers": {"type": "boolean"},
      "forward_prefetch": {"type": "boolean"},
      "backward_prefetch": {"enum": ["BACKWARD_PRE", "BACKWARD_POST"]}}},
    "torch_run_config": {"type": "object", "additionalProperties": false, "properties": {
      "nnodes": {"type": "integer", "minimum": 1, "maximum": 10000},
      "nproc_per_node": {"type": "integer", "minimum": 1, "maximum": 1024},
      "node_rank": {"type": "integer", "minimum": 0, "maximum": 9999},
      "master_addr": {"type": "string", "minLength": 1, "maxLength": 253, "pattern": "^[A-Za-z0-9._:-]+$"},
      "master_port": {"type": "integer", "minimum": 1, "maximum": 65535}}},
    "max_seq_length": {"type": "integer", "minimum": 1, "maximum": 10000000},
    "batch_size": {"type": "integer", "minimum": 1, "maximum": 65536},
    "gradient_checkpointing": {"type": "boolean"},
    "activation_checkpointing": {"enum": ["selective", "full", "none"]},
    "use_reference_model": {"type": "boolean"},
    "dpo_beta": {"type": "number", "exclusiveMinimum": 0, "maximum": 1000000},
    "dpo_loss_type": {"enum": ["sigmoid", "hinge", "ipo"]}}},
  "Row": {"type": "object", "additionalProperties": {}},
  "RowsSource": {"type": "object", "required": ["type", "rows"], "additionalProperties": false, "properties": {
    "type": {"const": "rows"}, "rows": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Row"}}}},
  "UriSource": {"type": "object", "required": ["type", "uri"], "additionalProperties": false, "properties": {
    "type": {"const": "uri"}, "uri": {"type": "string", "minLength": 1, "maxLength": 1024}}},
  "RegisterDataset": {"type": "object", "required": ["source"], "additionalProperties": false, "properties": {
    "dataset_id": {"anyOf": [{"$ref": "#/components/schemas/Id"}, {"type": "null"}]},
    "provider_dataset_id": {"anyOf": [{"$ref": "#/components/schemas/Id"}, {"type": "null"}]},
    "purpose": {"type": ["string", "null"], "maxLength": 128},
    "dataset_type": {"enum": ["preference", "instruct", "messages", "text", null]},
    "source": {"anyOf": [{"$ref": "#/components/schemas/RowsSource"}, {"$ref": "#/components/schemas/UriSource"}]},
    "metadata": {"$ref": "#/components/schemas/AnyMap"}}},
  "AppendRows": {"type": "object", "required": ["rows"], "additionalProperties": false, "properties": {
    "dataset_id": {"type": ["string", "null"], "maxLength": 128},
    "rows": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Row"}}}}
})json";

// Answers. What is described is always there; keys that a later version adds are allowed.
constexpr char kAnswers[] = R"json({
  "Problem": {"type": "object", "required": ["detail", "errors"], "properties": {
    "detail": {"type": "string"},
    "errors": {"type": "array", "items": {"type": "object", "required": ["where", "message", "help"], "properties": {
      "where": {"type": "string"}, "message": {"type": "string"}, "help": {"type": "string"}}}}}},
  "Health": {"type": "object", "required": ["status", "provider_type", "distributed_backend", "world_size"], "properties": {
    "status": {"type": "string"}, "provider_type": {"type": "string"}, "distributed_backend": {"type": ["string", "null"]},
    "world_size": {"type": "integer"}}},
  "JobId": {"type": "object", "required": ["job_uuid"], "properties": {"job_uuid": {"type": "string"}}},
  "JobList": {"type": "object", "required": ["data"], "properties": {"data": {"type": "array", "items": {"type": "object", "required": ["job_uuid"],
    "properties": {"job_uuid": {"type": "string"}, "status": {"type": "string"}}}}}},
  "Checkpoint": {"type": "object", "required": ["identifier", "created_at", "epoch", "post_training_job_id", "path"], "properties": {
    "identifier": {"type": "string"}, "created_at": {"type": "string"}, "epoch": {"type": "integer"},
    "post_training_job_id": {"type": "string"}, "path": {"type": "string"}, "training_metrics": {"type": ["object", "null"]}}},
  "Job": {"type": "object", "required": ["job_uuid", "status", "scheduled_at", "started_at", "completed_at", "resources_allocated", "checkpoints"],
    "properties": {
    "job_uuid": {"type": "string"}, "status": {"enum": ["queued", "scheduled", "in_progress", "completed", "failed", "cancelled"]},
    "scheduled_at": {"type": ["string", "null"]}, "started_at": {"type": ["string", "null"]}, "completed_at": {"type": ["string", "null"]},
    "resources_allocated": {"type": ["object", "null"]}, "checkpoints": {"type": "array", "items": {"$ref": "#/components/schemas/Checkpoint"}},
    "plan": {"type": ["object", "null"]}, "measured": {"type": ["object", "null"]}, "losses": {"type": "array"}}},
  "Artifacts": {"type": "object", "required": ["job_uuid", "checkpoints"], "properties": {
    "job_uuid": {"type": "string"}, "checkpoints": {"type": "array", "items": {"$ref": "#/components/schemas/Checkpoint"}}}},
  "Said": {"type": "object", "required": ["message"], "properties": {"message": {"type": "string"}, "status": {"type": "string"}, "job_uuid": {"type": "string"}}},
  "Logs": {"type": "object", "required": ["job_uuid", "logs", "status", "next"], "properties": {
    "job_uuid": {"type": "string"}, "status": {"type": "string"}, "next": {"type": "integer"}, "total_lines": {"type": "integer"},
    "logs": {"type": "array", "items": {"type": "object", "required": ["timestamp", "message"], "properties": {
      "timestamp": {"type": "string"}, "stream": {"type": "string"}, "rank": {"type": ["integer", "null"]}, "message": {"type": "string"}}}}}},
  "Dataset": {"type": "object", "required": ["identifier", "provider_id", "type", "purpose", "source", "metadata"], "properties": {
    "identifier": {"type": "string"}, "provider_id": {"type": "string"}, "type": {"const": "dataset"}, "purpose": {"type": "string"},
    "source": {"type": "object"}, "metadata": {"type": "object"}}},
  "DatasetList": {"type": "object", "required": ["data"], "properties": {"data": {"type": "array", "items": {"$ref": "#/components/schemas/Dataset"}}}},
  "RowPage": {"type": "object", "required": ["data", "has_more"], "properties": {
    "data": {"type": "array", "items": {"type": "object"}}, "has_more": {"type": "boolean"}}},
  "AnyObject": {"type": "object"},
  "DataList": {"type": "object", "required": ["data"], "properties": {"data": {"type": "array", "items": {"type": "object"}}}}
})json";

}  // namespace

const Json& component_schemas() {
  static const Json all = [] {
    Json requests = Json::parse(kRequests), answers = Json::parse(kAnswers);
    requests.update(answers);
    return requests;
  }();
  return all;
}

Json schema_named(std::string_view name) {
  CHECK(component_schemas().contains(name), "{}", name);
  return {{"$ref", "#/components/schemas/" + std::string(name)}};
}

const Json& resolved_schema(const Json& schema) {
  if (!schema.is_object() || !schema.contains("$ref")) return schema;
  const std::string ref = schema["$ref"].get<std::string>();
  return component_schemas().at(ref.substr(ref.rfind('/') + 1));
}

}  // namespace distsetup
