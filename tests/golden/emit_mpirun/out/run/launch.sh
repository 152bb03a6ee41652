#!/usr/bin/env bash
# distsetup 0.1.0, inputs 567f61d34a1b9fbe6351bda27c2a0644b725809bc032ddcf0a3601ae75e0f911
# command: distsetup emit --target mpirun --model llama3.2_1b --sharding zero3 --dp-replicate 1 --recompute none --nodes 2 --gpus 8 --hosts node0,node1 '--mpi-options=--mca btl_tcp_if_include ib0'
# plan: llama3.2_1b, zero3, recompute none, bf16: fits
# 2 nodes × 8 GPUs = 16 ranks
# global batch 256 = micro-batch 8 × accumulation 2 × data-parallel 16
#
# One rank per GPU, started by Open MPI's mpirun. Arguments are passed on to what it runs.
# Hosts: HOSTS='node0 node1' in the environment; inside an allocation of SLURM, PBS or LSF mpirun finds them by itself, and
# MASTER_ADDR has to name the first.
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
cd "$here"
trainer=${DISTSETUP_TRAIN:-$(command -v distsetup-train || true)}
if [[ -z $trainer ]]; then
  echo "${BASH_SOURCE[0]##*/}: distsetup-train not found: put it on PATH, or set DISTSETUP_TRAIN=/path/to/distsetup-train" >&2
  exit 5
fi
nodes=2
gpus_per_node=8
# What a torchrun around us has left behind would win over Open MPI's own numbers.
unset RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE
# HOSTS in the environment, names with spaces between them, wins over what was given when this file was made.
read -r -a hosts <<<"${HOSTS:-}"
if ((${#hosts[@]} == 0)); then
  hosts=(
    node0
    node1
  )
fi
options=()
if ((${#hosts[@]} > 0)); then
  if ((${#hosts[@]} != nodes)); then
    echo "${BASH_SOURCE[0]##*/}: ${#hosts[@]} hosts, the plan needs $nodes" >&2
    exit 2
  fi
  slots=$(printf "%s:$gpus_per_node," "${hosts[@]}")
  options+=(--host "${slots%,}")
  MASTER_ADDR=${MASTER_ADDR:-${hosts[0]#*@}}
fi
if [[ -z ${MASTER_ADDR:-} ]]; then
  echo "${BASH_SOURCE[0]##*/}: this plan needs $nodes nodes: set HOSTS='node0 node1', or MASTER_ADDR inside an allocation" >&2
  exit 2
fi
MASTER_PORT=${MASTER_PORT:-29500}
export MASTER_ADDR MASTER_PORT
# The environment reaches other hosts by name only.
for name in MASTER_ADDR MASTER_PORT PATH LD_LIBRARY_PATH OMP_NUM_THREADS; do
  if [[ -n ${!name:-} ]]; then options+=(-x "$name"); fi
done
options+=(--mca)
options+=(btl_tcp_if_include)
options+=(ib0)
command=("$trainer" --plan "$here/plan.json" "$@")
# Not bound: Open MPI would give a rank one core.
exec mpirun -np 16 --map-by "ppr:$gpus_per_node:node" --bind-to none "${options[@]}" "${command[@]}"
