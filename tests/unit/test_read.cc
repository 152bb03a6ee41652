// Reading files of other tools: fields, places, and what is not carried over with its reason.
#include <catch2/catch.hpp>

#include <algorithm>

#include "codegen/read/read.h"
#include "support/emitted.h"

using namespace distsetup;

namespace {

std::vector<Reading> readings(const std::string& text, const std::string& file) {
  const Result<std::vector<Reading>> read = read_config(embedded_templates(), text, file);
  INFO(messages(read.diagnostics));
  REQUIRE(read.ok());
  return *read;
}

ReadFields fields(const std::string& text, const std::string& file) {
  const Result<ReadFields> merged = merge_readings(readings(text, file));
  INFO(messages(merged.diagnostics));
  REQUIRE(merged.ok());
  return *merged;
}

// "zero3", "" when it was not read.
std::string value(const ReadFields& fields, std::string_view name) {
  const auto it = fields.find(name);
  return it == fields.end() ? "" : field_text(it->second.value);
}

std::string reason(const std::vector<Reading>& readings, std::string_view key) {
  for (const Reading& reading : readings) {
    for (const LostKey& lost : reading.lost) {
      if (lost.key == key) return lost.reason;
    }
  }
  return "";
}

std::string setting(const ReadFields& fields, std::string_view path) {
  for (const ReadSetting& one : settings_of(fields).settings) {
    if (one.path == path) return one.text;
  }
  return "";
}

}  // namespace

TEST_CASE("read: bf16 weights of TRL are no 4-bit model, and a default of LLaMA-Factory is none either") {
  const std::string trl = "model_name_or_path: x/y\ndataset_name: a\ndtype: bfloat16\nmax_length: 2048\nbf16: true\n";
  CHECK(value(fields(trl, "trl.yaml"), "train.finetune") != "qlora");
  const std::string factory = "model_name_or_path: x/y\nstage: sft\ntemplate: a\nfinetuning_type: lora\ndouble_quantization: true\n";
  CHECK(value(fields(factory, "lf.yaml"), "train.finetune") == "lora");
}

TEST_CASE("read: a range of nodes is no number of them") {
  for (const char* nodes : {"2:4", "1:8"}) {
    const std::string text = std::string("#!/bin/bash\ntorchrun --nnodes=") + nodes + " --nproc_per_node=8 train.py\n";
    CHECK(contains(reason(readings(text, "job.sh"), "nnodes"), "MIN:MAX"));
    CHECK(value(fields(text, "job.sh"), "hardware.nodes").empty());
  }
}

TEST_CASE("read: a launcher of no process says no number of GPUs") {
  const std::string text = "#!/bin/bash\nN=0\nif have-gpus; then N=$(count-gpus); fi\ntorchrun --nproc_per_node=$N train.py\n";
  CHECK(value(fields(text, "job.sh"), "hardware.gpus_per_node").empty());
  const std::string eight = "#!/bin/bash\ntorchrun --nproc_per_node=8 train.py\n";
  CHECK(value(fields(eight, "job.sh"), "hardware.gpus_per_node") == "8");
}

TEST_CASE("read: weights under adapters have no masters to lose") {
  const std::string rest = "model_name_or_path: x/y\ndataset_name: a\nmax_length: 2048\nbf16: true\n";
  CHECK(reason(readings(rest + "dtype: bfloat16\nuse_peft: true\n", "trl.yaml"), "dtype").empty());
  CHECK(value(fields(rest + "dtype: bfloat16\n", "trl.yaml"), "precision.master") == "bf16");
  CHECK(value(fields(rest + "dtype: bfloat16\nuse_peft: true\n", "trl.yaml"), "precision.master").empty());
  CHECK(value(fields(rest + "dtype: bfloat16\n", "trl.yaml"), "train.finetune").empty());
}

TEST_CASE("read: the wizard's empty sections and compilers of none are not DeepSpeed's") {
  const std::string text =
      "compute_environment: LOCAL_MACHINE\ndeepspeed_config: {}\ndistributed_type: MULTI_GPU\ndynamo_backend: 'NO'\n"
      "fsdp_config: {}\nmegatron_lm_config: {}\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n";
  CHECK(value(fields(text, "accelerate.yaml"), "strategy.sharding") == "ddp");
  CHECK(value(fields(text, "accelerate.yaml"), "hardware.gpus_per_node") == "8");
}

TEST_CASE("read: a DeepSpeed file becomes fields with their places") {
  const std::string text = R"({
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 8,
  "gradient_clipping": 0.5,
  "bf16": {"enabled": true},
  "zero_optimization": {
    "stage": 3,
    "overlap_comm": false,
    "offload_optimizer": {"device": "cpu", "pin_memory": true},
    "sub_group_size": 1e9
  },
  "optimizer": {"type": "AdamW", "params": {"lr": 2e-5, "weight_decay": 0.05}},
  "zero_optimisation": {"stage": 2}
})";
  const std::vector<Reading> read = readings(text, "ds.json");
  REQUIRE(read.size() == 1);
  CHECK(read[0].table == "deepspeed/keys.yaml");
  const ReadFields got = fields(text, "ds.json");
  CHECK(value(got, "micro_batch") == "2");
  CHECK(value(got, "gradient_accumulation") == "8");
  CHECK(value(got, "train.grad_clip") == "0.5");
  CHECK(value(got, "strategy.sharding") == "zero3");
  CHECK(value(got, "precision.compute") == "bf16");
  CHECK(value(got, "offload.optimizer") == "host");
  CHECK(value(got, "train.learning_rate") == "2e-05");
  CHECK(value(got, "train.weight_decay") == "0.05");
  CHECK(value(got, "train.optimizer") == "adamw");
  CHECK(got.find("micro_batch")->second.at == Location{"ds.json", 2, 3});
  CHECK(got.find("strategy.sharding")->second.at.line == 7);
  CHECK(got.find("precision.compute")->second.at.line == 5);
  CHECK(contains(reason(read, "zero_optimization.sub_group_size"), "optimizer step"));
  CHECK(contains(reason(read, "zero_optimization.overlap_comm"), "written as true"));
  CHECK(contains(reason(read, "zero_optimisation.stage"), "without a word"));
  CHECK(setting(got, "parallel.sharding") == "zero3");
  CHECK(setting(got, "trainer.name") == "deepspeed");
}

TEST_CASE("read: what DeepSpeed assumes for absent keys is read as assumed") {
  const ReadFields got = fields(R"({"train_micro_batch_size_per_gpu": 4})", "ds.json");
  CHECK(value(got, "strategy.sharding") == "ddp");
  CHECK(got.find("strategy.sharding")->second.is_assumed);
  CHECK(value(got, "precision.compute") == "fp32");
  CHECK(value(got, "gradient_accumulation") == "1");
  const ReadFields with_batch = fields(R"({"train_micro_batch_size_per_gpu": 4, "train_batch_size": 64})", "ds.json");
  CHECK(value(with_batch, "gradient_accumulation").empty());
  CHECK(value(with_batch, "train.global_batch") == "64");
}

TEST_CASE("read: old and automatic forms of DeepSpeed") {
  CHECK(value(fields(R"({"train_batch_size": 8, "zero_optimization": true})", "a.json"), "strategy.sharding") == "zero1");
  const ReadFields offload = fields(R"({"train_batch_size": 8, "zero_optimization": {"stage": "2", "cpu_offload": true}})", "a.json");
  CHECK(value(offload, "strategy.sharding") == "zero2");
  CHECK(value(offload, "offload.optimizer") == "host");
  CHECK(value(fields(R"({"train_batch_size": 8, "bfloat16": {"enabled": true}})", "a.json"), "precision.compute") == "bf16");
  CHECK(value(fields(R"({"train_batch_size": 8, "fp16": {"enabled": true}})", "a.json"), "precision.compute") == "fp16");
  const std::vector<Reading> automatic = readings(
      R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}})", "a.json");
  CHECK(automatic[0].fields.count("train.global_batch") == 0);
  CHECK(automatic[0].fields.count("micro_batch") == 0);
}

TEST_CASE("read: accelerate's FSDP of both versions") {
  const auto file = [](const std::string& fsdp) {
    return "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\nnum_machines: 2\nnum_processes: 16\n"
           "fsdp_config:\n" +
           fsdp;
  };
  struct Case {
    const char *fsdp, *sharding, *reshard, *hybrid;
  };
  const Case cases[] = {
      {"  fsdp_version: 1\n  fsdp_sharding_strategy: FULL_SHARD\n", "zero3", "true", ""},
      {"  fsdp_sharding_strategy: SHARD_GRAD_OP\n", "zero2", "", ""},
      {"  fsdp_sharding_strategy: HYBRID_SHARD\n", "zero3", "", "true"},
      {"  fsdp_sharding_strategy: HYBRID_SHARD_ZERO2\n", "zero2", "", "true"},
      {"  fsdp_sharding_strategy: 1\n", "zero3", "true", ""},
      {"  fsdp_sharding_strategy: 2\n", "zero2", "", ""},
      {"  fsdp_sharding_strategy: NO_SHARD\n", "ddp", "", ""},
      {"  fsdp_version: 1\n  fsdp_reshard_after_forward: SHARD_GRAD_OP\n", "zero2", "", ""},
      {"  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n", "zero3", "true", ""},
      {"  fsdp_version: 2\n  fsdp_reshard_after_forward: false\n", "zero2", "", ""},
      {"  fsdp_version: 2\n", "zero3", "true", ""},
      {"  fsdp_state_dict_type: FULL_STATE_DICT\n", "zero3", "true", ""},
  };
  for (const Case& one : cases) {
    CAPTURE(one.fsdp);
    const ReadFields got = fields(file(one.fsdp), "accelerate.yaml");
    CHECK(value(got, "strategy.sharding") == one.sharding);
    CHECK(value(got, "strategy.reshard_after_forward") == one.reshard);
    CHECK(value(got, "derived.hybrid") == one.hybrid);
    CHECK(value(got, "precision.compute") == "bf16");
    CHECK(value(got, "hardware.nodes") == "2");
    CHECK(value(got, "hardware.gpus_per_node") == "8");
  }
  const ReadFields rest = fields(file("  fsdp_version: 2\n  fsdp_offload_params: true\n  fsdp_activation_checkpointing: true\n"
                                      "  fsdp_transformer_layer_cls_to_wrap: A,B\n"),
                                 "accelerate.yaml");
  CHECK(value(rest, "offload.optimizer") == "host");
  CHECK(value(rest, "offload.parameters") == "host");
  CHECK(value(rest, "recompute.policy") == "full");
  CHECK(value(rest, "options.layer_classes") == "A,B");
}

TEST_CASE("read: arguments of the Hugging Face Trainer, new and deprecated spellings") {
  const ReadFields got = fields(R"({"output_dir": "o", "fsdp": "full_shard auto_wrap offload", "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 16, "bf16": true, "max_steps": 500, "learning_rate": 1e-5, "gradient_checkpointing": true,
    "fsdp_config": {"fsdp_transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"], "version": 1}})",
                                "args.json");
  CHECK(value(got, "strategy.sharding") == "zero3");
  CHECK(value(got, "offload.parameters") == "host");
  CHECK(value(got, "micro_batch") == "2");
  CHECK(value(got, "gradient_accumulation") == "16");
  CHECK(value(got, "train.steps") == "500");
  CHECK(value(got, "options.layer_classes") == "LlamaDecoderLayer");
}

TEST_CASE("read: a job script: directives, launcher and program") {
  const std::string text = R"(#!/bin/bash
#SBATCH --job-name=tune
#SBATCH -N 4
#SBATCH --gres=gpu:h100:8 --time=1-12:00:00
#SBATCH --ntasks-per-node=1
export GPUS=8
ARGS="--deepspeed ds.json --bf16 True --per_device_train_batch_size 2"
srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=$GPUS --rdzv_backend c10d train.py $ARGS
#SBATCH --nodes=9
)";
  const std::vector<Reading> read = readings(text, "job.sbatch");
  const ReadFields got = fields(text, "job.sbatch");
  CHECK(value(got, "hardware.nodes") == "4");
  CHECK(value(got, "hardware.gpus_per_node") == "8");
  CHECK(setting(got, "launch.time_limit") == "1-12:00:00");
  CHECK(got.find("hardware.nodes")->second.at.line == 3);
  CHECK(value(got, "micro_batch") == "2");
  CHECK(value(got, "precision.compute") == "bf16");
  CHECK(contains(reason(read, "nnodes"), "running script"));
  CHECK(contains(reason(read, "rdzv_backend"), "launcher"));
}

TEST_CASE("read: the srun that trains counts, GPUs of a task and of a job") {
  const auto of = [](const std::string& text) { return fields("#!/bin/bash\n" + text, "job.sbatch"); };
  const std::string train = "srun torchrun --nproc_per_node=8 train.py --bf16 True\n";
  const ReadFields helpers =
      of("#SBATCH --nodes=4\nH=$(srun --nodes=1 --ntasks=1 hostname)\nsrun -N 1 trl vllm-serve --model m &\n" + train);
  CHECK(value(helpers, "hardware.nodes") == "4");
  CHECK(value(of("#SBATCH --nodes=9\nsrun --nodes=8 torchrun train.py --bf16 True\n"), "hardware.nodes") == "8");
  CHECK(value(of("#SBATCH --nodes=2\nsrun -N 1 ray start --head &\nsrun --nodes=1 python train.py --bf16 True\n"), "hardware.nodes") ==
        "2");
  const ReadFields of_task = of("#SBATCH --nodes=4\n#SBATCH --ntasks=4\n#SBATCH --gpus-per-task=a100:8\n" + train);
  CHECK(value(of_task, "hardware.gpus_per_node") == "8");
  CHECK(value(of_task, "hardware.gpu") == "a100");
  CHECK(value(of("#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-task=1\nsrun python train.py --bf16 True\n"),
              "hardware.gpus_per_node") == "8");
  CHECK(value(of("#SBATCH -N 2\n#SBATCH --gpus=16\n" + train), "hardware.gpus_per_node") == "8");
  CHECK(value(of("#SBATCH --gpus-per-node=h100:4\nsrun torchrun train.py --bf16 True\n"), "hardware.gpu") == "h100");
  CHECK(value(of("torchrun train.py --per_device_train_batch_size 2 --per_device_train_batch_size 4\n"), "micro_batch") ==
        "4");  // as argparse
}

TEST_CASE("read: sbatch times as settings of a run") {
  const auto limit = [](const std::string& time) {
    return setting(fields("#!/bin/bash\n#SBATCH --time=" + time + "\ntrue\n", "j.sh"), "launch.time_limit");
  };
  CHECK(limit("90") == "90m");
  CHECK(limit("90:30") == "5430s");
  CHECK(limit("4:00:00") == "4:00:00");
  CHECK(limit("2-12") == "2-12:00:00");
  CHECK(limit("2-12:30") == "2-12:30:00");
}

TEST_CASE("read: two files that contradict each other are told with both places") {
  std::vector<Reading> both = readings(R"({"train_micro_batch_size_per_gpu": 2})", "ds.json");
  for (Reading& one :
       readings(R"({"output_dir": "o", "per_device_train_batch_size": 4, "max_steps": 9, "deepspeed": "ds.json"})", "args.json"))
    both.push_back(std::move(one));
  const Result<ReadFields> merged = merge_readings(both);
  REQUIRE_FALSE(merged.ok());
  const std::string said = messages(merged.diagnostics);
  CHECK(contains(said, "'per_device_train_batch_size' says micro_batch is 4"));
  CHECK(contains(said, "'train_micro_batch_size_per_gpu' in ds.json:1 says 2"));
}

TEST_CASE("read: a file of which no table knows a key is refused") {
  const Result<std::vector<Reading>> read = read_config(embedded_templates(), "{\"colour\": \"blue\"}", "x.json");
  REQUIRE_FALSE(read.ok());
  CHECK(contains(messages(read.diagnostics), "no table knows a key of 'x.json'"));
}

TEST_CASE("read: a Megatron-LM script with arrays and variables") {
  const ReadFields got = fields(R"(#!/bin/bash
GPUS_PER_NODE=8
NUM_NODES=2
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
)
GPT_ARGS=(
    --num-layers 32
    --hidden-size 4096
    --num-attention-heads 32
    --seq-length 4096
    --micro-batch-size 1
    --global-batch-size 128
    --tensor-model-parallel-size 2
    --use-distributed-optimizer
    --bf16
    --recompute-activations
    --lr 3.0e-4
)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py ${GPT_ARGS[@]}
)",
                                "pretrain.sh");
  CHECK(value(got, "hardware.gpus_per_node") == "8");
  CHECK(value(got, "hardware.nodes") == "2");
  CHECK(value(got, "model.num_layers") == "32");
  CHECK(value(got, "mesh.tp") == "2");
  CHECK(value(got, "mesh.pp") == "1");
  CHECK(value(got, "strategy.sharding") == "zero1");
  CHECK(value(got, "precision.compute") == "bf16");
  CHECK(value(got, "recompute.policy") == "selective");
  CHECK(value(got, "train.global_batch") == "128");
  CHECK(setting(got, "model.num_layers") == "32");
  CHECK(setting(got, "trainer.name") == "megatron");
}

TEST_CASE("read: a torchtitan file") {
  const ReadFields got = fields(R"([model]
name = "qwen3"
flavor = "8B"

[training]
local_batch_size = 4
global_batch_size = 64
seq_len = 8192

[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = 8
fsdp_reshard_after_forward = "never"

[activation_checkpoint]
mode = "full"
)",
                                "train.toml");
  CHECK(value(got, "model.name") == "qwen3_8b");
  CHECK(value(got, "micro_batch") == "4");
  CHECK(value(got, "train.global_batch") == "64");
  CHECK(value(got, "train.sequence_length") == "8192");
  CHECK(value(got, "mesh.dp_replicate") == "2");
  CHECK(value(got, "mesh.dp_shard") == "8");
  CHECK(value(got, "strategy.sharding") == "zero2");
  CHECK(value(got, "recompute.policy") == "full");
  CHECK(value(got, "precision.compute") == "bf16");
}
