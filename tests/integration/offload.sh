#!/usr/bin/env bash
# Optimizer, parameters and activations on the host, and the optimizer on its disk, from the command line: losses, norms and checkpoints are those of the run without it, bit for bit; each goes
# on from the other's checkpoint, and after a kill; each place takes the bytes that the plan says.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
need_trainer

# What launch has just said of RUN: WORDS, the predicted bytes; its numbers and checkpoint are those of the run WITHOUT.
same_as_without() { # NAME RUN WORDS WITHOUT
  has "$1: what it is" "$said" "  offload     $3: "
  grep -qE '^\[rank 0\]   on the host +[0-9,]+ B +[0-9,]+ B  equal$' <<< "$said" || fail "$1: bytes on the host" "$said"
  grep -qE '^\[rank 0\] all [0-9]+ kinds of buffers take the predicted bytes exactly' <<< "$said" || fail "$1: bytes" "$said"
  is "$1: losses and norms" "$(losses "$work/$2/metrics.jsonl")" "$(losses "$work/$4/metrics.jsonl")"
  is "$1: checkpoints" "$(tensors "$work/$2/checkpoints/checkpoint_40")" "$(tensors "$work/$4/checkpoints/checkpoint_40")"
}

for case in "zero3 --precision bf16" "zero2 --sharding zero2 --micro-batch 1" "ddp --sharding ddp --micro-batch 2 --recompute full" \
  "pp --sharding ddp --precision bf16 --pp 2 --gradient-accumulation 4" "adafactor --precision bf16 --optimizer adafactor" "muon --sharding zero2 --optimizer muon"; do
  read -r name flags <<< "$case"
  # shellcheck disable=SC2086
  make_job "stays_$name" 2 $flags
  # shellcheck disable=SC2086
  make_job "moved_$name" 2 $flags --offload-optimizer host
  run "$name" 0 launch "stays_$name" --threads 1
  run "$name on the host" 0 launch "moved_$name" --threads 1
  has "$name: completed" "$said" "completed at step 40 of 40"
  same_as_without "$name" "moved_$name" "optimizer on the host" "stays_$name"
done
has "preview" "$(cat "$work/moved_zero3/preview.txt")" "host memory per node"
python3 - "$work" <<'PY'
import json, sys
stays, moved = (json.load(open(f"{sys.argv[1]}/{name}_zero3/plan.json")) for name in ("stays", "moved"))
assert "host" not in stays and moved["host"]["host_bytes"] * 2 == moved["memory"]["host_bytes_per_node"], moved["host"]
shard = stays["memory"]["run_bytes"] - moved["memory"]["run_bytes"]  # master, gradient and moments less the copy in bf16
assert shard > 0 and stays["memory"]["device_bytes"] > moved["memory"]["device_bytes"], (shard, moved["memory"]["device_bytes"])
PY

# --- each goes on from the other's checkpoint
expected=$(tensors "$work/stays_zero3/checkpoints/checkpoint_40")
for from in stays moved; do
  to=$([[ $from == stays ]] && echo moved || echo stays)
  rm -rf "$work/mixed" && mkdir "$work/mixed"
  cp "$work/${to}_zero3/plan.json" "$work/mixed/"
  mkdir "$work/mixed/checkpoints" && cp -r "$work/${from}_zero3/checkpoints/checkpoint_28" "$work/mixed/checkpoints/"
  run "from $from to $to" 0 launch mixed --threads 1
  has "from $from to $to" "$said" "checkpoint_28, 28 of 40 steps are done"
  is "from $from to $to" "$(tensors "$work/mixed/checkpoints/checkpoint_40")" "$expected"
done

# --- parameters and activations as well: the same numbers; less on the device, and the bytes that the plan says
for case in "zero3 --precision bf16" "ddp --sharding ddp --micro-batch 2 --recompute full" \
  "pp --sharding ddp --precision bf16 --pp 2 --gradient-accumulation 4"; do
  read -r name flags <<< "$case"
  # shellcheck disable=SC2086
  make_job "all_$name" 2 $flags --offload-parameters host --offload-activations host
  run "$name, everything" 0 launch "all_$name" --threads 1
  same_as_without "$name, everything" "all_$name" "optimizer, parameters and activations on the host" "stays_$name"
done
has "preview of everything" "$(cat "$work/all_zero3/preview.txt")" "the optimizer is on the host as well"
python3 - "$work" <<'PY'
import json, sys
moved, everything = (json.load(open(f"{sys.argv[1]}/{name}_ddp/plan.json"))["memory"]["device_bytes"] for name in ("moved", "all"))
assert everything < moved, (everything, moved)
PY

# --- on a disk: the same numbers; nothing is left in its folder, however the run ends
disk=$DISTSETUP_BIN/offload_$$ # of the build: a disk, whatever the temporary folder is
mkdir "$disk"
trap 'status=$?; rm -rf "$disk" "$work"; exit $status' EXIT
make_job disk 2 --precision bf16 --offload-optimizer nvme
has "preview of a disk" "$(cat "$work/disk/preview.txt")" "local disk per node"
run "on a disk" 0 launch disk --threads 1 --offload-folder "$disk"
has "on a disk: what it is" "$said" "  offload     optimizer on a local disk: "
for place in "on the host" "on a disk"; do
  grep -qE "^\\[rank 0\\]   $place +[0-9,]+ B +[0-9,]+ B  equal\$" <<< "$said" || fail "bytes $place" "$said"
done
is "losses on a disk" "$(losses "$work/disk/metrics.jsonl")" "$(losses "$work/stays_zero3/metrics.jsonl")"
is "checkpoint on a disk" "$(tensors "$work/disk/checkpoints/checkpoint_40")" "$expected"
is "left on the disk" "$(ls -A "$disk")" ""
rm -rf "$work/disk/checkpoints" "$work/disk/metrics.jsonl"
: > "$work/log"
"$distsetup" launch --plan "$work/disk/plan.json" --grace 3 --threads 1 --offload-folder "$disk" > "$work/log" 2>&1 &
launcher=$!
until grep -q "step  *10 " "$work/log"; do sleep 0.05; kill -0 "$launcher" 2> /dev/null || break; done
pkill -9 -P "$launcher" || true
wait "$launcher" || true
is "left on the disk by a kill" "$(ls -A "$disk")" ""
run "no such disk" 5 launch disk --threads 1 --offload-folder "$disk/none"
has "no such disk" "$said" "$disk/none: No such file or directory; --offload-folder names another folder"

# --- killed while it trains, and gone on
make_job killed 2 --precision bf16 --offload-optimizer host
touch "$work/log"
for kill in 1 2; do
  "$distsetup" launch --plan "$work/killed/plan.json" --grace 3 --threads 1 > "$work/log" 2>&1 &
  launcher=$!
  until grep -q "step  *$((kill * 10)) " "$work/log"; do sleep 0.05; kill -0 "$launcher" 2> /dev/null || break; done
  mapfile -t ranks < <(pgrep -P "$launcher" || true)
  [[ ${#ranks[@]} == 0 ]] || kill -9 "${ranks[$((kill - 1))]}" 2> /dev/null || true
  wait "$launcher" || true
done
run "after kills" 0 launch killed --threads 1
is "losses after kills" "$(losses "$work/killed/metrics.jsonl")" "$(losses "$work/stays_zero3/metrics.jsonl")"
is "parameters after kills" "$(tensors "$work/killed/checkpoints/checkpoint_40")" "$expected"

# --- what the trainer does not move is refused by name
refused() { # PATTERN FLAGS...
  run "refused: ${*:2}" 3 "$distsetup" plan "$work/run.yaml" --trainer native "${@:2}"
  has "refused: ${*:2}" "$said" "$1"
}
refused "the plan has the optimizer on the device" --offload-parameters host --offload-optimizer none
refused "zero2 has all of them on each device" --offload-parameters host --sharding zero2
refused "the native trainer has the optimizer alone on a disk, the plan says parameters" --offload-parameters nvme
refused "the native trainer has the optimizer alone on a disk, the plan says activations" --offload-activations nvme
