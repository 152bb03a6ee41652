#!/usr/bin/env bash
# The tools' own parsers take what emit_targets writes for every trainer's target and every strategy, understand by it what the plan
# says, and refuse mutated files (emit_targets.py). On CPU, without training.
set -euo pipefail
root=${DISTSETUP_SOURCE:?}
emit_targets=${DISTSETUP_BIN:?}/emit_targets
distsetup=$DISTSETUP_BIN/distsetup
# shellcheck source=tests/support/parsers_env.sh
. "$root/tests/support/parsers_env.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$emit_targets" "$work" --files
# Launchers are no part of it: SkyPilot's tasks by the program.
skypilot() {
  local name=$1
  shift
  "$distsetup" emit --output "$work/skypilot/$name" --target skypilot --model llama3.2_1b "$@" >/dev/null 2>"$work/said" || { cat "$work/said" >&2; exit 1; }
}
mkdir "$work/skypilot"
skypilot one_node --nodes 1 --gpus 8
skypilot four_nodes --nodes 4 --gpus 8 --job-name 'a-b' --export 'A=x y' --time-limit 4h
skypilot a100 --nodes 2 --gpus 4xA100-80GB
# shellcheck disable=SC2016 # to arrive as it is
skypilot own_program --nodes 2 --gpus 8 --setup 'pip install -r requirements.txt' -- train.py 'a b' '$X' 'é🙂'

failed=0
tools=(deepspeed accelerate transformers trl llamafactory axolotl lightning torchtitan torchtitan_module openrlhf automodel megatron_bridge megatron_lm llama_stack skypilot)
for tool in "${tools[@]}"; do
  "$environment/bin/python" -W ignore "$root/tests/integration/emit_targets.py" "$tool" "$work" || failed=1
done
exit "$failed"
