#!/usr/bin/env bash
# distsetup 0.1.0, inputs 679f48fd3ca8ac1dd6699af8b29ae50494f9664ddd5cbef004f5bcb03d848428
# command: distsetup launcher --model llama3.2_1b --zero-stage 2 --recompute none --micro-batch 2 --num_nodes 1 --num_gpus_per_node 8 --use_deepspeed -- train.py --text 'a b'
# plan: llama3.2_1b, zero2, recompute none, bf16: fits
# 1 node × 8 GPUs = 8 ranks
# global batch 256 = micro-batch 2 × accumulation 16 × data-parallel 8
#
# Arguments are passed on to what it runs.
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
command=(
  train.py
  --text
  'a b'
  --deepspeed "$here/ds_config.json"
  "$@"
)
gpus_per_node=8
cores=$(nproc)
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$((cores > gpus_per_node ? cores / gpus_per_node : 1))}"
exec torchrun --standalone --nnodes=1 --nproc_per_node="$gpus_per_node" "${command[@]}"
