#!/usr/bin/env bash
# distsetup 0.1.0, inputs 9554e4404e0d58c4988e8f8ecbf9215a647abfc64b9cd56b1f68d957192740ea
# command: distsetup emit --target torchtitan-0.2 --model deepseek_v2_lite --nodes 2 --gpus 8xH100-80GB --sharding zero3 --ep 8 --recompute full --micro-batch 1
# plan: deepseek_v2_lite, zero3, recompute full, bf16: fits
# 2 nodes × 8 GPUs = 16 ranks
# global batch 256 = micro-batch 1 × accumulation 16 × data-parallel 16
#
# Starts torchtitan 0.2, one process per GPU, by torchrun; the tokenizer's folder and the data set are added:
#   launch.sh --model.hf_assets_path ./assets/hf/Llama-3.1-8B --training.dataset c4
# Several nodes: the same line on every node, with NODE_RANK (0, 1, ...) and MASTER_ADDR (host of node 0) in the environment.
set -euo pipefail

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
  -m torchtitan.train --job.config_file "$here/train.toml" "$@"
