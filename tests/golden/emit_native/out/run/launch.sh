#!/usr/bin/env bash
# distsetup 0.1.0, inputs 2564e80b02bab2c961ded384fcc7a690e8bdd7bd3f9d03652c876fc27f00ff0b
# command: distsetup emit --target native --model tiny --gpu cpu --gpus 2 --sequence-length 64 --global-batch 4
# plan: tiny, zero1, recompute none, bf16: fits
# 1 node × 2 processes = 2 ranks
# global batch 4 = micro-batch 2 × accumulation 1 × data-parallel 2
#
# Trains the plan beside this file on this machine, one process per GPU. Arguments are passed on to 'distsetup launch'.
# distsetup is found through $DISTSETUP or on PATH.
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
distsetup=${DISTSETUP:-$(command -v distsetup || true)}
if [[ -z $distsetup ]]; then
  echo "launch.sh: distsetup not found: put it on PATH, or set DISTSETUP=/path/to/distsetup" >&2
  exit 5
fi
exec "$distsetup" launch --plan "$here/plan.json" "$@"
