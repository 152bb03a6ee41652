// What a script leaves open is said to be open: branches that nothing decides, tasks of a step, scripts that train by rollouts, and
// programs that say what they train by their name alone.
#include <algorithm>
#include <catch2/catch.hpp>

#include "codegen/read/read.h"
#include "codegen/read/settings.h"

using namespace distsetup;

namespace {

struct Read {
  ReadFields fields;
  std::string lost;  // "key=value " of each
  size_t num_warnings = 0;

  std::string at(const std::string& field) const {
    const auto it = fields.find(field);
    return it == fields.end() ? "" : field_text(it->second.value);
  }
};

Read read(const std::string& name, const std::string& text) {
  const Result<std::vector<Reading>> readings = read_config(embedded_templates(), text, name);
  INFO(text);
  REQUIRE(readings.ok());
  const Result<ReadFields> fields = merge_readings(*readings);
  REQUIRE(fields.ok());
  Read out;
  out.fields = *fields;
  for (const Reading& one : *readings) {
    for (const LostKey& lost : one.lost) out.lost += lost.key + "=" + lost.text + " ";
    out.num_warnings += one.complaints.size();
  }
  for (const Diagnostic& one : readings.diagnostics) out.num_warnings += one.severity == Severity::kWarning ? 1 : 0;
  return out;
}

const std::string kMegatron =
    "torchrun --standalone --nproc_per_node 8 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length "
    "128 "
    "--global-batch-size 8 $ARGS\n";

}  // namespace

TEST_CASE("unsure: options that branches give other values, and options that one branch has alone") {
  const Read both =
      read("m.sh",
           "case $MODEL in\n  a) ARGS='--micro-batch-size 1 --tensor-model-parallel-size 8 --bf16' ;;\n  b) ARGS='--bf16 "
           "--micro-batch-size 4 --tensor-model-parallel-size 2' ;;\nesac\n" +
               kMegatron);
  CHECK(both.at("precision.compute") == "bf16");
  CHECK(both.at("micro_batch").empty());
  CHECK(both.at("mesh.tp").empty());
  CHECK(both.lost.find("micro_batch_size=$ARGS ") != std::string::npos);
  CHECK(both.lost.find("tensor_model_parallel_size=$ARGS ") != std::string::npos);
  const Read one =
      read("m.sh", "ARGS='--micro-batch-size 1'\nif $BIG; then ARGS=\"$ARGS --tensor-model-parallel-size 4\"; fi\n" + kMegatron);
  CHECK(one.at("micro_batch") == "1");
  CHECK(one.at("mesh.tp").empty());
  const Read none = read("m.sh", "ARGS='--micro-batch-size 1'\n" + kMegatron);
  CHECK(none.at("mesh.tp") == "1");
}

TEST_CASE("unsure: a flag that may be missing chooses no trainer") {
  const std::string run = "torchrun --nproc_per_node 8 t.py --per_device_train_batch_size 1 --max_steps 5 $ARGS\n";
  CHECK(read("t.sh", "ARGS='--deepspeed ds.json'\n" + run).at("strategy.trainer") == "deepspeed");
  CHECK(read("t.sh", "if $BIG; then ARGS='--deepspeed ds.json'; else ARGS='--bf16'; fi\n" + run).at("strategy.trainer").empty());
}

TEST_CASE("unsure: GPUs of a step are its tasks and theirs, not what the job holds") {
  const std::string head = "#!/bin/bash\n#SBATCH --nodes=8\n#SBATCH --gres=gpu:4\n";
  struct Case {
    std::string text, gpus;
  };
  const Case cases[] = {{head + "srun -n 16 --gpus-per-task=1 python t.py\n", "2"},
                        {head + "srun -n 32 --gpus-per-task=1 python t.py\n", "4"},
                        {head + "srun -n 16 python t.py\n", "4"},
                        {head + "srun --ntasks-per-node=2 --gpus-per-task=1 python t.py\n", "2"},
                        {head + "srun -n 16 --gpus-per-task=1 hostname\nsrun python t.py\n", "4"},
                        {"#!/bin/bash\n#SBATCH --nodes=8\nsrun -n 32 --gpus-per-task=1 python t.py\n", "4"}};
  for (const Case& one : cases) {
    INFO(one.text);
    CHECK(read("j.sbatch", one.text).at("hardware.gpus_per_node") == one.gpus);
  }
  const Read free = read("j.sbatch", "#!/bin/bash\n#SBATCH --ntasks=32\n#SBATCH --gpus-per-task=1\nsrun python t.py\n");
  CHECK(free.at("hardware.gpus_per_node").empty());
  CHECK(free.at("derived.world") == "32");
}

TEST_CASE("unsure: slots of an MPIJob are its GPUs where the workers ask for none") {
  const auto job = [](const std::string& limits) {
    return "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: j}\nspec:\n  slotsPerWorker: 4\n  mpiReplicaSpecs:\n    "
           "Worker: {replicas: 2, template: {spec: {containers: [{name: w, image: i" +
           limits + "}]}}}\n";
  };
  CHECK(read("k.yaml", job("")).at("hardware.gpus_per_node") == "4");
  CHECK(read("k.yaml", job(", resources: {limits: {nvidia.com/gpu: 8}}")).at("hardware.gpus_per_node") == "8");
}

TEST_CASE("unsure: programs beside the one that trains say nothing of the run") {
  const std::string train = "train.py --model_name_or_path a/b --per_device_train_batch_size 2 --max_steps 5\n";
  const Read converts =
      read("r.sh", "python " + train + "python convert_gguf.py --model c/d --output_dir out\npython -m pip install x\n");
  CHECK(converts.at("model.name") == "a/b");
  CHECK(converts.at("checkpoint.directory").empty());
  const Read builds = read("r.sh", "python build_rows.py --output_dir rows --seed 3\ntorchrun --nproc_per_node 4 " + train);
  CHECK(builds.at("checkpoint.directory").empty());
  CHECK(builds.at("train.seed").empty());
  CHECK(builds.at("micro_batch") == "2");
  const Read prepares = read("r.sh", "torchrun --nproc_per_node 4 tokenize_rows.py\npython " + train);
  CHECK(prepares.at("micro_batch") == "2");
  const Read evaluates = read("r.sh", "python " + train + "accelerate launch evaluate.py --model_name_or_path a/b\n");
  CHECK(evaluates.at("micro_batch") == "2");
  const Read task = read("t.yaml",
                         "resources: {accelerators: H100:8}\nsetup: |\n  python prepare_rows.py --output-dir rows\nrun: |\n  torchrun "
                         "--nproc_per_node 8 t.py --lr 1e-4\n");
  CHECK(task.at("hardware.gpus_per_node") == "8");
  CHECK(task.at("checkpoint.directory").empty());
  CHECK(task.lost.find("resources=a section") != std::string::npos);
}

TEST_CASE("unsure: a command in three quotes, as Python has them, is the text between them") {
  const std::string command =
      "\naccelerate launch --num_processes 2 --mixed_precision bf16 \\\n  train.py --model_name_or_path a/b "
      "\\\n  --per_device_train_batch_size 2 --max_steps 5\n";
  for (const std::string quotes : {"\"", "\"\"\""}) {
    const Read read_one = read("r.sh", "#!/bin/bash\nCMD=" + quotes + command + quotes + "\n$CMD\n");
    CHECK(read_one.at("precision.compute") == "bf16");
    CHECK(read_one.at("micro_batch") == "2");
  }
  // Two texts side by side are one word: what the first ends with, the second goes on with.
  CHECK(read("r.sh",
             "#!/bin/bash\nB=\"4\"\"8\"\ntorchrun --nproc_per_node 2 t.py --model_name_or_path a/b "
             "--per_device_train_batch_size $B --max_steps 5\n")
            .at("micro_batch") == "48");
}

TEST_CASE("unsure: a launcher that takes fewer GPUs than its node has") {
  const std::string head = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=4\n";
  const Read fewer = read("j.sbatch", head + "accelerate launch --num_processes 3 t.py --lr 1e-4\n");
  CHECK(fewer.at("hardware.gpus_per_node") == "3");
  CHECK(fewer.at("derived.world").empty());
  CHECK(read("j.sbatch", head + "accelerate launch --num_processes 4 t.py --lr 1e-4\n").at("hardware.gpus_per_node") == "4");
}

TEST_CASE("unsure: defaults are those of the program that is known") {
  const std::string flags = " --per_device_train_batch_size 4 --num_train_epochs 1";
  const Read own = read("r.sh", "deepspeed main.py --deepspeed --deepspeed_config ds.json" + flags + "\n");
  CHECK(own.at("micro_batch") == "4");
  CHECK(own.at("precision.compute").empty());
  CHECK(read("r.sh", "deepspeed main.py --deepspeed ds.json" + flags + "\n").at("train.grad_clip") == "1");
  const std::string steps = "[training]\nsteps = 5\n[parallelism]\ndata_parallel_shard_degree = -1\n";
  CHECK(read("t.toml", "[model]\nname = \"llama3\"\nflavor = \"8B\"\n" + steps).at("train.sequence_length") == "2048");
  CHECK(read("t.toml", "[model]\nsize = \"2B\"\n" + steps).at("train.sequence_length").empty());
}

TEST_CASE("unsure: of a script that trains by rollouts nothing is assumed") {
  const std::string flags = " --per_device_train_batch_size 4 --max_steps 5 --bf16 True\n";
  for (const char* name : {"grpo.py", "scripts/train_ppo.py", "run-rloo.py"}) {
    const Read rollouts = read("r.sh", std::string("torchrun --nproc_per_node 8 ") + name + flags);
    INFO(name);
    CHECK(rollouts.num_warnings == 1);
    CHECK(rollouts.at("micro_batch") == "4");
    CHECK(rollouts.at("recompute.policy").empty());
    CHECK(rollouts.at("train.grad_clip").empty());
  }
  CHECK(read("r.sh", "swift rlhf --rlhf_type dpo --model a/b --max_steps 5\n").num_warnings == 0);
  // ms-swift's defaults are those of all its methods.
  const Read swift = read("r.sh", "swift rlhf --rlhf_type grpo --train_type full --model a/b --max_steps 5\n");
  CHECK(swift.num_warnings == 1);
  CHECK(swift.at("recompute.policy") == "full");
  CHECK(swift.at("train.weight_decay") == "0.1");
  CHECK(swift.at("train.lr_schedule") == "cosine");
  const Read sft = read("r.sh", "torchrun --nproc_per_node 8 supported.py" + flags);  // "ppo" within a word
  CHECK(sft.num_warnings == 0);
  CHECK(sft.at("recompute.policy") == "none");
}

TEST_CASE("unsure: a program's name says the method") {
  const std::string flags = " --model_name_or_path a/b --per_device_train_batch_size 4 --beta 0.1 --max_length 64 --bf16 True\n";
  const std::string launch = "torchrun --nproc_per_node 8 ";
  for (const char* name : {"kto.py", "scripts/run_orpo.py", "train_reward.py", "bco.py", "online_dpo.py"}) {
    INFO(name);
    const Read others = read("r.sh", launch + name + flags);
    CHECK(others.num_warnings == 1);
    CHECK(others.at("train.method").empty());
    CHECK(others.at("micro_batch") == "4");
  }
  const Read kto = read("r.sh", "trl kto" + flags);
  CHECK(kto.num_warnings == 1);
  CHECK(kto.at("train.method").empty());
  CHECK(kto.at("strategy.recompute") == read("r.sh", "trl dpo" + flags).at("strategy.recompute"));
  CHECK(read("r.sh", "trl sft" + flags).at("train.method") == "sft");
  CHECK(read("r.sh", launch + "run_sft.py" + flags).at("train.method") == "sft");
  CHECK(read("r.sh", launch + "dpo.py" + flags).at("train.method") == "dpo");
  CHECK(read("r.sh", "swift sft --model a/b --max_steps 5\n").at("train.method") == "sft");
  // Two words, or a part of one, say nothing: the beta does.
  CHECK(read("r.sh", launch + "sft_then_dpo.py" + flags).at("train.method") == "dpo");
  CHECK(read("r.sh", launch + "skton.py" + flags).at("train.method") == "dpo");
  CHECK(read("r.sh", launch + "skton.py" + flags).num_warnings == 0);
  // Of a program without a Trainer's arguments the name says what it is about.
  CHECK(read("r.sh", "python -m src.build_dpo_pairs --config c.yaml --seed 1\n").at("train.method").empty());
  CHECK(read("r.sh", "python eval_reward.py --model a/b --seed 1\n").num_warnings == 0);
  const std::string openrlhf = " --pretrain a/b --micro_train_batch_size 1 --train_batch_size 8 --zero_stage 3 --beta 0.1\n";
  CHECK(read("r.sh", "deepspeed --module openrlhf.cli.train_kto" + openrlhf).at("train.method").empty());
  const size_t num_said = read("r.sh", "deepspeed --module openrlhf.cli.train_dpo" + openrlhf).num_warnings;
  CHECK(read("r.sh", "deepspeed --module openrlhf.cli.train_kto" + openrlhf).num_warnings == num_said + 1);
  CHECK(read("r.sh", "deepspeed --module openrlhf.cli.train_dpo" + openrlhf).at("train.method") == "dpo");
}

TEST_CASE("unsure: a program's own file hands its values on, and nothing is assumed beside them") {
  const std::string head = "per_device_train_batch_size: 4\nlearning_rate: 1e-5\nbeta: 0.1\noutput_dir: o\n";
  const Read own = read("dpo.yaml", head + "model_name: a/b\n");
  CHECK(own.at("micro_batch") == "4");
  CHECK(own.at("gradient_accumulation").empty());
  CHECK(own.at("train.method").empty());
  const Read trl = read("dpo.yaml", head + "model_name_or_path: a/b\n");
  CHECK(trl.at("gradient_accumulation") == "1");
  CHECK(trl.at("train.method") == "dpo");
  const Read unsloth = read("grpo.yaml", head + "max_steps: 5\nuse_gradient_checkpointing: unsloth\n");
  CHECK(unsloth.at("micro_batch") == "4");
  CHECK(unsloth.at("recompute.policy").empty());
  // Another format's words for the Trainer's keys, and words that any program has.
  CHECK_FALSE(read_config(embedded_templates(), head + "model_name_or_path: a/b\nepochs: 3\n", "dpo.yaml").ok());
  CHECK_FALSE(read_config(embedded_templates(), "base_model: a/b\nbeta: 0.1\nbf16: true\nlr: 1e-5\noutput_dir: o\n", "d.yaml").ok());
  CHECK(read_config(embedded_templates(), head + "model_name_or_path: a/b\nnum_train_epochs: 3\nepochs: 3\n", "d.yaml").ok());
}

TEST_CASE("unsure: words that several tools have") {
  // "stage" is LLaMA-Factory's, and LLaVA's, which tunes all of the model.
  const std::string flags =
      " --model_name_or_path a/b --per_device_train_batch_size 4 --num_train_epochs 1 --bf16 True --output_dir o ";
  CHECK(read("a.sh", "deepspeed src/train.py --stage finetune --image_folder i --version v1" + flags + "\n")
            .at("train.finetune")
            .empty());
  CHECK(read("b.sh", "deepspeed src/train.py --stage sft --do_train --template qwen --finetuning_type lora --dataset d" + flags + "\n")
            .at("train.finetune") == "lora");
  const Result<std::vector<Reading>> predicts = read_config(
      embedded_templates(), "torchrun src/train_bash.py --stage sft --do_predict --template t --dataset d" + flags + "\n", "b.sh");
  REQUIRE(predicts.ok());
  CHECK((*predicts)[0].complaints.size() == 1);
  // A section "fsdp" is none of DeepSpeed's, which its own keys decide.
  const Read deepspeed = read("ds.json",
                              "{\"train_micro_batch_size_per_gpu\": 2, \"steps_per_print\": 10, \"fp16\": {\"enabled\": true}, "
                              "\"fsdp\": {\"enabled\": true}}");
  CHECK(deepspeed.at("micro_batch") == "2");
  CHECK(deepspeed.at("precision.compute") == "fp16");
  CHECK(read("c.yaml", "fsdp: {enabled: true}\nmodel: {name: a/b}\ntraining: {batch_size: 2}\n").at("precision.compute") != "fp16");
  // Which device it is accelerate fills in.
  const auto offload = [](const std::string& device) {
    return read("ds.json",
                "{\"train_micro_batch_size_per_gpu\": 2, \"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": "
                "{\"device\": \"" +
                    device + "\", \"pin_memory\": true}}}")
        .at("offload.optimizer");
  };
  CHECK(offload("auto").empty());
  CHECK(offload("cpu") == "host");
  const std::string own =
      "torchrun --nproc_per_node 8 t.py --checkpoint_path c --per_device_train_batch_size 16 --total_max_len 64 --learning_rate 1e-5 "
      "--num_train_epochs 2 --save_strategy epoch --save_total_limit 1 ";
  CHECK(read("c.sh", own + "--micro_train_batch_size 1\n").at("micro_batch").empty());
  CHECK(read("c.sh", own + "--source_max_len 64\n").at("micro_batch") == "16");
  const std::string head = "output_dir: o\nper_device_train_batch_size: 1\nmax_steps: 5\n";
  CHECK(read("t.yaml", head + "save_total_limit: 0\n").at("checkpoint.keep").empty());
  CHECK(read("t.yaml", head + "save_total_limit: 0\n").lost.find("save_total_limit") != std::string::npos);
  CHECK(read("t.yaml", head + "save_total_limit: 2\n").at("checkpoint.keep") == "2");
}

TEST_CASE("unsure: a scheduler's lines are its own, and no command of the shell's") {
  const auto nodes = [](const std::string& line) { return read("a.sbatch", "#!/bin/bash\n#SBATCH " + line + "\nsrun python t.py\n"); };
  CHECK(nodes("<SITE OPTIONS> --nodes=16 --gpus-per-node=4").at("hardware.nodes") == "16");
  CHECK(nodes("--constraint=[a|b] --nodes=16").at("hardware.nodes") == "16");
  CHECK(nodes("--constraint=a&b --nodes=16").at("hardware.nodes") == "16");
  CHECK(nodes("--comment=\"a b\" --nodes=16").at("hardware.nodes") == "16");
  CHECK(nodes("--comment=a\\ b --nodes=16").at("hardware.nodes") == "16");
  CHECK(nodes("--comment=a # --nodes=16").at("hardware.nodes").empty());
  CHECK(nodes("--comment=\"a --nodes=16\"").at("hardware.nodes").empty());
}

TEST_CASE("unsure: which FSDP the Trainer runs, by its version and its words") {
  struct Case {
    std::string text, trainer, sharding, reshard;
  };
  const std::string head = "output_dir: o\nper_device_train_batch_size: 1\nmax_steps: 5\nbf16: true\n";
  const Case cases[] = {{"fsdp: true\nfsdp_config: {version: 1}\n", "fsdp1", "zero3", "true"},
                        {"fsdp: true\nfsdp_config: {version: 2}\n", "fsdp2", "zero3", "true"},
                        {"fsdp: true\nfsdp_config: {version: 1, reshard_after_forward: shard_grad_op}\n", "fsdp1", "zero2", ""},
                        {"fsdp: true\nfsdp_config: {version: 1, sharding_strategy: SHARD_GRAD_OP}\n", "fsdp1", "zero3", "true"},
                        {"fsdp: full_shard auto_wrap\nfsdp_config: {version: 1}\n", "fsdp1", "zero3", "true"},
                        {"fsdp: shard_grad_op auto_wrap\nfsdp_config: {version: 1}\n", "fsdp1", "zero2", ""}};
  for (const Case& one : cases) {
    INFO(one.text);
    const Read fields = read("t.yaml", head + one.text);
    CHECK(fields.at("strategy.trainer") == one.trainer);
    CHECK(fields.at("strategy.sharding") == one.sharding);
    CHECK(fields.at("strategy.reshard_after_forward") == one.reshard);
  }
  CHECK(read("t.yaml", head + "fsdp: true\nfsdp_config: {version: 2, offload_params: true}\n").lost.find("offload_params") !=
        std::string::npos);
}

TEST_CASE("unsure: torchtitan's degrees say how many ranks there are, where none of them takes the rest") {
  const auto file = [](const std::string& shards, const std::string& training = "") {
    return read("t.toml", "[job]\ndump_folder = \"o\"\n[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nseq_len = 1024\n" +
                              training + "[parallelism]\ndata_parallel_shard_degree = " + shards +
                              "\ntensor_parallel_degree = 8\n[checkpoint]\nenable_checkpoint = true\ninterval = 60000000000000\n");
  };
  CHECK(file("32").at("derived.world") == "256");
  CHECK(file("-1").at("derived.world").empty());
  CHECK(file("32").at("checkpoint.every_steps") == "60000000000000");                         // "never", as people write it
  CHECK(file("-1", "gradient_accumulation_steps = 9\n").at("gradient_accumulation") == "9");  // of forks
  CHECK(file("-1").at("gradient_accumulation") != "9");
}
