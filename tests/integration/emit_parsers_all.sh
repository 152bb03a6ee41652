#!/usr/bin/env bash
# The tools' own parsers take the configuration files we emit, understand by them what the plan says, and refuse mutated ones:
# DeepSpeed's DeepSpeedConfig, accelerate's loader, launcher and plugin, transformers' TrainingArguments. On CPU, without training.
set -euo pipefail
root=${DISTSETUP_SOURCE:?}
distsetup=${DISTSETUP_BIN:?}/distsetup
# shellcheck source=tests/support/parsers_env.sh
. "$root/tests/support/parsers_env.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
quiet() { "$distsetup" "$@" 2>"$work/said" || { cat "$work/said" >&2; exit 1; }; }

# DeepSpeed: every stage and precision from flags, with and without a number for the micro-batch; two plans.
batch=(--micro-batch 2 --gradient-accumulation-steps 4)
for stage in 0 1 2 3; do
  for precision in --bf16 --fp16 ''; do
    # shellcheck disable=SC2086 # nothing when empty
    quiet deepspeed --zero-stage $stage $precision "${batch[@]}" --output "ds_${stage}${precision}.json"
  done
done
quiet deepspeed --zero-stage 2 --bf16 --offload-optimizer "${batch[@]}" --output ds_2_offload.json
quiet deepspeed --zero-stage 3 --bf16 --offload-optimizer --offload-param "${batch[@]}" --output ds_3_offload.json
quiet deepspeed --zero-stage 2 --bf16 --gradient-accumulation-steps 4 --output auto.json
model=(--model llama3.2_1b --recompute full --dp-replicate 1 --gpus 8)
for sharding in ddp zero1 zero2 zero3; do
  if [[ $sharding == ddp ]]; then model=("${model[@]:0:4}" --gpus 8); else model=("${model[@]:0:4}" --dp-replicate 1 --gpus 8); fi
  emit=(emit "${model[@]}" --sharding "$sharding")
  quiet "${emit[@]}" --target deepspeed --nodes 1 --output "deepspeed $sharding" >/dev/null
  if [[ $sharding != zero1 ]]; then
    quiet "${emit[@]}" --target fsdp --nodes 2 --output "fsdp $sharding" >/dev/null
    quiet "${emit[@]}" --target fsdp --fsdp-version 1 --nodes 2 --output "fsdp1 $sharding" >/dev/null
  fi
done
quiet emit --target fsdp --model llama3.2_1b --recompute none --sharding zero3 --dp-replicate 2 --dp-shard 8 --nodes 2 --gpus 8 \
  --output "fsdp hybrid" >/dev/null

# FSDP from flags: both dialects, both versions.
for version in 1 2; do
  for sharding in FULL_SHARD SHARD_GRAD_OP NO_SHARD; do
    for precision in BFLOAT16 FP16 FULL; do
      common=(fsdp --sharding "$sharding" --mixed-precision "$precision" --model llama3.2_1b --fsdp-version "$version")
      quiet "${common[@]}" --nodes 2 --gpus 4 --dialect accelerate --output "accelerate_${version}_${sharding}_$precision.yaml"
      quiet "${common[@]}" --dialect trainer --output "trainer_${version}_${sharding}_$precision.json"
    done
  done
done
quiet fsdp --sharding FULL_SHARD --cpu-offload --activation-checkpointing --checkpoint-strategy FULL_CHECKPOINT --model llama3.2_1b \
  --nodes 1 --gpus 4 --fsdp-version 2 --dialect accelerate --output accelerate_offload.yaml
quiet fsdp --sharding HYBRID_SHARD --nodes 2 --gpus 4 --fsdp-version 2 --dialect accelerate --output accelerate_hybrid.yaml
quiet fsdp --dialect classic --output classic.json

"$environment/bin/python" -W ignore "$root/tests/integration/emit_parsers.py" "$work"
