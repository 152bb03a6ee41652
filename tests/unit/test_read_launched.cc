// What a command line starts, and what the file around it says of how many: each beside a near miss.
#include <algorithm>
#include <catch2/catch.hpp>

#include "codegen/read/read.h"
#include "codegen/read/settings.h"
#include "support/file_says.h"

using namespace distsetup;

namespace {

FileSays said(const std::string& name, const std::string& text) {
  INFO(text);
  Result<std::vector<Reading>> read = read_config(embedded_templates(), text, name);
  REQUIRE(read.ok());
  return merged(std::move(*read));
}

bool is_refused(const std::string& name, const std::string& text) {
  const Result<std::vector<Reading>> read = read_config(embedded_templates(), text, name);
  const auto complains = [](const Reading& one) {
    return std::any_of(one.complaints.begin(), one.complaints.end(),
                       [](const Complaint& said) { return said.diagnostic.severity == Severity::kError; });
  };
  return !read.ok() || std::any_of(read->begin(), read->end(), complains) || !merge_readings(*read).ok();
}

const std::string kSwift =
    "swift sft --model Qwen/Qwen2.5-7B --train_type lora --lora_rank 8 --torch_dtype bfloat16 --max_length 2048 "
    "--per_device_train_batch_size 2 --deepspeed zero3\n";

}  // namespace

TEST_CASE("launched: ms-swift starts torchrun by variables in front of it, exported before it, or not at all") {
  const FileSays in_front = said("a.sh", "NNODES=2 NODE_RANK=$R MASTER_ADDR=h NPROC_PER_NODE=4 " + kSwift);
  CHECK(in_front.text("hardware.nodes") == "2");
  CHECK(in_front.text("hardware.gpus_per_node") == "4");
  CHECK(said("b.sh", "n=3\nNPROC_PER_NODE=$n \\\nCUDA_VISIBLE_DEVICES=1,2,3 \\\n" + kSwift).text("hardware.gpus_per_node") == "3");
  CHECK(said("c.sh", "export NPROC_PER_NODE=6\n" + kSwift).text("hardware.gpus_per_node") == "6");
  CHECK(said("d.sh", "NPROC_PER_NODE=6\nexport NPROC_PER_NODE\n" + kSwift).text("hardware.gpus_per_node") == "6");
  // A variable of the shell alone, and one of another command.
  CHECK(said("e.sh", "NPROC_PER_NODE=6\n" + kSwift).text("hardware.gpus_per_node").empty());
  CHECK(said("f.sh", "NPROC_PER_NODE=6 bash prepare.sh\n" + kSwift).text("hardware.gpus_per_node").empty());
  CHECK(said("g.sh", "MASTER_PORT=29501 " + kSwift).text("hardware.gpus_per_node").empty());
}

TEST_CASE("launched: ms-swift's arguments are read by its own table, and another script's are not") {
  const FileSays own = said("a.sh", kSwift);
  CHECK(own.is_read_as("ms-swift"));
  CHECK(own.text("model.hub_id") == "Qwen/Qwen2.5-7B");
  CHECK(own.text("train.finetune") == "lora");
  CHECK(own.text("train.lora_rank") == "8");
  CHECK(own.text("precision.compute") == "bf16");
  CHECK(own.text("strategy.sharding") == "zero3");
  CHECK(own.text("recompute.policy") == "full");
  const FileSays old = said("b.sh", "swift sft --model_id_or_path /m/q --sft_type full --batch_size 4 --deepspeed default-zero2\n");
  CHECK(old.text("train.finetune") == "full");
  CHECK(old.text("micro_batch") == "4");
  CHECK(old.text("strategy.sharding") == "zero2");
  const FileSays other = said("c.sh", "python own.py --model a/b --lora_target_modules q_proj --max_length 128 --batch_size 4\n");
  CHECK(!other.is_read_as("ms-swift"));
  CHECK(other.text("train.finetune").empty());
  CHECK(other.text("micro_batch").empty());
}

TEST_CASE("launched: a tool's own command line is read by its own names, however few there are") {
  const FileSays factory = said("a.sh", "llamafactory-cli train sft.yaml --per_device_train_batch_size 4 --cutoff_len 512\n");
  CHECK(factory.is_read_as("LLaMA-Factory"));
  CHECK(factory.text("train.sequence_length") == "512");
  CHECK(factory.text("recompute.policy").empty());  // the file says, or leaves to the default
  CHECK(!said("b.sh", "python own.py sft.yaml --per_device_train_batch_size 4 --cutoff_len 512\n").is_read_as("LLaMA-Factory"));
}

TEST_CASE("launched: transformers' own examples and their descendants are no TRL scripts") {
  const std::string flags =
      " --model_name_or_path m/a --dataset_name d --torch_dtype bfloat16 --per_device_train_batch_size 4 --bf16 ";
  const FileSays clm = said("a.sh", "accelerate launch run_clm.py" + flags + "--block_size 1024 --do_train\n");
  CHECK(clm.is_read_as("transformers TrainingArguments"));
  CHECK(clm.text("train.sequence_length") == "1024");
  CHECK(said("b.sh", "torchrun train.py" + flags + "--model_max_length 2048\n").is_read_as("transformers TrainingArguments"));
  CHECK(said("c.sh", "accelerate launch sft.py" + flags + "--max_length 1024 --packing --num_train_epochs 1\n").is_read_as("TRL"));
}

TEST_CASE("launched: a job that a script writes and submits is the job") {
  const std::string job =
      "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\nsrun torchrun --nnodes=2 --nproc_per_node=8 "
      "--rdzv_endpoint=\\$(hostname):1 --rdzv_backend=c10d t.py --learning_rate $LR\nEOF\n";
  const FileSays submitted = said("a.sh", "LR=1e-4\nsbatch <<EOF\n" + job);
  CHECK(submitted.text("hardware.nodes") == "2");
  CHECK(submitted.text("hardware.gpus_per_node") == "8");
  CHECK(submitted.text("train.learning_rate") == "0.0001");
  CHECK(said("b.sh", "LR=2e-4\ncat > job.sh <<EOF\n" + job + "sbatch job.sh\n").text("train.learning_rate") == "0.0002");
  CHECK(said("c.sh", "qsub <<'EOF'\n#PBS -l select=2:ngpus=4\npython t.py\nEOF\n").text("hardware.nodes") == "2");
  // Two jobs of two sizes are no configuration of one, and a file that is none is none.
  CHECK(is_refused("d.sh", "sbatch <<EOF\n#SBATCH --nodes=2\npython t.py\nEOF\nsbatch <<EOF\n#SBATCH --nodes=4\npython t.py\nEOF\n"));
  CHECK(said("e.sh", "cat > notes.txt <<EOF\nuse 2 nodes\nEOF\ntorchrun --nproc_per_node=4 t.py\n").text("hardware.nodes") == "1");
}

TEST_CASE("launched: GPUs of a list of resources, of localhost, and of the model that is trained") {
  const std::string head = "#!/bin/bash\n#SBATCH --time=1:00:00\n";
  CHECK(said("a.sbatch", head + "#SBATCH --gres=gpu:v100:1,nvme:100\npython t.py\n").text("hardware.gpus_per_node") == "1");
  CHECK(said("b.sbatch", head + "#SBATCH --gres=nvme:100,gpu:4\npython t.py\n").text("hardware.gpus_per_node") == "4");
  CHECK(said("c.sbatch", head + "#SBATCH --gres=nvme:100\npython t.py\n").text("hardware.gpus_per_node").empty());
  CHECK(said("d.sh", "deepspeed --include localhost:0,3 t.py --lr 1\n").text("hardware.gpus_per_node") == "2");
  CHECK(said("e.sh", "deepspeed --include a:0,1@b:0 t.py --learning_rate 1\n").text("hardware.gpus_per_node").empty());
  const std::string ppo =
      "python -m openrlhf.cli.train_ppo_ray --pretrain m/a --actor_num_nodes 2 --actor_num_gpus_per_node 8 "
      "--ref_num_nodes 1 --ref_num_gpus_per_node 4 --vllm_num_engines 2 --train_batch_size 64 --max_samples 6400\n";
  CHECK(said("f.sh", ppo).text("hardware.nodes") == "2");
  CHECK(said("f.sh", ppo).text("hardware.gpus_per_node") == "8");
  CHECK(said("f.sh", ppo).text("train.steps").empty());  // each prompt is answered several times
  CHECK(said("g.sbatch", head + "#SBATCH --nodes=4\n" + ppo).text("hardware.nodes") == "4");
  const std::string dotted =
      "python -m openrlhf.cli.train_ppo_ray --actor.num_nodes 2 --actor.num_gpus_per_node 8 --vllm.num_engines 2 "
      "--train.batch_size 64 --ds.zero_stage 3\n";
  CHECK(said("h.sh", dotted).text("hardware.nodes") == "2");
}

TEST_CASE("launched: a text for a shell that is put together from several quotes is one script") {
  const FileSays whole =
      said("a.sh", "srun sh -c 'torchrun --master-addr '$head' --nnodes $SLURM_NNODES --nproc-per-node gpu t.py --lr 1'\n");
  CHECK(whole.text("hardware.nodes").empty());
  CHECK(whole.text("hardware.gpus_per_node").empty());
  CHECK(said("b.sh", "srun sh -c 'torchrun --master-addr '$head' --nnodes 2 --nproc-per-node 4 t.py'\n").text("hardware.nodes") ==
        "2");
  CHECK(said("c.sh", "bash -c 'torchrun --nnodes 2 --nproc-per-node 4 t.py --name '\"'\"'x'\"'\"\n").text("hardware.nodes") == "2");
}

TEST_CASE("launched: GPUs of a step are those of its tasks, also where it repeats the job's nodes by SLURM's variable") {
  const std::string head = "#!/bin/bash\n#SBATCH -N 1\n#SBATCH -t 1:00:00\n";
  CHECK(said("a.sbatch", head + "srun -N $SLURM_NNODES -n 8 --gpus-per-task=1 python t.py\n").text("hardware.gpus_per_node") == "8");
  CHECK(said("b.sbatch", head + "srun -N $N -n 8 --gpus-per-task=1 python t.py\n").text("hardware.gpus_per_node").empty());
}

TEST_CASE("launched: what is said to have no effect, or left to a file, is not made up") {
  CHECK(said("a.sh", "torchrun --nproc_per_node 2 t.py --mixed-precision --learning_rate 1\n").text("precision.compute").empty());
  CHECK(said("b.sh", "torchrun --nproc_per_node 2 t.py --mixed-precision bf16\n").text("precision.compute") == "bf16");
  const std::string sizes =
      " pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 "
      "--micro-batch-size 1 --tensor-model-parallel-size 1 ";
  CHECK(said("c.sh", "torchrun" + sizes + "--num-experts 1\n").text("model.num_experts").empty());
  CHECK(said("d.sh", "torchrun" + sizes + "--num-experts 8\n").text("model.num_experts") == "8");
  CHECK(said("e.sh", "torchrun" + sizes + "\n").text("strategy.sharding") == "ddp");
  CHECK(said("f.sh", "deepspeed" + sizes + "--deepspeed --deepspeed_config d.json\n").text("strategy.sharding").empty());
  CHECK(
      said("g.sh", "torchrun" + sizes + "--use-distributed-optimizer --no-gradient-accumulation-fusion\n").text("strategy.sharding") ==
      "zero1");
}

TEST_CASE("launched: TPUs are no GPUs") {
  CHECK(is_refused("a.yaml", "resources:\n  accelerators: tpu-v3-8\nrun: python t.py\n"));
  CHECK(is_refused("b.yaml", "resources:\n  accelerators: {tpu-v5e-4: 1}\nrun: python t.py\n"));
  CHECK(said("c.yaml", "resources:\n  accelerators: H100:8\nrun: python t.py\n").text("hardware.gpus_per_node") == "8");
  const auto pod = [](const std::string& resource) {
    return "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {template: {spec: {containers: [{name: c, image: i, "
           "resources: "
           "{limits: {" +
           resource + ": 4}}}]}}}\n";
  };
  CHECK(is_refused("d.yaml", pod("google.com/tpu")));
  CHECK(said("e.yaml", pod("nvidia.com/gpu")).text("hardware.gpus_per_node") == "4");
}

TEST_CASE("launched: a stage that keeps the language model from training is refused") {
  const std::string run =
      "deepspeed train.py --model_name_or_path m/a --per_device_train_batch_size 4 --num_train_epochs 1 --bf16 True ";
  CHECK(is_refused("a.sh", run + "--tune_mm_mlp_adapter True\n"));
  CHECK(is_refused("b.sh", run + "--tune_type_llm frozen\n"));
  CHECK(is_refused("c.sh", run + "--freeze_llm True\n"));
  CHECK(said("d.sh", run + "--tune_mm_mlp_adapter False --freeze_llm False --tune_type_llm full\n").text("micro_batch") == "4");
  CHECK(said("e.sh", run + "--freeze_llm True --lora_enable True --lora_r 8\n").text("train.lora_rank") == "8");
}

TEST_CASE("launched: verl's own names of nodes and GPUs, and SLURM's beginnings of names") {
  const FileSays verl =
      said("a.sh", "python -m verl.trainer.main_ppo trainer.nnodes=2 trainer.n_gpus_per_node=8 data.train_batch_size=64\n");
  CHECK(verl.text("hardware.nodes") == "2");
  CHECK(verl.text("hardware.gpus_per_node") == "8");
  CHECK(verl.text("train.global_batch").empty());
  const Result<std::vector<Reading>> read = read_config(
      embedded_templates(), "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --err=log\n#SBATCH --errr=log\npython t.py\n", "a.sbatch");
  REQUIRE(read.ok());
  std::string unknown;
  for (const LostKey& lost : (*read)[0].lost) unknown += lost.why == LostKey::Why::kUnknownKey ? lost.key + ";" : "";
  CHECK(unknown == "errr;");
}

TEST_CASE("launched: a configuration that Hydra puts together is none of Lightning's") {
  CHECK(is_refused("a.yaml", "_base_: base.yaml\ntrainer:\n  devices: 2\n  num_nodes: 1\n"));
  CHECK(is_refused("b.yaml", "trainer:\n  devices: 2\n  plugins:\n    _target_: own.Plugin\n"));
  CHECK(said("c.yaml", "trainer:\n  devices: 2\n  num_nodes: 1\n  precision: bf16-mixed\n").text("hardware.gpus_per_node") == "2");
}

TEST_CASE("launched: a script's own words are no trainer and no model of a plan's") {
  const std::string run = "accelerate launch t.py --learning_rate 1e-6 --per_device_train_batch_size 12 --max_steps 300 --seed 1 ";
  CHECK(said("a.sh", run + "--trainer grpo\n").text("strategy.trainer") == said("a.sh", run + "\n").text("strategy.trainer"));
  CHECK(said("b.sh", run + "--trainer grpo\n").text("micro_batch") == "12");
  const FileSays part = said("c.sh", "python run.py --vocab_size=32000 --seq_length=256 --hidden_size=256 --num_hidden_layers=8\n");
  CHECK(part.text("model.hidden").empty());
  CHECK(part.text("model.vocabulary").empty());
  const FileSays whole = said("d.sh",
                              "torchrun --nproc_per_node 2 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 "
                              "--seq-length 128 --micro-batch-size 1 --tensor-model-parallel-size 1\n");
  CHECK(whole.text("model.hidden") == "64");
}

TEST_CASE("launched: an srun's own GPUs count where the job's lines have none") {
  const std::string job = "#!/bin/bash\n#SBATCH --nodes=21\n#SBATCH --ntasks-per-node=4\n";
  const std::string step = "srun --nodes=$SLURM_JOB_NUM_NODES --gres=gpu:4 --ntasks-per-node=4 python t.py\n";
  const FileSays alone = said("a.sbatch", job + step);
  CHECK(alone.text("hardware.gpus_per_node") == "4");
  CHECK(alone.text("hardware.nodes") == "21");
  CHECK(said("b.sbatch", job + "#SBATCH --gres=gpu:8\n" + step).text("hardware.gpus_per_node") == "8");
  CHECK(said("c.sbatch", job + "srun --gres=nvme:4 python t.py\n").text("hardware.gpus_per_node").empty());
}

TEST_CASE("launched: Tunix and LLaMA-Factory's evaluations are told by name") {
  CHECK(
      is_refused("a.yaml", "model_config: {model_name: m}\ntokenizer_config: {tokenizer_path: t}\ntraining_config: {max_steps: 1}\n"));
  CHECK(is_refused("b.yaml", "model_name_or_path: m/a\ntask: mmlu_test\ntemplate: fewshot\nlang: en\nn_shot: 5\nbatch_size: 4\n"));
  CHECK(said("c.yaml", "model_name_or_path: m/a\nstage: sft\nfinetuning_type: lora\ntemplate: qwen\ncutoff_len: 1024\n")
            .text("train.sequence_length") == "1024");
}

TEST_CASE("launched: ms-swift's command for Megatron has the names of Megatron and defaults of its own") {
  const std::string sizes = "--tensor_model_parallel_size 2 --global_batch_size 64 --lr 1e-5 --max_length 4096 --dataset a.jsonl ";
  const FileSays own = said("a.sh", "NPROC_PER_NODE=8 megatron sft --load qwen3-mcore " + sizes + "--recompute_granularity full\n");
  CHECK(own.text("strategy.trainer") == "megatron");
  CHECK(own.text("train.sequence_length") == "4096");
  CHECK(own.text("mesh.tp") == "2");
  CHECK(own.text("micro_batch") == "1");
  CHECK(own.text("recompute.policy") == "full");
  CHECK(own.text("strategy.sharding") == "zero1");
  CHECK(said("b.sh", "NPROC_PER_NODE=8 megatron sft --load qwen3-mcore " + sizes + "\n").text("recompute.policy") == "selective");
  // A script of one's own of that name, which is no command of ms-swift's.
  CHECK(said("c.sh", "python megatron.py " + sizes + "\n").text("strategy.trainer").empty());
}

TEST_CASE("launched: FSDP by the Trainer's own switch, beside names that TRL has not") {
  const std::string run =
      "torchrun --nproc_per_node=8 finetune.py --model_max_length 2048 --num_train_epochs 3 --per_device_train_batch_size 1 --bf16 "
      "True ";
  CHECK(said("a.sh", run + "--fsdp \"full_shard auto_wrap\"\n").text("strategy.sharding") == "zero3");
  CHECK(said("b.sh", run + "--fsdp \"shard_grad_op auto_wrap\"\n").text("strategy.sharding") == "zero2");
  CHECK(said("c.sh", run + "\n").text("strategy.sharding").empty());
}

TEST_CASE("launched: Megatron-DeepSpeed is DeepSpeed's, with a name of its own for expert parallelism") {
  const std::string run =
      "pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 8 --num-experts 16 --tensor-model-parallel-size 1 "
      "--micro-batch-size 1 --lr 1e-4 --train-iters 10 --seq-length 128 --max-position-embeddings 128 ";
  const std::string engine = "--deepspeed --deepspeed_config made_by_sed.json";
  const FileSays forked = said("a.sh", "deepspeed " + run + engine + " --moe-expert-parallel-size 8\n");
  CHECK(forked.text("mesh.ep") == "8");
  CHECK(forked.text("model.experts_per_token") == "1");
  CHECK(forked.text("strategy.trainer") == "megatron");  // the nearest plan that has experts in parallel
  CHECK(said("c.sh", "deepspeed " + run + engine + "\n").text("strategy.trainer") == "deepspeed");
  const FileSays plain = said("b.sh", "torchrun --nproc_per_node=8 " + run + "\n");
  CHECK(plain.text("strategy.trainer") == "megatron");
}

TEST_CASE("launched: a switch of torch.distributed.launch takes no value, and argparse takes the beginning of a name") {
  const std::string run = " --use_env train.py --num_train_epochs 1 --per_device_train_batch_size 2 --learning_rate 1e-5\n";
  const FileSays own = said("a.sh", "python -m torch.distributed.launch --nproc_per_node=8 --nnode=4" + run);
  CHECK(own.text("micro_batch") == "2");
  CHECK(own.text("hardware.nodes") == "4");
  CHECK(said("b.sh", "torchrun --nproc_per_node=8 --nnodex=4 train.py --lr 1e-4\n").text("hardware.nodes") == "1");
}

TEST_CASE("launched: ms-swift's --fsdp is its preset, or a file that says nothing of other arguments") {
  const std::string line = "NPROC_PER_NODE=4 swift sft --model a/b --train_type full --per_device_train_batch_size 1 --fsdp ";
  const FileSays preset = said("a.sh", line + "fsdp2\n");
  CHECK(preset.text("strategy.trainer") == "fsdp2");
  CHECK(preset.text("strategy.sharding") == "zero3");
  CHECK(preset.text("recompute.policy") == "full");
  Result<std::vector<Reading>> all = read_config(embedded_templates(), line + "./shards.json\n", "b.sh");
  const std::string file =
      R"({"_note": "ours", "fsdp": "full_shard auto_wrap offload", "fsdp_config": {"fsdp_version": 2, "reshard_after_forward": true}})";
  const auto read_beside = [&all](const std::string& text) {
    const Result<std::vector<Reading>> read = read_config(embedded_templates(), text, "shards.json");
    REQUIRE((all.ok() && read.ok()));
    std::vector<Reading> both = *all;
    both.insert(both.end(), read->begin(), read->end());
    return merged(std::move(both));
  };
  const FileSays beside = read_beside(file);
  CHECK(beside.text("strategy.trainer") == "fsdp2");
  CHECK(beside.text("strategy.sharding") == "zero3");
  CHECK(beside.text("offload.parameters") == "host");
  CHECK(beside.text("precision.compute").empty());  // ms-swift takes the weights' own type
  // Arguments with their own batch are the Trainer's, with its defaults.
  CHECK(read_beside(R"({"per_device_train_batch_size": 1, "output_dir": "o", "fsdp": "full_shard auto_wrap"})")
            .text("precision.compute") == "fp32");
}

TEST_CASE("launched: Megatron-DeepSpeed is called so, NeMo's and verl's overrides are what they are") {
  const std::string sizes =
      "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 ";
  const std::string split = "pretrain_gpt.py --tensor-model-parallel-size 4 --micro-batch-size 2 --global-batch-size 512 " + sizes;
  CHECK(said("a.sh", "deepspeed " + split + "--deepspeed --deepspeed_config ds.json\n").is_read_as("Megatron-DeepSpeed"));
  CHECK(said("a.sh", "torchrun " + split + "--fp16\n").is_read_as("Megatron-LM"));
  // Whole layers, by their name of 2021, and no sequence parallelism unless it is asked for.
  const FileSays old = said("b.sh", "torchrun " + split + "--activations-checkpoint-method uniform\n");
  CHECK(old.text("recompute.policy") == "full");
  CHECK(old.text("strategy.sequence_parallel") == "false");
  CHECK(said("b.sh", "torchrun " + split + "--sequence-parallel\n").text("strategy.sequence_parallel") == "true");
  CHECK(said("b.sh", "torchrun " + split + "\n").text("recompute.policy") == "none");
  const std::string over =
      "torchrun --nproc_per_node=2 megatron_gpt_pretraining.py trainer.devices=2 trainer.accumulate_grad_batches=1 ";
  const FileSays nemo = said(
      "c.sh",
      over + "model.micro_batch_size=4 model.global_batch_size=64 model.tensor_model_parallel_size=2 model.encoder_seq_length=1024\n");
  CHECK(nemo.text("micro_batch") == "4");
  CHECK(nemo.text("train.global_batch") == "64");
  CHECK(nemo.text("mesh.tp") == "2");
  CHECK(nemo.text("gradient_accumulation").empty());  // of micro-batches NeMo counts by itself
  CHECK(said("c.sh", over + "model.depth=4\n").text("gradient_accumulation") == "1");
  const auto num_warnings = [](const std::string& text) { return read_config(embedded_templates(), text, "d.sh").diagnostics.size(); };
  CHECK(num_warnings("python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo trainer.nnodes=1 trainer.n_gpus_per_node=8\n") ==
        1);
  CHECK(num_warnings("python -m verl.trainer.fsdp_sft_trainer data.train_batch_size=8 trainer.nnodes=1\n") == 0);
}

TEST_CASE("launched: torchrun takes what it is not given from PET_ variables, and a wrapper's own words start nothing") {
  const std::string run = "train.py --model_name_or_path a/b --output_dir o --learning_rate 1e-5\n";
  const FileSays by_variables = said("a.sh", "export PET_NPROC_PER_NODE=8 PET_NNODES=2\ntorchrun " + run);
  CHECK(by_variables.text("hardware.gpus_per_node") == "8");
  CHECK(by_variables.text("hardware.nodes") == "2");
  CHECK(said("a.sh", "export PET_NPROC_PER_NODE=8\ntorchrun --nproc-per-node 4 " + run).text("hardware.gpus_per_node") == "4");
  CHECK(said("a.sh", "PET_NPROC_PER_NODE=8\ntorchrun " + run).text("hardware.gpus_per_node").empty());  // not exported
  CHECK(said("a.sh", "PET_NPROC_PER_NODE=8 python " + run).text("hardware.gpus_per_node").empty());
  const std::string launch = "accelerate launch --num_processes 4 " + run;
  CHECK(said("b.sh", "uv run --with deepspeed " + launch).text("derived.world") == "4");
  CHECK(said("b.sh", "uv run -p python3.11 --extra deepspeed " + launch).text("derived.world") == "4");
  CHECK(said("b.sh", "uv run --with accelerate deepspeed --num_gpus 2 " + run).is_read_as("deepspeed"));
  CHECK(said("c.sh", "command torchrun --nproc_per_node 4 " + run).text("hardware.gpus_per_node") == "4");
  CHECK(said("c.sh", "command -v torchrun --nproc_per_node 4\npython " + run).text("hardware.gpus_per_node").empty());
}

TEST_CASE("launched: several GPUs of one process are told, and counted where a launcher starts one for each") {
  const auto num_told = [](const std::string& text) {
    const FileSays file = said("a.sh", text);
    CHECK((file.text("derived.world").empty() || file.text("derived.world") == "2"));
    const auto is_it = [](const LostKey& lost) { return lost.key == "CUDA_VISIBLE_DEVICES"; };
    const std::vector<LostKey>& lost = file.readings.back().lost;
    return std::count_if(lost.begin(), lost.end(), is_it);
  };
  const std::string run = "train.py --model_name_or_path a/b --output_dir o --learning_rate 1e-5 --per_device_train_batch_size 4\n";
  CHECK(num_told("CUDA_VISIBLE_DEVICES=0,1 python " + run) == 1);
  CHECK(num_told("CUDA_VISIBLE_DEVICES=0,1 accelerate launch " + run) == 0);
  CHECK(num_told("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 " + run) == 0);
  CHECK(num_told("CUDA_VISIBLE_DEVICES=0,1 axolotl train a.yaml --learning_rate 1e-5 --num_epochs 2\n") == 0);
}

TEST_CASE("launched: an expert of Megatron-LM is as wide as the dense MLP unless it is said") {
  const std::string model = "torchrun --nproc_per_node 4 pretrain_gpt.py --num-layers 2 --hidden-size 1024 --num-attention-heads 16 ";
  CHECK(said("a.sh", model + "--num-experts 4\n").text("model.expert_feed_forward") == "4096");
  CHECK(said("a.sh", model + "--num-experts 4 --ffn-hidden-size 512\n").text("model.expert_feed_forward") == "512");
  CHECK(said("a.sh", model + "--num-experts 4 --moe-ffn-hidden-size 256\n").text("model.expert_feed_forward") == "256");
  CHECK(said("a.sh", model + "--num-experts 1\n").text("model.expert_feed_forward").empty());
  CHECK(said("a.sh", model + "\n").text("model.expert_feed_forward").empty());
}

TEST_CASE("launched: a configuration by name hides that a program trains by rollouts, its own name does not") {
  const auto num_warnings = [](const std::string& text) { return read_config(embedded_templates(), text, "d.sh").diagnostics.size(); };
  CHECK(num_warnings("python3 -m verl.trainer.main_ppo --config-path=/x --config-name=grpo\n") == 1);
  CHECK(num_warnings("python3 -m verl.trainer.main_sft --config-path=/x --config-name=sft\n") == 0);
}

TEST_CASE("launched: neither name=value nor a program is one more value of the option in front of it") {
  const auto text = [](const std::string& rest) {
    const FileSays file = said("a.sh", "python -m own.train --lr 1e-5 --reward_funcs " + rest + "\n");
    for (const Reading& one : file.readings) {
      for (const LostKey& lost : one.lost) {
        if (lost.key == "reward_funcs") return lost.text;
      }
    }
    return std::string();
  };
  CHECK(text("a b c") == "a b c");
  CHECK(text("a b trainer.steps=3") == "a b");
  CHECK(text("a main.py") == "a");
}

TEST_CASE("launched: samples of Megatron-LM are steps of its batch, unless the batch grows") {
  const std::string run =
      "torchrun --nproc_per_node 4 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --lr 1e-4 ";
  CHECK(said("a.sh", run + "--global-batch-size 8 --train-samples 800\n").text("train.steps") == "100");
  CHECK(said("a.sh", run + "--global-batch-size 8 --train-samples 800 --lr-warmup-fraction 0.1\n").text("train.warmup_steps") == "10");
  CHECK(said("a.sh", run + "--global-batch-size 8 --train-samples 800 --lr-decay-samples 80 --lr-warmup-fraction 0.1\n")
            .text("train.warmup_steps")
            .empty());
  CHECK(said("a.sh", run + "--global-batch-size 8 --train-samples 800 --rampup-batch-size 2 2 80\n").text("train.steps").empty());
}
