// Commands inside of others: eval, ssh, containers; and counts under other launchers' letters. Each beside a near miss.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "codegen/read/read.h"
#include "codegen/read/settings.h"
#include "codegen/shell/slurm_names.h"
#include "support/file_says.h"

using namespace distsetup;

namespace {

FileSays said(const std::string& name, const std::string& text) {
  INFO(text);
  Result<std::vector<Reading>> read = read_config(embedded_templates(), text, name);
  if (!read.ok()) return {};
  return merged(std::move(*read));
}

std::string setting(const FileSays& of, std::string_view path) {
  for (const ReadSetting& one : settings_of(of.fields).settings) {
    if (one.path == path) return one.text;
  }
  return "";
}

}  // namespace

TEST_CASE("wrapped: eval takes the text of a variable apart, quotes in it too") {
  const std::string command = "torchrun --nproc_per_node=4 train.py --per_device_train_batch_size 4 --output_dir ";
  CHECK(said("a.sh", "CMD=\"" + command + "out\"\neval \"$CMD\"\n").text("hardware.gpus_per_node") == "4");
  CHECK(said("b.sh", "CMD=\"" + command + "\\\"out dir\\\" > log 2>&1\"\neval $CMD\n").text("checkpoint.directory") == "out dir");
  CHECK(said("c.sh", "CMD=\"" + command + "'out dir' && echo done\"\neval \"$CMD\"\n").text("checkpoint.directory") == "out dir");
  // Shown and not run; and a quote that never closes, which eval refuses.
  CHECK(said("d.sh", "CMD=\"" + command + "out\"\necho \"$CMD\"\n").text("hardware.gpus_per_node").empty());
  CHECK(said("e.sh", "CMD=\"" + command + "'out\"\neval \"$CMD\"\n").text("checkpoint.directory").empty());
}

TEST_CASE("wrapped: what ssh and containers start") {
  const std::string train = "deepspeed --num_gpus 4 train.py --per_device_train_batch_size 2";
  CHECK(said("a.sh", "ssh worker-1 'cd run && PATH=/opt/bin:$PATH " + train + "'\n").text("hardware.gpus_per_node") == "4");
  CHECK(said("b.sh", "ssh worker-1 'echo " + train + "'\n").text("micro_batch").empty());
  const std::string tool = "swift sft --model Qwen/Qwen2.5-7B --tuner_type full --per_device_train_batch_size 2\n";
  const FileSays docker = said("c.sh", "docker exec -e A=1 -e NPROC_PER_NODE=8 box " + tool);
  CHECK(docker.text("hardware.gpus_per_node") == "8");
  CHECK(docker.text("micro_batch") == "2");
  CHECK(said("d.sh", "docker exec -e OWN_NPROC_PER_NODE=8 box " + tool).text("hardware.gpus_per_node").empty());
  const std::string file = "llamafactory-cli train --stage sft --per_device_train_batch_size 2 --model_name_or_path a/b\n";
  CHECK(said("e.sh", "apptainer exec --nv -B /data -W $TMP --env B=c image.sif " + file).text("micro_batch") == "2");
  CHECK(said("f.sh", "uv run train.py --per_device_train_batch_size 2 --learning_rate 1e-4\n").text("micro_batch") == "2");
  // A name of an image, of an environment and of a package starts nothing.
  for (const char* other :
       {"docker pull axolotl\n", "conda activate trl\n", "uv pip install trl axolotl\n", "docker build -f train.py\n"})
    CHECK(said("g.sh", other).fields.empty());
}

TEST_CASE("wrapped: a program that is asked for its help trains nothing") {
  CHECK(said("a.sh", "llamafactory-cli train -h\n").fields.empty());
  CHECK(said("b.sh", "torchrun --nproc_per_node 2 train.py --help\n").fields.empty());
  CHECK(said("c.sh", "python train.py -h 5 --learning_rate 1e-4\n").text("train.learning_rate") == "0.0001");
}

TEST_CASE("wrapped: resource sets of jsrun, and the counts of aprun") {
  const std::string job = "#!/bin/bash\n#BSUB -nnodes 4\n";
  CHECK(said("a.lsf", job + "jsrun -n 4 -r 1 -a 1 -g 6 -c 42 python train.py\n").text("hardware.gpus_per_node") == "6");
  CHECK(said("b.lsf", job + "jsrun -n24 -a1 -c7 -g1 -bpacked:7 python train.py\n").text("hardware.gpus_per_node") == "6");
  CHECK(said("c.lsf", job + "jsrun --nrs 8 --gpu_per_rs 3 python train.py\n").text("hardware.gpus_per_node") == "6");
  // Sets that no node has a whole number of, and sets without GPUs.
  CHECK(said("d.lsf", job + "jsrun -n 6 -g 1 python train.py\n").text("hardware.gpus_per_node").empty());
  CHECK(said("e.lsf", job + "jsrun -n 24 -a 1 -c 7 python train.py\n").text("hardware.gpus_per_node").empty());
  CHECK(said("e.lsf", job + "jsrun -n 24 -a 1 -c 7 python train.py\n").text("derived.world").empty());
  CHECK(said("f.sh", "aprun -n 16 -N 4 --cc depth -d 16 python train.py\n").text("hardware.gpus_per_node") == "4");
}

TEST_CASE("wrapped: beginnings of SLURM's names, by which letters tell them from all others") {
  const auto nodes_of = [](const std::string& line) { return said("a.sbatch", "#!/bin/bash\n" + line + "python t.py\n"); };
  CHECK(nodes_of("#SBATCH --gpus-per-n=4\n").text("hardware.gpus_per_node") == "4");
  CHECK(nodes_of("#SBATCH --gpus-per=4\n").text("hardware.gpus_per_node").empty());  // of node, socket or task
  CHECK(said("b.sh", "srun --nodes=2 --gpus-per-n=4 python t.py\n").text("hardware.gpus_per_node") == "4");
  using foreign::SlurmCommand;
  CHECK(foreign::whole_slurm_name("tasks", SlurmCommand::kSbatch) == "tasks-per-node");
  CHECK(foreign::whole_slurm_name("time", SlurmCommand::kSbatch) == "time");
  std::string table;
  for (const auto& [path, text] : embedded_templates().files) table = path == "_lint/names/slurm.yaml" ? text : table;
  const size_t srun = table.find("\n  srun: |");
  for (const SlurmCommand command : {SlurmCommand::kSbatch, SlurmCommand::kSrun}) {
    const bool is_srun = command == SlurmCommand::kSrun;
    const size_t begin = is_srun ? srun : table.find("\n  sbatch: |");
    std::set<std::string> names;
    for (size_t at = table.find(" --", begin); at < (is_srun ? table.size() : srun); at = table.find(" --", at + 1))
      names.insert(table.substr(at + 3, table.find(':', at) - at - 3));
    CHECK(names.size() > 100);
    for (const std::string& name : names) {
      for (size_t n = 1; n < name.size(); ++n) {
        const std::string whole = foreign::whole_slurm_name(name.substr(0, n), command);
        const auto shares = [&](const std::string& one) { return one.starts_with(name.substr(0, n)); };
        if (whole != name.substr(0, n)) CHECK((whole == name && std::count_if(names.begin(), names.end(), shares) == 1));
      }
    }
  }
}

TEST_CASE("wrapped: SLURM adds up the parts of a time") {
  const auto limit = [](const std::string& time) {
    return setting(said("a.sbatch", "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --time=" + time + "\npython t.py\n"),
                   "launch.time_limit");
  };
  CHECK(limit("00:60:00") == "3600s");
  CHECK(limit("01:90:75") == "9075s");
  CHECK(limit("1-30:00") == "194400s");
  CHECK(limit("48:00:00") == "48:00:00");
  CHECK(limit("1:b:00") == "1:b:00");
}

TEST_CASE("wrapped: names of forks of Megatron-LM that say how many heads share their keys, and where the optimizer is") {
  const std::string run =
      "python pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 8 --tensor-model-parallel-size 1 "
      "--micro-batch-size 1 --lr 1e-4 --train-iters 10 --seq-length 128 --max-position-embeddings 128 ";
  CHECK(said("a.sh", run + "--num-key-value-heads 2\n").text("model.num_kv_heads") == "2");
  CHECK(said("b.sh", run + "--attention-head-type multiquery\n").text("model.num_kv_heads") == "1");
  CHECK(said("c.sh", run + "--attention-head-type multihead\n").text("model.num_kv_heads").empty());
  CHECK(said("d.sh", run + "--cpu-optimizer --deepspeed --zero-stage 1\n").text("offload.optimizer") == "host");
  CHECK(said("e.sh", run).text("offload.optimizer") == "none");
}

TEST_CASE("wrapped: latent attention of Megatron-LM, and its sizes where it is not asked for") {
  const std::string run =
      "python pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 8 --tensor-model-parallel-size 1 "
      "--micro-batch-size 1 --lr 1e-4 --train-iters 10 --seq-length 128 --max-position-embeddings 128 --kv-channels 32 "
      "--kv-lora-rank 128 --qk-head-dim 32 --qk-pos-emb-head-dim 16 --v-head-dim 24 ";
  const FileSays latent = said("a.sh", run + "--multi-latent-attention\n"), plain = said("b.sh", run + "\n");
  CHECK(latent.text("model.attention") == "latent");
  CHECK(latent.text("model.kv_lora_rank") == "128");
  CHECK(latent.text("model.v_head_size") == "24");
  CHECK(latent.text("model.head_size").empty());
  CHECK(plain.text("model.attention").empty());
  CHECK(plain.text("model.kv_lora_rank").empty());
  CHECK(plain.text("model.head_size") == "32");
}

TEST_CASE("wrapped: cores of Trainium and of TPUs are no GPUs") {
  const std::string run = "torchrun --nproc_per_node=32 train.py --learning_rate 1e-4\n";
  CHECK_FALSE(read_config(embedded_templates(), "export PJRT_DEVICE=NEURON\n" + run, "a.sh").ok());
  CHECK_FALSE(read_config(embedded_templates(), "PJRT_DEVICE=TPU " + run, "b.sh").ok());
  CHECK(said("c.sh", "export PJRT_DEVICE=CUDA\n" + run).text("hardware.gpus_per_node") == "32");
}

TEST_CASE("wrapped: a number where LLaMA-Factory has words tells nothing, nor does auto, nor a placeholder") {
  CHECK(said("a.sh", "deepspeed train.py --stage=2 --model_name=a/b\n").text("train.finetune").empty());
  CHECK(said("b.sh", "python train.py --stage sft --model_name_or_path a/b\n").text("train.finetune") == "lora");
  const std::string zero = R"({"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2)";
  CHECK(said("c.json", zero + R"(, "offload_optimizer": {"device": "auto", "pin_memory": true}}})").text("offload.optimizer").empty());
  CHECK(said("d.json", zero + R"(, "offload_optimizer": {"device": "none"}}})").text("offload.optimizer") == "none");
  const std::string task = "num_nodes: 2\nrun: python train.py\nresources:\n  accelerators: ";
  CHECK(said("e.yaml", task + "__GPUS__\n").text("hardware.gpus_per_node").empty());
  CHECK(said("f.yaml", task + "H100:4\n").text("hardware.gpus_per_node") == "4");
}

TEST_CASE("wrapped: the length of a sequence under the names that scripts of one's own have for it") {
  const std::string run = "deepspeed main.py --per_device_train_batch_size 8 --learning_rate 1e-5 --num_padding_at_beginning 1 ";
  CHECK(said("a.sh", run + "--max_seq_len 512\n").text("train.sequence_length") == "512");
  CHECK(said("b.sh", run + "--seq_length 1024\n").text("train.sequence_length") == "1024");
  CHECK(said("c.sh", run + "--max_seq_len $LEN\n").text("train.sequence_length").empty());
  CHECK(said("d.sh", run + "--max_prompt_seq_len 512\n").text("train.sequence_length").empty());
}

TEST_CASE("wrapped: a limit of samples ends a run where it is a number of whole steps") {
  const std::string run =
      "deepspeed --module openrlhf.cli.train_sft --dataset a/b --pretrain a/c --zero_stage 2 --train_batch_size 128 "
      "--micro_train_batch_size 2 --max_epochs 2 --max_samples ";
  const FileSays limited = said("a.sh", run + "500000\n");
  CHECK(limited.text("train.steps").empty());
  const std::vector<LostKey> lost = settings_of(limited.fields).lost;
  CHECK(std::any_of(lost.begin(), lost.end(), [](const LostKey& one) { return one.key == "max_samples"; }));
  CHECK(said("b.sh", run + "12800\n").text("train.steps") == "200");
}

TEST_CASE("wrapped: torchtitan by its flags, and not by the flag of a file") {
  const std::string run = "torchrun --nproc_per_node=8 -m torchtitan.train ";
  const std::string flags = run + "--module llama3 --config llama3_8b ";
  CHECK(said("a.sh", flags + "--activation_checkpoint.mode none\n").text("recompute.policy") == "none");
  CHECK(said("b.sh", run + "--job.config_file llama3_8b.toml\n").text("strategy.trainer").empty());
}

TEST_CASE("wrapped: LLaMA-Factory's command takes its own arguments over those of its file") {
  const std::string over = " train sft.yaml model_name_or_path=a/b per_device_train_batch_size=4 deepspeed=null\n";
  const FileSays own = said("a.sh", "FORCE_TORCHRUN=1 llamafactory-cli" + over);
  CHECK(own.text("model.hub_id") == "a/b");
  CHECK(own.text("micro_batch") == "4");
  CHECK(own.text("strategy.trainer") != "deepspeed");
  CHECK(said("b.sh", "python tune.py" + over).text("micro_batch").empty());
}

TEST_CASE("wrapped: the file that a tool's own command is given, in a container too, and no other program's") {
  const auto names_file = [](const std::string& line) {
    const FileSays one = said("a.sh", line + "\n");
    return std::any_of(one.readings.begin(), one.readings.end(), [](const Reading& reading) {
      return std::any_of(reading.lost.begin(), reading.lost.end(),
                         [](const LostKey& lost) { return lost.is_file && lost.text == "sft.yaml"; });
    });
  };
  CHECK(names_file("llamafactory-cli train sft.yaml"));
  CHECK(names_file("docker run --gpus all hiyouga/llamafactory llamafactory-cli train sft.yaml learning_rate=1e-5"));
  CHECK(names_file("docker run --gpus all hiyouga/llamafactory bash -c \"cd /app && llamafactory-cli train sft.yaml\""));
  CHECK(names_file("accelerate launch -m axolotl.cli.train sft.yaml"));
  CHECK_FALSE(names_file("docker run --gpus all hiyouga/llamafactory llamafactory-cli chat sft.yml"));
  CHECK_FALSE(names_file("python prepare.py sft.yaml"));
}

TEST_CASE("wrapped: accelerators that sites count under names of their own, and resources that are none") {
  const auto gpus = [](const std::string& request) {
    return setting(
        said("j.sbatch", "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=" + request + "\nsrun python train.py --lr 1e-4\n"),
        "hardware.gpus_per_node");
  };
  CHECK(gpus("dcu:4") == "4");
  CHECK(gpus("npu:910b:8") == "8");
  CHECK(gpus("gpu:4") == "4");
  CHECK(gpus("tmpfs:4").empty());
  CHECK(gpus("dcuserver:4").empty());
  CHECK(setting(said("a.sh", "srun --gres=dcu:4 -N 2 python train.py --lr 1e-4\n"), "hardware.gpus_per_node") == "4");
}

TEST_CASE("wrapped: DeepSpeed-Chat's --offload moves what its stage can move, another script's may be anything") {
  const std::string run = "deepspeed main.py --deepspeed --per_device_train_batch_size 4 --offload --learning_rate 1e-5 --zero_stage ";
  const std::string chat = " --data_split 2,4,4 --num_padding_at_beginning 1 --num_warmup_steps 0 --lora_dim 0\n";
  const FileSays third = said("a.sh", run + "3" + chat), second = said("b.sh", run + "2" + chat);
  CHECK(third.text("offload.optimizer") == "host");
  CHECK(third.text("offload.parameters") == "host");
  CHECK(second.text("offload.optimizer") == "host");
  CHECK(second.text("offload.parameters") == "none");
  CHECK(said("d.sh", run + "2 --max_seq_len 4096 --num_warmup_steps 0 --training_debug_steps 5 --data_path d\n")
            .text("offload.optimizer") == "host");
  CHECK(said("c.sh", run + "3 --num_warmup_steps 0 --my_split 2 --my_loss 1\n").text("offload.optimizer").empty());
}

TEST_CASE("wrapped: bash's old arithmetic in brackets") {
  const std::string run = "deepspeed train.py --deepspeed z.json --per_device_train_batch_size 2 --gradient_accumulation_steps ";
  CHECK(said("a.sh", "GLOBAL=128\nSTEPS=$[$GLOBAL/(2*8)]\n" + run + "$STEPS\n").text("gradient_accumulation") == "8");
  CHECK(said("b.sh", "STEPS=$[$GLOBAL/(2*8)]\n" + run + "$STEPS\n").text("gradient_accumulation").empty());
}

TEST_CASE("wrapped: a redirection behind a switch in a text that eval runs is none of its values") {
  const auto recompute = [](const std::string& end) {
    return said(
        "a.sh",
        "CMD=\"torchrun --nproc_per_node=8 train.py --per_device_train_batch_size 1 --num_train_epochs 1 --gradient_checkpointing " +
            end + "\"\neval $CMD\n");
  };
  CHECK(recompute("&> run.log").text("recompute.policy") == "full");
  CHECK(recompute("False &> run.log").text("recompute.policy") == "none");
}

TEST_CASE("wrapped: what a SkyPilot task sets for its commands, unless it is left to who starts it") {
  const auto length = [](const std::string& value) {
    return said("a.yaml", "resources:\n  accelerators: A100:4\nenvs:\n  SEQ_LEN: " + value +
                              "\nrun: |\n  torchrun --nproc_per_node=4 train.py --num_train_epochs 1 --per_device_train_batch_size 1 "
                              "--learning_rate 1e-5 --model_max_length ${SEQ_LEN}\n")
        .text("train.sequence_length");
  };
  CHECK(length("2048") == "2048");
  CHECK(length("").empty());
  CHECK(length("null").empty());
}

TEST_CASE("wrapped: Trainium's own variables, and those of another tool") {
  const std::string run = "torchrun --nproc_per_node=32 train.py --learning_rate 1e-4\n";
  CHECK_FALSE(read_config(embedded_templates(), "export NEURON_CC_FLAGS=\"--model-type=transformer\"\n" + run, "a.sh").ok());
  CHECK_FALSE(read_config(embedded_templates(), "export NEURON_RT_NUM_CORES=32\n" + run, "b.sh").ok());
  CHECK(said("c.sh", "export NEURON_COUNT=32\n" + run).text("hardware.gpus_per_node") == "32");
}

TEST_CASE("wrapped: deepspeed.add_config_arguments is DeepSpeed's, whoever starts the script") {
  const FileSays own = said("a.sh", "srun python mnist.py --epochs 10 --deepspeed --deepspeed_config ds.json\n");
  CHECK(own.text("strategy.trainer") == "deepspeed");
  const bool names_file = std::any_of(own.readings.begin(), own.readings.end(), [](const Reading& one) {
    return std::any_of(one.lost.begin(), one.lost.end(), [](const LostKey& lost) { return lost.is_file && lost.text == "ds.json"; });
  });
  CHECK(names_file);
  CHECK(said("b.sh", "srun python mnist.py --epochs 10 --deepspeed_config ds.json\n").text("strategy.trainer").empty());
}
