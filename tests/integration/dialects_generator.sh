#!/usr/bin/env bash
# The commands, files and sections of a guide to distributed training that generates configurations and launchers (deepspeed, fsdp,
# launcher, slurm), typed as they stand there: each is taken, or answered with what to type instead. Then what its generator got wrong.
# shellcheck disable=SC2016 # literal dollars
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
cd "$work"

# A training script that takes what the launchers pass; torchrun and the like print their words.
mkdir -p bin src
cat >src/train.py <<'PY'
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--config")
parser.add_argument("--deepspeed")
parser.parse_args()
PY
for tool in torchrun accelerate; do
  printf '#!/bin/bash\nprintf "%s"; printf " %%q" "$@"; echo\n' "$tool" >"bin/$tool"
done
chmod +x bin/*
export PATH=$work/bin:$PATH
# The rest of its config.yaml, around the sections that the guide shows.
config() {
  cat >config.yaml <<YAML
model:
  base_model: "meta-llama/Llama-2-7b-hf"
  tokenizer: "meta-llama/Llama-2-7b-hf"
  load_in_8bit: false
  load_in_4bit: false
  trust_remote_code: true
  use_flash_attention: true
  use_liger_kernels: false
fine_tuning:
  method: "lora"
  lora:
    r: 16
    alpha: 32
    dropout: 0.05
    target_modules: ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    bias: "none"
    task_type: "CAUSAL_LM"
  spectrum:
    snr_threshold: 0.5
    layers_to_finetune: "auto"
  quantization:
    bits: 4
    bnb_4bit_compute_dtype: "bfloat16"
    bnb_4bit_quant_type: "nf4"
    bnb_4bit_use_double_quant: true
training:
  epochs: 3
  micro_batch_size: 1
  gradient_accumulation_steps: 16
  learning_rate: 2.0e-4
  lr_scheduler_type: "cosine"
  warmup_ratio: 0.03
  max_grad_norm: 0.3
  optimizer: "adamw_torch"
  weight_decay: 0.001
  max_seq_length: 4096
  gradient_checkpointing: true
  mixed_precision: "bf16"
dataset:
  format: "alpaca"
  train_path: "data/train.json"
  eval_path: "data/eval.json"
  preprocessing:
    add_eos_token: true
    add_bos_token: false
    use_chat_template: true
$1
output:
  output_dir: "models/runs"
  logging_steps: 10
  eval_steps: 100
  save_steps: 500
  save_total_limit: 5
  push_to_hub: false
  hub_model_id: null
evaluation:
  do_eval: true
  eval_batch_size: 8
  eval_strategy: "steps"
  eval_steps: 200
  benchmarks: ["human-eval"]
report_to: "tensorboard"
YAML
}

# --- the DeepSpeed file, and the config that names it
run "deepspeed" 0 "$distsetup" deepspeed --zero_stage 2 --offload_optimizer --bf16 --gradient-accumulation-steps 1 --output config/ds_config.json
config 'distributed:
  use_deepspeed: true
  deepspeed_config: "config/ds_config.json"
  gradient_accumulation_steps: 16'
run "accumulation of the two files" 3 "$distsetup" launcher --config config.yaml --num_gpus_per_node 4 --use_deepspeed
has "accumulation: both are told" "$said" "'training.gradient_accumulation_steps' in config.yaml"
has "accumulation: and what to do" "$said" "make them agree"
# as the guide shows the file
cat >config/ds_config.json <<'JSON'
{
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": 16,
  "gradient_clipping": 0.3,
  "zero_allow_untested_optimizer": true,
  "zero_force_ds_cpu_optimizer": false,
  "bf16": {
    "enabled": true
  },
  "zero_optimization": {
    "stage": 2,
    "contiguous_gradients": true,
    "overlap_comm": true,
    "reduce_scatter": true,
    "reduce_bucket_size": 5e8,
    "allgather_bucket_size": 5e8,
    "offload_optimizer": {
      "device": "cpu",
      "pin_memory": true
    }
  }
}
JSON
run "the same by flags" 0 "$distsetup" deepspeed --zero_stage 2 --offload_optimizer --bf16 --gradient_accumulation_steps 16 --output made.json
is "the file by flags is the guide's" "$(sed 's/500000000/5e8/' made.json)" "$(cat config/ds_config.json)"
run "lint of it" 0 "$distsetup" lint config/ds_config.json
run "validate" 0 "$distsetup" validate config.yaml config/ds_config.json
run "all keys" 0 "$distsetup" convert --to run config.yaml
for setting in 'finetune: lora' 'warmup_ratio: 0.03' 'gradient_accumulation: 16' 'sharding: zero2' 'optimizer: host' 'compute: bf16' 'grad_clip: 0.3' 'keep: 5'; do
  has "all keys: $setting" "$said" "$setting"
done
for key in dataset.train_path model.tokenizer evaluation.benchmarks training.epochs report_to; do
  has "all keys: $key is told" "$said" "$key = "
done
has_not "all keys: none is unknown" "$said" "not a key"

# --- launchers as typed: no script is named, so it is the guide's own
run "launcher" 0 "$distsetup" launcher --config config.yaml --num_gpus_per_node 4 --use_deepspeed
has "launcher: the script is said" "$said" "'src/train.py --config config.yaml' is started"
run "the launcher runs" 0 bash scripts/run_training.sh
has "the launcher: one process per GPU" "$said" "--nproc_per_node=4 src/train.py --config config.yaml --deepspeed $work/scripts/ds_config.json"
is "the launcher: its stage" "$(grep -c '"stage": 2' scripts/ds_config.json)" 1
[[ -x scripts/run_training.sh ]] || fail "the launcher can be run" "$(ls -l scripts)"
for rank in 0 1; do
  run "node $rank" 0 "$distsetup" launcher --config config.yaml --num_nodes 4 --num_gpus_per_node 8 --master_addr 192.168.1.100 \
    --master_port 29500 --node_rank $rank --use_deepspeed --force
  run "node $rank runs" 0 env -u NODE_RANK -u MASTER_ADDR bash scripts/run_training.sh
  has "node $rank: its words" "$said" "--nnodes=4 --nproc_per_node=8 --node_rank=$rank --master_addr=192.168.1.100 --master_port=29500 src/train.py"
done
run "slurm" 1 "$distsetup" slurm --config config.yaml --num_nodes 4 --num_gpus_per_node 8 --use_deepspeed --time_limit 48:00:00
has "slurm: another plan is there already" "$said" "add --force to replace it"
rm -r scripts
run "slurm" 0 "$distsetup" slurm --config config.yaml --num_nodes 4 --num_gpus_per_node 8 --use_deepspeed --time_limit 48:00:00
job=$(cat scripts/slurm_job.sh)
has "slurm: nodes" "$job" "#SBATCH --nodes=4"
has "slurm: time" "$job" "#SBATCH --time=48:00:00"
has "slurm: one launcher per node" "$job" "#SBATCH --ntasks-per-node=1"
has "slurm: the file" "$job" "ds_config.json"
run "slurm: lint" 0 "$distsetup" lint scripts/slurm_job.sh

# --- FSDP
rm -r scripts
run "fsdp" 0 "$distsetup" fsdp --sharding_strategy FULL_SHARD --mixed_precision BFLOAT16 --output config/accelerate.json
has "fsdp: for accelerate" "$(cat config/accelerate.json)" '"distributed_type": "FSDP"'
for setting in sharding_strategy='"FULL_SHARD"' state_dict_type='"SHARDED_STATE_DICT"' sync_module_states=true use_orig_params=false \
  backward_prefetch='"BACKWARD_PRE"' forward_prefetch=false cpu_ram_efficient_loading=true; do
  has "fsdp: the guide's $setting" "$(cat config/accelerate.json)" "\"fsdp_${setting%%=*}\": ${setting#*=}"
done
run "lint of it" 0 "$distsetup" lint --strict config/accelerate.json
run "fsdp, as the guide spells it" 0 "$distsetup" fsdp --dialect classic --sharding_strategy FULL_SHARD --mixed_precision BFLOAT16 \
  --output config/fsdp_config.json
is "fsdp: the guide's eleven keys" "$(tr -d ' \n' <config/fsdp_config.json)" \
  '{"fsdp_transformer_layer_cls_to_wrap":["LlamaDecoderLayer","MistralDecoderLayer","GemmaDecoderLayer"],"fsdp_sharding_strategy":"FULL_SHARD","fsdp_state_dict_type":"SHARDED_STATE_DICT","fsdp_cuda_graphs":false,"fsdp_auto_wrap_policy":"TRANSFORMER_BASED_WRAP","fsdp_sync_module_states":true,"fsdp_use_orig_params":false,"fsdp_backward_prefetch_policy":"BACKWARD_PRE","fsdp_forward_prefetch":false,"fsdp_cpu_ram_efficient_loading":true,"fsdp_mixed_precision":"BFLOAT16"}'
config 'distributed:
  use_fsdp: true
  fsdp_config: "config/fsdp_config.json"
  use_deepspeed: false'
run "launcher with FSDP" 0 "$distsetup" launcher --config config.yaml --num_gpus_per_node 4
run "launcher with FSDP runs" 0 bash scripts/run_training.sh
has "launcher with FSDP: accelerate starts it" "$said" "accelerate launch --config_file $work/scripts/accelerate.yaml --num_machines 1 src/train.py --config config.yaml"
has "launcher with FSDP: sharding" "$(cat scripts/accelerate.yaml)" "fsdp_sharding_strategy: FULL_SHARD"

# --- sections and lines that the guide shows alone
printf 'training:\n  gradient_checkpointing: true\n' >part.yaml
run "gradient checkpointing" 0 "$distsetup" convert --to run part.yaml
has "gradient checkpointing acts" "$said" "recompute: full"
for precision in no fp16 bf16; do
  printf 'training:\n  mixed_precision: "%s"\n' "$precision" >part.yaml
  run "mixed precision $precision" 0 "$distsetup" convert --to run part.yaml
  has "mixed precision $precision acts" "$said" "compute: ${precision/no/fp32}"
done
printf '"zero_optimization": {\n  "offload_optimizer": {"device": "cpu", "pin_memory": true},\n  "offload_param": {"device": "cpu", "pin_memory": true}\n}\n' >part.json
run "a part of a JSON file" 3 "$distsetup" plan --from part.json --model 8B
has "a part of a JSON file: what to type" "$said" "put { in front of it and } behind it"
{ echo '{'; cat part.json; echo '}'; } >whole.json
run "with braces offload without stage 3 is told" 0 "$distsetup" lint whole.json
has "with braces offload without stage 3 is told" "$said" "parameter offload works in stage 3 only, the stage is 0"
printf 'export NCCL_DEBUG=INFO\nexport NCCL_IB_DISABLE=1\nexport NCCL_SOCKET_IFNAME=eth0\n' >environment.sh
run "debugging variables" 0 "$distsetup" lint environment.sh
has "debugging variables are told" "$said" "ENV002"
# the job script as the guide prints it: eight launchers on each node, each a job of its own
cat >slurm_job.sh <<'SH'
#!/bin/bash

#SBATCH --job-name=llm_finetune
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gres=gpu:8
#SBATCH --cpus-per-task=8
#SBATCH --mem-per-gpu=32G
#SBATCH --time=48:00:00
#SBATCH --partition=gpu
#SBATCH --output=slurm-%j.out
#SBATCH --error=slurm-%j.out

module load cuda/12.2
module load anaconda3
source activate llm_finetuning
export CUDA_DEVICE_MAX_CONNECTIONS=1
export NCCL_ASYNC_ERROR_HANDLING=1
export NCCL_DEBUG=INFO
export NCCL_IB_DISABLE=0
export NCCL_SOCKET_IFNAME=^lo,docker
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
export MASTER_PORT=29500
srun deepspeed --num_gpus=8 --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT src/train.py --config config.yaml --deepspeed config/ds_config.json
SH
run "the guide's job script" 3 "$distsetup" lint slurm_job.sh
for rule in SL001 SL004 SL007 SL015 ENV001; do has "the guide's job script: $rule" "$said" "$rule"; done
run "memory of that job" 0 "$distsetup" plan --from slurm_job.sh --from config/ds_config.json --model 7B --json
has "memory of that job: machines" "$said" '"nodes": 4'

# --- faults of the generator, each of which ours has not
config 'distributed: {use_deepspeed: true, use_fsdp: true}'
run "two engines" 3 "$distsetup" validate config.yaml
has "two engines are told" "$said" "a run has one engine"
config ''
rm -r scripts
run "no section distributed" 0 "$distsetup" launcher --config config.yaml --num_gpus_per_node 4
run "no section distributed: plain data parallelism" 0 bash scripts/run_training.sh
has "no section distributed: torchrun" "$said" "torchrun --standalone --nnodes=1 --nproc_per_node=4 src/train.py"
rm -r scripts
run "no section distributed, and DeepSpeed by flag" 0 "$distsetup" launcher --config config.yaml --num_gpus_per_node 4 --use_deepspeed
has "no section distributed, and DeepSpeed by flag" "$(cat scripts/plan.json)" '"trainer": "deepspeed"'
rm -r scripts
run "no section distributed, and FSDP by flag" 0 "$distsetup" launcher --config config.yaml --num_gpus_per_node 4 --use_fsdp
has "no section distributed, and FSDP by flag" "$(cat scripts/plan.json)" '"trainer": "fsdp2"'
sed -i 's/mixed_precision: "bf16"/mixed_precision: "bf17"/' config.yaml
run "an unknown precision" 0 "$distsetup" launcher --config config.yaml --num_gpus_per_node 4 --force
has "an unknown precision is no silent fallback" "$said" "warning[DS0107]: 'training.mixed_precision' is 'bf17'"
has "an unknown precision: what is meant" "$said" "did you mean 'bf16'"
run "offload that does not apply" 3 "$distsetup" deepspeed --zero_stage 1 --offload_param --bf16
has "offload that does not apply is told" "$said" "works in ZeRO stage 3 only"
run "both precisions" 2 "$distsetup" deepspeed --bf16 --fp16
run "no precision" 0 "$distsetup" deepspeed
has "no precision is told" "$said" "trains in fp32"
run "a path without a folder" 0 "$distsetup" deepspeed --bf16 --output alone.json
[[ -s alone.json ]] || fail "a path without a folder is written" "$(ls)"
has_not "no floats for counts" "$(cat alone.json)" "500000000."
config 'distributed: {use_deepspeed: true, zero_stage: 3}'
rm -rf scripts
run "one GPU keeps DeepSpeed's file" 0 "$distsetup" launcher --config config.yaml --num_nodes 1 --num_gpus_per_node 1 --use_deepspeed
has "one GPU keeps DeepSpeed's file" "$(cat scripts/run_training.sh)" '--deepspeed "$here/ds_config.json"'
has_not "no Megatron variable for ZeRO" "$(cat scripts/run_training.sh)" CUDA_DEVICE_MAX_CONNECTIONS
printf 'import argparse\nargparse.ArgumentParser().add_argument("--config")\n' >src/train.py
run "a script without the argument" 0 "$distsetup" launcher --config config.yaml --num_gpus_per_node 1 --use_deepspeed --force
has "a script without the argument is told" "$said" "has no such argument"
# a run file of ours: the bundled trainer has ZeRO itself
printf 'version: 1\nmodel: 1B\nhardware: {gpus_per_node: 2, nodes: 1}\nparallel: {sharding: zero2}\n' >run.yaml
run "a run file" 0 "$distsetup" launcher --config run.yaml --use_deepspeed --output own/
has "a run file: the bundled trainer" "$said" "the bundled trainer runs, which shards by itself"
[[ ! -e own/ds_config.json ]] || fail "a run file: no file that nobody reads" "$(ls own)"
run "a run file with a job" 0 "$distsetup" slurm --config run.yaml --use_deepspeed --output job/job.sbatch
has "a run file with a job: a task per GPU" "$(cat job/job.sbatch)" "#SBATCH --ntasks-per-node=2"
echo "dialects_generator: every command and file of the guide"
