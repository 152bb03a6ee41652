#!/usr/bin/env bash
# The tools' own parsers take what emit_targets writes for every trainer's target and every strategy, understand by it what the plan
# says, and refuse mutated files (emit_targets.py, a module per family). On CPU, without training.
set -euo pipefail
root=${DISTSETUP_SOURCE:?}
emit_targets=${DISTSETUP_BIN:?}/emit_targets
distsetup=$DISTSETUP_BIN/distsetup
# shellcheck source=tests/support/parsers_env.sh
. "$root/tests/support/parsers_env.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/temporary"
export TMPDIR=$work/temporary # what the checks write goes with it
"$emit_targets" "$work" --files
# Launchers are no part of it, and every plan of it has several ranks: SkyPilot's tasks and training on one device by the program.
by_program() {
  local target=$1 name=$2
  shift 2
  "$distsetup" emit --output "$work/$target/$name" --target "$target" --model llama3.2_1b "$@" >/dev/null 2>"$work/said" || { cat "$work/said" >&2; exit 1; }
}
skypilot() { by_program skypilot "$@"; }
mkdir "$work/skypilot" "$work/llama-stack-inline"
by_program llama-stack-inline one_gpu --method dpo --nodes 1 --gpus 1
by_program llama-stack-inline recompute --method dpo --nodes 1 --gpus 1 --recompute full --sequence-length 2048
skypilot one_node --nodes 1 --gpus 8
skypilot four_nodes --nodes 4 --gpus 8 --job-name 'a-b' --export 'A=x y' --time-limit 4h
skypilot a100 --nodes 2 --gpus 4xA100-80GB
# shellcheck disable=SC2016 # to arrive as it is
skypilot own_program --nodes 2 --gpus 8 --setup 'pip install -r requirements.txt' -- train.py 'a b' '$X' 'é🙂'

# Both engines of OpenRLHF's names without dots.
orl() { by_program openrlhf-flags "$1" --method sft --gpus 8 "${@:2}"; }
mkdir "$work/openrlhf-flags"
for sharding in ddp zero1 zero2 zero3; do orl "deepspeed_$sharding" --trainer deepspeed --nodes 2 --sharding $sharding; done
orl deepspeed_hpz --trainer deepspeed --nodes 2 --sharding zero3 --hpz 8
by_program openrlhf hpz --method sft --trainer deepspeed --gpus 8 --nodes 2 --sharding zero3 --hpz 8
orl deepspeed_offload --trainer deepspeed --nodes 1 --sharding zero2 --offload-optimizer host
orl deepspeed_lora --trainer deepspeed --nodes 1 --sharding zero2 --finetune lora --lora-rank 16
orl fsdp2 --trainer fsdp2 --nodes 2 --recompute full
orl fsdp2_no_recompute --trainer fsdp2 --nodes 1 --recompute none --micro-batch 1
orl fsdp2_offload --trainer fsdp2 --nodes 1 --offload-optimizer host --offload-parameters host
orl fsdp2_tp --trainer fsdp2 --nodes 1 --tp 2
orl fsdp2_ring --trainer fsdp2 --nodes 1 --cp 2 --cp-method ring
orl fsdp2_tp_ring --trainer fsdp2 --nodes 1 --tp 2 --cp 2 --cp-method ring

# Every engine of the sectioned config.yaml, and what it adapts.
tuning() { by_program fine-tuning "$1" --method sft --nodes 1 --gpus 8 "${@:2}"; }
for stage in 0 1 2 3; do tuning "deepspeed_$stage" --trainer deepspeed --recompute full --sharding "$([[ $stage == 0 ]] && echo ddp || echo "zero$stage")"; done
tuning fsdp_zero3 --recompute none --trainer fsdp1 --sharding zero3
tuning fsdp_zero2 --recompute none --trainer fsdp1 --sharding zero2
tuning ddp --trainer ddp --finetune lora --lora-rank 8
tuning qlora --trainer ddp --finetune qlora --lora-rank 8
tuning deepspeed_8bit --trainer deepspeed --sharding zero2 --optimizer paged_adamw_8bit

"$environment/bin/python" -W ignore "$root/tests/integration/emit_targets.py" "$work" \
  deepspeed accelerate transformers trl llamafactory axolotl lightning torchtitan torchtitan_module openrlhf openrlhf_flags fine_tuning \
  training_stages automodel megatron_bridge megatron_lm llama_stack skypilot
