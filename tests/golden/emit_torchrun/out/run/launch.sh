#!/usr/bin/env bash
# distsetup 0.1.0, inputs db1138a1d1b1eeab8e12fcbdf426c7b304d2158060efd2f5543e1aa86c9b4a2f
# command: distsetup emit --target torchrun --model llama3.2_1b --sharding zero3 --dp-replicate 1 --recompute none --nodes 2 --gpus 8 -- train.py --text 'it'\''s $HOME'
# plan: llama3.2_1b, zero3, recompute none, bf16: fits
# 2 nodes × 8 GPUs = 16 ranks
# global batch 256 = micro-batch 2 × accumulation 8 × data-parallel 16
#
# One process per GPU, started by torchrun. Arguments are passed on to what it runs.
# Several nodes: the same line on every node, with NODE_RANK (0, 1, ...) and MASTER_ADDR (host of node 0) in the environment.
set -euo pipefail

gpus_per_node=8
# torchrun sets one thread per process where nothing is said.
cores=$(nproc)
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$((cores > gpus_per_node ? cores / gpus_per_node : 1))}"
command=(
  train.py
  --text
  'it'\''s $HOME'
  "$@"
)
nodes=2
if [[ -z ${NODE_RANK:-} || -z ${MASTER_ADDR:-} ]]; then
  echo "${BASH_SOURCE[0]##*/}: this plan needs $nodes nodes: set NODE_RANK and MASTER_ADDR on each of them" >&2
  exit 2
fi
if [[ ! $NODE_RANK =~ ^(0|[1-9][0-9]{0,5})$ ]] || ((NODE_RANK >= nodes)); then
  echo "${BASH_SOURCE[0]##*/}: NODE_RANK '$NODE_RANK', expected 0 to $((nodes - 1))" >&2
  exit 2
fi
exec torchrun --nnodes="$nodes" --nproc_per_node="$gpus_per_node" --node_rank="$NODE_RANK" \
  --master_addr="$MASTER_ADDR" --master_port="${MASTER_PORT:-29500}" "${command[@]}"
