#!/usr/bin/env bash
# distsetup 0.1.0, inputs 62908b387f9d4cf2bb7c692e5b93703d349708b5ab8e58bef620c8d6a629abde
# command: distsetup emit --target ssh --model llama3.2_1b --sharding zero3 --dp-replicate 1 --recompute none --nodes 2 --gpus 8 '--ssh-options=-p 2222' --export 'A=b c'
# plan: llama3.2_1b, zero3, recompute none, bf16: fits
# 2 nodes × 8 GPUs = 16 ranks
# global batch 256 = micro-batch 8 × accumulation 2 × data-parallel 16
#
# Starts every node by ssh and waits for all of them; this folder lies at the same path on each. The first host is node 0.
#   HOSTS='node0 node1' launch.sh [arguments for what runs]
# The first node that fails ends the others. When this script ends, for whatever reason, so does what it has started: each node's
# standard input closes, and its ranks are asked to save and end.
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
distsetup=${DISTSETUP:-$(command -v distsetup || true)}
if [[ -z $distsetup ]]; then
  echo "${BASH_SOURCE[0]##*/}: distsetup not found: put it on PATH, or set DISTSETUP=/path/to/distsetup" >&2
  exit 5
fi
nodes=2
# HOSTS in the environment, names with spaces between them, wins over what was given when this file was made.
read -r -a hosts <<<"${HOSTS:-}"
if ((${#hosts[@]} != nodes)); then
  echo "${0##*/}: ${#hosts[@]} hosts, the plan needs $nodes: HOSTS='node0 node1' ${0##*/}" >&2
  exit 2
fi
master_addr=${MASTER_ADDR:-${hosts[0]#*@}}
master_port=${MASTER_PORT:-29500}
ssh_options=(-o BatchMode=yes)
ssh_options+=(-p)
ssh_options+=(2222)

# One word for the login shell of the other side, whichever it is.
quoted() { printf "'%s' " "${1//\'/\'\\\'\'}"; }

# Runs there: "$@" until it ends, or until standard input does. A node whose starter is gone must not go on alone.
# shellcheck disable=SC2317
run_until_left() {
  local pid watch status=0
  exec 3<&0
  "$@" </dev/null 3<&- &
  pid=$!
  {
    read -r -u 3 _ || true
    kill -TERM "$pid" 2>/dev/null
  } &
  watch=$!
  wait "$pid" || status=$?
  kill "$watch" 2>/dev/null
  return "$status"
}

exports=()
exports+=('A=b c')
remote_line() { # NODE-RANK: what the shell of that node is to run
  local words=() one script
  script="cd $(quoted "$here") || exit 5; "
  for one in ${exports[@]+"${exports[@]}"}; do script+="export $(quoted "$one"); "; done
  script+="$(declare -f run_until_left); run_until_left \"\$@\""
  words=("$distsetup" launch --plan "$here/plan.json" --node-rank "$1")
  if ((nodes > 1)); then words+=(--master-addr "$master_addr" --master-port "$master_port"); fi
  printf 'bash -c '
  quoted "$script"
  printf 'node '
  for one in "${words[@]}" ${arguments[@]+"${arguments[@]}"}; do quoted "$one"; done
}

# Standard input of the nodes: open for as long as this shell lives.
folder=$(mktemp -d)
mkfifo -m 600 "$folder/open"
exec 4<>"$folder/open"
exec 6<"$folder/open"
rm -rf "$folder"

arguments=("$@")
asked='' status=0
pids=()
end_all() { for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done; }
trap 'asked=yes; end_all' INT TERM HUP
for ((k = 0; k < nodes; ++k)); do
  ssh "${ssh_options[@]}" -- "${hosts[k]}" "$(remote_line "$k")" <&6 4<&- &
  pids[k]=$!
done
while ((${#pids[@]} > 0)); do
  for k in "${!pids[@]}"; do
    if kill -0 "${pids[k]}" 2>/dev/null; then continue; fi
    code=0
    wait "${pids[k]}" || code=$?
    unset "pids[k]"
    if ((code == 0 || status != 0)); then continue; fi
    status=$code
    if [[ -z $asked ]]; then echo "${0##*/}: node $k (${hosts[k]}) ended with $code, the others are ended" >&2; fi
    end_all
  done
  sleep 0.2
done
if [[ -n $asked ]]; then exit 130; fi
exit "$status"
