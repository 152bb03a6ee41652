#!/usr/bin/env bash
# distsetup 0.1.0, inputs 33aa02503f1fa0138406cb8e8426e5c3e73e3cba683ed3914607572c7f3a2852
# command: distsetup emit --target deepspeed --model 8B --nodes 1 --gpus 4xH100-80GB --sharding zero3 --offload-optimizer host --offload-optimizer-ratio 0.4
# plan: llama3_8b, zero3, recompute full, bf16: tight
# 1 node × 4 GPUs = 4 ranks
# global batch 256 = micro-batch 2 × accumulation 32 × data-parallel 4
#
# Starts a training script of yours with DeepSpeed, one process per GPU, by torchrun:
#   launch.sh train.py --deepspeed /path/to/ds_config.json ...
# ds_config.json holds numbers; the script must use the same: micro-batch 2, accumulation 32.
# The plan recomputes activations: the script has to switch gradient checkpointing on, the JSON cannot.
set -euo pipefail

gpus_per_node=4
if (($# == 0)); then
  here=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
  echo "usage: launch.sh train.py [arguments], for a Hugging Face script: train.py --deepspeed '$here/ds_config.json'" >&2
  exit 2
fi
cores=$(nproc)
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$((cores > gpus_per_node ? cores / gpus_per_node : 1))}"
exec torchrun --standalone --nnodes=1 --nproc_per_node="$gpus_per_node" "$@"
