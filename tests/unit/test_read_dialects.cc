// Files that trainers of one project keep their settings in: every key acts or is listed with its reason.
#include <catch2/catch.hpp>

#include "base/json.h"
#include "codegen/read/read.h"
#include "support/emitted.h"

using namespace distsetup;

namespace {

// One file, read whole: its fields, and what of it is not carried over.
struct DialectFile {
  std::vector<Reading> readings;
  ReadFields fields;
  Diagnostics diagnostics;

  DialectFile(const std::string& text, const std::string& file) {
    const Result<std::vector<Reading>> read = read_config(embedded_templates(), text, file);
    INFO(messages(read.diagnostics));
    REQUIRE(read.ok());
    readings = *read;
    const Result<ReadFields> merged = merge_readings(readings);
    diagnostics = merged.diagnostics;
    if (merged.ok()) fields = *merged;
  }

  std::string field(std::string_view name) const {
    const auto it = fields.find(name);
    return it == fields.end() ? "" : field_text(it->second.value);
  }

  std::string reason(std::string_view key) const {
    for (const Reading& reading : readings) {
      for (const LostKey& lost : reading.lost) {
        if (lost.key == key) return lost.reason;
      }
    }
    return "";
  }
};

}  // namespace

TEST_CASE("read: a fine-tuning config with adapters on a 4-bit model") {
  const DialectFile got(R"(model:
  base_model: "mistralai/Mistral-7B-v0.1"
  load_in_4bit: true
  load_in_8bit: false
  use_liger_kernels: true
fine_tuning:
  method: "lora"
  lora:
    r: 32
    alpha: 64
    target_modules: ["q_proj", "v_proj"]
    bias: "none"
training:
  micro_batch_size: 2
  gradient_accumulation_steps: 16
  learning_rate: 2e-4
  optimizer: "paged_adamw_8bit"
  max_grad_norm: 0.3
  gradient_checkpointing: true
  mixed_precision: "no"
  warmup_ratio: 0.03
  colour: blue
distributed:
  use_deepspeed: true
  use_fsdp: false
  zero_stage: 2
  offload_optimizer: true
  offload_param: false
  fsdp_sharding_strategy: "FULL_SHARD"
  gradient_accumulation_steps: 16
output:
  save_steps: 500
)",
                        "config.yaml");
  REQUIRE(got.readings.size() == 1);
  CHECK(got.readings[0].table == "fine-tuning/keys.yaml");
  CHECK(got.field("model.name") == "mistralai/Mistral-7B-v0.1");
  CHECK(got.field("train.method") == "sft");
  CHECK(got.field("train.finetune") == "qlora");
  CHECK(got.field("train.lora_rank") == "32");
  CHECK(got.fields.at("train.lora_targets").value == Json({"query", "value"}));
  CHECK(got.field("micro_batch") == "2");
  CHECK(got.field("gradient_accumulation") == "16");
  CHECK(got.field("train.learning_rate") == "0.0002");
  CHECK(got.field("train.optimizer") == "paged_adamw_8bit");
  CHECK(got.field("recompute.policy") == "full");
  CHECK(got.field("precision.compute") == "fp32");
  CHECK(got.field("strategy.trainer") == "deepspeed");
  CHECK(got.field("strategy.sharding") == "zero2");
  CHECK(got.field("offload.optimizer") == "host");
  CHECK(got.field("offload.parameters") == "none");
  CHECK(got.field("checkpoint.every_steps") == "500");
  CHECK(got.field("strategy.loss_head") == "liger");
  CHECK(got.field("train.lora_alpha") == "64");
  CHECK(got.field("derived.warmup_ratio") == "0.03");
  CHECK(contains(got.reason("training.colour"), "not a key"));
  CHECK(contains(got.reason("distributed.fsdp_sharding_strategy"), "use_fsdp only"));
  CHECK(got.readings[0].lost.size() == 2);
}

TEST_CASE("read: a fine-tuning config with FSDP or with neither engine") {
  const DialectFile fsdp(R"(distributed:
  use_deepspeed: false
  use_fsdp: true
  fsdp_config: "config/fsdp_config.json"
  fsdp_sharding_strategy: "SHARD_GRAD_OP"
  fsdp_offload_params: true
  zero_stage: 3
fine_tuning:
  method: "full"
  lora:
    r: 16
)",
                         "config.yaml");
  CHECK(fsdp.field("strategy.trainer") == "fsdp1");
  CHECK(fsdp.field("strategy.sharding") == "zero2");
  CHECK(fsdp.field("offload.parameters") == "host");
  CHECK(fsdp.field("train.finetune") == "full");
  CHECK(fsdp.field("train.lora_rank").empty());
  CHECK(contains(fsdp.reason("fine_tuning.lora.r"), "all parameters"));
  CHECK(contains(fsdp.reason("distributed.zero_stage"), "use_deepspeed only"));
  CHECK(contains(fsdp.reason("distributed.fsdp_config"), "beside"));
  const DialectFile neither("distributed:\n  use_deepspeed: false\n  use_fsdp: false\ntraining:\n  epochs: 3\n", "config.yaml");
  CHECK(neither.field("strategy.trainer") == "ddp");
  const DialectFile both("distributed:\n  use_deepspeed: true\n  use_fsdp: true\ntraining:\n  epochs: 3\n", "config.yaml");
  REQUIRE(both.readings[0].complaints.size() == 1);
  CHECK(contains(both.readings[0].complaints[0].diagnostic.message, "one engine"));
}

TEST_CASE("read: two keys of one file that say different things are told with both places") {
  const DialectFile got("training:\n  gradient_accumulation_steps: 16\ndistributed:\n  gradient_accumulation_steps: 8\n",
                        "config.yaml");
  REQUIRE(got.diagnostics.size() == 1);
  CHECK(contains(got.diagnostics[0].message, "'distributed.gradient_accumulation_steps' says gradient_accumulation is 8"));
  CHECK(contains(got.diagnostics[0].message, "config.yaml:2 says 16"));
  CHECK(got.diagnostics[0].location.line == 4);
}

TEST_CASE("read: OpenRLHF's arguments without dots") {
  const DialectFile got(R"(#!/usr/bin/env bash
torchrun --nproc_per_node=8 -m openrlhf.cli.train_sft \
  --backend fsdp2 \
  --fsdp_tensor_parallel_size 2 \
  --use_hf_tp_plan \
  --sequence_parallel \
  --ring_attn_size 2 \
  --packing_samples \
  --zero_stage 3 \
  --micro_train_batch_size 4 \
  --adam_offload \
  --gradient_checkpointing \
  --pretrain meta-llama/Meta-Llama-3-8B
)",
                        "sft.sh");
  CHECK(got.field("hardware.gpus_per_node") == "8");
  CHECK(got.field("strategy.trainer") == "fsdp2");
  CHECK(got.field("strategy.sharding") == "zero3");
  CHECK(got.field("mesh.tp") == "2");
  CHECK(got.field("mesh.cp") == "2");
  CHECK(got.field("strategy.sequence_parallel") == "true");
  CHECK(got.field("micro_batch") == "4");
  CHECK(got.field("train.global_batch") == "128");
  CHECK(got.fields.at("train.global_batch").is_assumed);
  CHECK(got.field("offload.optimizer") == "host");
  CHECK(got.field("offload.parameters") == "host");
  CHECK(got.field("recompute.policy") == "full");
  CHECK(got.field("model.hub_id") == "meta-llama/Meta-Llama-3-8B");
  CHECK(contains(got.reason("zero_stage"), "deepspeed only"));
  CHECK(contains(got.reason("use_hf_tp_plan"), "family"));
  CHECK(got.field("derived.packing") == "true");

  // A script of OpenRLHF's names no key of its rows: it is `input`.
  const DialectFile goes_on("deepspeed --module openrlhf.cli.train_sft --dataset texts --pretrain some/model --pretrain_mode\n",
                            "more.sh");
  CHECK(goes_on.field("derived.source_field.text") == "input");
  const DialectFile asks("deepspeed --module openrlhf.cli.train_sft --dataset rows --pretrain some/model --output_key say\n",
                         "sft.sh");
  CHECK(asks.field("derived.source_field.prompt") == "input");
  CHECK(asks.field("derived.source_field.completion") == "say");

  const DialectFile deepspeed(
      "#!/bin/sh\ndeepspeed --module openrlhf.cli.train_sft --micro_train_batch_size 2 --adam_offload "
      "--lora_rank 64 --load_in_4bit --target_modules all-linear --fsdp_tensor_parallel_size 2\n",
      "sft.sh");
  CHECK(deepspeed.field("strategy.trainer") == "deepspeed");
  CHECK(deepspeed.field("strategy.sharding") == "zero2");
  CHECK(deepspeed.field("offload.optimizer") == "host");
  CHECK(deepspeed.field("offload.parameters").empty());
  CHECK(deepspeed.field("train.finetune") == "qlora");
  CHECK(deepspeed.field("train.lora_rank") == "64");
  CHECK(contains(deepspeed.reason("fsdp_tensor_parallel_size"), "fsdp2 only"));
}

TEST_CASE("read: one stage of a config with stages and named setups") {
  const DialectFile got(R"(training_stages:
  stage1:
    model: {model_config_key: model_config_1.7B}
    training: {batch_size: 2, sequence_length: 2048, learning_rate: 1e-6, gradient_accumulation_steps: 4, mixed_precision: bf16}
    optimizer: {type: AdamW, betas: [0.9, 0.999], eps: 1e-8}
    scheduler: {type: LinearLR, warmup_steps: 1000}
    distributed:
      strategy: auto
      num_nodes: 4
      devices: 8
      sync_batchnorm: false
      fsdp: {enabled: true, cpu_offload: true, sharding_strategy: SHARD_GRAD_OP, backward_prefetch: BACKWARD_POST,
             limit_all_gathers: true, activation_checkpointing: true}
  stage2:
    training: {batch_size: 16}
distributed_examples:
  multi_node_ddp: {strategy: ddp}
)",
                        "config.yaml");
  REQUIRE(got.readings.size() == 1);
  CHECK(got.readings[0].table == "training-stages/keys.yaml");
  CHECK(got.field("strategy.trainer") == "fsdp1");
  CHECK(got.field("strategy.sharding") == "zero2");
  CHECK(got.field("offload.optimizer") == "host");
  CHECK(got.field("recompute.policy") == "full");
  CHECK(got.field("hardware.nodes") == "4");
  CHECK(got.field("hardware.gpus_per_node") == "8");
  CHECK(got.field("micro_batch") == "2");
  CHECK(got.field("train.learning_rate") == "1e-06");
  CHECK(got.field("train.beta2") == "0.999");
  CHECK(got.field("train.warmup_steps") == "1000");
  CHECK(contains(got.reason("training_stages.stage2"), "--stage stage2"));
  CHECK(contains(got.reason("distributed_examples.multi_node_ddp"), "--distributed multi_node_ddp"));
  CHECK(got.field("strategy.backward_prefetch") == "post");
  CHECK(got.field("model.name") == "model_config_1.7B");  // no entry of model_configs: a name that the presets may have
}

TEST_CASE("read: a named setup as a file of its own") {
  const DialectFile fsdp("strategy: fsdp\nnum_nodes: 8\ndevices: 8\nfsdp:\n  cpu_offload: false\n  sharding_strategy: FULL_SHARD\n",
                         "setup.yaml");
  CHECK(fsdp.field("strategy.trainer") == "fsdp1");
  CHECK(fsdp.field("strategy.sharding") == "zero3");
  CHECK(fsdp.field("offload.parameters") == "none");
  CHECK(fsdp.field("hardware.nodes") == "8");
  const DialectFile ddp("strategy: ddp\nnum_nodes: 4\ndevices: [0, 1]\nfsdp:\n  enabled: true\n  cpu_offload: true\n", "setup.yaml");
  CHECK(ddp.field("strategy.trainer") == "ddp");
  CHECK(ddp.field("hardware.gpus_per_node").empty());
  CHECK(contains(ddp.reason("distributed.devices"), "--gpus"));
  CHECK(contains(ddp.reason("distributed.fsdp.enabled"), "auto only"));
  CHECK(contains(ddp.reason("distributed.fsdp.cpu_offload"), "without FSDP"));
}

TEST_CASE("read: a launch script with its settings at the top") {
  const std::string script =
      "#!/bin/bash\n#SBATCH "
      "--nodes=4\nUSE_HF_MODEL=true\nHF_MODEL=\"meta-llama/Llama-2-70b-hf\"\nMODEL_SIZE=70B\nBATCH_SIZE=${BATCH_SIZE:-2}\n"
      "GPUS_PER_NODE=8\nif [ \"$USE_HF_MODEL\" = true ]; then\n  MODEL_ARGS=\"--hf-model $HF_MODEL\"\nelse\n"
      "  MODEL_ARGS=\"--from-scratch --model-size $MODEL_SIZE\"\nfi\n"
      "srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=$GPUS_PER_NODE train_llm.py $MODEL_ARGS --batch-size $BATCH_SIZE "
      "--max-lr 1.5e-4 --no-use-flash-attn\n";
  const DialectFile got(script, "launch_slurm.sh");
  CHECK(got.field("hardware.nodes") == "4");
  CHECK(got.field("hardware.gpus_per_node") == "8");
  CHECK(got.field("model.name") == "meta-llama/Llama-2-70b-hf");
  CHECK(got.field("micro_batch") == "2");
  CHECK(got.field("train.learning_rate") == "0.00015");
  CHECK(contains(got.reason("nnodes"), "only the running script knows $SLURM_NNODES"));
  std::string other = script;
  other.replace(other.find("USE_HF_MODEL=true"), 17, "USE_HF_MODEL=false");
  CHECK(DialectFile(other, "launch_slurm.sh").field("model.name") == "scratch_70b_wide");
}

TEST_CASE("read: chunks of a pipeline's stages by the layers of one") {
  const char* line =
      "#!/bin/bash\ntorchrun --nproc_per_node=8 pretrain_gpt.py --pipeline-model-parallel-size 4 --num-layers 32 "
      "--num-layers-per-virtual-pipeline-stage ";
  CHECK(DialectFile(std::string(line) + "4\n", "run.sh").field("strategy.virtual_stages") == "2");
  const DialectFile odd(std::string(line) + "5\n", "run.sh");  // 32 layers do not divide so
  CHECK(odd.field("strategy.virtual_stages") != "2");
}

TEST_CASE("read: a file that shards over all ranks has no copies") {
  const auto copies = [](const std::string& strategy) {
    return DialectFile("distributed_type: FSDP\nfsdp_config: {fsdp_version: 1, fsdp_sharding_strategy: " + strategy +
                           "}\nnum_machines: 4\nnum_processes: 32\n",
                       "accelerate.yaml")
        .field("mesh.dp_replicate");
  };
  CHECK(copies("FULL_SHARD") == "1");
  CHECK(copies("SHARD_GRAD_OP") == "1");
  CHECK(copies("HYBRID_SHARD") != "1");
  CHECK(copies("NO_SHARD") != "1");
}

TEST_CASE("read: sections of a config.yaml alone") {
  const DialectFile setups("distributed_examples:\n  near: {strategy: fsdp, num_nodes: 1, devices: 8}\n", "config.yaml");
  REQUIRE(setups.readings.size() == 1);
  CHECK(setups.readings[0].table == "training-stages/keys.yaml");
  CHECK(contains(setups.reason("distributed_examples.near"), "--distributed near"));
  const DialectFile logging("wandb: {use_wandb: true, project: x}\nlogging: {debug: true}\n", "config.yaml");
  CHECK(logging.readings[0].table == "training-stages/keys.yaml");
  CHECK(contains(logging.reason("wandb.project"), "logs"));
  const DialectFile part("training:\n  gradient_accumulation_steps: 4\n", "config.yaml");  // of two dialects
  CHECK(part.field("gradient_accumulation") == "4");
  CHECK(part.field("train.method").empty());
  const DialectFile hybrid("strategy: fsdp\nnum_nodes: 8\ndevices: 8\nfsdp: {sharding_strategy: FULL_SHARD}\n", "setup.yaml");
  CHECK(hybrid.field("mesh.dp_replicate") == "1");  // Lightning's has no copies
  const DialectFile clip("training: {batch_size: 1, gradient_clip_val: 0.5, gradient_clip_algorithm: value}\n", "config.yaml");
  CHECK(clip.field("train.grad_clip") == "0.5");
  CHECK(contains(clip.reason("training.gradient_clip_algorithm"), "by norm"));
}

TEST_CASE("read: launch lines whose settings stand in files assume nothing") {
  const DialectFile script(
      "#!/bin/bash\ntorchrun --nnodes=4 --nproc_per_node=8 --node_rank=0 src/train.py --config config.yaml "
      "--fsdp_config config/fsdp_config.json\n",
      "run.sh");
  CHECK(script.field("hardware.nodes") == "4");
  CHECK(script.field("micro_batch").empty());
  CHECK(script.field("precision.compute").empty());
  CHECK(contains(script.reason("config"), "beside"));
  CHECK(contains(script.reason("fsdp_config"), "beside"));
  const DialectFile stages(
      "#!/bin/bash\npython -m stages.train --mode production --stage stage1 --model-config model_config_1.7B "
      "--devices 8 --precision 16-mixed --fsdp-config multi_node_fsdp --num-nodes 4\n",
      "run.sh");
  CHECK(stages.field("hardware.nodes") == "4");
  CHECK(stages.field("hardware.gpus_per_node") == "8");
  CHECK(stages.field("precision.compute") == "fp16");
  REQUIRE(stages.readings.size() == 1);
  CHECK(stages.readings[0].chosen.stage == "stage1");
  CHECK(stages.readings[0].chosen.setup == "multi_node_fsdp");
  CHECK(stages.readings[0].chosen.assignments.size() == 1);
  CHECK(contains(stages.reason("mode"), "--data"));
}

TEST_CASE("dialects: keys of FSDP that nobody knows do not say that it is off") {
  const std::string file = "strategy: fsdp\nfsdp:\n  sharding_strategy: full_shard\n  cpu_offload: false\n";
  const std::string own = "  mixed_precision: bf16\n  use_activation_checkpointing: false\n  min_num_params: 1000000\n";
  for (const std::string& text : {file, file + own}) {
    const Result<std::vector<Reading>> read = read_config(embedded_templates(), text, "fsdp.yaml");
    REQUIRE(read.ok());
    REQUIRE(read->size() == 1);
    const Reading& one = (*read)[0];
    CHECK(text_of(one.fields, "strategy.sharding") == "zero3");
    CHECK(one.lost.size() == (text == file ? 0 : 3));
  }
}
