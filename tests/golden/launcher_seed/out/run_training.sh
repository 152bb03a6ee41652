#!/usr/bin/env bash
# distsetup 0.1.0, inputs f3069548901b49b05d9d6f776820b82436dfd32a63e5de6d3fa00afa9fdbbc45
# command: distsetup launcher --model llama3.2_1b --sharding zero3 --num_nodes 4 --num_gpus_per_node 8 --master_addr 192.168.1.100 --master_port 29500
# plan: llama3.2_1b, zero3, recompute none, bf16: fits
# 4 nodes × 8 GPUs = 32 ranks
# global batch 256 = micro-batch 8 × accumulation 1 × data-parallel 32
#
# Start it on every node. NODE_RANK (0, 1, ...) and MASTER_ADDR (host of node 0) in the environment win over what was given when this
# file was made.
# Arguments are passed on to what it runs.
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
master_addr=192.168.1.100
MASTER_ADDR=${MASTER_ADDR:-$master_addr}
nodes=4
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
distsetup=${DISTSETUP:-$(command -v distsetup || true)}
if [[ -z $distsetup ]]; then
  echo "${BASH_SOURCE[0]##*/}: distsetup not found: put it on PATH, or set DISTSETUP=/path/to/distsetup" >&2
  exit 5
fi
node=(--node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT")
exec "$distsetup" launch --plan "$here/plan.json" "${node[@]}" "$@"
