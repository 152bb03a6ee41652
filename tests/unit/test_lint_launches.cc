// Launches that say two things, or start something else than they ask for: each mistake beside a file in which it is none.
#include <algorithm>
#include <catch2/catch.hpp>

#include "codegen/lint/lint.h"

using namespace distsetup;

namespace {

size_t num_found(const std::vector<LintFile>& files, std::string_view code) {
  const LintReport report = lint_files(files, {});
  return static_cast<size_t>(std::count_if(report.findings.begin(), report.findings.end(),
                                           [code](const LintFinding& one) { return one.diagnostic.code == code; }));
}

struct Pair {
  const char* code;
  std::string path, mistake, near_miss;
};

void check(const std::vector<Pair>& pairs) {
  for (const Pair& one : pairs) {
    INFO(one.code << "\n" << one.mistake << "\n" << one.near_miss);
    CHECK(num_found({{one.path, one.mistake}}, one.code) >= 1);
    CHECK(num_found({{one.path, one.near_miss}}, one.code) == 0);
  }
}

std::string job(const std::string& lines) { return "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=4\n" + lines; }

const std::string kGpus = "#SBATCH --gpus-per-node=4\n", kTrainer = "train.py --per_device_train_batch_size 2\n";

std::string mpi_job(int slots, const std::string& processes) {
  return "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: j}\nspec:\n  slotsPerWorker: " + std::to_string(slots) +
         "\n  mpiReplicaSpecs:\n    Launcher: {replicas: 1, template: {spec: {containers: [{name: l, image: i, command: [mpirun, " +
         processes + ", python, t.py]}]}}}\n    Worker: {replicas: 2, template: {spec: {containers: [{name: w, image: i}]}}}\n";
}

std::string batch_job(const std::string& spec, const std::string& command, const std::string& env = "") {
  return "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {" + spec +
         "template: {spec: {hostIPC: true, restartPolicy: OnFailure, containers: [{name: c, image: i, command: " + command +
         ", env: [" + env + "], resources: {limits: {nvidia.com/gpu: 8}}}]}}}\n";
}

}  // namespace

TEST_CASE("lint launches: two counts of GPUs, and tasks that are no ranks", "[lint]") {
  check({
      {"SL035", "j.sbatch", job("#SBATCH --gres=gpu:2\n" + kGpus), job("#SBATCH --gres=gpu:4\n" + kGpus)},
      {"SL035", "j.sbatch", job("#SBATCH --gres=gpu:4\n#SBATCH --gpus=2\n"), job("#SBATCH --gres=gpu:4\n#SBATCH --gpus=4\n")},
      {"SL035", "j.sbatch", job("#SBATCH --gres=gpu:2\n" + kGpus), job("#SBATCH --gres=gpu:2,shard:4\n" + kGpus)},
      {"SL035", "j.sbatch", job("#SBATCH --gres=gpu:a100:4\n" + kGpus), job("#SBATCH --gres=gpu:4\n" + kGpus)},
      {"SL038", "j.sbatch", job("#SBATCH --gres=gpu:4\nexport CUDA_VISIBLE_DEVICES=0\nsrun -K python t.py\n"),
       job("#SBATCH --gres=gpu:4\nexport CUDA_VISIBLE_DEVICES=0\npython t.py\n")},
      {"SL038", "j.sbatch", job("#SBATCH --gres=gpu:4\nCUDA_VISIBLE_DEVICES=0,1 srun -K python t.py\n"),
       job("#SBATCH --gres=gpu:4\nCUDA_VISIBLE_DEVICES=0,1,2,3 srun -K python t.py\n")},
      {"TR013", "j.sbatch", job("#SBATCH --gres=gpu:4\nexport CUDA_VISIBLE_DEVICES=0\ntorchrun --nproc_per_node=4 t.py\n"),
       job("#SBATCH --gres=gpu:4\nexport CUDA_VISIBLE_DEVICES=0\nsrun -K --ntasks=1 bash -c \"torchrun --nproc_per_node=4 t.py\"\n")},
      {"TR013", "j.sbatch",
       job("#SBATCH --gres=gpu:4\nsrun -K --ntasks=1 bash -c 'CUDA_VISIBLE_DEVICES=0 torchrun --nproc_per_node=4 t.py'\n"),
       job("#SBATCH --gres=gpu:4\nCUDA_VISIBLE_DEVICES=0 srun -K --ntasks=1 torchrun --nproc_per_node=4 t.py\n")},
      {"SL034", "j.sbatch", job("#SBATCH --gres=gpu:2\nexport CUDA_VISIBLE_DEVICES=2,3\npython t.py\n"),
       job("#SBATCH --gres=gpu:2\nexport CUDA_VISIBLE_DEVICES=2,3\nsrun -K python t.py\n")},
      {"SL036", "j.sbatch", job(kGpus + "python " + kTrainer), job(kGpus + "mpirun -np 4 python " + kTrainer)},
      {"SL036", "j.sbatch", job(kGpus + "python train.py\n"),
       job(kGpus + "for i in 0 1 2 3; do CUDA_VISIBLE_DEVICES=$i python train.py & done\nwait\n")},
      {"SL036", "j.sbatch", job(kGpus + "python train.py\n"), job(kGpus + "python train.py --num_gpus 4\n")},
      {"SL036", "j.sbatch", job(kGpus + "python train.py\n"), job("#SBATCH --gpus-per-node=2\npython train.py\n")},
      {"SL037", "j.sbatch", job(kGpus + "srun -K python " + kTrainer), job(kGpus + "srun -K python train.py --lr 1\n")},
      {"SL037", "j.sbatch", job(kGpus + "srun -K python " + kTrainer),
       job(kGpus + "export WORLD_SIZE=$SLURM_NTASKS\nsrun -K bash -c 'RANK=$SLURM_PROCID python train.py'\n")},
      {"SL037", "j.sbatch", job(kGpus + "srun -K python " + kTrainer), job(kGpus + "srun -K --container-image=i python " + kTrainer)},
      {"SL037", "j.sbatch", job(kGpus + "srun -K python " + kTrainer), job(kGpus + "source ranks.sh\nsrun -K python " + kTrainer)},
      {"SL037", "j.sbatch", job(kGpus + "srun -K python " + kTrainer), job(kGpus + "srun -K --ntasks-per-node=1 python " + kTrainer)},
      // A job that works with what SLURM says of it, and one that only prints it.
      {"SL037", "j.sbatch", job(kGpus + "echo on $SLURM_JOB_NODELIST\nsrun -K python " + kTrainer),
       job(kGpus + "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\nsrun -K python " + kTrainer)},
      {"SL037", "j.sbatch", job(kGpus + "# uses SLURM_PROCID\nsrun -K python " + kTrainer),
       job(kGpus + "srun -K bash -c 'python train.py --per_device_train_batch_size 2 --id $SLURM_PROCID'\n")},
      // Its own name for GPUs is said in a comment, or used.
      {"SL018", "j.sbatch", job("#SBATCH --gres=gpu:4\necho $SLURM_GPUS_PER_NODE\n"),
       job("#SBATCH --gres=gpu:4\n# SLURM_GPUS_PER_NODE is set by --gpus-per-node alone, $SLURM_GPUS_PER_NODE is empty\n")},
  });
}

TEST_CASE("lint launches: a program that takes its rank from SLURM is looked at where it is", "[lint]") {
  const std::string text = job(kGpus + "srun -K python " + kTrainer);
  const auto num_found_beside = [&text](std::string (*program)(const std::string&)) {
    LintContext context;
    context.text_of_program = program;
    const LintReport report = lint_files({{"jobs/j.sbatch", text}}, context);
    return std::count_if(report.findings.begin(), report.findings.end(),
                         [](const LintFinding& one) { return one.diagnostic.code == "SL037"; });
  };
  CHECK(num_found_beside(nullptr) == 1);
  CHECK(num_found_beside([](const std::string& path) {
          return std::string(path == "jobs/train.py" ? "rank = int(os.environ['SLURM_PROCID'])\n" : "");
        }) == 0);
  CHECK(num_found_beside([](const std::string& path) { return std::string(path == "jobs/train.py" ? "trainer.train()\n" : ""); }) ==
        1);
}

TEST_CASE("lint launches: one task has no others, and what an operator or a caller says is no contradiction", "[lint]") {
  const std::string head = "#!/bin/bash\n#SBATCH --time=1:00:00\n#SBATCH --gres=gpu:1\n";
  const auto train_job = [](const std::string& options) {
    return "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: t}\nspec:\n  trainer:\n    numNodes: 2\n"
           "    numProcPerNode: 4\n    command: [bash, -c, \"torchrun " +
           options + " t.py\"]\n";
  };
  const auto job_set = [](const std::string& strategy) {
    return "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: s}\nspec:\n  failurePolicy: {maxRestarts: 3" +
           strategy +
           "}\n  replicatedJobs: [{name: w, replicas: 1, template: {spec: {backoffLimit: 9, template: {spec: {containers: " +
           "[{name: c, image: i}]}}}}}]\n";
  };
  check({
      {"SL009", "j.sbatch", head + "#SBATCH --nodes=2\nsrun python t.py\n", head + "srun python t.py\n"},
      {"SL009", "j.sbatch", head + "#SBATCH --nodelist=a,b\nsrun python t.py\n", head + "#SBATCH --ntasks=1\nsrun python t.py\n"},
      {"K8S002", "k.yaml", train_job("--nnodes=1"), train_job("")},
      {"K8S002", "k.yaml", train_job("--nnodes=1"), train_job("--nnodes=${PET_NNODES:-2} --node_rank=${PET_NODE_RANK:-0}")},
      {"K8S006", "k.yaml", job_set(""), job_set(", restartStrategy: InPlaceRestart")},
      {"TR002", "t.sh", "torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=h:1 --rdzv_id=7 t.py\n",
       "torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=h:1 --rdzv_id=\"${SLURM_ARRAY_TASK_ID:-0}\" t.py\n"},
      {"TT001", "t.toml", "[job]\ndump_folder = \"o\"\n[training]\ndtype = \"bf16\"\n",
       "[job]\ndump_folder = \"o\"\n[training]\ndtype = \"bfloat16\"\n"},
      {"ENV009", "e.sh", "export CUDA_VISIBEL_DEVICES=0\ntorchrun --nproc_per_node=1 t.py\n",
       "export MKL_NUM_THREADS=4\ntorchrun --nproc_per_node=1 t.py\n"},
  });
}

TEST_CASE("lint launches: where nodes and pods meet, and where a batch script is", "[lint]") {
  const std::string head = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\nH=$(scontrol show hostnames | head -n 1)\n";
  const auto run = [&](const std::string& quote, const std::string& name) {
    return head + "srun -K bash -c " + quote + "torchrun --nnodes=2 --nproc_per_node=1 --rdzv_backend=c10d --rdzv_endpoint=" + name +
           ":1 t.py" + quote + "\n";
  };
  const auto by_hand = [](const std::string& nnodes, const std::string& name) {
    return "torchrun --nnodes " + nnodes + " --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=" + name + ":1 t.py\n";
  };
  const auto job_set = [](const std::string& options) {
    return "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: s}\nspec:\n  replicatedJobs: [{name: w, replicas: 1, "
           "template: {spec: {parallelism: 4, completions: 4, template: {spec: {containers: [{name: c, image: i, command: [torchrun, "
           "--nproc_per_node=1, " +
           options + "t.py]}]}}}}}]\n";
  };
  const std::string task = "resources: {use_spot: true, accelerators: H100:1}\nrun: python t.py\nfile_mounts:\n  /out: ";
  check({
      {"TR015", "j.sbatch", run("'", "$HOSTNAME"), run("\"", "$HOSTNAME")},
      {"TR015", "j.sbatch", run("\"", "\\$(hostname)"), run("\"", "$(hostname)")},
      {"TR015", "j.sbatch", run("'", "$HOSTNAME"), run("'", "$H")},
      {"TR015", "j.sbatch", run("'", "$HOSTNAME"),
       "#!/bin/bash\n#SBATCH --nodes=1\nsrun bash -c 'torchrun --nproc_per_node=1 --rdzv_backend=c10d --rdzv_endpoint=$HOSTNAME:1 "
       "t.py'\n"},
      // A file that is started on every node, whose number the caller says.
      {"TR015", "run.sh", by_hand("$NNODES", "$HOSTNAME"), by_hand("${NNODES:-1}", "$HOSTNAME")},
      {"TR015", "run.sh", by_hand("$NNODES", "$(hostname -i)"), by_hand("1", "$(hostname -i)")},
      {"TR015", "run.sh", by_hand("2", "$HOSTNAME"), by_hand("2", "$MASTER")},
      {"TR015", "run.sh", by_hand("$NNODES", "$HOSTNAME"), "#!/bin/bash\nHOSTNAME=node0\n" + by_hand("$NNODES", "$HOSTNAME")},
      {"TR015", "run.sh", by_hand("$NNODES", "$HOSTNAME"), "#!/bin/bash\n#SBATCH --nodes=2\n" + by_hand("$SLURM_NNODES", "$HOSTNAME")},
      {"TR009", "k.yaml", job_set("--master_addr=s-w-0-0.s, "), job_set("--nnodes=4, --node_rank=$(N), --master_addr=s-w-0-0.s, ")},
      {"TR009", "k.yaml", job_set("--master_addr=s-w-0-0.s, "), job_set("")},
      {"SL040", "j.sbatch", head + "cd \"$(dirname \"${BASH_SOURCE[0]}\")/..\"\npython t.py\n",
       head + "cd \"${SLURM_SUBMIT_DIR:-$(dirname \"$0\")}\"\npython t.py\n"},
      {"SL040", "j.sbatch", head + "source \"$(dirname \"$0\")/e.sh\"\npython t.py\n",
       head + "mkdir -p \"$(dirname \"$OUT\")\"\npython t.py\n"},
      {"SKY001", "t.yaml", task + "~/data\n", task + "{name: b, store: gcs, mode: MOUNT}\n"},
  });
}

TEST_CASE("lint launches: torchtitan's own word is offered, and said once", "[lint]") {
  const LintReport report =
      lint_files({{"t.toml", "[job]\ndump_folder = \"o\"\n[training]\ndtype = \"bf16\"\nmixed_precision_reduce = \"bf16\"\n"}}, {});
  std::string helps;
  for (const LintFinding& one : report.findings) helps += one.diagnostic.code + ":" + one.diagnostic.help + ";";
  CHECK(helps == "TT001:write bfloat16;TT001:write float32;");
}

TEST_CASE("lint launches: a TrainJob's flags that repeat the operator are notes", "[lint]") {
  const std::string text =
      "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: t}\nspec:\n  trainer:\n"
      "    numNodes: 2\n    command: [torchrun, --nnodes=2, t.py]\n";
  const LintReport report = lint_files({{"k.yaml", text}}, {});
  const auto is_it = [](const LintFinding& one) { return one.diagnostic.code == "K8S002"; };
  const auto it = std::find_if(report.findings.begin(), report.findings.end(), is_it);
  REQUIRE(it != report.findings.end());
  CHECK(it->diagnostic.severity == Severity::kNote);
  // A runtime of others' sets no PET_ variables.
  const std::string one_node =
      "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: t}\nspec:\n"
      "  trainer: {numNodes: 2, command: [torchrun, --nnodes=1, t.py]}\n  runtimeRef: {name: ";
  const auto severity = [&](const std::string& runtime) {
    const LintReport said = lint_files({{"k.yaml", one_node + runtime + "}\n"}}, {});
    const auto found = std::find_if(said.findings.begin(), said.findings.end(), is_it);
    return found == said.findings.end() ? Severity::kNote : found->diagnostic.severity;
  };
  CHECK(severity("torch-distributed") == Severity::kError);
  CHECK(severity("mpi-distributed") == Severity::kWarning);
  // Two jobs in one file: each is held against its own numbers.
  std::string other = text;
  for (size_t at = other.find('2'); at != std::string::npos; at = other.find('2', at + 1)) other[at] = '3';
  for (const LintFinding& one : lint_files({{"k.yaml", text + "---\n" + other}}, {}).findings) {
    if (is_it(one)) CHECK(one.diagnostic.severity == Severity::kNote);
  }
}

TEST_CASE("lint launches: pipes whose status somebody looks at", "[lint]") {
  const std::string run = "torchrun --standalone --nproc_per_node=1 t.py ";
  check({
      {"SH003", "r.sh", "until " + run + "| tee log; do sleep 1; done\n",
       "set -o pipefail\nuntil " + run + "| tee log; do sleep 1; done\n"},
      {"SH003", "r.sh", "if ! " + run + "2>&1 | tee log; then exit 1; fi\n", run + "2>&1 | tee log\nif [ -f log ]; then exit 1; fi\n"},
      {"SH003", "r.sh", run + "| tee log\nif [ $? -ne 0 ]; then exit 1; fi\n",
       run + "| tee log\nif [ ${PIPESTATUS[0]} -ne 0 ]; then exit 1; fi\n"},
      {"SH003", "r.sh", run + "| tee log || exit 1\n", run + "> log || exit 1\n"},
      {"SH003", "r.sh", "while ! " + run + "| tee log; do :; done\n", "while read -r x; do " + run + "| tee log; done < list\n"},
      {"SH003", "r.sh", "for i in 1 2 3; do " + run + "| tee log && break; done\n",
       "for i in 1 2 3; do " + run + "| tee log && echo done; done\n"},
      {"K8S010", "k.yaml", batch_job("", "[bash, -c, \"python t.py | tee log\"]"),
       batch_job("backoffLimit: 0, ", "[bash, -c, \"python t.py | tee log\"]")},
      {"K8S010", "k.yaml", batch_job("", "[bash, -c, \"python t.py | tee log\"]"),
       batch_job("", "[bash, -o, pipefail, -c, \"set -o pipefail; python t.py | tee log\"]")},
      {"K8S010", "k.yaml", batch_job("", "[bash, -c, \"python t.py | tee log\"]"),
       batch_job("", "[bash, -c, \"python t.py | tee log; touch done\"]")},
      {"K8S011", "k.yaml", mpi_job(1, "-np, \"16\""), mpi_job(8, "-np, \"16\"")},
      {"K8S011", "k.yaml", mpi_job(1, "-np, \"16\""), mpi_job(1, "-np, \"16\", --oversubscribe")},
  });
  CHECK(num_found({{"j.sbatch", job(kGpus + "srun -K python t.py | tee log\nexit ${PIPESTATUS[0]}\n")}}, "SL010") == 0);
  // A wrong number that is printed, and one that the script goes by.
  const auto severity = [&run](const std::string& next) {
    for (const LintFinding& one : lint_files({{"r.sh", run + "| tee log\n" + next}}, {}).findings) {
      if (one.diagnostic.code == "SH003") return one.diagnostic.severity;
    }
    return Severity::kNote;
  };
  CHECK(severity("echo \"ended with $?\"\n") == Severity::kWarning);
  CHECK(severity("STATUS=$?\n") == Severity::kError);
}

TEST_CASE("lint launches: the same rank on every node, and programs that start their processes themselves", "[lint]") {
  const std::string run = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=4\nsrun -K ";
  const std::string torchrun = "torchrun --nnodes=2 --nproc_per_node=4 --master_addr=$HEAD --node_rank=";
  check({{"TR010", "j.sbatch", run + torchrun + "0 t.py\n", run + "bash -c '" + torchrun + "$SLURM_NODEID t.py'\n"},
         {"TR010", "j.sbatch", run + torchrun + "0 t.py\n", run + "--nodes=1 -w $HEAD " + torchrun + "0 t.py &\nwait\n"},
         {"ENV006", "r.sh", "export GLOO_SOCKET_IFNAME=^lo\npython t.py\n", "export GLOO_SOCKET_IFNAME=eth0,eth1\npython t.py\n"},
         {"PLAN003", "m.sh", "torchrun --nproc_per_node 1 pretrain_gpt.py --num-layers 0 --hidden-size 64 --num-attention-heads 4\n",
          "torchrun --nproc_per_node 1 evaluate.py --load c --num-layers -1 --hidden-size -1 --num-attention-heads -1\n"}});
  const auto job = [](const std::string& flags) {
    const std::string pod = "template: {spec: {hostIPC: true, containers: [{name: pytorch, image: i, command: [python, t.py" + flags +
                            "], resources: {limits: {nvidia.com/gpu: 4}}}]}}";
    return "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: j}\nspec:\n  pytorchReplicaSpecs:\n    Master: {replicas: "
           "1, " +
           pod + "}\n";
  };
  check({{"K8S004", "k.yaml", job(""), job(", --nproc_per_node=4")}});
}

TEST_CASE("lint launches: a container's variables are those of its command", "[lint]") {
  const auto with = [](const std::string& command, const std::string& nodes) {
    return batch_job("parallelism: 2, ", command, "{name: NODES, value: \"" + nodes + "\"}");
  };
  const std::string shell = "[bash, -c, \"torchrun --nnodes=$NODES --nproc_per_node=8 t.py\"]";
  const std::string words = "[torchrun, --nnodes=$(NODES), --nproc_per_node=8, t.py]";
  check({{"TR010", "k.yaml", with(shell, "2"), with(shell, "1")},
         {"TR010", "k.yaml", with(words, "2"), with(words, "1")},
         {"TR009", "k.yaml", with(words, "4"), with(words, "2")}});
  // Another container's variables are none of this one's.
  const std::string other = batch_job("parallelism: 2, ", shell) + "---\n" + with("[sleep, inf]", "2");
  CHECK(num_found({{"k.yaml", other}}, "TR010") == 0);
}

TEST_CASE("lint launches: the precision of a script against that of its launcher", "[lint]") {
  const LintFile config{"conf/a.yaml", "distributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 8\nmixed_precision: bf16\n"};
  const auto found = [&config](const std::string& line, const LintFile& more = {"x.sh", "true\n"}) {
    return num_found({config, {"r.sh", line}, more}, "ACC017");
  };
  CHECK(found("accelerate launch --config_file conf/a.yaml train.py --fp16\n") == 1);
  CHECK(found("accelerate launch --config_file conf/a.yaml train.py --mixed_precision=fp16\n") == 1);
  CHECK(found("accelerate launch --mixed_precision fp16 train.py --bf16 True\n") == 1);
  CHECK(found("accelerate launch --config_file conf/a.yaml train.py --bf16\n") == 0);
  CHECK(found("accelerate launch --config_file conf/a.yaml train.py --fp16 False\n") == 0);
  CHECK(found("accelerate launch --config_file other.yaml train.py --fp16\n") == 0);
  CHECK(found("accelerate launch --config_file conf/a.yaml --mixed_precision fp16 train.py --fp16\n") == 0);
  const LintFile script{"c/t.yaml", "output_dir: o\nper_device_train_batch_size: 1\nfp16: true\n"};
  CHECK(found("accelerate launch --config_file conf/a.yaml train.py c/t.yaml\n", script) == 1);
  CHECK(found("accelerate launch --config_file conf/a.yaml train.py c/other.yaml\n", script) == 0);
}

TEST_CASE("lint launches: keys of accelerate's in the Trainer's fsdp_config", "[lint]") {
  const std::string head = "output_dir: o\nper_device_train_batch_size: 1\nfsdp: true\nfsdp_config: ";
  check({{"FSDP024", "t.yaml", head + "{version: 2, offload_params: true}\n", head + "{version: 2, offload_params: false}\n"},
         {"FSDP024", "t.yaml", head + "{version: 1, fsdp_sharding_strategy: HYBRID_SHARD}\n",
          head + "{version: 1, fsdp_sharding_strategy: FULL_SHARD}\n"},
         {"FSDP024", "t.yaml", head + "{version: 1, sharding_strategy: SHARD_GRAD_OP}\n",
          head + "{version: 1, reshard_after_forward: shard_grad_op}\n"}});
}

TEST_CASE("lint launches: a rank that is the same for all, and ranks that meet as they arrive", "[lint]") {
  const std::string two = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n", one = "#!/bin/bash\n#SBATCH --nodes=1\n";
  const std::string start = "srun bash -c \"torchrun --nnodes 2 --nproc_per_node 8 --node_rank $SLURM_PROCID ";
  const auto severity = [](const std::string& text) {
    for (const LintFinding& each : lint_files({{"j.sbatch", text}}, {}).findings)
      if (each.diagnostic.code == "SL003") return static_cast<int>(each.diagnostic.severity);
    return -1;
  };
  const int is_error = static_cast<int>(Severity::kError), is_note = static_cast<int>(Severity::kNote);
  CHECK(severity(two + start + "--master_addr n0 t.py\"\n") == is_error);
  CHECK(severity(two + start + "--rdzv-backend etcd-v2 --rdzv-endpoint e:2379 t.py\"\n") == is_note);
  CHECK(severity(one + "#SBATCH --ntasks-per-node=1\n" + start + "--master_addr n0 t.py\"\n") == -1);
  // It counts the job's nodes: it is meant for more of them.
  const std::string each = "srun bash -c \"torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 --node_rank ";
  CHECK(severity(one + "#SBATCH --ntasks-per-node=1\n" + each + "$SLURM_PROCID --master_addr n0 t.py\"\n") == is_note);
  CHECK(severity(one + "#SBATCH --ntasks-per-node=1\n" + each + "0 --master_addr n0 t.py >$SLURM_PROCID.log\"\n") == -1);
  const std::string run = "torchrun --nnodes=2 --nproc_per_node=8 --master_addr=10.0.0.1 ";
  check({{"TR014", "r.sh", run + "--node_rank=0 t.py\n", run + "--node_rank=$1 t.py\n"},
         {"TR014", "r.sh", run + "--node_rank=1 t.py\n", "NODE_RANK=${NODE_RANK:-0}\n" + run + "--node_rank=$NODE_RANK t.py\n"},
         {"TR014", "r.sh", run + "--node_rank=0 t.py\n", run + "--node_rank=0 t.py &\n" + run + "--node_rank=1 t.py\n"},
         {"TR014", "r.sh", run + "--node_rank=0 t.py\n", "torchrun --nnodes=1 --nproc_per_node=8 --node_rank=0 t.py\n"}});
}

TEST_CASE("lint launches: tune run is torchrun where it has its options", "[lint]") {
  const std::string two = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n";
  const std::string recipe = "full_finetune_distributed --config c.yaml lr=1e-5\n";
  check({{"TR004", "r.sh", "tune run --nproc_per_node 8 " + recipe, "tune run full_finetune_single_device --config c.yaml\n"},
         {"SL025", "j.sbatch", two + "tune run --nnodes 2 --nproc_per_node 8 " + recipe,
          two + "srun tune run --nnodes 2 --nproc_per_node 8 " + recipe},
         {"TR011", "r.sh", "tune run --nproc_per_nod 8 --nnodez 2 " + recipe, "tune run --nproc-per-node 8 " + recipe},
         {"TR013", "r.sh", "CUDA_VISIBLE_DEVICES=0,1 tune run --nproc_per_node 4 " + recipe,
          "CUDA_VISIBLE_DEVICES=0,1 tune download m --output-dir o\n"}});
}

TEST_CASE("lint launches: accelerate's processes against the machines that a file has", "[lint]") {
  const std::string two = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=4\n";
  const std::string start = "srun bash -c 'accelerate launch --num_machines 2 --machine_rank $SLURM_NODEID --main_process_ip n0 ";
  const auto pods = [](const std::string& processes) {
    return batch_job("parallelism: 2, ", "[accelerate, launch, --num_machines, \"2\", --num_processes, \"" + processes + "\", t.py]");
  };
  check({{"ACC018", "j.sbatch", two + start + "--num_processes 16 t.py'\n", two + start + "--num_processes 8 t.py'\n"},
         {"ACC018", "k.yaml", pods("64"), pods("2")},
         {"ACC018", "j.sbatch", two + start + "--num_processes 16 t.py'\n", two + start + "--num_processes $WORLD_SIZE t.py'\n"}});
}

TEST_CASE("lint launches: one program on the first of several nodes", "[lint]") {
  const std::string two = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n";
  check({{"SL026", "j.sbatch", two + "python train.py --num_nodes 2\n", two + "srun python train.py --num_nodes 2\n"},
         {"SL026", "j.sbatch", two + "python -u train.py\n", two + "ray start --head\npython -u train.py\n"},
         {"SL026", "j.sbatch", two + "python train.py\n",
          "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=4\npython train.py\n"}});
}

TEST_CASE("lint launches: names of nodes that quotes keep together", "[lint]") {
  const std::string two = "#!/bin/bash\n#SBATCH --nodes=2\nnames=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\")\n";
  const std::string use = "srun -w \"${all[1]}\" hostname\n";
  check({{"SL039", "j.sbatch", two + "all=(\"$names\")\n" + use, two + "all=($names)\n" + use},
         {"SL039", "j.sbatch", two + "all=(\"$names\")\n" + use, two + "all=(\"$names\")\necho \"${all[@]}\"\n"},
         {"SL039", "j.sbatch", two + "all=(\"$(scontrol show hostnames)\")\n" + use,
          two + "all=(\"$(scontrol show hostnames | head -n 1)\")\n" + use}});
}

TEST_CASE("lint launches: variables that nobody reads", "[lint]") {
  const std::string run = "python t.py\n";
  check({{"ENV009", "r.sh", "CUDA_VISIBLE_DEVICE=0 " + run, "CUDA_VISIBLE_DEVICES=0 " + run},
         {"ENV009", "r.sh", "export OMP_NUM_THREAD=8\n" + run,
          "export OMP_NUM_THREAD=8\nexport OMP_NUM_THREADS=$OMP_NUM_THREAD\n" + run},
         {"ENV009", "r.sh", "export PYTORCH_ALLOC_CON=a:b\n" + run, "export HIP_VISIBLE_DEVICES=0 ROCR_VISIBLE_DEVICES=0\n" + run},
         {"ENV002", "r.sh", "export NCCL_IB_DISABLE=1\n" + run, "export FI_PROVIDER=\"efa\"\nexport NCCL_IB_DISABLE=1\n" + run},
         {"ENV004", "r.sh", "export NCCL_SHIMNETS=1\n" + run, "export NCCL_SHIMNET_GUEST_CONFIG=1\n" + run}});
  const auto severity = [](const std::string& text) {
    for (const LintFinding& one : lint_files({{"r.sh", text}}, {}).findings)
      if (one.diagnostic.code == "ENV004") return static_cast<int>(one.diagnostic.severity);
    return -1;
  };
  CHECK(severity("export NCCL_OTHER_THING=1\npython t.py\n") == static_cast<int>(Severity::kWarning));
  CHECK(severity("export NCCL_FASTRAK_IFNAME=eth0 NCCL_OTHER_THING=1\npython t.py\n") == static_cast<int>(Severity::kNote));
}

TEST_CASE("lint launches: what Kubernetes puts in by itself", "[lint]") {
  const auto pod = [](const std::string& command) {
    return "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i, command: " + command + "}]}\n";
  };
  check(
      {{"K8S012", "k.yaml", pod("[torchrun, \"--nnodes=$NNODES\", t.py]"), pod("[torchrun, \"--nnodes=$(NNODES)\", t.py]")},
       {"K8S012", "k.yaml", pod("[python, t.py, \"${LR}\"]"), pod("[bash, -c, \"python t.py ${LR}\"]")},
       {"K8S012", "k.yaml", pod("[python, t.py, --lr=$LR]"), pod("[python, t.py, --cost=$$5, --name=a$, \"--lr=${trial.lr}\"]")},
       {"K8S005", "k.yaml", batch_job("parallelism: 2, ", "[sleep, inf]"),
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {parallelism: 2, template: {spec: {containers: [{name: c, image: "
        "busybox, command: [sleep, inf]}]}}}\n"}});
}

TEST_CASE("lint launches: defaults that differ by tool and release", "[lint]") {
  const std::string trainer = "output_dir: o\nper_device_train_batch_size: 1\n";
  check({{"HF004", "t.yaml", trainer + "gradient_checkpointing: true\n",
          "model_name_or_path: m\nstage: sft\nfinetuning_type: lora\ntemplate: qwen\ndataset: d\ngradient_checkpointing: true\n"},
         {"FSDP008", "t.yaml", trainer + "fsdp: hybrid_shard auto_wrap\n",
          trainer + "fsdp: hybrid_shard auto_wrap\nfsdp_config: {version: 1}\n"}});
}

TEST_CASE("lint launches: defaults of what the scheduler sets count for nothing", "[lint]") {
  const std::string job = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n";
  const auto start = [](const std::string& count) { return "N=" + count + "\nsrun torchrun --nnodes=$N --nproc_per_node=8 t.py\n"; };
  check({{"TR009", "j.sbatch", job + start("1"), job + start("${SLURM_NNODES:-1}")},
         {"TR009", "j.sbatch", job + start("${OTHER:-1}"), job + start("${SLURM_JOB_NUM_NODES:-${OTHER:-1}}")},
         {"ENV002", "r.sh", "export NCCL_IB_DISABLE=1\npython t.py\n",
          "export NCCL_IB_DISABLE=1 FI_CXI_RDZV_THRESHOLD=0\npython t.py\n"},
         {"SH002", "r.sh", "torchrun --nproc_per_node=8 \\ # in all\n--master_addr=\"$HEAD\" t.py\n",
          "torchrun --nproc_per_node=8 \\\n--master_addr=\"$HEAD\" t.py # in all\n"}});
}

TEST_CASE("lint launches: variables for programs that stay the script's own", "[lint]") {
  const std::string run = "export OMP_NUM_THREADS=8\ntorchrun --nproc_per_node=8 t.py\n";
  check({
      {"ENV012", "r.sh", "TOKENIZERS_PARALLELISM=false\n" + run, "export TOKENIZERS_PARALLELISM=false\n" + run},
      {"ENV012", "r.sh", "NCCL_DEBUG=WARN\n" + run, "NCCL_DEBUG=WARN\nexport NCCL_DEBUG\n" + run},
      {"ENV012", "r.sh", "NCCL_DEBUG=WARN\n" + run, "NCCL_DEBUG=WARN \\\n" + run.substr(run.find("torchrun"))},
      {"ENV012", "r.sh", "NCCL_DEBUG=WARN\n" + run, "set -a\nNCCL_DEBUG=WARN\n" + run},
      {"ENV012", "r.sh", "NCCL_DEBUG=WARN\n" + run, "NCCL_DEBUG=WARN\nexport A=$NCCL_DEBUG\n" + run},
      {"ENV012", "r.sh", "NCCL_DEBUG=WARN\n" + run, run + "NCCL_DEBUG=WARN\n"},
      {"ENV012", "r.sh", "NCCL_DEBUG=WARN\n" + run, "NPROC=8\nNCCL_VERSION=2.26\n" + run},
  });
}

TEST_CASE("lint launches: what LLaMA-Factory takes for quantizing", "[lint]") {
  const std::string file = "stage: sft\ndo_train: true\nfinetuning_type: lora\ntemplate: t\n";
  check({
      {"LF004", "f.yaml", file + "quantization_bit: 4\nquantization_method: bitsandbytes\n",
       file + "quantization_bit: 4\nquantization_method: hqq\n"},
      {"LF004", "f.yaml", file + "quantization_bit: 4\nquantization_method: awq\n", file + "quantization_method: bitsandbytes\n"},
  });
}

TEST_CASE("launches: a flag of one branch and a flag of the other are not given together", "[lint]") {
  const std::string branch =
      "if [ \"$NNODES\" = 1 ]; then\n  D=\"--standalone\"\nelse\n  D=\"--master_port=29500 --node_rank=$R\"\nfi\n";
  const std::string run = "torchrun $D --nproc_per_node=4 train.py\n";
  CHECK(num_found({{"run.sh", branch + run}}, "TR001") == 0);
  CHECK(num_found({{"run.sh", "D=\"--standalone --master_port=29500\"\n" + run}}, "TR001") == 1);
}
