// What tools start by options of their own, and what they take where nothing is said: each beside a near miss.
#include <algorithm>
#include <catch2/catch.hpp>

#include "codegen/read/read.h"
#include "support/file_says.h"

using namespace distsetup;

namespace {

const std::string kMegatron =
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 --ffn-hidden-size 5504 --num-attention-heads 16"
    " --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 4 --global-batch-size 128 --train-iters 1000 --lr 1e-4"
    " --bf16 --vocab-size 32000 ";

}  // namespace

TEST_CASE("tool starts: Megatron-LM's pipeline is not interleaved unless a flag says so", "[read]") {
  const auto chunks = [](const std::string& flags) { return told_of("a.sh", kMegatron + flags).text("strategy.virtual_stages"); };
  CHECK(chunks("--pipeline-model-parallel-size 2") == "1");
  CHECK(chunks("--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 3") == "4");
  CHECK(chunks("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2") == "2");
  CHECK(chunks("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*12|t*12L'").empty());
  CHECK(chunks("").empty());
}

TEST_CASE("tool starts: Megatron-LM's warm-up is a part of the decay", "[read]") {
  const auto warmup = [](const std::string& flags) { return told_of("a.sh", kMegatron + "--lr-warmup-fraction " + flags); };
  const FileTold shorter = warmup(".01 --lr-decay-iters 800");
  CHECK(shorter.text("train.warmup_steps") == "8");
  CHECK(shorter.has_lost("lr_decay_iters=800: a plan's learning rate ends with its steps"));
  CHECK(warmup(".01 --lr-decay-iters 320000").text("train.warmup_steps") == "3200");
  CHECK(warmup(".01").text("train.warmup_steps") == "10");
  const FileTold open = warmup(".01 --lr-decay-iters $DECAY");
  CHECK(open.text("train.warmup_steps").empty());
  CHECK(open.has_lost("lr_warmup_fraction=.01: it is a part of --lr-decay-iters"));
}

TEST_CASE("tool starts: an activation of a fork that gates is said by its name", "[read]") {
  CHECK(told_of("a.sh", kMegatron + "--activation swiglu").text("model.gated_mlp") == "true");
  const FileTold geglu = told_of("a.sh", kMegatron + "--activation geglu");
  CHECK(geglu.text("model.gated_mlp") == "true");
  CHECK(geglu.text("model.activation") == "gelu");
  CHECK(told_of("a.sh", kMegatron + "--activation gelu").text("model.gated_mlp") == "false");
  CHECK(told_of("a.sh", kMegatron).text("model.gated_mlp") == "false");
  CHECK(told_of("a.sh", kMegatron + "--swiglu").text("model.gated_mlp") == "true");
}

TEST_CASE("tool starts: axolotl hands its launcher what stands behind two dashes", "[read]") {
  const FileTold torchrun = told_of("a.sh", "axolotl train ax.yaml --launcher torchrun -- --nproc_per_node=8 --nnodes=2\n");
  CHECK(torchrun.text("hardware.nodes") == "2");
  CHECK(torchrun.text("hardware.gpus_per_node") == "8");
  CHECK_FALSE(torchrun.has_lost("launcher="));
  CHECK(torchrun.has_lost("config=ax.yaml"));
  const FileTold accelerate = told_of("a.sh", "axolotl train ax.yaml -- --num_processes=4 --num_machines 1\n");
  CHECK(accelerate.text("hardware.gpus_per_node") == "4");
  CHECK(told_of("a.sh", "axolotl train ax.yaml --num-processes 4\n").text("derived.world") == "4");
  CHECK(told_of("a.sh", "axolotl train ax.yaml --launcher python\n").text("hardware.gpus_per_node").empty());
  CHECK(told_of("a.sh", "axolotl train ax.yaml --micro-batch-size 2\n").text("micro_batch") == "2");
}

TEST_CASE("tool starts: automodel, with and without a domain", "[read]") {
  for (const std::string line : {"automodel finetune llm -c m.yaml --nproc-per-node 8", "automodel m.yaml --nproc-per-node 8"}) {
    const FileTold one = told_of("a.sh", line + " --step_scheduler.max_steps 20\n");
    CHECK(one.text("hardware.gpus_per_node") == "8");
    CHECK(one.text("train.steps") == "20");
    CHECK(one.has_lost("config=m.yaml: it is a file of its own"));
  }
  CHECK(told_of("a.sh", "automodel m.yaml\n").text("hardware.gpus_per_node").empty());
}

TEST_CASE("tool starts: settings over a recipe of Megatron-Bridge, and its file", "[read]") {
  const std::string start = "torchrun --nproc_per_node=8 run_recipe.py --recipe llama3_8b ";
  const FileTold over = told_of(
      "a.sh", start + "model.tensor_model_parallel_size=2 train.micro_batch_size=1 train.global_batch_size=256 optimizer.lr=1e-4\n");
  CHECK(over.text("mesh.tp") == "2");
  CHECK(over.text("micro_batch") == "1");
  CHECK(over.text("train.global_batch") == "256");
  CHECK(over.text("train.learning_rate") == "0.0001");
  CHECK(over.text("train.weight_decay").empty());  // the recipe's
  // NeMo's own names are another thing.
  CHECK(told_of("a.sh", start + "model.tensor_model_parallel_size=2 model.micro_batch_size=1\n").text("micro_batch") == "1");
  CHECK(told_of("a.sh", start + "--config-file b.yaml\n").has_lost("config_file=b.yaml: it is a file of its own"));
  CHECK(told_of("a.sh", "torchrun --nproc_per_node=8 \"$@\" --config-file b.yaml\n").has_lost("config_file=b.yaml: it is a file"));
  CHECK_FALSE(told_of("a.sh", start + "--config-file main\n").has_lost("it is a file of its own"));
}

TEST_CASE("tool starts: SkyRL draws answers, and its strategy is its own", "[read]") {
  for (const std::string program : {"skyrl.train.entrypoints.main_base", "skyrl_train.entrypoints.main_base"}) {
    const FileTold one = told_of("a.sh", "uv run --isolated -m " + program + " trainer.strategy=fsdp2 trainer.epochs=20\n");
    CHECK(one.text("strategy.trainer") == "fsdp2");
    CHECK(one.warnings.find("trains by rollouts") != std::string::npos);
    CHECK_FALSE(one.has_lost("no plan has this strategy"));
  }
  const FileTold other = told_of("a.sh", "python -m own.train trainer.strategy=deep trainer.devices=2\n");
  CHECK(other.warnings.empty());
  CHECK(other.has_lost("trainer.strategy=deep"));
}

TEST_CASE("tool starts: Lightning's devices by their numbers", "[read]") {
  const auto file = [](const std::string& devices) {
    return told_of("l.yaml", "trainer:\n  accelerator: gpu\n  strategy: ddp\n  devices: " + devices +
                                 "\n  num_nodes: 2\n  max_steps: 1000\nmodel: {class_path: my.Model}\ndata: {class_path: my.Data}\n");
  };
  CHECK(file("0,1").text("hardware.gpus_per_node") == "2");
  CHECK(file("[0, 1, 2]").text("hardware.gpus_per_node") == "3");
  CHECK(file("\"3,\"").text("hardware.gpus_per_node") == "1");
  CHECK(file("\"2\"").text("hardware.gpus_per_node") == "2");
  CHECK(file("[-1]").text("hardware.gpus_per_node").empty());
  CHECK(file("auto").text("hardware.gpus_per_node").empty());
}

TEST_CASE("tool starts: a schedule by Transformers' own name ends where that one ends", "[read]") {
  const std::string own = "accelerate launch --num_processes 4 own.py --learning_rate 2e-5 --wandb_entity me --dataset_mixer x ";
  CHECK(told_of("a.sh", own + "--lr_scheduler_type linear\n").text("train.min_learning_rate") == "0");
  CHECK(told_of("a.sh", own + "--lr_scheduler_type cosine\n").text("train.min_learning_rate") == "0");
  CHECK(told_of("a.sh", own + "--lr_scheduler_type constant\n").text("train.min_learning_rate").empty());
}

TEST_CASE("tool starts: keys of several tools tell none", "[read]") {
  const FileTold none = told_of("p.toml", "max_steps = 100\n[model]\nname = \"a\"\n[optim]\nlr = 1e-6\n[data]\nseq_len = 2048\n");
  CHECK(none.refusal.find("none that tells which tool it is") != std::string::npos);
}

TEST_CASE("tool starts: processes that an operator tells torchrun", "[read]") {
  const auto train_job = [](const std::string& processes, const std::string& resources, const std::string& command) {
    return "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: a}\nspec:\n"
           "  runtimeRef: {name: torch-distributed}\n  trainer:\n    numNodes: 2\n    numProcPerNode: " +
           processes + "\n" + resources + "    command: [bash, -c]\n    args:\n      - |\n        " + command + "\n";
  };
  const std::string gpus = "    resourcesPerNode: {limits: {nvidia.com/gpu: 8}}\n", start = " train.py --learning_rate 1e-5";
  CHECK(told_of("a.yaml", train_job("8", gpus, "torchrun" + start)).text("hardware.gpus_per_node") == "8");
  CHECK(told_of("a.yaml", train_job("4", "", "torchrun" + start)).text("hardware.gpus_per_node") == "4");
  CHECK(told_of("a.yaml", train_job("auto", gpus, "torchrun" + start)).text("hardware.gpus_per_node") == "8");
  CHECK(told_of("a.yaml", train_job("4", gpus, "torchrun" + start)).refusal.find("hardware.gpus_per_node is 4") != std::string::npos);
  CHECK(told_of("a.yaml", train_job("4", gpus, "torchrun --nproc_per_node=8" + start)).text("hardware.gpus_per_node") == "8");
  const FileTold tune = told_of("a.yaml",
                                "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: a}\nspec:\n"
                                "  runtimeRef: {name: torchtune-llama3.2-1b}\n  initializer:\n"
                                "    model: {storageUri: 'hf://meta-llama/Llama-3.2-1B'}\n  trainer:\n    numNodes: 1\n" +
                                    gpus + "    args: [batch_size=32, epochs=1]\n");
  CHECK(tune.has_lost("args=batch_size=32 epochs=1: arguments of the program"));
  CHECK(tune.has_lost("initializer.model=hf://meta-llama/Llama-3.2-1B"));
}

TEST_CASE("tool starts: GPUs that only Ray is told of", "[read]") {
  const std::string pod = "template: {spec: {containers: [{name: w, image: x, resources: {limits: {cpu: 4}}}]}}\n";
  const FileTold told =
      told_of("a.yaml",
              "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: r}\nspec:\n  headGroupSpec:\n"
              "    rayStartParams: {num-gpus: '8'}\n    " +
                  pod + "  workerGroupSpecs:\n  - replicas: 1\n    groupName: w\n    rayStartParams: {num-gpus: '8'}\n    " + pod);
  CHECK(told.text("hardware.nodes") == "2");
  CHECK(told.text("hardware.gpus_per_node") == "8");
}
