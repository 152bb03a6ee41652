#!/usr/bin/env bash
# distsetup 0.1.0, inputs fed8edb97e49df02e980dbc5398d9d9cf20770f75b25b10d1c0e70cd194fd7c3
# command: distsetup emit --target deepspeed --model 8B --nodes 2 --gpus 8xH100-80GB --sharding zero2 --recompute none --micro-batch 1
# plan: llama3_8b, zero2, recompute none, bf16: fits
# 2 nodes × 8 GPUs = 16 ranks
# global batch 256 = micro-batch 1 × accumulation 16 × data-parallel 16
#
# Starts a training script of yours with DeepSpeed, one process per GPU, by torchrun:
#   launch.sh train.py --deepspeed /path/to/ds_config.json ...
# ds_config.json holds numbers; the script must use the same: micro-batch 1, accumulation 16.
# Several nodes: the same line on every node, with NODE_RANK (0, 1, ...) and MASTER_ADDR (host of node 0) in the environment.
set -euo pipefail

gpus_per_node=8
if (($# == 0)); then
  here=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
  echo "usage: launch.sh train.py [arguments], for a Hugging Face script: train.py --deepspeed '$here/ds_config.json'" >&2
  exit 2
fi
cores=$(nproc)
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$((cores > gpus_per_node ? cores / gpus_per_node : 1))}"
nodes=2
if [[ -z ${NODE_RANK:-} || -z ${MASTER_ADDR:-} ]]; then
  echo "launch.sh: this plan needs $nodes nodes: set NODE_RANK and MASTER_ADDR on each of them" >&2
  exit 2
fi
if [[ ! $NODE_RANK =~ ^(0|[1-9][0-9]{0,5})$ ]] || ((NODE_RANK >= nodes)); then
  echo "launch.sh: NODE_RANK '$NODE_RANK', expected 0 to $((nodes - 1))" >&2
  exit 2
fi
exec torchrun --nnodes="$nodes" --nproc_per_node="$gpus_per_node" --node_rank="$NODE_RANK" \
  --master_addr="$MASTER_ADDR" --master_port="${MASTER_PORT:-29500}" "$@"
