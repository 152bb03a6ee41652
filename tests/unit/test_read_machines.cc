// Machines and GPUs of jobs that count them in words of their own, and files that say what stands beside a run. Each beside a near
// miss.
#include <algorithm>
#include <catch2/catch.hpp>

#include "codegen/read/read.h"
#include "support/file_says.h"

using namespace distsetup;

namespace {

FileTold job(const std::string& name, const std::string& text) {
  FileTold out = told_of(name, text);
  INFO(text);
  REQUIRE_FALSE(out.is_contradictory);
  return out;
}

std::string gpus(const std::string& count) {
  return "template: {spec: {containers: [{name: w, image: x, resources: {limits: {nvidia.com/gpu: " + count + "}}}]}}\n";
}

std::string ray(const std::string& head, const std::string& workers) {
  return "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: r}\nspec:\n  headGroupSpec:\n    " + head +
         "  workerGroupSpecs:\n" + workers;
}

}  // namespace

TEST_CASE("machines: mpirun that starts a launcher on each node, in the text of a shell too") {
  const std::string pbs = "#!/bin/bash\n#PBS -l select=2:ncpus=32:ngpus=8\nmpirun -np 2 --map-by node ";
  const std::string flags = " train.py --learning_rate 1e-5 --per_device_train_batch_size 1";
  for (const std::string& start :
       {"torchrun --nnodes 2 --nproc-per-node 8" + flags, "bash -c \"torchrun --nnodes 2 --nproc-per-node 8" + flags + "\"",
        "bash -c 'cd run && accelerate launch --num_machines 2 --num_processes 16" + flags + "'"}) {
    const FileTold one = job("a.pbs", pbs + start + "\n");
    CHECK(one.says.text("hardware.nodes") == "2");
    CHECK(one.says.text("hardware.gpus_per_node") == "8");
    CHECK(one.says.text("derived.world").empty());
  }
  // Ranks themselves.
  CHECK(job("a.sh", "mpirun -np 2 bash -c \"python" + flags + "\"\n").says.text("derived.world") == "2");
}

TEST_CASE("machines: of a cluster of Ray's") {
  const std::string none = "template: {spec: {containers: [{name: h, image: x}]}}\n",
                    no_start = "rayStartParams: {num-gpus: '0'}\n    ";
  const std::string three = "  - groupName: g\n    replicas: 3\n    " + gpus("8");
  CHECK(job("a.yaml", ray(none, three)).says.text("hardware.nodes") == "3");
  CHECK(job("a.yaml", ray(gpus("8"), three)).says.text("hardware.nodes") == "4");
  CHECK(job("a.yaml", ray(gpus("0"), three)).says.text("hardware.nodes") == "3");
  CHECK(job("a.yaml", ray(no_start + gpus("8"), three)).says.text("hardware.nodes") == "3");
  CHECK(job("a.yaml", ray(gpus("8"), "  - groupName: g\n    replicas: 3\n    " + none)).says.text("hardware.nodes") == "1");
  CHECK(
      job("a.yaml", ray(none, "  - groupName: g\n    numOfHosts: 2\n    replicas: 3\n    " + gpus("8"))).says.text("hardware.nodes") ==
      "6");
  const FileTold uneven = job("a.yaml", ray(none, three + "  - groupName: h\n    replicas: 2\n    " + gpus("4")));
  CHECK(uneven.says.text("hardware.nodes").empty());
  CHECK(uneven.says.text("hardware.gpus_per_node").empty());
  CHECK(uneven.has_lost("nodes=5: its pods have different numbers of GPUs (8, 4)"));
}

TEST_CASE("machines: replicas that are filled in before a manifest is applied") {
  const auto manifest = [](const std::string& workers) {
    return "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec:\n  pytorchReplicaSpecs:\n    Master:\n      "
           "replicas: "
           "1\n      " +
           gpus("8") + "    Worker:\n      replicas: " + workers + "\n      " + gpus("8");
  };
  CHECK(job("a.yaml", manifest("3")).says.text("hardware.nodes") == "4");
  const FileTold open = job("a.yaml", manifest("${WORKERS}"));
  CHECK(open.says.text("hardware.nodes").empty());
  CHECK(open.has_lost("nodes=1 + ${WORKERS}: it is filled in"));
}

TEST_CASE("machines: arguments of the program that an image starts") {
  const auto pod = [](const std::string& words) {
    return "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec:\n  parallelism: 2\n  template:\n    spec:\n      "
           "containers:\n"
           "      - name: w\n        image: x\n        resources: {limits: {nvidia.com/gpu: 8}}\n        " +
           words + "\n";
  };
  CHECK(job("a.yaml", pod("args: [--epochs=3, --model_name, a/b]"))
            .has_lost("args=--epochs=3 --model_name a/b: arguments of the program"));
  CHECK_FALSE(job("a.yaml", pod("args: [python, train.py, --epochs=3]")).has_lost("args="));
  CHECK_FALSE(job("a.yaml", pod("command: [python, train.py]\n        args: [--epochs=3]")).has_lost("args="));
}

TEST_CASE("machines: a variable of a container that comes from elsewhere is not empty") {
  const FileTold secret =
      job("a.yaml",
          "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec:\n  parallelism: 2\n  template:\n    spec:\n"
          "      containers:\n      - name: w\n        image: x\n        env:\n        - name: DATA\n"
          "          valueFrom: {configMapKeyRef: {name: c, key: data}}\n        - name: OTHER\n          value: ''\n");
  CHECK(secret.has_lost("env.DATA=from elsewhere: variables are set in the manifest"));
  CHECK(secret.has_lost("env.OTHER=: it is empty"));
}

TEST_CASE("machines: a program that is handed on behind the options of a script") {
  const std::string launcher =
      "torchrun --nproc_per_node=4 --nnodes 2 train.py --per_device_train_batch_size 2 --learning_rate 1e-5\n";
  const FileTold one = job("a.sh", "python submit.py --gpus 1 --name mine -- " + launcher);
  CHECK(one.says.text("hardware.gpus_per_node") == "4");
  CHECK(one.says.text("hardware.nodes") == "2");
  CHECK(one.says.text("micro_batch") == "2");
  CHECK(one.has_lost("gpus=1: no table knows the arguments of submit.py"));
  // An end of options, with no program behind it.
  CHECK(job("a.sh", "python train.py --per_device_train_batch_size 2 -- data\n").says.text("micro_batch") == "2");
}

TEST_CASE("machines: a module that uv starts") {
  const std::string module = "torch.distributed.run --nproc_per_node 4 train.py --per_device_train_batch_size 2\n";
  CHECK(job("a.sh", "uv run --extra gpu -m " + module).says.text("hardware.gpus_per_node") == "4");
  CHECK(job("a.sh", "uv run --module verl.trainer.main_ppo trainer.n_gpus_per_node=8\n").says.text("hardware.gpus_per_node") == "8");
  CHECK(job("a.sh", "uv run --with a coverage run -m pytest --per_device_train_batch_size 2\n").says.fields.empty());
  CHECK(job("a.sh", "uv pip install -m own.train --per_device_train_batch_size 2\n").says.fields.empty());
}

TEST_CASE("machines: a document that a pipe writes to a file") {
  const std::string acc = "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 2}\nnum_processes: 8\nYAML\n";
  const std::string run = "accelerate launch --config_file=acc.yaml train.py --per_device_train_batch_size=2\n";
  CHECK(job("a.sh", "cat <<'YAML' | tee acc.yaml\n" + acc + run).says.text("strategy.sharding") == "zero2");
  CHECK(job("a.sh", "cat <<'YAML' | sort | tee acc.yaml\n" + acc + run).says.text("strategy.sharding").empty());
}

TEST_CASE("machines: lines of schedulers that are not read, and files that are sourced and not here") {
  const std::string run = "mpirun -np 8 python train.py --per_device_train_batch_size 2\n";
  CHECK(job("a.sh", "#!/bin/bash\n#$ -l rt_F=4\n#$ -cwd\n" + run).has_lost("#$ -l=rt_F=4: lines of Grid Engine are not read"));
  CHECK(job("a.sh", "#!/bin/bash\n#flux: --nodes=4\n" + run).has_lost("#flux: --nodes=4: lines of Flux are not read"));
  CHECK_FALSE(job("a.sh", "#!/bin/bash\n#$ 8 GPUs\n" + run).has_lost("Grid Engine"));
  const std::string open = "torchrun --nproc_per_node 4 train.py \"${ARGS[@]}\" --learning_rate 1e-5\n";
  CHECK(job("a.sh", "source ./args.sh\n" + open).has_lost("source=./args.sh: it is not here"));
  CHECK_FALSE(job("a.sh", "source venv/bin/activate\n" + open).has_lost("source="));
  CHECK_FALSE(job("a.sh", "source ./args.sh\n" + run).has_lost("source="));
}

TEST_CASE("machines: files of other tools are told by their name") {
  CHECK(job("Makefile", "NPROC ?= 8\ntrain:\n\t@if true; then \\\n\ttorchrun --nproc_per_node 8 train.py; fi\n").refusal ==
        "the file is a Makefile, which distsetup does not read\n");
  CHECK(job("gpu.Dockerfile", "FROM x\nCMD [\"torchrun\", \"train.py\"]\n").refusal.find("a Dockerfile") != std::string::npos);
  CHECK(job("Snakefile", "rule train:\n    shell: \"torchrun train.py\"\n").refusal.find("a Snakefile") != std::string::npos);
  CHECK(job("make_file.sh", "torchrun --nproc_per_node 8 train.py\n").says.text("hardware.gpus_per_node") == "8");
  CHECK(job("a.sh", "conda env create -f train.yaml\npython setup.py\n").refusal.find("the script starts") == std::string::npos);
  CHECK(job("a.sh", "composer train.py run.yaml max_duration=1ep\n").refusal ==
        "the script starts 'composer', a program whose runs distsetup does not read\n");
}

TEST_CASE("machines: names that torchtitan has not, of forks and of modules of one's own") {
  const std::string model = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n", training = "[training]\nlocal_batch_size = 1\n";
  const FileTold fork = job("t.toml", model + training + "expert_parallel_degree = 2\nloss_function = \"own\"\ndataset = \"c4\"\n");
  CHECK(fork.says.text("mesh.ep") == "2");
  CHECK(fork.has_lost("training.loss_function=own: no plan has it"));
  CHECK(fork.has_lost("training.dataset=c4: a matter of the data"));
  CHECK(job("t.toml", model + training).says.text("mesh.ep") == "1");
  CHECK(
      job("t.toml", "[model]\nname = \"llama3\"\nflavor = \"1B\"\n" + training).has_lost("model.flavor=1B: no model of a known size"));
  const std::string own = training + "[quantization]\nbits = 4\n";
  CHECK(job("t.toml", model + own).has_lost("it stops at unknown keys here"));
  CHECK(job("t.toml", model + "[job]\ncustom_config_module = \"mine\"\n" + own)
            .has_lost(
                "quantization.bits=4: not a key of torchtitan 0.2.2's own: the module of 'job.custom_config_module' may declare it"));
}

TEST_CASE("machines: a file of a ConfigMap that is of no known tool is not missed") {
  const auto manifest = [](const std::string& data) {
    return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  own.yaml: |\n    " + data +
           "\n---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec:\n  parallelism: 2\n  template:\n    spec:\n      "
           "containers:\n"
           "      - name: w\n        image: x\n        command: [torchrun, train.py, --config, /config/own.yaml]\n";
  };
  CHECK(job("a.yaml", manifest("mine: 1"))
            .has_lost("config=/config/own.yaml: 'own.yaml' stands in this file, and no table knows its keys"));
  CHECK(job("a.yaml", manifest("per_device_train_batch_size: 2\n    output_dir: o")).says.text("micro_batch") == "2");
}

TEST_CASE("machines: slime's arguments say that answers are drawn") {
  const FileTold one = job("a.sh", "python3 train.py --advantage-estimator grpo --num-rollout 10 --lr 1e-6 --global-batch-size 8\n");
  CHECK(one.warnings.find("trains by rollouts") != std::string::npos);
}

TEST_CASE("machines: jsrun is called by its name") {
  const std::string lsf = "#!/bin/bash\n#BSUB -nnodes 2\n";
  CHECK(job("a.lsf", lsf + "jsrun -n 12 -g 1 -a 1 -c 7 python train.py --per_device_train_batch_size 2\n").says.is_read_as("jsrun"));
  CHECK(job("a.lsf", lsf + "mpirun -n 12 python train.py --per_device_train_batch_size 2\n").says.is_read_as("mpirun"));
}

TEST_CASE("machines: processes of each machine, whose number only the running script knows", "[read]") {
  const auto told = [](const std::string& before, const std::string& flags) {
    return told_of("a.sh", before + "accelerate launch " + flags + " --mixed_precision bf16 train.py --learning_rate 1e-4\n");
  };
  const auto of_machine = [&told](const std::string& before, const std::string& flags) {
    return told(before, flags).text("hardware.gpus_per_node");
  };
  CHECK(of_machine("", "--num_machines=$WORLD_SIZE --num_processes=$((WORLD_SIZE * 8))") == "8");
  CHECK(of_machine("", "--num_machines $SLURM_JOB_NUM_NODES --num_processes $((4 * $SLURM_JOB_NUM_NODES))") == "4");
  CHECK(of_machine("G=8\nN=$((WORLD_SIZE * G))\n", "--num_machines ${WORLD_SIZE} --num_processes $N") == "8");
  CHECK(of_machine("", "--num_machines=$A --num_processes=$((B * 8))").empty());
  CHECK(of_machine("", "--num_machines=$A --num_processes=$((A + 8))").empty());
  CHECK(of_machine("", "--num_processes=$((A * 8))").empty());
  CHECK(of_machine("", "--num_machines=2 --num_processes=16") == "8");
}
