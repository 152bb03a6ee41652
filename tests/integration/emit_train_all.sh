#!/usr/bin/env bash
# Emitted files train: DeepSpeed (ZeRO-1 and ZeRO-3 from our ds_config.json, started by our launch.sh) and torch's fully_shard (by our
# accelerate.yaml) on two CPU ranks reach the losses of one rank; world size, stage and class of the parameters are asserted in
# emit_train.py, since accelerate on CPU ends with 0 and has run something else.
set -euo pipefail
root=${DISTSETUP_SOURCE:?}
distsetup=${DISTSETUP_BIN:?}/distsetup
# shellcheck source=tests/support/parsers_env.sh
. "$root/tests/support/parsers_env.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
printf '#!/bin/bash\nexec %q -W ignore -m torch.distributed.run "$@"\n' "$environment/bin/python" >"$work/bin/torchrun"
chmod +x "$work/bin/torchrun"
PATH="$environment/bin:$work/bin:$PATH"  # our torchrun; DeepSpeed looks for a python of the same environment
train=$root/tests/integration/emit_train.py

model=(--model tiny --sequence-length 32 --global-batch 8 --micro-batch 2 --learning-rate 1e-2 --recompute none --precision fp32)
for sharding in zero1 zero3; do
  run="$work/deepspeed $sharding"
  "$distsetup" emit --target deepspeed "${model[@]}" --gpu cpu --nodes 1 --gpus 2 --dp-replicate 1 --sharding "$sharding" --output "$run" 2>"$work/said" ||
    { cat "$work/said" >&2; exit 1; }
  PATH="$work/bin:$PATH" timeout 300 "$run/launch.sh" "$train" deepspeed "$run"
done
for sharding in zero2 zero3; do
  run="$work/fsdp $sharding"
  "$distsetup" emit --target accelerate-fsdp2 "${model[@]}" --nodes 1 --gpus 2 --dp-replicate 1 --sharding "$sharding" --output "$run" 2>"$work/said" ||
    { cat "$work/said" >&2; exit 1; }
  timeout 300 "$work/bin/torchrun" --standalone --nproc_per_node=2 "$train" fsdp "$run"
done
