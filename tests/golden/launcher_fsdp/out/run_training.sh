#!/usr/bin/env bash
# distsetup 0.1.0, inputs 414508ca466755c6c7b8c0d3e04ac342cb6ad5ec950684f40c47d2f2b9e877bf
# command: distsetup launcher --model llama3.2_1b --sharding zero3 --dp-replicate 1 --recompute none --micro-batch 2 --num_nodes 2 --num_gpus_per_node 8 --use_fsdp --node_rank 1 --master_addr node0 -- train.py
# plan: llama3.2_1b, zero3, recompute none, bf16: fits
# 2 nodes × 8 GPUs = 16 ranks
# global batch 256 = micro-batch 2 × accumulation 8 × data-parallel 16
#
# Start it on every node. NODE_RANK (0, 1, ...) and MASTER_ADDR (host of node 0) in the environment win over what was given when this
# file was made.
# Arguments are passed on to what it runs.
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
node_rank=1
NODE_RANK=${NODE_RANK:-$node_rank}
master_addr=node0
MASTER_ADDR=${MASTER_ADDR:-$master_addr}
nodes=2
if [[ -z ${NODE_RANK:-} || -z ${MASTER_ADDR:-} ]]; then
  echo "${BASH_SOURCE[0]##*/}: this plan needs $nodes nodes: set NODE_RANK and MASTER_ADDR on each of them" >&2
  exit 2
fi
if [[ ! $NODE_RANK =~ ^(0|[1-9][0-9]{0,5})$ ]] || ((NODE_RANK >= nodes)); then
  echo "${BASH_SOURCE[0]##*/}: NODE_RANK '$NODE_RANK', expected 0 to $((nodes - 1))" >&2
  exit 2
fi
master_port=29500
MASTER_PORT=${MASTER_PORT:-$master_port}
command=(
  train.py
  "$@"
)
exec accelerate launch --config_file "$here/accelerate.yaml" --machine_rank "$NODE_RANK" \
  --main_process_ip "$MASTER_ADDR" --main_process_port "$MASTER_PORT" "${command[@]}"
