// What once was found in files that work: each beside a file in which it is a mistake.
#include <algorithm>
#include <catch2/catch.hpp>

#include "codegen/lint/lint.h"

using namespace distsetup;

namespace {

size_t num_found(const std::string& path, const std::string& text, std::string_view code) {
  const LintReport report = lint_files({{path, text}}, {});
  return static_cast<size_t>(std::count_if(report.findings.begin(), report.findings.end(),
                                           [code](const LintFinding& one) { return one.diagnostic.code == code; }));
}

struct Pair {
  const char* code;
  std::string path, mistake, near_miss;
};

const std::string kBatch = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n";
const std::string kAxolotl = "base_model: m\nsequence_len: 2048\nmicro_batch_size: 1\ndatasets: [{path: d, type: alpaca}]\n";
const std::string kMegatron =
    "torchrun --nproc_per_node=8 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 "
    "--max-position-embeddings 128 --micro-batch-size 1 --tensor-model-parallel-size 1 ";
const std::string kStages =
    "torchrun --standalone " + kMegatron.substr(9) + "--num-layers 8 --pipeline-model-parallel-size 4 --global-batch-size 16";
const std::string kRun = "srun torchrun --nnodes=2 --nproc_per_node=8 ";

std::string pod(const std::string& volumes) {
  return "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n    - {name: c, image: i, resources: {limits: "
         "{nvidia.com/gpu: 4}}" +
         volumes;
}

}  // namespace

TEST_CASE("lint near misses: each stands beside its mistake", "[lint]") {
  const Pair pairs[] = {
      {"PLAN015", "j.sh", kStages + "\n", kStages + " --num-layers-per-virtual-pipeline-stage 1\n"},
      {"MEG014", "j.sh", kMegatron + "--num-experts 64 64\n", kMegatron + "--deepspeed --num-experts 64 64\n"},
      {"ENV002", "j.sh", "export TORCH_DISTRIBUTED_DEBUG=DETAIL\n" + kMegatron + "\n",
       "export TORCH_DISTRIBUTED_DEBUG=INFO\n" + kMegatron + "\n"},
      {"FIL001", "j.sh", "DATA=./data/<path of the data>_document\n" + kMegatron + "\n", "sort <in >out\n" + kMegatron + "\n"},
      {"SH004", "j.sh", "E=\"A=1 B=2\"\n$E " + kMegatron + "\n", "E=\"A=1 B=2\"\nenv $E " + kMegatron + "\n"},
      {"MEG015", "j.sh", kMegatron + "--lr-warmup-fraction .01 --lr-warmup-iters 100\n",
       kMegatron + "--lr-warmup-fraction .01 --lr-warmup-iters 0\n"},
      {"ENV004", "j.sh", "export NCCL_DEBUG_LEVEL=INFO\n" + kMegatron + "\n",
       "NCCL_DEBUG_LEVEL=INFO\nexport NCCL_DEBUG=$NCCL_DEBUG_LEVEL\n" + kMegatron + "\n"},
      {"ENV002", "j.sh", "export NCCL_IB_DISABLE=1\n" + kMegatron + "\n",
       "if [ -d /sys/class/infiniband ]; then export NCCL_IB_DISABLE=0; else export NCCL_IB_DISABLE=1; fi\n" + kMegatron + "\n"},
      {"FIL001", "j.sh", "torchrun --nproc_per_node 8 t.py --output_dir <DIR> --bf16 True\n",
       "torchrun --nproc_per_node 8 t.py --output_dir d < questions > answers\n"},
      {"PLAN005", "j.sh", kMegatron + "--pipeline-model-parallel-size 4\n",
       "torchrun --nproc_per_node=8 evaluate.py --num-layers -1 --hidden-size -1 --num-attention-heads -1 --seq-length 128 "
       "--max-position-embeddings 128 --micro-batch-size 1 --pipeline-model-parallel-size 4\n"},
      {"SL029", "j.sbatch", "#!/bin/bash\n#SBATCH --nodes=NUM_NODES\nsrun -K hostname\n",
       "#!/bin/bash\n#SBATCH --nodes=2-4\n#SBATCH --partition=NUM_NODES\nsrun -K hostname\n"},
      {"TR016", "j.sh", "ACTOR_PATH=\npython t.py --actor_path $ACTOR_PATH --bf16\n",
       "EXTRA_ARGS=\nMODEL_PATH=\nread MODEL_PATH\nDATA_PATH=\npython t.py --fp16 $EXTRA_ARGS --model_path $MODEL_PATH --data_path "
       "\"$DATA_PATH\"\n"},
      {"LF003", "s.yaml", "stage: sft\nfinetuning_type: lora\ntemplate: qwen\ndataset: d\noutput_dir: o\nmodel_name_or_path: m\n",
       "stage: sft\ndo_eval: true\nfinetuning_type: lora\ntemplate: qwen\ndataset: d\noutput_dir: o\nmodel_name_or_path: m\n"},
      {"SL017", "j.sbatch", kBatch + "#SBATCH --cpus-per-task=8\nsrun -K python t.py\n",
       kBatch + "#SBATCH --cpus-per-task=8\nsrun -lu bash -c 'nvidia-smi'\nsrun --cpus-per-task 8 -lu bash -c \"$CMD\"\n"},
      {"ENV001", "j.sh", "pip install torch==2.9.1\nexport PYTORCH_CUDA_ALLOC_CONF=a:b\npython t.py\n",
       "pip install \"torch==2.3.0\" torchvision==0.18\nexport PYTORCH_CUDA_ALLOC_CONF=a:b\npython t.py\n"},
      {"ENV001", "j.sh", "pip install trl==0.10.1\nexport TRANSFORMERS_CACHE=/c\npython t.py\n",
       "pip install transformers==4.44.0\nexport TRANSFORMERS_CACHE=/c\npython t.py\n"},
      {"K8S001", "p.yaml", pod("}\n").insert(pod("}\n").find("image: i,"), "command: [bash, -c, 'nvidia-smi && python t.py'], "),
       pod("}\n").insert(pod("}\n").find("image: i,"), "command: [bash, -c, 'nvidia-smi; sleep 10'], ")},
      {"SL025", "j.sbatch", kBatch + "CMD=\"torchrun --nnodes=2 --nproc_per_node=8 --rdzv_endpoint=h:1 t.py\"\neval \"$CMD\"\n",
       kBatch + "CMD=\"srun -K torchrun --nnodes=2 --nproc_per_node=8 --rdzv_endpoint=h:1 t.py\"\neval \"$CMD\"\n"},
      {"ENV004", "j.sh", "export NCCL_WORK_FIFO_DEEP=64\npython t.py\n", "export NCCL_WORK_FIFO_DEPTH=64\npython t.py\n"},
      {"SL008", "j.sbatch",
       "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-node=8\nsrun --gpus-per-task=1 python t.py\n",
       "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-task=8\nsrun torchrun --nnodes=2 "
       "--nproc_per_node=8 t.py\n"},
      {"SL008", "j.sbatch",
       "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-node=8\nsrun --gpus-per-task=1 python t.py\n",
       "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\nsrun --gpus-per-task=8 torchrun "
       "--nnodes=2 --nproc_per_node=8 t.py\n"},
      {"SL002", "j.sbatch",
       "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\nsrun python t.py\n",
       "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\nsrun --nodes=1 --ntasks=1 "
       "hostname\nsrun --ntasks-per-node=8 python t.py\n"},
      {"SL009", "j.sbatch",
       "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-node=8\nsrun python t.py\n",
       "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-node=8\nsrun --nodes=1 --ntasks=1 "
       "nvidia-smi\nsrun -K python t.py\n"},
      {"SL003", "j.sbatch",
       "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\nsrun bash -c \"torchrun --nnodes=2 "
       "--nproc_per_node=8 --node_rank=$SLURM_PROCID --master_addr=n0 t.py\"\n",
       "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\nsrun bash -c \"torchrun --nnodes=2 "
       "--nproc_per_node=8 --node_rank=\\$SLURM_PROCID --master_addr=n0 t.py\"\n"},
      {"AX002", "a.yaml",
       "base_model: m\nsequence_len: 2048\nmicro_batch_size: 1\ndatasets: [{path: d, type: alpaca}]\noptimizer: "
       "adamw_bnb_8bit\nfsdp_version: 2\nfsdp_config: {auto_wrap_policy: TRANSFORMER_BASED_WRAP}\n",
       "base_model: m\nsequence_len: 2048\nmicro_batch_size: 1\ndatasets: [{path: d, type: alpaca}]\noptimizer: "
       "adamw_torch_8bit\nfsdp_version: 2\nfsdp_config: {auto_wrap_policy: TRANSFORMER_BASED_WRAP}\n"},
      {"LF002", "l.yaml", "stage: sft\nfinetuning_type: lora\ntemplate: t\ncutof_len: 4096\n",
       "stage: sft\nfinetuning_type: lora\ntemplate: t\nwarmup_ratio: 0.1\noverwrite_output_dir: true\n"},
      {"PLAN005", "m.sh",
       "torchrun --nproc_per_node=8 pretrain_gpt.py --num-layers 30 --hidden-size 512 --num-attention-heads 8 "
       "--pipeline-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 8 \n",
       "torchrun --nproc_per_node=8 pretrain_gpt.py --deepspeed --pp-partition-method 'type:transformer|embedding' --num-layers 30 "
       "--hidden-size 512 --num-attention-heads 8 --pipeline-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 8 \n"},
      {"K8S007", "k.yaml",
       "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {completionz: 2, template: {spec: {restartPolicy: Never, "
       "containers: [{name: c, image: i}]}}}\n",
       "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: j}\nspec: {minAvailable: 2, schedulerName: volcano, tasks: "
       "[{replicas: 2, template: {spec: {containers: [{name: c, image: i}]}}}]}\n"},
      {"TR012", "j.sbatch",
       "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\nsrun torchrun "
       "--nnodes=$SLURM_JOB_NUM_NODES --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=localhost:1 --rdzv_id=$J t.py\n",
       "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\nsrun torchrun "
       "--nnodes=$SLURM_JOB_NUM_NODES --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=localhost:1 --rdzv_id=$J t.py\n"},
      {"SH001", "r.sh", "torchrun --nproc_per_node=8 t.py --data \"${1:-'x'}\"\n",
       "torchrun --nproc_per_node=8 t.py --data ${1:-'x'}\n"},
      {"SH001", "r.sh", "torchrun --nproc_per_node=8 t.py --data \"${1:-'x'}\"\n",
       "bash -c \"torchrun --nproc_per_node=8 t.py --data ${1:-'x'}\"\n"},
      {"PLAN002", "ds.json", "{\"train_batch_size\": 7, \"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 4}",
       "{\"train_batch_size\": 48, \"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 4}"},
      {"TR010", "j.sbatch", kBatch + kRun + "t.py\n", kBatch + kRun + "--rdzv_backend=c10d --rdzv_endpoint=$H:1 --rdzv_id=$J t.py\n"},
      {"TR010", "j.sbatch", kBatch + kRun + "--master_addr=$H t.py\n",
       kBatch + "srun bash -c 'torchrun --nnodes=2 --nproc_per_node=8 --node_rank=$SLURM_NODEID --master_addr=$H t.py'\n"},
      {"TR005", "r.sh", "torchrun --nnodes=1:4 --nproc_per_node=8 --node_rank=0 --master_addr=$H t.py\n",
       "torchrun --nnodes=$MIN:$MAX --nproc_per_node=8 --rdzv_backend=$B --rdzv_endpoint=$H t.py\n"},
      {"TR001", "j.sbatch", kBatch + kRun + "--rdzv_backend=c10d --rdzv_id=$J --master_addr=$H t.py\n",
       kBatch + "srun bash -c 'torchrun --nnodes=2 --nproc_per_node=8 --node_rank=$SLURM_NODEID --master_addr=$H t.py'\n"},
      {"TR002", "r.sh", "torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=h:1 --rdzv_id=7 t.py\n",
       "torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=h:1 --rdzv_id=$SLURM_JOB_ID t.py\n"},
      {"TR011", "r.sh", "torchrun --nproc_per_node=8 -c t.py\n",
       "torchrun --nproc_per_node=$(python -c 'import torch; print(torch.cuda.device_count())') t.py\n"},
      {"SL006", "j.sbatch", kBatch + "#SBATCH --output=logs/%j/out\nhostname\n", kBatch + "#SBATCH --output=%x-%j.out\nhostname\n"},
      {"SL022", "j.sbatch", kBatch + "#SBATCH --export=NONE\nsource activate llm\n", kBatch + "source activate llm\n"},
      {"SL004", "j.sbatch", kBatch + "srun deepspeed t.py\n", kBatch + "srun python t.py --deepspeed ds.json\n"},
      {"SL020", "j.sbatch", kBatch + "hostname\n", kBatch + "#SBATCH --exclusive\nhostname\n"},
      {"ENV001", "r.sh", "export NCCL_BLOCKING_WAIT=1\npython t.py\n", "export TORCH_NCCL_BLOCKING_WAIT=1\npython t.py\n"},
      {"ENV011", "j.pbs", "#!/bin/bash\n#PBS -l select=1:ngpus=1\npython t.py > log.$PBS_JOB_ID\n",
       "#!/bin/bash\n#PBS -l select=1:ngpus=1\npython t.py > log.$PBS_JOBID\n"},
      {"ENV011", "j.sbatch", "#!/bin/bash\n#SBATCH --nodes=2\nsrun bash -c 'torchrun --nnodes=2 --node_rank=$SLURM_NODE_ID t.py'\n",
       "#!/bin/bash\n#SBATCH --nodes=2\nexport SLURM_NODE_ID=$SLURM_NODEID\necho $SLURM_NODE_ID ${SLURM_PROC_ID:-0} $SLURM_SITE_ID\n"},
      {"FSDP021", "a.yaml", "distributed_type: FSDP\nnum_processes: 4\nfsdp_config: {fsdp_version: 1, backward_prefetch: AUTO}\n",
       "distributed_type: FSDP\nnum_processes: 4\nfsdp_config: {fsdp_version: 1, fsdp_backward_prefetch: backward_pre}\n"},
      {"SW001", "a.yaml", "model: m\ntuner_type: lora\nlora_rnak: 8\n",
       "model: m\ntuner_type: lora\nlora_rank: 8\nENV: {NPROC_PER_NODE: 8}\n"},
      {"SW001", "m.yaml", "model: m\ntuner_type: lora\nmicro_batch_size: 1\ntensor_model_parallel_sise: 4\n",
       "model: m\ntuner_type: lora\nmicro_batch_size: 1\ntensor_model_parallel_size: 4\n"},
      {"SW001", "r.sh", "NPROC_PER_NODE=8 swift sft --model m --tuner_type lora --gradient_acumulation_steps 8\n",
       "NPROC_PER_NODE=8 swift sft --model m --tuner_type lora --gradient_accumulation_steps 8 --no_add_version --config a.yaml\n"},
      {"SW001", "r.sh", "megatron sft --model m --tuner_type lora --expert_model_parallel_sise 8\n",
       "megatron sft --model m --tuner_type lora --expert_model_parallel_size 8 --expert_tensor_parallel_size 1\nswift export "
       "--lora_rnak 8\n"},
      {"ENV005", "r.sh", "export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567\npython t.py\n",
       "export MOE_DROP_TOKEN=\"true\"\nexport HF_TOKEN=$(cat token)\npython t.py\n"},
      {"ENV008", "r.sh", "export NCCL_LL_THRESHOLD=0\npython t.py\n", "export NCCL_PROTO=Simple\npython t.py\n"},
      {"FIL004", "ds.json", R"({"train_batch_size": 8, "gradient_clipping": 1.0, "fp16": {"enabled ": true}})",
       R"({"train_batch_size": 8, "gradient_clipping": 1.0, "fp16": {"enabled" : true}})"},
      {"FSDP006", "a.yaml",
       kAxolotl + "unfrozen_parameters: [self_attn]\nfsdp_version: 1\nfsdp_config: {auto_wrap_policy: TRANSFORMER_BASED_WRAP, "
                  "use_orig_params: false}\n",
       kAxolotl +
           "adapter: qlora\nfsdp_version: 1\nfsdp_config: {auto_wrap_policy: TRANSFORMER_BASED_WRAP, use_orig_params: false}\n"},
      {"AX003", "a.yaml", kAxolotl + "fsdp_version: 2\nfsdp_config: {fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP}\n",
       kAxolotl + "fsdp_version: 2\nfsdp_config: {auto_wrap_policy: TRANSFORMER_BASED_WRAP}\n"},
      {"K8S001", "p.yaml", pod("}\n"),
       pod(", volumeMounts: [{name: s, mountPath: /dev/shm}]}\n  volumes: [{name: s, emptyDir: {medium: Memory}}]\n")},
      {"DSJ026", "ds.json",
       R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4, "zero_optimization": {"stage": 2}})",
       R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}})"},
      {"TR004", "r.sh", "torchrun --standalone --nproc_per_node=8 t.py\n",
       "export OMP_NUM_THREADS=8\ntorchrun --standalone --nproc_per_node=8 t.py\n"},
      {"MEG010", "r.sh",
       "torchrun --nproc_per_node=8 pretrain_gpt.py --micro-batch-size 4 --num-layers 2 --tensor-model-paralel-size 2\n",
       "torchrun --nproc_per_node=8 pretrain_gpt.py --micro-batch-size 4 --num-layers 2 --tensor-model-parallel-size 2\n"}};
  for (const Pair& one : pairs) {
    INFO(one.code << "\n" << one.mistake << "\n" << one.near_miss);
    CHECK(num_found(one.path, one.mistake, one.code) >= 1);
    CHECK(num_found(one.path, one.near_miss, one.code) == 0);
  }
}

TEST_CASE("lint near misses: one finding a file, however many keys and lines", "[lint]") {
  const std::string old =
      "fsdp_version: 2\nfsdp_config: {fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP, fsdp_offload_params: false, "
      "fsdp_state_dict_type: FULL_STATE_DICT}\n";
  CHECK(num_found("a.yaml", kAxolotl + old, "AX003") == 1);
  CHECK(num_found("j.sbatch", "#!/bin/bash\n#SBATCH --nodes=1\nL=\"deepspeed --num_gpus 1\"\n$L t.py | tee log\n", "SL010") == 1);
  CHECK(num_found("j.sbatch", kBatch + "#SBATCH --output=logs/%j/out\n#SBATCH --error=logs/%j/err\nhostname\n", "SL006") == 1);
}

TEST_CASE("lint near misses: Lightning in a task of SLURM counts its own devices, unless torchrun starts it", "[lint]") {
  const LintFile config{"l.yaml", "seed_everything: 1\ntrainer: {devices: 8, num_nodes: 2, max_epochs: 1}\n"};
  const auto found = [&config](const std::string& line) {
    const LintReport report = lint_files({config, {"j.sbatch", kBatch + line}}, {});
    return std::count_if(report.findings.begin(), report.findings.end(),
                         [](const LintFinding& one) { return one.diagnostic.code == "LN001"; });
  };
  CHECK(found("srun python main.py fit --config l.yaml\n") == 1);
  CHECK(found("srun bash -c 'torchrun --nnodes=2 --nproc_per_node=8 --node_rank=$SLURM_NODEID --master_addr=$H main.py fit'\n") == 0);
}

TEST_CASE("lint near misses: beside files that are looked at, one of another tool is passed over", "[lint]") {
  const LintFile job{"j.sh", "python t.py\n"}, program{"p.py", "import torch  # torchrun\nslots = 8\n"};
  const LintFile neox{"n.yml", "{\"pipe-parallel-size\": 2, \"num-layers\": 4}\n"}, unknown{"u.yaml", "blocks: 4\nwidth: 8\n"};
  const auto said = [](const std::vector<LintFile>& files) {
    const LintReport report = lint_files(files, {});
    REQUIRE(report.unreadable.size() == 1);
    return report.unreadable[0];
  };
  CHECK(said({program}).severity == Severity::kError);
  CHECK(said({program}).message == "the file is a Python program, which distsetup does not read");
  for (const LintFile& file : {program, neox}) CHECK(said({job, file}).severity == Severity::kNote);
  CHECK(said({job, unknown}).severity == Severity::kError);
}

TEST_CASE("lint near misses: of keys given twice, the one that says two things is named", "[lint]") {
  const auto message = [](const std::string& more) {
    const LintReport report = lint_files({{"a.yaml", kAxolotl + "adapter: lora\nlearning_rate: 1e-4\nadapter: lora\n" + more}}, {});
    for (const LintFinding& one : report.findings) {
      if (one.diagnostic.code == "FIL002") return one.diagnostic.message;
    }
    return std::string();
  };
  CHECK(message("") == "key 'adapter' is given twice, expected once");
  CHECK(message("learning_rate: 2e-4\n") == "key 'learning_rate' is given twice, expected once; so is 1 more");
}

TEST_CASE("lint near misses: rules that were wrong more often than right are gone", "[lint]") {
  const std::string old = "torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=$H:1 --rdzv-id=$J t.py\n";
  CHECK(num_found("r.sh", old, "TR003") == 0);
  const std::string far =
      "distributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: 8\nmachine_rank: 0\nmain_process_ip: h\n"
      "main_process_port: 1\nrdzv_backend: static\nsame_network: false\n";
  CHECK(num_found("a.yaml", far, "ACC008") == 0);
}

namespace {

// A job of one container, with what stands behind its name and image.
std::string container(const std::string& kind, const std::string& counts, const std::string& more) {
  return kind + "metadata: {name: j}\nspec: {" + counts +
         "template: {spec: {hostIPC: true, restartPolicy: Never, containers: [{name: c, image: i, " + more + "}]}}}\n";
}

std::string pytorch_job(const std::string& command, int num_workers, int num_gpus) {
  const std::string pod = "template: {spec: {hostIPC: true, containers: [{name: pytorch, image: i, command: [bash, -c, '" + command +
                          "'], resources: {limits: {nvidia.com/gpu: " + std::to_string(num_gpus) + "}}}]}}";
  return "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: j}\nspec:\n  pytorchReplicaSpecs:\n    Master: {replicas: "
         "1, " +
         pod + "}\n    Worker: {replicas: " + std::to_string(num_workers) + ", " + pod + "}\n";
}

const std::string kJob = "apiVersion: batch/v1\nkind: Job\n";
const std::string kMeet = "--node_rank=$RANK --master_addr=$MASTER_ADDR t.py";

}  // namespace

TEST_CASE("lint near misses: a manifest's variables, GPUs and launch lines", "[lint]") {
  const Pair pairs[] = {
      {"K8S008", "k.yaml", container(kJob, "", "env: [{name: N, value: 8}]"), container(kJob, "", "env: [{name: N, value: \"8\"}]")},
      {"K8S008", "k.yaml", container(kJob, "", "env: [{name: N, value: true}]"),
       container(kJob, "", "env: [{name: N, value: v1.2}, {name: M, value: $(COUNT)}, {name: P, value: 10.0.0.1}]")},
      {"K8S009", "k.yaml", container(kJob, "", "resources: {requests: {nvidia.com/gpu: 8}}"),
       container(kJob, "", "resources: {requests: {nvidia.com/gpu: 8, cpu: 4}, limits: {nvidia.com/gpu: 8}}")},
      {"TR008", "k.yaml", pytorch_job("torchrun --nproc_per_node=8 --nnodes=2 " + kMeet, 1, 4),
       pytorch_job("torchrun --nproc_per_node=4 --nnodes=2 " + kMeet, 1, 4)},
      {"TR008", "k.yaml", pytorch_job("torchrun --nproc_per_node=8 --nnodes=2 " + kMeet, 1, 4),
       pytorch_job("torchrun --nproc_per_node=$GPUS --nnodes=2 " + kMeet, 1, 4)},
      {"TR009", "k.yaml", pytorch_job("torchrun --nproc_per_node=4 --nnodes=4 " + kMeet, 1, 4),
       pytorch_job("torchrun --nproc_per_node=4 --nnodes=4 " + kMeet, 3, 4)},
      {"TR009", "k.yaml", pytorch_job("torchrun --nproc_per_node=4 --nnodes=4 " + kMeet, 1, 4),
       pytorch_job("torchrun --nproc_per_node=4 --nnodes=$WORLD_SIZE " + kMeet, 1, 4)},
      {"TR010", "k.yaml",
       container(kJob, "parallelism: 2, completions: 2, ", "command: [torchrun, --nnodes=2, --nproc_per_node=8, t.py]"),
       pytorch_job("torchrun --nnodes=2 --nproc_per_node=4 t.py", 1, 4)},
      {"TR010", "k.yaml",
       container(kJob, "parallelism: 2, completions: 2, ", "command: [torchrun, --nnodes=2, --nproc_per_node=8, t.py]"),
       container(kJob, "parallelism: 2, completions: 2, ",
                 "envFrom: [{configMapRef: {name: m}}], command: [torchrun, --nnodes=2, --nproc_per_node=8, t.py]")}};
  for (const Pair& one : pairs) {
    INFO(one.code << "\n" << one.mistake << "\n" << one.near_miss);
    CHECK(num_found(one.path, one.mistake, one.code) >= 1);
    CHECK(num_found(one.path, one.near_miss, one.code) == 0);
  }
}

TEST_CASE("lint near misses: adapters, precisions, and what a job's own variables and comments say", "[lint]") {
  const std::string ds = "train_micro_batch_size_per_gpu: 1\ngradient_clipping: 1.0\nzero_optimization: {stage: ";
  const Pair pairs[] = {
      {"AX005", "a.yaml", kAxolotl + "adapter: qlora\n", kAxolotl + "adapter: qlora\nload_in_4bit: true\n"},
      {"AX005", "a.yaml", kAxolotl + "adapter: qlora\nload_in_4bit: false\n", kAxolotl + "adapter: lora\nload_in_8bit: true\n"},
      {"AX005", "a.yaml", kAxolotl + "adapter:\nload_in_4bit: true\n", kAxolotl + "adapter: ${ADAPTER}\nload_in_4bit: true\n"},
      {"AX006", "a.yaml", kAxolotl + "lora_r: 8\n", kAxolotl + "adapter:\nlora_r:\nlora_alpha:\n"},
      {"AX007", "a.yaml", kAxolotl + "bf16: true\nfp16: true\n", kAxolotl + "bf16: auto\nfp16:\n"},
      {"AX004", "a.yaml", kAxolotl + "eval_table: 4\n", kAxolotl + "eval_table:\n"},
      {"DSJ042", "d.yaml", ds + "three}\n", ds + "${stage}}\n"},
      {"PLAN008", "m.sh", kMegatron + "--fp16 --bf16\n",
       "if [ $PR = fp16 ]; then\n  pr=\"--fp16\"\nelif [ $PR = bf16 ]; then\n  pr=\"--bf16\"\nelse\n  pr=\"--bf16 --fp8-format "
       "hybrid\"\nfi\n" +
           kMegatron + "$pr\n"},
      {"TR011", "l.sh", "torchrun --nproc_per_node=8 --use_env train.py --lr 1e-4\n",
       "python -m torch.distributed.launch --nproc_per_node=8 --use_env train.py --lr 1e-4\n"},
      {"ENV010", "s.sh", "ADDR=10.0.0.1\nssh b 'torchrun --nnodes=2 --node_rank=1 --master_addr=$ADDR t.py'\n",
       "ADDR=10.0.0.1\nssh b \"torchrun --nnodes=2 --node_rank=1 --master_addr=$ADDR t.py\"\n"},
      {"ENV010", "s.sh", "ADDR=10.0.0.1\nssh b 'cd r && python t.py --addr ${ADDR}'\n",
       "ADDR=10.0.0.1\nssh b 'ADDR=10.0.0.1; python t.py --addr ${ADDR}'\n"},
      {"ENV010", "s.sh", "ADDR=10.0.0.1\npdsh -w b,c 'deepspeed t.py --addr $ADDR'\n",
       "ADDR=10.0.0.1\npdsh -w b,c '. r/env.sh && deepspeed t.py --addr $ADDR'\n"},
      {"ENV010", "s.sh", "ADDR=10.0.0.1\nssh b 'python t.py --addr $ADDR'\n",
       "export PATH=/opt/bin:$PATH\nssh b 'python t.py --path $PATH --rank $RANK'\n"},
      {"SL033", "j.sbatch", "#!/bin/bash\n#SBATCH --gres=gpu:4\ntorchrun --standalone --nproc_per_node=$SLURM_GPUS t.py\n",
       "#!/bin/bash\n#SBATCH --gpus=4\n#SBATCH --gres=gpu:4\ntorchrun --standalone --nproc_per_node=$SLURM_GPUS t.py\n"},
      {"SL033", "j.sbatch", "#!/bin/bash\n#SBATCH --gres=gpu:4\ntorchrun --standalone --nproc_per_node=${SLURM_GPUS} t.py\n",
       "#!/bin/bash\n#SBATCH --gres=gpu:4\ntorchrun --standalone --nproc_per_node=${SLURM_GPUS:-4} t.py\n"},
      {"ACC016", "a.yaml", "distributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 8\ngpu_ids: 0,1,2,4,5,6,7\n",
       "distributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: 8\ngpu_ids: 0,1,2,3\n"},
      {"ACC016", "a.yaml", "distributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 2\ngpu_ids: 0\n",
       "distributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 8\ngpu_ids: all\n"},
      {"SL034", "j.sbatch", "#!/bin/bash\n#SBATCH --gres=gpu:4\nexport CUDA_VISIBLE_DEVICES=\"1,2,3,4\"\npython t.py\n",
       "#!/bin/bash\n#SBATCH --gres=gpu:4\nexport CUDA_VISIBLE_DEVICES=$(seq -s, 4 7)\nCUDA_VISIBLE_DEVICES=2,3 python t.py\n"},
      {"SL029", "j.sbatch", "#!/bin/bash\n#SBATCH --nodes==2\nhostname\n", "#!/bin/bash\n#SBATCH --export=A=2\nhostname\n"},
      {"ENV005", "r.sh", "export HF_TOKEN=\"0123456789abcdef0123456789abcdef01234567\"\npython t.py\n",
       "export image_token_ratio_list=\"[0.5,0.25,0.125]\"\nexport HF_TOKEN_PATH=/home/a/0123456789abcdef\npython t.py\n"}};
  for (const Pair& one : pairs) {
    INFO(one.code << "\n" << one.mistake << "\n" << one.near_miss);
    CHECK(num_found(one.path, one.mistake, one.code) >= 1);
    CHECK(num_found(one.path, one.near_miss, one.code) == 0);
  }
  // A blank takes a directive out on purpose where others are left in; a slip is a slip.
  const auto severity = [](const std::string& text) {
    for (const LintFinding& one : lint_files({{"j.sbatch", text}}, {}).findings)
      if (one.diagnostic.code == "SL024") return one.diagnostic.severity;
    return Severity::kError;
  };
  CHECK(severity("#!/bin/bash\n#SBATCH --nodes=2\n# SBATCH --mem=1G\nhostname\n") == Severity::kNote);
  CHECK(severity("#!/bin/bash\n#SBATCH --nodes=2\n#SBTACH --mem=1G\nhostname\n") == Severity::kWarning);
}

TEST_CASE("near misses: sizes of a torchtitan file are errors, unless it has sections of a fork") {
  const std::string file = "[job]\ndump_folder = \"o\"\n[parallelism]\ndata_parallel_replicate_degree = -1\n";
  const auto is_error = [](const std::string& text) {
    const LintReport report = lint_files({{"a.toml", text}}, {});
    return std::any_of(report.findings.begin(), report.findings.end(), [](const LintFinding& one) {
      return one.diagnostic.code == std::string("PLAN003") && one.diagnostic.severity == Severity::kError;
    });
  };
  CHECK(is_error(file));
  CHECK(is_error(file + "[paralelism]\na = 1\n"));
  CHECK_FALSE(is_error(file + "[tpu_config]\na = 1\n[own_kernels]\nb = 2\n"));
}
