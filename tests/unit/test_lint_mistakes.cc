// Recall: mistakes as people make them, each put into a file that lint has nothing to say about.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "codegen/lint/lint.h"

using namespace distsetup;

namespace {

const std::map<std::string, std::string> kClean = {
    {"job.sbatch", R"TEXT(#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --output=%x-%j.out
set -euo pipefail
export OMP_NUM_THREADS=8
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR
srun --kill-on-bad-exit=1 torchrun --nnodes="$SLURM_JOB_NUM_NODES" --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint="$MASTER_ADDR:$((10000 + SLURM_JOB_ID % 20000))" --rdzv_id="$SLURM_JOB_ID" train.py --data d
)TEXT"},
    {"ds.json", R"TEXT({
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 4,
  "gradient_clipping": 1.0,
  "bf16": {"enabled": true, "check_grad_overflow": false},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 100, "total_num_steps": 1000, "warmup_max_lr": 1e-4, "warmup_type": "linear"}},
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": true}}
}
)TEXT"},
    {"ds16.json", R"TEXT({
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 1,
  "gradient_clipping": 1.0,
  "fp16": {"enabled": true, "min_loss_scale": 1},
  "zero_optimization": {"stage": 2}
}
)TEXT"},
    {"accelerate.yaml", R"TEXT(compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
  fsdp_reshard_after_forward: true
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_cpu_ram_efficient_loading: true
  fsdp_activation_checkpointing: true
mixed_precision: bf16
num_machines: 1
num_processes: 8
machine_rank: 0
rdzv_backend: static
same_network: true
use_cpu: false
)TEXT"},
    {"run.sh", R"TEXT(#!/bin/bash
set -euo pipefail
export OMP_NUM_THREADS=8
torchrun --standalone --nproc_per_node=8 train.py --data d
)TEXT"},
    {"megatron.sh", R"TEXT(#!/bin/bash
set -euo pipefail
export CUDA_DEVICE_MAX_CONNECTIONS=1 OMP_NUM_THREADS=8
torchrun --standalone --nproc_per_node=8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel --micro-batch-size 1 --global-batch-size 256 --train-iters 1000 --lr 1e-4 --bf16 --use-distributed-optimizer --save ckpt --save-interval 100 --data-path d --tokenizer-type NullTokenizer --vocab-size 32000
)TEXT"},
    {"axolotl.yaml", R"TEXT(base_model: NousResearch/Meta-Llama-3-8B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 2048
micro_batch_size: 1
gradient_accumulation_steps: 4
num_epochs: 1
optimizer: adamw_torch
lr_scheduler: cosine
learning_rate: 0.0001
bf16: true
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: false
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
output_dir: out
)TEXT"},
    {"lf.yaml", R"TEXT(model_name_or_path: Qwen/Qwen3-4B
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
template: qwen
dataset: identity
cutoff_len: 2048
output_dir: saves
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
num_train_epochs: 1.0
bf16: true
)TEXT"},
    {"trl.yaml", R"TEXT(model_name_or_path: Qwen/Qwen3-4B
dataset_name: trl-lib/Capybara
output_dir: out
max_length: 2048
packing: true
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 2.0e-5
bf16: true
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: false
)TEXT"},
    {"pods.yaml", R"TEXT(apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: train, labels: {kueue.x-k8s.io/queue-name: q}}
spec:
  nprocPerNode: "8"
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: pytorch
              image: i
              command: [torchrun, --nnodes=2, --nproc_per_node=8, train.py]
              env: [{name: OMP_NUM_THREADS, value: "8"}]
              resources: {limits: {nvidia.com/gpu: 8}}
              volumeMounts: [{name: shm, mountPath: /dev/shm}]
          volumes: [{name: shm, emptyDir: {medium: Memory}}]
    Worker:
      replicas: 1
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: pytorch
              image: i
              command: [torchrun, --nnodes=2, --nproc_per_node=8, train.py]
              env: [{name: OMP_NUM_THREADS, value: "8"}]
              resources: {limits: {nvidia.com/gpu: 8}}
              volumeMounts: [{name: shm, mountPath: /dev/shm}]
          volumes: [{name: shm, emptyDir: {medium: Memory}}]
)TEXT"},
    {"job.toml", R"TEXT([training]
local_batch_size = 1
seq_len = 4096
steps = 1000

[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 2
)TEXT"},
};

struct Mistake {
  std::string file, from, to, code;  // the code of the finding; "" where the tool takes it
};

const Mistake kMistakes[] = {
    {"job.sbatch", "srun --kill-on-bad-exit=1 torchrun", "torchrun", "SL025"},
    {"job.sbatch", "\"$MASTER_ADDR:$((10000 + SLURM_JOB_ID % 20000))\"", "localhost:29500", "TR012"},
    {"job.sbatch", "export MASTER_ADDR\n", "export MASTER_ADDR CUDA_VISIBLE_DEVICES=0,1,2,3\n", "SL038"},
    {"job.sbatch", "MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\nexport MASTER_ADDR\n", "", "SL027"},
    {"job.sbatch",
     "srun --kill-on-bad-exit=1 torchrun --nnodes=\"$SLURM_JOB_NUM_NODES\" --nproc_per_node=8 --rdzv_backend=c10d "
     "--rdzv_endpoint=\"$MASTER_ADDR:$((10000 + SLURM_JOB_ID % 20000))\" --rdzv_id=\"$SLURM_JOB_ID\"",
     "deepspeed --num_nodes 2 --num_gpus 8", "DL001"},
    {"job.sbatch", "srun --kill-on-bad-exit=1 torchrun", "python -m torch.distributed.launch", "SL025"},
    {"job.sbatch",
     "srun --kill-on-bad-exit=1 torchrun --nnodes=\"$SLURM_JOB_NUM_NODES\" --nproc_per_node=8 --rdzv_backend=c10d "
     "--rdzv_endpoint=\"$MASTER_ADDR:$((10000 + SLURM_JOB_ID % 20000))\" --rdzv_id=\"$SLURM_JOB_ID\"",
     "srun --kill-on-bad-exit=1 bash -c 'accelerate launch --multi_gpu --num_machines 2 --num_processes 8 --machine_rank "
     "$SLURM_NODEID --main_process_ip $MASTER_ADDR --main_process_port 29500 train.py --data d' #",
     "ACC014"},
    {"job.sbatch", "--time=24:00:00", "--time=48:00", "SL030"},
    {"job.sbatch", "--ntasks-per-node=1", "--ntasks-per-node=8", "SL001"},
    {"job.sbatch", "--output=%x-%j.out", "--output=logs/%j/out", "SL006"},
    {"job.sbatch", "--nproc_per_node=8 --rdzv", "--nproc_per_node=4 --rdzv", "TR008"},
    {"job.sbatch", "--nnodes=\"$SLURM_JOB_NUM_NODES\"", "--nnodes=4", "TR009"},
    {"job.sbatch",
     "--rdzv_backend=c10d --rdzv_endpoint=\"$MASTER_ADDR:$((10000 + SLURM_JOB_ID % 20000))\" --rdzv_id=\"$SLURM_JOB_ID\"",
     "--node_rank=$SLURM_NODEID --master_addr=$MASTER_ADDR --master_port=29500", "SL003"},
    {"job.sbatch", "set -euo pipefail\n", "set -euo pipefail\nexport NODE_RANK=$SLURM_PROCID\n", "SL003"},
    {"job.sbatch", "export OMP_NUM_THREADS=8\n", "export OMP_NUM_THREADS=8\nexport NCCL_LL_THRESHOLD=0\n", "ENV008"},
    {"job.sbatch", "export OMP_NUM_THREADS=8\n", "export OMP_NUM_THREADS=8\nconda init bash\nconda activate llm\n", "SL028"},
    {"job.sbatch", "#SBATCH --nodes=2\n", "#SBATCH --nodes=2\nset -x\n#SBATCH --mem=0\n", "SL005"},
    {"job.sbatch", "#SBATCH --exclusive", "#SBATCH --exclusiv", ""},
    {"job.sbatch", "train.py --data d\n", "train.py --data \"d\n", "FIL001"},
    {"run.sh", "--standalone --nproc_per_node=8", "--nnodes=2 --nproc_per_node=8 --master_addr=localhost", "TR010"},
    {"run.sh", "set -euo pipefail\n", "set -euo pipefail\nexport CUDA_VISIBLE_DEVICES=0,1,2,3\n", "TR013"},
    {"run.sh", "--data d", "--data \"${1:-'x'}\"", "SH001"},
    {"run.sh", "--data d", "--data <path>", "FIL001"},
    {"run.sh", "--nproc_per_node=8", "--nproc_per_nod=8", ""},
    {"ds.json", "\"total_num_steps\": 1000, ", "", "DSJ049"},
    {"ds.json", "\"stage\": 3", "\"stage \": 3", "FIL004"},
    {"ds.json", "\"stage\": 3", "\"stage\": 4", "DSJ042"},
    {"ds.json", "\"train_micro_batch_size_per_gpu\": 2,", "\"train_batch_size\": 7, \"train_micro_batch_size_per_gpu\": 2,",
     "PLAN002"},
    {"ds.json", "\"gradient_clipping\": 1.0,", "// clip\n  \"gradient_clipping\": 1.0,", "FIL003"},
    {"ds.json", "\"offload_optimizer\"", "\"offload_optimiser\"", "DSJ004"},
    {"ds.json", "\"bf16\": {", "\"fp16\": {\"enabled\": true}, \"bf16\": {", "PLAN008"},
    {"ds.json", "\"stage\": 3, \"offload_optimizer\"", "\"stage\": 2, \"offload_param\": {\"device\": \"cpu\"}, \"offload_optimizer\"",
     "DSJ006"},
    {"ds16.json", "\"min_loss_scale\": 1", "\"min_loss_scale\": 0.5", "DSJ042"},
    {"accelerate.yaml", "LlamaDecoderLayer", "LLamaDecoderLayer", "FSDP023"},
    {"accelerate.yaml", "fsdp_reshard_after_forward: true", "fsdp_sharding_strategy: FULL_SHARD", "FSDP003"},
    {"accelerate.yaml", "fsdp_version: 2", "fsdp_version: 3", "FSDP022"},
    {"accelerate.yaml", "fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP", "fsdp_auto_wrap_policy: TRANSFORMER_WRAP", "FSDP021"},
    {"accelerate.yaml", "num_machines: 1", "num_machines: 2", "ACC002"},
    {"accelerate.yaml", "mixed_precision: bf16", "mixed_precission: bf16", "ACC010"},
    {"accelerate.yaml", "distributed_type: FSDP", "distributed_type: fsdp", "ACC009"},
    {"megatron.sh", "--num-attention-heads 32", "--num-attention-heads 31", "PLAN004"},
    {"megatron.sh", "--pipeline-model-parallel-size 2", "--pipeline-model-parallel-size 3", "MEG001"},
    {"megatron.sh", "--global-batch-size 256", "--global-batch-size 255", "MEG002"},
    {"megatron.sh", "export CUDA_DEVICE_MAX_CONNECTIONS=1 ", "export ", "MEG007"},
    {"megatron.sh", "--sequence-parallel", "--sequence-paralel", "MEG010"},
    {"megatron.sh", "--bf16", "--bf16 --overlap-param-gather", "MEG003"},
    {"megatron.sh", "--bf16", "--bf16 --fp16", "PLAN008"},
    {"axolotl.yaml", "micro_batch_size", "micro_batchsize", "AX004"},
    {"lf.yaml", "template: qwen", "templat: qwen", "LF002"},
    {"lf.yaml", "cutoff_len", "cutof_len", "LF002"},
    {"lf.yaml", "bf16: true", "bf16: true\nfp16: true", "HF001"},
    {"trl.yaml", "gradient_accumulation_steps", "gradient_accumulation_step", "TRL001"},
    {"trl.yaml", "bf16: true", "bf16: true\nfp16: true", "HF001"},
    {"trl.yaml", "learning_rate: 2.0e-5", "learning_rate: 2e-5", ""},
    {"pods.yaml", "volumeMounts: [{name: shm, mountPath: /dev/shm}]", "volumeMounts: [{name: shm, mountPath: /data}]", "K8S001"},
    {"pods.yaml", ", labels: {kueue.x-k8s.io/queue-name: q}", "", "K8S005"},
};

}  // namespace

TEST_CASE("lint mistakes: the files are clean without them", "[lint]") {
  for (const auto& [name, text] : kClean) {
    const LintReport report = lint_files({{name, text}}, {});
    INFO(name << (report.findings.empty() ? "" : ": " + report.findings[0].diagnostic.message));
    CHECK(report.unreadable.empty());
    CHECK(report.findings.empty());
  }
}

TEST_CASE("lint mistakes: each is found in a file that is clean without it", "[lint]") {
  for (const Mistake& one : kMistakes) {
    std::string text = kClean.at(one.file);
    size_t num = 0;
    for (size_t at = text.find(one.from); at != std::string::npos; at = text.find(one.from, at + one.to.size())) {
      text.replace(at, one.from.size(), one.to);
      ++num;
    }
    INFO(one.file << ": '" << one.from << "' as '" << one.to << "'");
    REQUIRE(num > 0);
    const LintReport report = lint_files({{one.file, text}}, {});
    const bool is_found = std::any_of(report.findings.begin(), report.findings.end(),
                                      [&one](const LintFinding& finding) { return finding.diagnostic.code == one.code; });
    CHECK(is_found == !one.code.empty());
    if (one.code.empty()) CHECK(report.findings.empty());
  }
}
