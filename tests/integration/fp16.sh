#!/usr/bin/env bash
# fp16 with a loss scale, from the command line: steps whose gradient overflows are left out on every rank, the scale is where a reader
# looks for it, and a run that was stopped goes on with it as one that never was.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
need_trainer

# A scale that is much too large at first, and grows again soon: both happen more than once.
half=(--precision fp16 --initial-scale-power 36 --hysteresis 1 --loss-scale-window 5)
make_job exact 2
make_job straight 2 "${half[@]}"
run "fp32" 0 launch exact --threads 1
run "fp16" 0 launch straight --threads 1
has "fp16" "$said" "loss scale  2^36 at first, doubled after 5 steps, halved after 1 overflows, at least 1"
has "fp16" "$said" "step      1  skipped: the gradient overflows fp16 at loss scale 6.87195e+10, the next is 3.43597e+10"
has "fp16" "$said" "completed at step 40 of 40"
grep -qE '^\[rank 0\] step +40  loss [0-9.]+  lr [^ ]+  grad norm [^ ]+  scale [0-9.e+]+  ' <<< "$said" || fail "no scale in the line of a step" "$said"

skipped=$(grep -c '"skipped":"the gradient overflows fp16 at loss scale' "$work/straight/metrics.jsonl")
((skipped >= 8 && skipped <= 30)) || fail "fp16: $skipped skipped steps" "$said"
is "every step has its scale" "$(grep '"kind":"step"' "$work/straight/metrics.jsonl" | grep -c '"loss_scale":')" 40
scales() { sed -nE 's/.*"loss_scale":([0-9.]+),.*"step":([0-9]+),.*/\2 \1/p' "$1"; }
# Halved behind each skipped step, doubled behind five good ones.
awk '{ step = $2; if (NR > 1 && $3 != expected) { print "step " step ": scale " $3 ", expected " expected; exit 1 }
       if ($1 == "skipped") { expected = $3 / 2; good = 0 } else if (++good == 5) { expected = 2 * $3; good = 0; grown++ } else expected = $3 }
     END { if (grown < 1) { print "it never grows"; exit 1 } }' \
  <(grep '"kind":"step"' "$work/straight/metrics.jsonl" | sed -E 's/^(.*"skipped".*)$/skipped \1/; t; s/^/taken /' |
    sed -E 's/^([a-z]+) .*"loss_scale":([0-9.]+).*"step":([0-9]+),.*/\1 \3 \2/') > "$work/rule" || fail "the scale's rule" "$(cat "$work/rule")"
has "report" "$(cat "$work/straight/report.json")" "\"skipped_steps\": $skipped"
has "report" "$(cat "$work/straight/report.json")" '"loss_scale": '
last=$(scales "$work/straight/metrics.jsonl" | tail -n 1 | cut -d' ' -f2)
has "the checkpoint has it" "$(tr -d ' \n' < "$work/straight/checkpoints/checkpoint_40/metadata.json")" '"loss_scale":{"good_steps":'
python3 - "$work" "$last" <<'PY'
import json, sys
state = json.load(open(sys.argv[1] + "/straight/checkpoints/checkpoint_40/metadata.json"))["loss_scale"]
assert state["scale"] in (float(sys.argv[2]) / 2, float(sys.argv[2]), 2 * float(sys.argv[2])), (state, sys.argv[2])
PY

# --- stopped among overflows and later, in the middle of a window, it goes on with the same scales and the same bits
make_job resumed 2 "${half[@]}"
run "stopped" 0 launch resumed --threads 1 --stop-after 5
run "stopped again" 0 launch resumed --threads 1 --stop-after 19
run "gone on" 0 launch resumed --threads 1
is "scales after a resume" "$(scales "$work/resumed/metrics.jsonl")" "$(scales "$work/straight/metrics.jsonl")"
is "losses after a resume" "$(losses "$work/resumed/metrics.jsonl")" "$(losses "$work/straight/metrics.jsonl")"
is "parameters after a resume" "$(tensors "$work/resumed/checkpoints/checkpoint_40")" "$(tensors "$work/straight/checkpoints/checkpoint_40")"

# --- with an ordinary scale nothing is skipped, and losses are fp32's
make_job plain 2 --precision fp16 --initial-scale-power 12
run "an ordinary scale" 0 launch plain --threads 1
is "nothing is skipped" "$(grep -c '"skipped"' "$work/plain/metrics.jsonl" || true)" 0
losses_agree "fp16 beside fp32" "$work/exact/metrics.jsonl" "$work/plain/metrics.jsonl" 2e-3

# --- DeepSpeed's section of the loss scale is read, and what bf16 would not read is refused
cat > "$work/ds.json" <<'JSON'
{"train_batch_size": 8, "gradient_clipping": 1.0, "zero_optimization": {"stage": 2},
 "fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 20, "loss_scale_window": 500, "hysteresis": 4, "min_loss_scale": 2}}
JSON
run "DeepSpeed's section" 0 "$distsetup" plan --from "$work/ds.json" --model tiny --gpu cpu --gpus 2 --sequence-length 32 --steps 10 --trainer native --json
for word in '"initial_scale_power": 20' '"loss_scale_window": 500' '"hysteresis": 4' '"min_loss_scale": 2' '"compute": "fp16"'; do has "DeepSpeed's section" "$said" "$word"; done
run "a scale without fp16" 2 "$distsetup" plan "$work/run.yaml" --loss-scale 512
has "a scale without fp16" "$said" "precision.loss_scale is read with fp16 alone, and precision is fp32"
