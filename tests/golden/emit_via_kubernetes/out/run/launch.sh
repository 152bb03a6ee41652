#!/usr/bin/env bash
# distsetup 0.1.0, inputs 2bae49d357668bb6443c3f1cef1e14783b1df4010fbaf476b63797b8e1acf8a9
# command: distsetup emit --target transformers --via kubernetes --model llama3_8b --sharding zero3 --dp-replicate 1 --recompute none --nodes 2 --gpus 8 --image registry/name:1 --volume-claim data --node-selector pool=h100 --tolerations nvidia.com/gpu:NoSchedule -- train.py 'a b'
# plan: llama3_8b, zero3, recompute none, bf16: fits
# 2 nodes × 8 GPUs = 16 ranks
# global batch 256 = micro-batch 1 × accumulation 16 × data-parallel 16
#
# Starts a script of the Hugging Face Trainer, one process per GPU, by torchrun:
#   launch.sh train.py ...
# training_arguments.json is its last argument: the script reads it with HfArgumentParser, together with arguments of its own.
# Several nodes: the same line on every node, with NODE_RANK (0, 1, ...) and MASTER_ADDR (host of node 0) in the environment.
set -euo pipefail

# What was named behind -- when this file was made; arguments of this script follow it.
words=(
  train.py
  'a b'
)
set -- "${words[@]}" "$@"
if (($# == 0)); then
  echo "usage: launch.sh train.py [arguments]" >&2
  exit 2
fi
here=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
gpus_per_node=8
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
  --master_addr="$MASTER_ADDR" --master_port="${MASTER_PORT:-29500}" \
  "$@" "$here/training_arguments.json"
