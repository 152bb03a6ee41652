#!/usr/bin/env bash
# distsetup 0.1.0, inputs 245fc273920c2aae971506bb528e9a8152952e199fbb943be5088055b832ba77
# command: distsetup emit --target launch-scripts --use scratch_7b --gpu h100_sxm --job-name llm-training --cpus-per-task 12 --mem 0 --time-limit 48:00:00 --partition gpu --exclusive --output-log logs/train_%j.out
# plan: scratch_7b_wide, zero3, recompute none, bf16: fits
# 1 node × 8 GPUs = 8 ranks
# global batch 64 = micro-batch 4 × accumulation 2 × data-parallel 8
#
# Trains on this machine, one process per GPU, started by torchrun. Arguments are passed on to the trainer.
set -euo pipefail

# --- settings: change them here, or for one run in the environment (BATCH_SIZE=2 ./launch_single_node.sh)
# What is started: distsetup-train, which plans from these flags, or a training script of one's own that takes them.
TRAINER=${TRAINER:-${DISTSETUP_TRAIN:-distsetup-train}}
# true: HF_MODEL with its weights, which distsetup-train does not load; false: MODEL_SIZE from scratch.
USE_HF_MODEL=${USE_HF_MODEL:-false}
HF_MODEL=${HF_MODEL:-''}
# 350M, 1B, 3B, 7B, 13B, 30B or 70B; for distsetup-train also a preset, or a folder with config.json.
MODEL_SIZE=${MODEL_SIZE:-scratch_7b_wide}
SEQ_LEN=${SEQ_LEN:-2048}
# Per GPU and micro-batch.
BATCH_SIZE=${BATCH_SIZE:-4}
GRAD_ACCUM_STEPS=${GRAD_ACCUM_STEPS:-2}
MAX_STEPS=${MAX_STEPS:-100000}
MAX_LR=${MAX_LR:-0.0003}
MIN_LR=${MIN_LR:-3e-05}
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
  --reshard-after-forward false
  --dp-replicate 1
  --recompute none
  --keep-checkpoints 3
)
GPUS_PER_NODE=${NUM_GPUS:-8}
nodes=1

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
here=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
cd "$here"
if ! command -v -- "$TRAINER" >/dev/null && [[ ! -f $TRAINER ]]; then
  echo "${BASH_SOURCE[0]##*/}: '$TRAINER' not found: put it on PATH, or set TRAINER=/path/to/it" >&2
  exit 5
fi
# torchrun sets one thread per process where nothing is said.
cores=$(nproc)
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$((cores > GPUS_PER_NODE ? cores / GPUS_PER_NODE : 1))}"
ranks=$((nodes * GPUS_PER_NODE))
echo "model $model · $ranks GPUs · $((BATCH_SIZE * GRAD_ACCUM_STEPS * ranks)) sequences per step · checkpoints in $CHECKPOINT_DIR" >&2
exec torchrun --standalone --nnodes="$nodes" --nproc_per_node="$GPUS_PER_NODE" "${program[@]}" "${arguments[@]}" "$@"
