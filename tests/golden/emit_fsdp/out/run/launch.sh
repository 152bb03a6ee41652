#!/usr/bin/env bash
# distsetup 0.1.0, inputs 237d202eb72e904f40e37b4d68872e09acf4c2040969e9bb2d44d70362d0416c
# command: distsetup emit --target fsdp --model 7B --nodes 1 --gpus 8xA100-80GB --sharding zero3 --recompute none --micro-batch 2
# plan: llama2_7b, zero3, recompute none, bf16: tight
# 1 node × 8 GPUs = 8 ranks
# global batch 256 = micro-batch 2 × accumulation 16 × data-parallel 8
#
# Starts a training script of yours with PyTorch FSDP, one process per GPU, by accelerate:
#   launch.sh train.py ...
# accelerate.yaml says how to shard; the script has to use micro-batch 2, accumulation 16, clipping at 1.0.
set -euo pipefail

if (($# == 0)); then
  echo "usage: launch.sh train.py [arguments]" >&2
  exit 2
fi
here=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
exec accelerate launch --config_file "$here/accelerate.yaml" --num_machines 1 "$@"
