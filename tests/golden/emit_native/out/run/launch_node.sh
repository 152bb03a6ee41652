#!/usr/bin/env bash
# distsetup 0.1.0, inputs 2564e80b02bab2c961ded384fcc7a690e8bdd7bd3f9d03652c876fc27f00ff0b
# command: distsetup emit --target native --model tiny --gpu cpu --gpus 2 --sequence-length 64 --global-batch 4
# plan: tiny, zero1, recompute none, bf16: fits
# 1 node × 2 processes = 2 ranks
# global batch 4 = micro-batch 2 × accumulation 1 × data-parallel 2
#
# Trains the plan beside this file on several machines. Start this same file on every node, each with a rank of its own:
#   launch_node.sh NODE_RANK MASTER_ADDR [MASTER_PORT] [options of 'distsetup launch']
# or with these three in the environment. MASTER_ADDR is the host of node 0; the port is 29500 unless given.
# distsetup is found through $DISTSETUP or on PATH.
set -euo pipefail

nodes=1
given=()
while (($# > 0)) && [[ $1 != -* ]]; do
  given+=("$1")
  shift
done
node_rank=${given[0]:-${NODE_RANK:-}}
master_addr=${given[1]:-${MASTER_ADDR:-}}
master_port=${given[2]:-${MASTER_PORT:-29500}}
if [[ -z $node_rank || -z $master_addr ]]; then
  echo "usage: launch_node.sh NODE_RANK MASTER_ADDR [MASTER_PORT], or NODE_RANK and MASTER_ADDR in the environment" >&2
  exit 2
fi
if [[ ! $node_rank =~ ^(0|[1-9][0-9]{0,5})$ ]] || ((node_rank >= nodes)); then
  echo "launch_node.sh: node rank '$node_rank', expected 0 to $((nodes - 1))" >&2
  exit 2
fi

here=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
distsetup=${DISTSETUP:-$(command -v distsetup || true)}
if [[ -z $distsetup ]]; then
  echo "launch_node.sh: distsetup not found: put it on PATH, or set DISTSETUP=/path/to/distsetup" >&2
  exit 5
fi
exec "$distsetup" launch --plan "$here/plan.json" --node-rank "$node_rank" --master-addr "$master_addr" --master-port "$master_port" "$@"
