// Which engine a run has, where several files and flags speak of it; and what scripts start beside a training. Each beside a near
// miss.
#include <catch2/catch.hpp>

#include "codegen/read/read.h"
#include "support/file_says.h"

using namespace distsetup;

namespace {

const std::string kTrainer =
    "torchrun --nproc_per_node 8 t.py --model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size 1 --output_dir x ";

// "fsdp2 zero3" of a file of accelerate and a script together; "error": they do not go together.
std::string form_of(const std::string& file, const std::string& script) {
  std::vector<Reading> all;
  for (const auto& [name, text] : {std::pair{"a.yaml", file}, std::pair{"a.sh", script}}) {
    INFO(text);
    Result<std::vector<Reading>> read = read_config(embedded_templates(), text, name);
    REQUIRE(read.ok());
    for (Reading& one : *read) all.push_back(std::move(one));
  }
  const Result<ReadFields> fields = merge_readings(all);
  return fields.ok() ? text_of(*fields, "strategy.trainer") + " " + text_of(*fields, "strategy.sharding") : "error";
}

}  // namespace

TEST_CASE("engines: --fsdp with wrapping or offloading alone shards all, as the Trainer does", "[read]") {
  const auto told = [](const std::string& flags) { return told_of("a.sh", kTrainer + flags); };
  for (const char* words : {"auto_wrap", "\"auto_wrap offload\"", "offload", "\"full_shard auto_wrap\""}) {
    INFO(words);
    CHECK(told("--fsdp " + std::string(words)).text("strategy.sharding") == "zero3");
    CHECK(told("--fsdp " + std::string(words)).text("strategy.trainer") == "fsdp2");
  }
  CHECK(told("--fsdp \"shard_grad_op auto_wrap\"").text("strategy.sharding") == "zero2");
  CHECK(told("").text("strategy.trainer") == "ddp");
}

TEST_CASE("engines: arguments that Transformers 5 has no more are read by version 1 of FSDP", "[read]") {
  const auto trainer = [](const std::string& flags) {
    return told_of("a.sh", kTrainer + "--fsdp full_shard " + flags).text("strategy.trainer");
  };
  CHECK(trainer("") == "fsdp2");
  CHECK(trainer("--eval_strategy no") == "fsdp2");
  CHECK(trainer("--evaluation_strategy no") == "fsdp1");
  CHECK(trainer("--fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer") == "fsdp1");
}

TEST_CASE("engines: processes of accelerate run what the Trainer's own switch says", "[read]") {
  const std::string file = "distributed_type: MULTI_GPU\nnum_processes: 8\nnum_machines: 1\nmixed_precision: bf16\n";
  const std::string line = "accelerate launch --config_file a.yaml t.py --per_device_train_batch_size 1 --bf16 --output_dir x ";
  CHECK(form_of(file, line + "--fsdp full_shard\n") == "fsdp2 zero3");
  CHECK(form_of(file, line + "\n") == " ddp");
}

TEST_CASE("engines: a flag of accelerate launch goes over its file though its value is not known", "[read]") {
  const std::string file = "distributed_type: MULTI_GPU\nnum_processes: 8\nnum_machines: 1\n";
  const std::string job = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:4\n";
  const std::string line = " t.py --per_device_train_batch_size 1\n";
  CHECK(form_of(file, job + "srun accelerate launch --config_file a.yaml --num_processes \"$N\"" + line) == " ddp");
  CHECK(form_of(file, job + "srun accelerate launch --config_file a.yaml" + line) == "error");
}

TEST_CASE("engines: eval of a text keeps what is known of it", "[read]") {
  const std::string options = "--per_device_train_batch_size 3 --learning_rate 1e-5";
  const auto batch = [&](const std::string& script) { return told_of("a.sh", "out=$1\n" + script).text("micro_batch"); };
  CHECK(batch("cmd=\"torchrun --nproc_per_node 8 t.py " + options + "\"\neval \"$cmd\"\n") == "3");
  CHECK(batch("cmd=\"torchrun --nproc_per_node 8 t.py " + options + " --output_dir $out\"\neval \"$cmd\"\n") == "3");
  CHECK(batch("a=\"" + options + " --output_dir $out\"\neval \"torchrun --nproc_per_node 8 t.py $a\"\n") == "3");
  CHECK(batch("cmd=\"echo $out\"\neval \"$cmd\"\ntorchrun --nproc_per_node 8 t.py " + options + "\n") == "3");
}

TEST_CASE("engines: what scores or generates beside a training is no second run", "[read]") {
  const std::string train =
      "deepspeed --module openrlhf.cli.train_sft --pretrain a/b --zero_stage 2 --micro_train_batch_size 2"
      " --train_batch_size 128 --dataset x.jsonl\n";
  const std::string score =
      "deepspeed --module openrlhf.cli.batch_inference --eval_task rm --pretrain c/d --zero_stage 0 --dataset e/f\n";
  CHECK(told_of("a.sh", score + train).text("strategy.sharding") == "zero2");
  const std::string other = "deepspeed --module openrlhf.cli.train_sft --pretrain a/b --zero_stage 3 --dataset x.jsonl\n";
  CHECK(told_of("a.sh", train + other).is_contradictory);
  // A word inside another one ("pip") is no task.
  const std::string pipeline = "torchrun --nproc_per_node 8 train_pipeline.py --per_device_train_batch_size 4 --bf16 --output_dir x\n";
  CHECK(told_of("a.sh", kTrainer + "\n" + pipeline).is_contradictory);
}

TEST_CASE("engines: packing and the beta of DPO are settings of the files that say them", "[read]") {
  const auto packing = [](const char* name, const std::string& text) { return told_of(name, text).text("derived.packing"); };
  const std::string axolotl = "base_model: a/b\ndatasets: [{path: c/d, type: alpaca}]\nmicro_batch_size: 2\n";
  CHECK(packing("a.yaml", axolotl + "sample_packing: true\n") == "true");
  CHECK(packing("a.yaml", axolotl + "sample_packing: false\n").empty());
  const std::string trl = "model_name_or_path: a/b\ndataset_name: c/d\nper_device_train_batch_size: 2\nassistant_only_loss: true\n";
  CHECK(packing("a.yaml", trl + "packing: true\n") == "true");
  CHECK(packing("a.yaml", trl + "packing: true\npacking_strategy: wrapped\n").empty());
  CHECK(told_of("a.yaml", axolotl + "rl: dpo\nrl_beta: 0.01\n").text("options.preference_beta") == "0.01");
}

TEST_CASE("engines: what tools say in words of their own", "[read]") {
  const auto told = [](const std::string& line, const char* field) { return told_of("a.sh", line + "\n").text(field); };
  // A script loads its weights as the checkpoint has them: which type that is nobody says.
  CHECK(told(kTrainer + "--torch_dtype auto", "precision.compute").empty());
  CHECK(told(kTrainer + "--torch_dtype float32", "precision.compute") == "fp32");
  CHECK(told(kTrainer, "precision.compute") == "fp32");
  // torchtitan names a function by model and size.
  const std::string titan = "torchrun --nproc_per_node 8 -m torchtitan.train --module llama3 --config ";
  CHECK(told(titan + "llama3_8b", "model.name") == "llama3_8b");
  CHECK(told(titan + "llama3_405b", "model.name") == "llama3.1_405b");
  CHECK(told(titan + "llama3_debugmodel", "model.name").empty());
  CHECK(told("swift sft --model a/b --use_flash_attn true", "derived.attention") == "flash2");
  const std::string orl = "deepspeed --module openrlhf.cli.train_sft --pretrain a/b --micro_train_batch_size 2 --zero_stage 3 ";
  CHECK(told(orl + "--flash_attn", "derived.attention") == "flash2");
  CHECK(told(orl, "derived.attention").empty());
  // LLaMA-Factory packs rows where it pre-trains.
  const auto packs = [](const std::string& text) {
    return told_of("a.yaml", "finetuning_type: full\ntemplate: llama3\n" + text).text("derived.packing");
  };
  CHECK(packs("stage: pt\n") == "true");
  CHECK(packs("stage: pt\npacking: true\n") == "true");
  CHECK(packs("stage: pt\npacking: false\n").empty());
  CHECK(packs("stage: sft\npacking: true\n").empty());
  // What DeepSpeed-Chat's third step trains is its actor.
  const std::string chat =
      "deepspeed --num_gpus 8 main.py --actor_learning_rate 5e-6 --actor_zero_stage 3 --num_warmup_steps 0 --foo 1";
  CHECK(told(chat, "train.learning_rate") == "5e-06");
  CHECK(told(chat, "strategy.sharding") == "zero3");
  CHECK(told(chat, "train.warmup_steps") == "0");
}

TEST_CASE("engines: Axolotl's rates fall to 0", "[read]") {
  const std::string file = "base_model: a/b\nmicro_batch_size: 1\nsequence_len: 2048\nlearning_rate: 1e-5\nlr_scheduler: ";
  for (const char* schedule : {"linear", "cosine"})
    CHECK(told_of("a.yaml", file + schedule + "\n").text("train.min_learning_rate") == "0");
}

TEST_CASE("engines: names of scripts of one's own", "[read]") {
  const auto told = [](const std::string& line, const char* field) { return told_of("a.sh", line + "\n").text(field); };
  // The fields of a dataclass, by the argument that holds it.
  const std::string dotted =
      "torchrun --nproc_per_node 8 train.py --training_arguments.per_device_train_batch_size 8 "
      "--training_arguments.fp16 true --model.id gpt2 --training_arguments.learning_rate 1e-4";
  CHECK(told(dotted, "micro_batch") == "8");
  CHECK(told(dotted, "precision.compute") == "fp16");
  CHECK(told_of("a.sh", dotted + " --training_arguments.deepspeed conf/z2.json\n").has_lost("deepspeed=conf/z2.json: it is a file"));
  CHECK(told("python train.py --other.learning_rate 1e-4 --other.fp16 true --a 1", "precision.compute").empty());
  // SwissArmyTransformer has Megatron's names and adapters of its own.
  const std::string sat =
      "deepspeed --num_gpus 4 finetune.py --train-iters 100 --lr 1e-4 --lr-decay-style cosine --zero-stage 1 "
      "--lora_rank 10 --use_lora --batch-size 2 --save-interval 50";
  CHECK(told(sat, "strategy.sharding") == "zero1");
  CHECK(told(sat, "train.finetune") == "lora");
  CHECK(told(sat, "train.lora_rank") == "10");
  // GaLore's children, diffusers and MAE.
  const std::string own = "torchrun --nproc_per_node 8 t.py --lr 1e-4 --foo 1 ";
  CHECK(told(own + "--num_training_steps 60000", "train.steps") == "60000");
  CHECK(told(own + "--checkpoints_total_limit 5", "checkpoint.keep") == "5");
  CHECK(told(own + "--accum_iter 4", "gradient_accumulation") == "4");
}

TEST_CASE("engines: a setting that has no place is named, and one that has is kept", "[read]") {
  const auto file = [](const std::string& more) {
    return told_of("a.json", R"({"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": )" + more);
  };
  CHECK(file(R"(true}, "train_micro_batch_size_per_gpu": 1})").text("options.gathers_on_save") == "true");
  CHECK(file(R"(false}, "train_micro_batch_size_per_gpu": 1})").text("options.gathers_on_save") == "false");
  const std::string half = R"(true}, "fp16": {"enabled": "auto", "min_loss_scale": )";
  CHECK(file(half + "1e-10}}").has_lost("fp16.min_loss_scale=1e-10"));
  CHECK_FALSE(file(half + "2}}").has_lost("fp16.min_loss_scale"));
}

TEST_CASE("engines: steps of one node each, and launchers that take less than the job has", "[read]") {
  const auto nodes = [](const std::string& step) {
    return told_of("a.sh",
                   "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\nfor node in $NODES; do\n  srun -N 1 -n 1 -w $node " +
                       step + " t.py --learning_rate 1e-4 --per_device_train_batch_size 1 &\ndone\nwait\n");
  };
  CHECK(nodes("torchrun --nproc_per_node=8 --nnodes=$SLURM_JOB_NUM_NODES --node_rank=$i").text("hardware.nodes") == "2");
  CHECK(nodes("torchrun --nproc_per_node=8 --nnodes=2 --node_rank=$i").text("hardware.nodes") == "2");
  CHECK(nodes("torchrun --nproc_per_node=8 --standalone").text("hardware.nodes") == "1");
  const FileTold less = nodes("torchrun --nproc_per_node=4 --nnodes=2 --node_rank=$i");
  CHECK_FALSE(less.is_contradictory);
  CHECK(less.text("hardware.gpus_per_node") == "4");
  CHECK(nodes("torchrun --nproc_per_node=16 --nnodes=2 --node_rank=$i").is_contradictory);
}

TEST_CASE("engines: adapters by their rank and matrices alone, and what is no word of the optimizer's", "[read]") {
  const auto told = [](const std::string& line, const char* field) { return told_of("a.sh", line + "\n").text(field); };
  const std::string alpaca =
      "torchrun --nproc_per_node=4 finetune.py --base_model a/b --micro_batch_size 4 --learning_rate 1e-4 "
      "--cutoff_len 512 --lora_r 8 --lora_alpha 16 --lora_dropout 0.05 --lora_target_modules '[q_proj,v_proj]'";
  CHECK(told(alpaca, "train.finetune") == "lora");
  CHECK(told(alpaca, "train.lora_rank") == "8");
  CHECK(told(alpaca, "train.lora_alpha") == "16");
  CHECK(told(alpaca, "train.sequence_length") == "512");
  CHECK(told(alpaca + " --use_lora False", "train.finetune") != "lora");
  CHECK(told("python t.py --lr 1e-4 --foo 1 --epsilon 0.05", "train.epsilon").empty());
  CHECK(told("python t.py --lr 1e-4 --foo 1 --epsilon 1e-8", "train.epsilon") == "1e-08");
  const auto sharding = [&told](const std::string& flags) {
    return told("accelerate launch --use_fsdp " + flags + " --num_processes 8 t.py --learning_rate 1e-4", "strategy.sharding");
  };
  CHECK(sharding("--fsdp_sharding_strategy 1") == "zero3");
  CHECK(sharding("--fsdp_sharding_strategy 2") == "zero2");
  CHECK(sharding("--fsdp_sharding_strategy FULL_SHARD") == "zero3");
  CHECK(sharding("") == "zero3");
  CHECK(told(kTrainer + "--fsdp \"full_shard auto_wrap\" --fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer",
             "options.layer_classes") != "");
}
