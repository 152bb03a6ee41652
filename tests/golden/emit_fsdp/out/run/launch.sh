#!/usr/bin/env bash
# distsetup 0.1.0, inputs f01f2ad075c394e59e91227f28eed948da6b6b72611105b683a8b21c3a74d267
# command: distsetup emit --target fsdp --model 7B --nodes 1 --gpus 8xA100-80GB
# plan: llama2_7b, zero2, recompute none, bf16: fits
# 1 node × 8 GPUs = 8 ranks
# global batch 256 = micro-batch 1 × accumulation 32 × data-parallel 8
#
# Starts a training script of yours with PyTorch FSDP, one process per GPU, by accelerate:
#   launch.sh train.py ...
# accelerate.yaml says how to shard; the script has to use micro-batch 1, accumulation 32, clipping at 1.0.
set -euo pipefail

if (($# == 0)); then
  echo "usage: launch.sh train.py [arguments]" >&2
  exit 2
fi
here=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
exec accelerate launch --config_file "$here/accelerate.yaml" --num_machines 1 "$@"
