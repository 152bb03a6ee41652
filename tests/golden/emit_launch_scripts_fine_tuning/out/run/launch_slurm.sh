#!/bin/bash
# distsetup 0.1.0, inputs 6311ff3d956e624eebae18acc0d0e51da24a793cf37cdb4c19db0c466570ad08
# command: distsetup emit --target launch-scripts --use finetune_llama2_70b --gpu h100_sxm
# plan: llama2_70b, zero3, recompute full, bf16: fits
# 4 nodes × 8 GPUs = 32 ranks
# global batch 512 = micro-batch 2 × accumulation 8 × data-parallel 32
#
# Trains on the nodes of a SLURM job: sbatch launch_slurm.sh. One task per node, with torchrun inside it; it reads the node's number
# inside the task.
#SBATCH --job-name=llm_finetune
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --output=slurm-%j.out
#SBATCH --error=slurm-%j.err
#SBATCH --no-requeue

set -euo pipefail

# --- settings: change them here, or for one run in the environment (BATCH_SIZE=2 ./launch_single_node.sh)
# What is started: distsetup-train, which plans from these flags, or a training script of one's own that takes them.
TRAINER=${TRAINER:-train_llm.py}
# true: HF_MODEL with its weights; false: MODEL_SIZE from scratch.
USE_HF_MODEL=${USE_HF_MODEL:-true}
HF_MODEL=${HF_MODEL:-meta-llama/Llama-2-70b-hf}
# 350M, 1B, 3B, 7B, 13B, 30B or 70B; for distsetup-train also a preset, or a folder with config.json.
MODEL_SIZE=${MODEL_SIZE:-llama2_70b}
SEQ_LEN=${SEQ_LEN:-2048}
# Per GPU and micro-batch.
BATCH_SIZE=${BATCH_SIZE:-2}
GRAD_ACCUM_STEPS=${GRAD_ACCUM_STEPS:-8}
MAX_STEPS=${MAX_STEPS:-100000}
MAX_LR=${MAX_LR:-0.00015}
MIN_LR=${MIN_LR:-1.5e-05}
WARMUP_STEPS=${WARMUP_STEPS:-2000}
WEIGHT_DECAY=${WEIGHT_DECAY:-0.1}
GRAD_CLIP=${GRAD_CLIP:-1.0}
MIXED_PRECISION=${MIXED_PRECISION:-true}
# Chosen once: the same command again goes on from the newest checkpoint in it.
CHECKPOINT_DIR=${CHECKPOINT_DIR:-checkpoints}
CHECKPOINT_INTERVAL=${CHECKPOINT_INTERVAL:-1000}
LOG_INTERVAL=${LOG_INTERVAL:-10}
# Of distsetup-train alone: text files or folders with commas between them, the kind of GPU, and what the flags above have no word for.
DATA=${DATA:-}
GPU=${GPU:-h100_sxm}
MORE=(
  --trainer native
  --seed 0
  --beta1 0.9
  --beta2 0.95
  --epsilon 1e-08
  --sharding zero3
  --reshard-after-forward true
  --dp-replicate 1
  --recompute full
  --keep-checkpoints 3
)
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
NUM_NODES=${SLURM_JOB_NUM_NODES:-4}
# INFO says which interfaces are used.
export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
export NCCL_IB_DISABLE=${NCCL_IB_DISABLE:-0}

# --- from here on nothing has to be changed
if [[ $USE_HF_MODEL == true ]]; then
  model=$HF_MODEL
  arguments=(--hf-model "$HF_MODEL")
else
  model=$MODEL_SIZE
  arguments=(--from-scratch --model-size "$MODEL_SIZE")
fi
arguments+=(
  --seq-len "$SEQ_LEN" --batch-size "$BATCH_SIZE" --grad-accum-steps "$GRAD_ACCUM_STEPS" --max-steps "$MAX_STEPS"
  --max-lr "$MAX_LR" --min-lr "$MIN_LR" --warmup-steps "$WARMUP_STEPS" --weight-decay "$WEIGHT_DECAY" --grad-clip "$GRAD_CLIP"
  --checkpoint-dir "$CHECKPOINT_DIR" --checkpoint-interval "$CHECKPOINT_INTERVAL" --log-interval "$LOG_INTERVAL"
)
if [[ $MIXED_PRECISION == true ]]; then arguments+=(--mixed-precision); else arguments+=(--no-mixed-precision); fi
program=("$TRAINER")
if [[ $TRAINER != *.py ]]; then
  program=(--no_python "$TRAINER")
  arguments+=(--gpu "$GPU" "${MORE[@]}")
  if [[ -n $DATA ]]; then arguments+=(--data "$DATA"); fi
fi
# SLURM runs a copy of this file, but remembers where it came from.
script=$(scontrol show job "$SLURM_JOB_ID" | sed -n '0,/^ *Command=/s/^ *Command=//p')
if [[ $script == /* ]]; then cd "${script%/*}"; fi
if ! command -v -- "$TRAINER" >/dev/null && [[ ! -f $TRAINER ]]; then
  echo "${BASH_SOURCE[0]##*/}: '$TRAINER' not found: put it on PATH, or set TRAINER=/path/to/it" >&2
  exit 5
fi
# torchrun sets one thread per process where nothing is said.
cores=$(nproc)
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$((cores > GPUS_PER_NODE ? cores / GPUS_PER_NODE : 1))}"
# Left-overs of an interactive shell would win over SLURM's own numbers.
unset RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK
# Rendezvous on the first host of the job's own list, at a port of its own, so that two jobs on a node do not meet.
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
MASTER_ADDR=${hosts%%$'\n'*}
MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))
export MASTER_ADDR MASTER_PORT
# srun does not take --cpus-per-task over from sbatch (SLURM 22.05 and later).
if [[ -n ${SLURM_CPUS_PER_TASK:-} ]]; then export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK; fi
step=(srun --kill-on-bad-exit=1)
ranks=$((NUM_NODES * GPUS_PER_NODE))
echo "model $model · $ranks GPUs · $((BATCH_SIZE * GRAD_ACCUM_STEPS * ranks)) sequences per step · checkpoints in $CHECKPOINT_DIR" >&2
# Single quotes: the node's number is that of the task, not of this shell. The warning is for the ranks: torchrun would die of it.
# shellcheck disable=SC2016
"${step[@]}" bash -c 'trap "" USR1; export PET_NODE_RANK=$SLURM_NODEID; exec "$@"' node \
  torchrun --nnodes="$NUM_NODES" --nproc_per_node="$GPUS_PER_NODE" --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" \
  "${program[@]}" "${arguments[@]}" "$@"
