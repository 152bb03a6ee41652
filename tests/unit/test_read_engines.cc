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
