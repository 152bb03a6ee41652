// Rules that files of other people taught: each with what it must find and a near miss that must stay silent. The examples of the rule
// tables are checked by test_lint_rules.cc.
#include <algorithm>
#include <catch2/catch.hpp>

#include "codegen/lint/lint.h"

using namespace distsetup;

namespace {

enum class Found { kNothing, kNote, kWarning, kError };

struct Case {
  std::string code;
  Found found = Found::kNothing;
  std::string path, text;
};

Found strongest(const LintReport& report, std::string_view code) {
  Found most = Found::kNothing;
  for (const LintFinding& one : report.findings) {
    if (one.diagnostic.code != code) continue;
    const Severity severity = one.diagnostic.severity;
    most = std::max(most, severity == Severity::kError     ? Found::kError
                          : severity == Severity::kWarning ? Found::kWarning
                                                           : Found::kNote);
  }
  return most;
}

size_t num_of(const LintReport& report, std::string_view code) {
  size_t num = 0;
  for (const LintFinding& one : report.findings) num += one.diagnostic.code == code ? 1 : 0;
  return num;
}

void check(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    const LintReport report = lint_files({{one.path, one.text}}, {});
    Diagnostics all = report.unreadable;
    for (const LintFinding& finding : report.findings) all.push_back(finding.diagnostic);
    INFO(one.code << "\n" << one.text << "\n" << format_diagnostics(all));
    CHECK(strongest(report, one.code) == one.found);
  }
}

// A batch script of these directives and lines.
std::string job(const std::string& directives, const std::string& lines) {
  std::string out = "#!/bin/bash\n";
  for (size_t at = 0; at < directives.size();) {
    const size_t end = std::min(directives.find(' ', at), directives.size());
    out += "#SBATCH " + directives.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return out + lines + "\n";
}

Case in_job(std::string code, Found found, const std::string& directives, const std::string& lines) {
  return {std::move(code), found, "job.sbatch", job(directives, lines)};
}

const std::string kTwo = "--nodes=2 --ntasks-per-node=1 --gpus-per-node=8";

}  // namespace

TEST_CASE("lint jobs: launchers that run on the first node only", "[lint]") {
  const std::string run =
      "torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 --rdzv_id=$SLURM_JOB_ID t.py";
  const std::string acc = "accelerate launch --num_machines 2 --num_processes 16 --machine_rank 0 --main_process_ip $HEAD t.py";
  check({in_job("SL025", Found::kError, kTwo, run),
         in_job("SL025", Found::kError, kTwo,
                "NNODES=$SLURM_NNODES\npython -m torch.distributed.launch --nnodes=$NNODES --nproc_per_node=8 t.py"),
         in_job("SL025", Found::kError, kTwo, acc),
         in_job("SL025", Found::kNothing, kTwo, "srun " + run),
         in_job("SL025", Found::kError, kTwo, "apptainer exec --nv $IMAGE " + run),
         in_job("SL025", Found::kError, kTwo, "bash -c \"" + acc + "\""),
         in_job("SL025", Found::kError, kTwo, "LAUNCHER=\"torchrun --nnodes=2 --nproc_per_node=8\"\n$LAUNCHER t.py"),
         in_job("SL025", Found::kNothing, kTwo, "srun apptainer exec --nv $IMAGE bash -c \"" + acc + "\""),
         in_job("SL025", Found::kNothing, kTwo, "$RUN_EVERYWHERE " + run),
         in_job("SL025", Found::kNothing, kTwo, "srun bash -c '" + acc + "'"),
         in_job("SL025", Found::kNothing, kTwo, "torchrun --standalone --nproc_per_node=8 t.py"),
         in_job("SL025", Found::kNothing, kTwo, "for n in $HOSTS; do ssh $n " + run + " & done\nwait"),
         in_job("SL025", Found::kNothing, kTwo, "mpirun -np 2 " + run),
         in_job("SL025", Found::kError, kTwo, "# Usage: sbatch a.sh, or ssh to a node\n" + run),
         in_job("SL025", Found::kNothing, kTwo, "for n in $(cat hosts); do ssh $n date; done\n" + run),
         in_job("SL025", Found::kNothing, "--nodes=1", "torchrun --nnodes=$SLURM_NNODES --nproc_per_node=8 t.py"),
         in_job("SL026", Found::kError, kTwo, "deepspeed t.py"),
         in_job("SL026", Found::kNothing, kTwo, "deepspeed --hostfile hosts t.py"),
         in_job("SL026", Found::kNothing, kTwo,
                "if [ $SLURM_NNODES -gt 1 ]; then\n  deepspeed --hostfile hosts t.py\nelse\n  deepspeed t.py\nfi"),
         in_job("SL026", Found::kError, kTwo, "if [ -n \"$A\" ]; then\n  deepspeed t.py\nelse\n  deepspeed t.py --b\nfi"),
         in_job("SL026", Found::kNothing, "--nodes=1", "deepspeed t.py"),
         in_job("SL004", Found::kError, kTwo, "srun deepspeed t.py"),
         in_job("SL004", Found::kNothing, "--nodes=1 --ntasks-per-node=1", "srun deepspeed t.py")});
}

TEST_CASE("lint jobs: addresses of the rendezvous", "[lint]") {
  const std::string head = "torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_id=$J --rdzv_endpoint=";
  check({in_job("TR012", Found::kError, kTwo, "srun " + head + "localhost:29500 t.py"),
         in_job("TR012", Found::kError, kTwo, "srun bash -c '" + head + "$HOSTNAME:29500 t.py'"),
         in_job("TR012", Found::kError, kTwo, "srun bash -lc 'torchrun --nnodes=2 --master_addr $(hostname -s) t.py'"),
         in_job("TR012", Found::kNothing, kTwo, "srun bash -c \"" + head + "$HOSTNAME:29500 t.py\""),
         in_job("TR012", Found::kNothing, "--nodes=1", "srun bash -c '" + head + "$HOSTNAME:29500 t.py'"),
         in_job("TR012", Found::kNothing, kTwo, "srun " + head + "$(hostname):29500 t.py"),
         {"TR012", Found::kWarning, "run.sh", head + "localhost:29500 t.py\n"},
         {"TR012", Found::kWarning, "run.sh", "torchrun --nnodes=2 --nproc_per_node=8 --node_rank=$R --master_addr=127.0.0.1 t.py\n"},
         {"TR012", Found::kNothing, "run.sh", head + "$HEAD:29500 t.py\n"},
         {"TR012", Found::kNothing, "run.sh", "HEAD=${HEAD:-localhost}\n" + head + "$HEAD:29500 t.py\n"},
         {"TR012", Found::kNothing, "run.sh", "N=${N:-2}\ntorchrun --nnodes=$N --nproc_per_node=8 --master_addr=localhost t.py\n"},
         {"TR012", Found::kNothing, "run.sh",
          "torchrun --nnodes=2 --nproc_per_node=1 --node_rank=0 --master_addr=localhost t.py &\n"
          "torchrun --nnodes=2 --nproc_per_node=1 --node_rank=1 --master_addr=localhost t.py\n"},
         in_job("SL027", Found::kError, kTwo,
                "srun torchrun --nnodes=2 --nproc_per_node=8 --node_rank=0 --master_addr=$MASTER_ADDR t.py"),
         in_job("SL027", Found::kNothing, kTwo,
                "export MASTER_ADDR=$(hostname)\nsrun torchrun --nnodes=2 --nproc_per_node=8 --node_rank=0 --master_addr=$MASTER_ADDR "
                "t.py"),
         in_job("SL027", Found::kNothing, kTwo,
                ". ./env.sh\nsrun torchrun --nnodes=2 --nproc_per_node=8 --node_rank=0 --master_addr=$MASTER_ADDR t.py"),
         in_job("SL003", Found::kError, kTwo,
                "NODE_RANK=$SLURM_PROCID\nsrun torchrun --nnodes=2 --node_rank=$NODE_RANK --master_addr=n0 t.py"),
         in_job("SL003", Found::kNothing, kTwo, "NODE_RANK=$SLURM_PROCID\necho $NODE_RANK\nsrun python t.py"),
         in_job("SL003", Found::kNote, kTwo,
                "srun bash -c \"torchrun --nnodes=2 --node_rank=$SLURM_NODEID --rdzv_backend=c10d --rdzv_endpoint=n0:1 t.py\""),
         in_job("SL003", Found::kNothing, kTwo, "export MASTER_ADDR=$SLURMD_NODENAME\nsrun python t.py"),
         {"TR001", Found::kWarning, "run.sh", "torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --master_addr=$H t.py\n"},
         in_job("TR001", Found::kError, kTwo,
                "srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=8 --rdzv_backend=c10d --master_addr=$H t.py"),
         in_job("TR001", Found::kWarning, kTwo,
                "srun torchrun --nnodes=$N --nproc_per_node=8 --rdzv_backend=c10d --master_addr=$H t.py"),
         in_job("TR010", Found::kError, kTwo, "srun torchrun --nnodes=2 --nproc_per_node=8 --master_addr=$H t.py"),
         in_job("TR010", Found::kWarning, kTwo, "N=${1:-2}\nsrun torchrun --nnodes=$N --nproc_per_node=8 --master_addr=$H t.py"),
         {"TR010", Found::kWarning, "run.sh", "torchrun --nnodes=2 --nproc_per_node=8 --master_addr=$H t.py\n"},
         in_job("SL003", Found::kWarning, kTwo, "srun python t.py --log run.$SLURM_PROCID"),
         in_job("SL003", Found::kError, kTwo, "srun python t.py --rank $SLURM_PROCID"),
         in_job("SL003", Found::kError, kTwo, "RANK=${SLURM_PROCID} srun python t.py"),
         {"TR001", Found::kNote, "run.sh",
          "torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=$H:1 --node_rank=$R t.py\n"},
         {"TR002", Found::kNote, "run.sh", head + "$H:1 --rdzv_id=7 t.py\n"},
         {"TR005", Found::kNothing, "run.sh",
          "torchrun --nnodes=$MIN:$MAX --nproc_per_node=8 --rdzv_backend=$B --rdzv_endpoint=$E t.py\n"}});
}

TEST_CASE("lint jobs: processes devices cores and minutes", "[lint]") {
  check(
      {{"TR013", Found::kError, "run.sh", "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=4 t.py\n"},
       {"TR013", Found::kError, "run.sh", "export CUDA_VISIBLE_DEVICES=0\naccelerate launch --num_processes 2 t.py\n"},
       {"TR013", Found::kNote, "run.sh", "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=1 t.py\n"},
       {"TR013", Found::kNothing, "run.sh", "CUDA_VISIBLE_DEVICES=$GPUS torchrun --nproc_per_node=4 t.py\n"},
       {"TR013", Found::kNothing, "run.sh", "CUDA_VISIBLE_DEVICES=0 python eval.py\ntorchrun --nproc_per_node=4 t.py\n"},
       in_job("ACC014", Found::kError, kTwo, "G=8\nsrun accelerate launch --num_machines $SLURM_NNODES --num_processes $G t.py"),
       in_job("ACC014", Found::kNothing, kTwo, "srun accelerate launch --num_machines $SLURM_NNODES --num_processes 16 t.py"),
       in_job("SL031", Found::kError, "--ntasks-per-node=8 --cpus-per-task=128", "hostname"),
       in_job("SL031", Found::kWarning, "--ntasks-per-node=8 --cpus-per-task=64", "hostname"),
       in_job("SL031", Found::kNothing, "--ntasks-per-node=8 --cpus-per-task=32", "hostname"),
       in_job("SL030", Found::kWarning, "--time=48:00", "hostname"),
       in_job("SL030", Found::kNothing, "--time=60:00", "hostname"),
       in_job("SL030", Found::kNothing, "--time=2-00", "hostname"),
       in_job("SL018", Found::kError, "--gres=gpu:8", "torchrun --nproc_per_node=$SLURM_GPUS_PER_NODE t.py"),
       in_job("SL018", Found::kWarning, "--gres=gpu:8", "echo $SLURM_GPUS_PER_NODE"),
       in_job("SL018", Found::kNothing, "--gres=gpu:8", "torchrun --nproc_per_node=${SLURM_GPUS_PER_NODE:-8} t.py"),
       in_job("SL008", Found::kWarning, "--nodes=1 --ntasks-per-node=4 --gpus-per-task=1", "srun python t.py"),
       in_job("SL008", Found::kNothing, "--nodes=4 --ntasks=4 --gpus-per-task=8", "srun torchrun --nnodes=4 --nproc_per_node=8 t.py"),
       in_job("SL008", Found::kNothing, "--nodes=1 --ntasks-per-node=4 --gpus-per-task=1 --gpu-bind=none", "srun python t.py"),
       in_job("SL002", Found::kWarning, "--nodes=2 --gpus-per-node=4", "srun python t.py"),
       in_job("SL002", Found::kNothing, "--nodes=2 --gpus-per-node=8 --ntasks-per-node=8",
              "srun --ntasks=$((2*8)) --ntasks-per-node=8 python t.py"),
       in_job("SL009", Found::kWarning, kTwo, "srun python t.py"),
       in_job("SL009", Found::kNothing, "--nodes=1 --ntasks=1", "srun python t.py"),
       in_job("SL009", Found::kNothing, kTwo, "srun --nodes=1 --ntasks=1 -w $HEAD python t.py")});
}

TEST_CASE("lint jobs: what a script says to the scheduler and to conda", "[lint]") {
  check({in_job("SL007", Found::kWarning, "--nodes=2 --output=a --error=a", "srun python t.py"),
         in_job("SL007", Found::kNothing, "--ntasks=1 --gres=gpu:1 --output=a --error=a", "srun python t.py"),
         in_job("SL029", Found::kWarning, "--nodes=2 --container-image=${IMAGE}", "srun python t.py"),
         in_job("SL029", Found::kError, "--nodes=2 --partition=<gpu-partition>", "srun python t.py"),
         in_job("SL029", Found::kNothing, "--nodes=2 --job-name=<name>", "srun python t.py"),
         in_job("SL029", Found::kNothing, "--nodes=2 --output=%x.{a,b}.log", "srun python t.py"),
         in_job("TR009", Found::kNothing, "--nodes=2 hetjob --nodes=1",
                "srun torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint $H:1 t.py"),
         in_job("TR009", Found::kError, "--nodes=1",
                "srun torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint $H:1 t.py")});
  check({in_job("SL028", Found::kWarning, "--nodes=1", "conda init bash\nconda activate llm"),
         in_job("SL028", Found::kNothing, "--nodes=1", "eval \"$(conda shell.bash hook)\"\nconda activate llm"),
         in_job("SL028", Found::kNothing, "--nodes=1", "conda init bash\nsource ~/.bashrc\nconda activate llm"),
         {"SL029", Found::kError, "j.sbatch", "#!/bin/bash\n#SBATCH -p { partition }\nhostname\n"},
         {"SL029", Found::kWarning, "job_template.sbatch", "#!/bin/bash\n#SBATCH -p { partition }\nhostname\n"},
         {"SL029", Found::kWarning, "j.sbatch", "#!/bin/bash\n#SBATCH -p {p}\n#SBATCH -A {a}\n#SBATCH -t {t}\nhostname\n"},
         {"TR011", Found::kNothing, "run.sh", "debugpy-run -m torch.distributed.run -p 5678 --nproc_per_node=2 t.py\n"},
         {"TR011", Found::kError, "run.sh", "$PYTHON -m torch.distributed.run -p 5678 --nproc_per_node=2 t.py\n"},
         {"TT001", Found::kWarning, "t.toml", "[job]\ndump_folder = \"o\"\n[training]\nmixed_precision_reduce = \"bfloat16\"\n"},
         {"TT001", Found::kError, "t.toml", "[job]\ndump_folder = \"o\"\n[training]\nmixed_precision_reduce = \"bf16\"\n"},
         {"SL029", Found::kNothing, "j.sbatch", "#!/bin/bash\n#SBATCH -p gpu  # { partition }\nhostname\n"},
         in_job("SL029", Found::kNothing, "--array=1-{4}", "hostname"),
         in_job("SL029", Found::kNothing, "--mail-user=<you>", "hostname"),
         in_job("SL022", Found::kNothing, "--nodes=1", "source activate llm"),
         in_job("SL006", Found::kWarning, "--output=logs/%j/out", "hostname"),
         in_job("SL006", Found::kNote, "--output=logs/%j.out", "hostname"),
         in_job("SL023", Found::kNothing, "--image=site/pytorch:1 --module=gpu", "hostname"),
         in_job("SL023", Found::kError, "--ntasks_per_node=8", "hostname"),
         in_job("SL021", Found::kNothing, "--nodes=1", "srun --auto-resume=1 python t.py"),
         in_job("SL021", Found::kWarning, "--nodes=1", "srun --auto-begin=1 python t.py"),
         in_job("SL014", Found::kNothing, "--signal=B:USR1@60 --open-mode=append",
                "again() { scontrol requeue $SLURM_JOB_ID; }\ntrap again USR1\nsrun python t.py &\nwait"),
         in_job("SL014", Found::kNothing, "--requeue --open-mode=append", "python t.py"),
         in_job("SL014", Found::kWarning, "--requeue --open-mode=append", "python t.py || scontrol requeue $SLURM_JOB_ID"),
         in_job("SL020", Found::kNothing, "--gpus-per-node=8 --mem=0", "hostname"),
         {"ENV005", Found::kNothing, "run.sh", "export MOE_DROP_TOKEN=\"true\"\nexport WANDB_API_KEY=your_key\npython t.py\n"},
         {"ENV008", Found::kWarning, "run.sh", "export NCCL_TREE_THRESHOLD=0\npython t.py\n"},
         {"FIL001", Found::kNothing, "run.sh", "N=$[$A/($B*$C)]\npython t.py --n $N\n"},
         {"ACC013", Found::kNothing, "run.sh", "L=\"accelerate launch --role \\$(hostname -s|tr -dc '0-9') \"\n$L t.py\n"},
         {"SH001", Found::kError, "run.sh", "M=\"${1:-'a/b'}\"\npython t.py $M\n"},
         {"SH001", Found::kWarning, "run.sh", "M=\"${1:-'a/b'}\"\nbash -c \"python t.py $M\"\n"},
         {"SH001", Found::kNothing, "run.sh", "M=\"${1:-a/b}\"\nN='${1:-x}'\npython t.py $M\n"}});
  const LintReport late = lint_files({{"j", "#!/bin/bash\nhostname\n#SBATCH --nodes=2\n#SBATCH --time=1:00:00\n"}}, {});
  CHECK(num_of(late, "SL005") == 1);
}

TEST_CASE("lint jobs: configuration files", "[lint]") {
  const std::string axolotl = "base_model: m\nsequence_len: 2048\nmicro_batch_size: 1\n";
  const std::string k8s =
      "metadata: {name: j}\nspec: {minAvailable: 2, tasks: [{replicas: 2, template: {spec: {containers: [{name: c, image: i}]}}}]}\n";
  const auto pod = [](const std::string& gpus) {
    return "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i, resources: {limits: "
           "{nvidia.com/gpu: " +
           gpus + "}}}]}\n";
  };
  const auto scheduler = [](const std::string& type, const std::string& params) {
    return "{\"train_batch_size\": 8, \"gradient_clipping\": 1.0, \"scheduler\": {\"type\": \"" + type + "\", \"params\": {" + params +
           "}}}";
  };
  const auto fp16 = [](const std::string& scale) {
    return "{\"train_batch_size\": 8, \"gradient_clipping\": 1.0, \"fp16\": {\"enabled\": true, \"min_loss_scale\": " + scale + "}}";
  };
  const auto wrap = [](const std::string& name) {
    return "distributed_type: FSDP\nnum_processes: 8\nfsdp_config: {fsdp_version: 2, fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP, "
           "fsdp_transformer_layer_cls_to_wrap: " +
           name + "}\n";
  };
  check(
      {{"AX002", Found::kNothing, "a.yaml",
        axolotl + "optimizer: adamw_torch_8bit\nfsdp_version: 2\nfsdp_config: {offload_params: false}\n"},
       {"AX002", Found::kError, "a.yaml",
        axolotl + "optimizer: adamw_bnb_8bit\nfsdp_version: 2\nfsdp_config: {offload_params: false}\n"},
       {"AX002", Found::kError, "a.yaml", axolotl + "optimizer: paged_adamw_8bit\nfsdp_config: {fsdp_offload_params: true}\n"},
       {"FSDP006", Found::kNothing, "a.yaml", axolotl + "adapter: qlora\nfsdp_config: {fsdp_use_orig_params: false}\n"},
       {"K8S007", Found::kNothing, "k.yaml", "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\n" + k8s},
       {"K8S007", Found::kError, "k.yaml", "apiVersion: batch/v1\nkind: Job\n" + k8s},
       {"K8S001", Found::kNote, "k.yaml", pod("1")},
       {"K8S001", Found::kWarning, "k.yaml", pod("4")},
       {"DSJ049", Found::kError, "ds.json", scheduler("WarmupDecayLR", "\"warmup_num_steps\": 10")},
       {"DSJ049", Found::kNothing, "ds.json", scheduler("WarmupDecayLR", "\"total_num_steps\": \"auto\"")},
       {"DSJ049", Found::kNothing, "ds.json", scheduler("WarmupLR", "\"warmup_num_steps\": 10")},
       {"DSJ050", Found::kError, "ds.json", scheduler("WarmupCosineLR", "\"total_num_steps\": 10, \"warmup_max_lr\": 1e-4")},
       {"DSJ050", Found::kError, "ds.json", scheduler("WarmupLR", "\"total_num_steps\": 10")},
       {"DSJ050", Found::kNothing, "ds.json", scheduler("WarmupDecayLR", "\"total_num_steps\": 10, \"warmup_max_lr\": 1e-4")},
       {"DSJ050", Found::kNothing, "ds.json", scheduler("WarmupCosineLR", "\"total_num_steps\": 10, \"cos_min_ratio\": 0.1")},
       {"DSJ042", Found::kWarning, "ds.json", fp16("0.5")},
       {"DSJ042", Found::kNothing, "ds.json", fp16("1")},
       {"FSDP023", Found::kError, "a.yaml", wrap("LlamaDecoderLayr")},
       {"FSDP023", Found::kError, "a.yaml", wrap("llamaDecoderLayer")},
       {"FSDP023", Found::kNothing, "a.yaml", wrap("LlamaDecoderLayer,MyOwnBlock")},
       {"FIL003", Found::kWarning, "ds.json", "{\n  // x\n  \"train_batch_size\": 8,\n  \"gradient_clipping\": 1.0,\n}\n"},
       {"FIL003", Found::kError, "ds.json", "{\n  /* x */\n  \"train_batch_size\": \"auto\",\n  \"gradient_clipping\": 1.0\n}\n"},
       {"FIL003", Found::kNothing, "ds.json",
        "{\"train_batch_size\": 8, \"gradient_clipping\": 1.0, \"tensorboard\": {\"job_name\": \"a//b\"}}"},
       {"FIL001", Found::kNote, "ds.json", "{\"train_batch_size\": CONFIG_BATCH_SIZE, \"gradient_clipping\": 1.0}"},
       {"FIL001", Found::kError, "ds.json", "{\"train_batch_size\": 8 \"gradient_clipping\": 1.0}"},
       {"FIL004", Found::kError, "ds.json", "{\"train_batch_size\": 8, \"gradient_clipping\": 1.0, \"fp16\": {\"enabled \": true}}"},
       {"DSJ003", Found::kNothing, "ds.json", "{\"train_batch_size\": 8, \"gradient_clipping\": 1.0, \"_comment\": \"x\"}"},
       {"ACC007", Found::kNothing, "a.yaml", "distributed_type: MULTI_GPU\nnum_processes: 8\ndowncast_bf16: no\n"},
       {"ACC009", Found::kNothing, "a.yaml", "compute_environment: LOCAL_MACHINE\ndistributed_type: no\nnum_processes: 1\n"},
       {"ACC009", Found::kError, "a.yaml", "compute_environment: LOCAL_MACHINE\ndistributed_type: 'no'\nnum_processes: 1\n"},
       {"FIL002", Found::kError, "a.yaml", "distributed_type: MULTI_GPU\nnum_processes: 8\nnum_processes: 4\n"},
       {"FIL002", Found::kError, "k.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: p, name: p}\n"},
       {"FSDP020", Found::kWarning, "a.yaml", "distributed_type: FSDP\nnum_processes: 8\nfsdp_config: {fsdp_own: 1}\n"},
       {"FSDP020", Found::kNothing, "a.yaml",
        "distributed_type: MULTI_GPU\nnum_processes: 8\ndeepspeed_config: {bf16: {enabled: true}}\n"},
       {"ACC012", Found::kError, "a.yaml",
        "distributed_type: MULTI_GPU\nnum_processes: 8\ndeepspeed_config: {bf16: {enabled: true}}\n"},
       {"ACC015", Found::kWarning, "a.yaml",
        "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config: {offload_param_device: cpu}\n"},
       {"ACC015", Found::kNothing, "a.yaml",
        "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config: {zero_stage: 2, offload_param_device: none}\n"},
       {"ENV002", Found::kNote, "run.sh", "export NCCL_DEBUG=INFO\ntorchrun --standalone --nproc_per_node=1 t.py\n"},
       {"ENV002", Found::kWarning, "run.sh", "export CUDA_LAUNCH_BLOCKING=1\ntorchrun --standalone --nproc_per_node=1 t.py\n"},
       {"MEG009", Found::kWarning, "run.sh", "torchrun --nproc_per_node=4 pretrain_gpt.py --batch_size 2 --num_layers 2 --my_own 1\n"},
       {"MEG009", Found::kNothing, "run.sh", "torchrun --nproc_per_node=4 exp/exp_pretrain_gpt2.py --batch_size 2 --n_layers 12\n"}});
}

TEST_CASE("lint jobs: which DeepSpeed reads the file follows from the tool that installs it", "[lint]") {
  const LintFile file{"d.json", R"({"train_batch_size": 16, "bf16": {"enabled": true, "loss_scale": 0}})"};
  const auto found = [&file](const std::string& installed) {
    return strongest(lint_files({file, {"requirements.txt", installed + "\n"}}, {}), "DSJ034");
  };
  CHECK(found("axolotl==0.12.2") == Found::kError);        // DeepSpeed 0.17.2
  CHECK(found("axolotl==0.9.2") == Found::kWarning);       // 0.15.4
  CHECK(found("open-r1==0.1.0.dev0") == Found::kWarning);  // 0.16.8
  CHECK(found("deepspeed==0.19.6") == Found::kError);
}

TEST_CASE("lint jobs: a pipe behind whatever starts the training", "[lint]") {
  const std::string head = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:8\n";
  const std::string branches =
      "if [ \"$n\" -gt 1 ]; then\n  header=\"srun torchrun --nproc_per_node=8 a.py\"\nelse\n"
      "  header=\"torchrun --standalone --nproc_per_node=8 a.py\"\nfi\n";
  check({{"SL010", Found::kError, "a.sbatch", head + "torchrun --standalone --nproc_per_node=8 a.py | tee log\n"},
         {"SL010", Found::kNothing, "a.sbatch", head + "set -o pipefail\ntorchrun --standalone --nproc_per_node=8 a.py | tee log\n"},
         {"SL010", Found::kNothing, "a.sbatch", head + "python prepare.py | tee log\n"},
         {"SL010", Found::kNothing, "a.sh", "torchrun --standalone --nproc_per_node=8 a.py | tee log\n"},
         {"SL010", Found::kWarning, "a.sbatch", head + "torchrun --standalone --nproc_per_node=8 a.py | tee log\necho done\n"},
         {"SL010", Found::kError, "a.sbatch", head + "set -ex\ntorchrun --standalone --nproc_per_node=8 a.py | tee log\necho done\n"},
         {"SL010", Found::kError, "a.sbatch", head + branches + "${header} --x 1 2>&1 | tee log\n"},
         {"SL010", Found::kNothing, "a.sbatch", head + branches + "${header} --x 1\n"}});
}

TEST_CASE("lint jobs: names of other releases and of forks", "[lint]") {
  const std::string megatron =
      "torchrun --standalone --nproc_per_node=8 pretrain_gpt.py --micro-batch-size 1 --tensor-model-parallel-size 2 ";
  const std::string split = "--num-layers 70 --pipeline-model-parallel-size 12 ";
  check({{"MEG010", Found::kError, "run.sh", megatron + "--global-batch-sise 8\n"},
         {"MEG010", Found::kNote, "run.sh", megatron + "--deepspeed --zero-stage 1 --data-impl mmap\n"},
         {"MEG007", Found::kNothing, "run.sh", megatron + "--deepspeed --zero-stage 1\n"},
         {"MEG007", Found::kWarning, "run.sh", megatron + "\n"},
         {"PLAN005", Found::kError, "run.sh", megatron + split + "\n"},
         {"PLAN005", Found::kNothing, "run.sh", megatron + split + "--pp-partition-method 'type:transformer|embedding'\n"},
         {"LF002", Found::kNothing, "s.yaml",
          "stage: sft\nfinetuning_type: lora\ntemplate: t\nwarmup_ratio: 0.1\noverwrite_output_dir: true\n"},
         {"LF002", Found::kError, "s.yaml", "stage: sft\nfinetuning_type: lora\ntemplate: t\ncutof_len: 4096\n"},
         {"LF002", Found::kWarning, "s.yaml", "stage: sft\nfinetuning_type: lora\ntemplate: t\nour_own_switch: true\n"},
         {"LN005", Found::kNote, "l.yaml", "seed_everything: 1\ntrainer: {gpus: 4, max_epochs: 1}\n"},
         {"LN005", Found::kError, "l.yaml", "seed_everything: 1\ntrainer: {devices: 4, max_epoch: 1}\n"},
         {"LN005", Found::kWarning, "l.yaml", "seed_everything: 1\ntrainer: {devices: 4, target_batch_size: 256}\n"},
         {"DSJ034", Found::kWarning, "d.json", R"({"train_batch_size": 16, "bf16": {"enabled": true, "loss_scale": 0}})"},
         {"DSJ034", Found::kNothing, "d.json", R"({"train_batch_size": 16, "bf16": {"enabled": true}})"},
         {"DSJ004", Found::kWarning, "d.json", R"({"train_batch_size": 16, "fp16": {"enabled": true, "fused_optimizer": false}})"},
         {"DSJ004", Found::kError, "d.json", R"({"train_batch_size": 16, "zero_optimization": {"stage": 2, "overlap_com": true}})"},
         {"DSJ004", Found::kWarning, "d.yaml", "train_batch_size: 16\nzero_optimization: {stage: 2, overlap_com: true}\n"},
         {"DSJ049", Found::kError, "d.json",
          R"({"train_batch_size": 16, "scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 5}}})"},
         {"DSJ049", Found::kWarning, "d.yaml",
          "train_batch_size: 16\nscheduler: {type: WarmupCosineLR, params: {warmup_num_steps: 5}}\n"},
         {"DSJ014", Found::kWarning, "d.json",
          R"({"train_batch_size": 16, "pipeline": {"stages": 2}, "zero_optimization": {"stage": 2}})"},
         {"TT007", Found::kNote, "t.toml", "[job]\ncustom_config_module = \"own.config\"\n[training]\nimg_size = 256\n"},
         {"TT007", Found::kNote, "t.toml", "[training]\ncompile = true\n"},
         {"TT007", Found::kError, "t.toml", "[training]\nlocal_batchsize = 8\n"}});
}

// An error stops the run, hangs it or trains something else than is written. What is ignored without consequence, or true of some
// releases only, is none.
TEST_CASE("lint jobs: what is harmless or true of some releases is no error", "[lint]") {
  const auto fsdp = [](const std::string& keys, const std::string& top = "") {
    return "distributed_type: FSDP\nnum_processes: 8\n" + top + "fsdp_config: {fsdp_version: 1, " + keys + "}\n";
  };
  const auto zero = [](const std::string& keys) {
    return "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config: {zero_stage: 2, " + keys + "}\n";
  };
  const std::string wizard =
      "machine_rank: 0\nnum_machines: 1\nmain_training_function: main\nrdzv_backend: static\nsame_network: true\n";
  const std::string old = "fsdp_backward_prefetch_policy: BACKWARD_PRE";
  check(
      {{"FSDP020", Found::kError, "a.yaml", fsdp(old)},
       {"FSDP020", Found::kWarning, "a.yaml", fsdp(old + ", fsdp_sharding_strategy: 1")},
       {"FSDP020", Found::kError, "a.yaml", fsdp(old + ", fsdp_sharding_strategy: FULL_SHARD")},
       {"FSDP020", Found::kWarning, "a.yaml", fsdp(old, wizard)},
       {"FSDP020", Found::kError, "a.yaml", fsdp("fsdp_cpu_offload_params: true", wizard)},
       {"FSDP020", Found::kWarning, "a.yaml", fsdp("cuda_graphs: true")},
       {"FSDP020", Found::kWarning, "a.yaml", fsdp("fsdp_cpu_offload_params: false")},
       {"FSDP020", Found::kWarning, "a.yaml", zero("train_batch_size: auto")},
       {"FSDP020", Found::kWarning, "a.yaml", zero("train_batch_size: 64")},
       {"FSDP020", Found::kWarning, "a.yaml", zero("main_process_port: 29600")},
       {"ACC012", Found::kWarning, "a.yaml", "distributed_type: 'NO'\nnum_processes: 1\nfsdp_config: {fsdp_version: 2}\n"},
       {"ACC012", Found::kError, "a.yaml", "distributed_type: MULTI_GPU\nnum_processes: 8\nfsdp_config: {fsdp_version: 2}\n"},
       {"ACC012", Found::kNothing, "a.yaml",
        "distributed_type: MULTI_GPU\ndistributed_type: FSDP\nnum_processes: 8\nfsdp_config: {fsdp_version: 2}\n"},
       {"FSDP001", Found::kWarning, "a.yaml", fsdp("fsdp_reshard_after_forward: true")},
       {"FSDP020", Found::kWarning, "a.yaml", zero("optimizer: {type: AdamW}")},
       {"FSDP020", Found::kWarning, "a.yaml", zero("zero_optimization: {overlap_comm: true}")},
       {"FSDP020", Found::kError, "a.yaml", zero("zero_optimization: {stage: 3}")},
       {"DSJ003", Found::kWarning, "d.json", R"({"train_batch_size": 16, "offload_optimizer": {"device": "cpu"}})"},
       {"ACC012", Found::kWarning, "a.yaml",
        "distributed_type: MULTI_GPU\nnum_processes: 8\ndeepspeed_config: {zero_optimization: {stage: 0}}\n"},
       {"ACC012", Found::kError, "a.yaml", "distributed_type: MULTI_GPU\nnum_processes: 8\ndeepspeed_config: {zero_stage: 2}\n"},
       {"HF001", Found::kError, "a.sh", "torchrun --nproc_per_node=8 t.py --output_dir o --fp16 True --bf16\n"},
       {"HF001", Found::kWarning, "a.sh", "torchrun --nproc_per_node=8 t.py --fp16 True --bf16\n"},
       {"HF001", Found::kNothing, "a.sh",
        "torchrun --nproc_per_node=8 t.py --fp16 \"$([ $D = fp16 ] && echo True || echo False)\" --bf16 True\n"},
       in_job("SL001", Found::kNothing, "--nodes=1 --ntasks=1 --ntasks-per-node=4 --gpus-per-node=4",
              "srun torchrun --nnodes=1 --nproc_per_node=4 t.py"),
       in_job("SL001", Found::kError, "--nodes=2 --ntasks=8 --ntasks-per-node=4 --gpus-per-node=4",
              "srun torchrun --nnodes=2 --nproc_per_node=4 --node_rank=$SLURM_NODEID --master_addr=$H t.py"),
       in_job("SL029", Found::kWarning, "--nodes= --partition= --qos=", "srun python t.py"),
       in_job("SL016", Found::kWarning, kTwo, "export MASTER_ADDR=${HEAD:-localhost}"),
       in_job("SL016", Found::kError, kTwo, "export MASTER_ADDR=localhost"),
       {"HF005", Found::kWarning, "t.yaml",
        "output_dir: o\nper_device_train_batch_size: 1\ngradient_checkpointing: true\nddp_find_unused_parameters: true\n"},
       {"FIL001", Found::kWarning, "d.json",
        "{\n  \"train_batch_size\": 16,\n  \"tensorboard\": {\"enabled\": true,\n    \"output_path\": /home/me/logs\n  }\n}\n"},
       {"FIL001", Found::kError, "d.json",
        "{\n  \"train_batch_size\": \"auto\",\n  \"tensorboard\": {\"enabled\": true,\n    \"output_path\": /home/me/logs\n  }\n}\n"},
       {"FIL001", Found::kError, "d.json", "{\n  \"train_batch_size\": 16,\n  \"zero_optimization\": {\"stage\": 2}\n"},
       {"DL005", Found::kNothing, "a.sh", "deepspeed --num_gpus=8 t.py\nfind out/deepspeed -maxdepth 1 -name 'x*'\n"},
       {"DL005", Found::kError, "a.sh", "deepspeed --num_gpu_per_node 8 t.py\n"},
       {"LN005", Found::kNothing, "l.yaml", "seed_everything: 1\ntrainer: {devices: 4, callbacks+: []}\n"},
       {"DSJ003", Found::kWarning, "d.json", R"({"train_batch_size": 16, "step_per_print": 10})"},
       {"DSJ003", Found::kError, "d.json", R"({"train_batch_size": 16, "gradient_cliping": 1.0})"},
       {"DSJ005", Found::kWarning, "d.json", R"({"train_batch_size": 16, "flops_profiler": {"enabled": true, "profile_steps": 5}})"},
       {"DSJ005", Found::kError, "d.json", R"({"train_batch_size": 16, "optimizer": {"type": "AdamW", "param": {"lr": 1e-4}}})"},
       {"DSJ004", Found::kWarning, "d.json", R"({"train_batch_size": 16, "compile": {"enabled": true, "backend": "inductor"}})"},
       {"DSJ017", Found::kWarning, "d.json",
        R"({"train_batch_size": 16, "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "max_grad_norm": 1.0}}})"},
       {"DSJ017", Found::kError, "d.json",
        R"({"train_batch_size": "auto", "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "max_grad_norm": 1.0}}})"},
       {"DSJ004", Found::kError, "d.json", R"({"train_batch_size": 16, "compile": {"disable": false, "backend": "inductor"}})"},
       {"DSJ040", Found::kError, "d.json", R"({"train_batch_size": 16, "train_batch_size": 16})"},
       {"DSJ040", Found::kWarning, "d.json", R"({"train_batch_size": "auto", "gradient_clipping": 1, "gradient_clipping": 1})"},
       in_job("SL005", Found::kWarning, "--nodes=1", "module load cuda\n#SBATCH --mail-type=END"),
       in_job("SL005", Found::kError, "--nodes=1", "module load cuda\n#SBATCH --gpus-per-node=8")});
}

TEST_CASE("lint jobs: a release that is known to be used decides", "[lint]") {
  const auto found = [](const LintFile& file, const std::string& installed, const char* code) {
    return strongest(lint_files({file, {"requirements.txt", installed + "\n"}}, {}), code);
  };
  const LintFile policy{"a.yaml",
                        "distributed_type: FSDP\nnum_processes: 8\nfsdp_config: {fsdp_sharding_strategy: 1, "
                        "fsdp_backward_prefetch_policy: BACKWARD_PRE}\n"};
  CHECK(found(policy, "accelerate==0.33.0", "FSDP020") == Found::kNothing);
  CHECK(found(policy, "accelerate==1.1.0", "FSDP020") == Found::kError);
  const LintFile compiled{"d.json", R"({"train_batch_size": 16, "compile": {"enabled": true}})"};
  CHECK(found(compiled, "deepspeed==0.14.3", "DSJ004") == Found::kNothing);
  CHECK(found(compiled, "deepspeed==0.15.4", "DSJ004") == Found::kWarning);  // passes over the section
  CHECK(found(compiled, "deepspeed==0.17.0", "DSJ004") == Found::kError);
  const LintFile scale{"d.json", R"({"train_batch_size": 16, "fp16": {"enabled": true, "min_loss_scale": 0.5}})"};
  CHECK(found(scale, "deepspeed==0.16.4", "DSJ042") == Found::kNothing);
  CHECK(found(scale, "deepspeed==0.18.0", "DSJ042") == Found::kError);
}

TEST_CASE("lint jobs: commands that a line's end cuts off", "[lint]") {
  const auto script = [](const std::string& between) {
    return "#!/bin/bash\ntorchrun --standalone --nproc_per_node=8 train.py \\\n  --epochs 3" + between + "  --lr 1e-5\n";
  };
  check({{"SH002", Found::kNothing, "a.sh", script(" \\\n")},
         {"SH002", Found::kError, "a.sh", script("\n")},
         {"SH002", Found::kError, "a.sh", script(" \\\n\n")},
         {"SH002", Found::kError, "a.sh", script(" \\ \n")},
         {"SH002", Found::kError, "a.sh", script(" \\\n  # --resume last \\\n")},
         {"SH002", Found::kError, "a.sh", script(" \\\n  --resume last # or not \\\n")},
         {"SH002", Found::kWarning, "a.sh", "#!/bin/bash\npython t.py --lr 1\n# torchrun t.py \\\n    --lr 1e-5 \\\n    --epochs 3\n"},
         {"SH002", Found::kNothing, "a.sh",
          "#!/bin/bash\nARGS=(\n  --lr 1e-5\n  # the rest\n  --epochs 3\n)\npython t.py \"${ARGS[@]}\"\n"},
         {"SH002", Found::kNothing, "a.sh", "#!/bin/bash\nARGS=\"\n  --lr 1e-5\n  --epochs 3\n\"\npython t.py $ARGS\n"},
         {"SH002", Found::kNothing, "a.sh",
          "#!/bin/bash\ncase $1 in\n  --lr) LR=$2 ;;\n  --help)\n    exit ;;\nesac\npython t.py --lr $LR\n"},
         {"SH002", Found::kNothing, "a.sh", "#!/bin/bash\ncat > c.txt <<EOF\n--lr 1e-5\nEOF\npython t.py @c.txt\n"},
         in_job("SL032", Found::kError, "--ntasks-per-node=4", "srun --cpu-bind=v --accel-bind=gn\npython t.py"),
         in_job("SL032", Found::kNothing, "--ntasks-per-node=4", "srun --cpu-bind=v --accel-bind=gn \\\n  python t.py"),
         in_job("SL032", Found::kNothing, "--ntasks-per-node=4", "srun --cpu-bind=v $CMD"),
         in_job("SL029", Found::kError, "--nodes= --gpus-per-node=8", "srun python t.py"),
         in_job("SL029", Found::kWarning, "--nodes= --time= --ntasks= --gpus-per-node=8", "srun python t.py"),
         in_job("SL029", Found::kNothing, "--exclusive --gpus-per-node=8", "srun python t.py")});
}

TEST_CASE("lint jobs: a launcher of one node in a job of several", "[lint]") {
  const std::string run = "torchrun --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 --rdzv_id=$SLURM_JOB_ID ";
  const std::string one = "--nodes=1 --ntasks-per-node=1 --gpus-per-node=8";
  check({in_job("TR009", Found::kError, kTwo, "srun " + run + "t.py"),
         in_job("TR009", Found::kError, kTwo, "srun torchrun --nproc_per_node=8 t.py"),
         in_job("TR009", Found::kError, kTwo, "srun torchrun --nproc_per_node=8 -m pkg.train --config c.yaml"),
         in_job("TR009", Found::kNothing, kTwo, "srun " + run + "--nnodes=2 t.py"),
         in_job("TR009", Found::kNothing, kTwo, "srun torchrun $DIST_ARGS t.py"),
         in_job("TR009", Found::kNothing, kTwo, "srun torchrun --nproc_per_node=8 $CMD"),
         in_job("TR009", Found::kNothing, kTwo, "srun bash -c 'torchrun --nproc_per_node=8 t.py --share $SLURM_PROCID'"),
         in_job("TR009", Found::kNothing, one, "srun " + run + "t.py"),
         in_job("SL026", Found::kError, kTwo, "torchrun --nproc_per_node=8 t.py"),
         in_job("SL026", Found::kNothing, one, "torchrun --nproc_per_node=8 t.py"),
         in_job("SL026", Found::kNothing, kTwo, "torchrun --nnodes=2 --nproc_per_node=8 t.py"),
         in_job("SL026", Found::kNothing, kTwo, "for h in $HOSTS; do ssh $h torchrun --nproc_per_node=8 t.py; done"),
         in_job("SL004", Found::kError, kTwo, "srun deepspeed --num_gpus=8 t.py"),
         in_job("SL004", Found::kNothing, one, "srun deepspeed --num_gpus=8 t.py")});
}

TEST_CASE("lint jobs: what has to be known for certain before it is an error", "[lint]") {
  const std::string accelerate = "distributed_type: FSDP\nnum_processes: 8\nfsdp_config: {fsdp_version: 2}\n";
  const std::string mesh = "parallelism_config: {parallelism_config_dp_shard_size: 4}\n";
  const std::string gpt = "torchrun --nproc_per_node=8 ";
  const std::string sizes = "--tensor-model-parallel-size 8 --num-attention-heads 20 --micro-batch-size 1\n";
  check(
      {// The command line may say another number of processes.
       {"ACC005", Found::kWarning, "a.yaml", accelerate + mesh},
       {"ACC011", Found::kWarning, "a.yaml", "distributed_type: MULTI_GPU\nnum_processes: 0\n"},
       {"ACC009", Found::kNothing, "a.yaml", "compute_environment: AMAZON_SAGEMAKER\ndistributed_type: DATA_PARALLEL\nregion: r\n"},
       {"ACC009", Found::kWarning, "a.yaml", "compute_environment: LOCAL_MACHINE\ndistributed_type: TPU\nnum_processes: 8\n"},
       // Whose script it is.
       {"PLAN004", Found::kError, "a.sh", gpt + "pretrain_gpt.py " + sizes},
       {"PLAN004", Found::kWarning, "a.sh", gpt + "train_mine.py " + sizes},
       {"PLAN004", Found::kWarning, "a.sh", gpt + "pretrain_gpt.py --our-own-switch 1 " + sizes},
       {"PLAN004", Found::kWarning, "a.sh",
        "TP=${TP:-8}\n" + gpt + "pretrain_gpt.py --tensor-model-parallel-size $TP --num-attention-heads 20 --micro-batch-size 1\n"},
       {"PLAN003", Found::kNothing, "a.sh", gpt + "pretrain_gpt.py --train-iters 0 --num-experts 0 --micro-batch-size 1\n"},
       {"MEG004", Found::kWarning, "a.sh",
        gpt + "pretrain_gpt.py --micro-batch-size 1 --recompute-granularity full --recompute-method uniform\n"},
       {"MEG004", Found::kError, "a.sh", gpt + "pretrain_gpt.py --micro-batch-size 1 --recompute-granularity full\n"},
       // Who reads the JSON.
       {"DSJ036", Found::kWarning, "d.json", R"({"train_batch_size": 8, "zero_optimization": {"overlap_comm": true}})"},
       {"DSJ025", Found::kWarning, "d.json", R"({"train_batch_size": 8, "optimizer": {"type": "OurAdam"}})"},
       {"DSJ025", Found::kError, "d.json", R"({"train_batch_size": "auto", "optimizer": {"type": "OurAdam"}})"},
       {"DSJ003", Found::kWarning, "d.json", R"({"train_batch_size": 8, "dtype": "bf16"})"},
       {"DSJ042", Found::kNothing, "d.json", R"({"train_batch_size": 8, "fp16": {"enabled": 1}, "zero_optimization": {"stage": 1}})"},
       {"DSJ019", Found::kNothing, "d.json",
        R"({"train_batch_size": 8, "zero_optimization": {"stage": 2, "cpu_offload_use_pin_memory": true, "offload_optimizer": {"device": "cpu"}}})"},
       {"DSJ042", Found::kNothing, "d.json", R"({"train_batch_size": 8, "communication_data_type": "bfp16"})"},
       {"DSJ042", Found::kError, "d.json", R"({"train_batch_size": 8, "communication_data_type": "bfloat"})"},
       {"FSDP020", Found::kWarning, "a.yaml",
        "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config: {zero_stage: 3, offload_param_pin_memory: true}\n"},
       {"FSDP020", Found::kError, "a.yaml",
        "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config: {zero_stage: 3, gradient_clip: 1.0}\n"},
       {"DSJ005", Found::kWarning, "d.json", R"({"train_batch_size": 8, "pipeline": {"stages": 2, "partition_activations": true}})"},
       {"DSJ005", Found::kError, "d.json", R"({"train_batch_size": 8, "optimizer": {"type": "AdamW", "param": {"lr": 1e-4}}})"},
       // What has run before a shell meets its mistake.
       {"FIL001", Found::kError, "a.sh", "torchrun --nproc_per_node=8 t.py (see below)\n"},
       {"FIL001", Found::kError, "a.sh", "for d in $D; do\n  torchrun t.py\n  if [[ $d == *x]]; then echo; fi\ndone\n"},
       {"FIL001", Found::kWarning, "a.sh", "torchrun --nproc_per_node=8 t.py\n\nresults (of 8 GPUs): 1873\n"},
       // Which release, and where the launcher's own options end.
       {"ACC013", Found::kWarning, "a.sh", "accelerate launch --some_new_switch 1 train.py\n"},
       {"ACC013", Found::kError, "a.sh", "accelerate launch --nproc_per_node 8 train.py\n"},
       {"DL005", Found::kWarning, "a.sh", "deepspeed --num_gpus 8 $SCRIPT --lr 1\ndeepspeed --lr 1 \"$@\"\n"},
       {"K8S007", Found::kWarning, "k.yaml",
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {ourNewField: 1, template: {spec: {containers: [{name: c, image: "
        "i}]}}}\n"},
       {"K8S007", Found::kError, "k.yaml",
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {restartPolicy: Never, template: {spec: {containers: [{name: c, "
        "image: i}]}}}\n"},
       {"TT003", Found::kWarning, "t.toml", "[job]\ndump_folder = \"o\"\n[model]\nconverters = \"float8\"\n[training]\nsteps = 1\n"},
       {"TT003", Found::kError, "t.toml", "[job]\ndump_folder = \"o\"\n[training]\nsteps = \"10\"\n"},
       // What a signal does, and what a trap is for.
       in_job("SL011", Found::kNote, kTwo + " --signal=TERM@60", "srun torchrun --nnodes=2 --nproc_per_node=8 t.py"),
       in_job("SL011", Found::kError, kTwo + " --signal=USR1@60", "srun torchrun --nnodes=2 --nproc_per_node=8 t.py"),
       in_job("SL012", Found::kError, kTwo + " --signal=B:USR1@60", "trap save USR1\nsrun python t.py"),
       in_job("SL012", Found::kWarning, kTwo, "trap clean TERM\nsrun python t.py"),
       in_job("SL016", Found::kWarning, kTwo,
              "export MASTER_ADDR=localhost\nsrun torchrun --nnodes=2 --node_rank=$R --master_addr=$HEAD t.py"),
       in_job("SL001", Found::kError, "--nodes=2 --ntasks-per-node=4", "srun torchrun --nnodes=2 --nproc_per_node=4 t.py"),
       in_job("SL001", Found::kWarning, "--nodes=2 --ntasks-per-node=4", "srun torchrun --nnodes=2 --nproc_per_node=$G t.py"),
       in_job("SL001", Found::kError, "--nodes=2 --ntasks-per-node=4",
              "srun torchrun --nnodes=2 --nproc_per_node=$SLURM_NTASKS_PER_NODE t.py"),
       in_job("SL001", Found::kNothing, "--nodes=2 --ntasks-per-node=1",
              "srun torchrun --nnodes=2 --nproc_per_node=$SLURM_GPUS_ON_NODE t.py"),
       // Two nodes may be played on one machine, 32 ranks may not.
       {"TR012", Found::kWarning, "a.sh", "torchrun --nnodes=2 --node_rank=$1 --nproc_per_node=8 --master_addr=127.0.0.1 t.py\n"},
       {"TR012", Found::kError, "a.sh", "torchrun --nnodes=4 --node_rank=$1 --nproc_per_node=8 --master_addr=127.0.0.1 t.py\n"},
       {"TR012", Found::kWarning, "a.sh", "accelerate launch --num_machines 2 --num_processes 16 --main_process_ip localhost t.py\n"},
       {"TR012", Found::kError, "a.sh", "accelerate launch --num_machines 4 --num_processes 32 --main_process_ip localhost t.py\n"},
       // Single quotes hand the name over, and each task's shell expands it.
       in_job("SL003", Found::kError, kTwo, "RUN=\"torchrun --nnodes 2 --node_rank $SLURM_PROCID t.py\"\nsrun bash -c \"${A}${RUN}\""),
       in_job("SL003", Found::kNothing, kTwo, "RUN='torchrun --nnodes 2 --node_rank $SLURM_PROCID t.py'\nsrun bash -c \"${A}${RUN}\""),
       // What a script's option is given starts nothing; what the script is given to start does.
       {"DL005", Found::kNothing, "a.sh", "bash run.sh --backend deepspeed --model m\n"},
       {"DL005", Found::kError, "a.sh", "bash run.sh deepspeed --num_gpu_per_node 8 t.py\n"},
       {"DL001", Found::kWarning, "a.sh", "deepspeed --num_nodes 2 --num_gpus 8 --master_addr head t.py\n"},
       in_job("DL001", Found::kError, "--nodes=2 --gpus-per-node=8", "deepspeed --num_nodes 2 --num_gpus 8 --master_addr head t.py"),
       // The Trainer reads the policy since 5.10 only, accelerate always did.
       {"FSDP021", Found::kWarning, "t.yaml",
        "output_dir: o\nper_device_train_batch_size: 1\nfsdp: full_shard\nfsdp_config: {auto_wrap_policy: transformer_layer}\n"},
       {"FSDP021", Found::kError, "a.yaml", "distributed_type: FSDP\nfsdp_config: {fsdp_auto_wrap_policy: transformer_layer}\n"},
       // A slip of a key that does nothing in stage 2 changes nothing there.
       {"FSDP020", Found::kWarning, "a.yaml",
        "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 2, offload_param_devce: cpu}\n"},
       {"FSDP020", Found::kError, "a.yaml",
        "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3, offload_param_devce: cpu}\n"},
       // A fork's section, and a name that nobody has.
       {"ACC010", Found::kWarning, "a.yaml", "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\nwx_config: {enabled: true}\n"},
       {"ACC010", Found::kError, "a.yaml", "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\nwx_enabled: true\n"},
       {"ACC010", Found::kError, "a.yaml", "distributed_type: FSDP\nfsdp_confg: {fsdp_version: 2}\n"}});
}

TEST_CASE("lint jobs: a configuration that stands in its file twice is one mistake", "[lint]") {
  const std::string once = "distributed_type: MULTI_GPU\nnum_processes: 8\nmixed_precision: bf16\n";
  CHECK(num_of(lint_files({{"a.yaml", once + once}}, {}), "FIL002") == 1);
  CHECK(num_of(lint_files({{"a.yaml", once}}, {}), "FIL002") == 0);
  check({{"FIL002", Found::kWarning, "a.yaml", once + once},
         {"FIL002", Found::kWarning, "a.yaml", once + "debug: null\ndebug: true\n"},
         {"FIL002", Found::kError, "a.yaml", once + "num_processes: 16\n"}});
}
