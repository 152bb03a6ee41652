#!/usr/bin/env bash
# Steps whose loss is not finite, or a spike: the run ends on all ranks alike, or goes on without them; and a run that was stopped in
# between decides as one that never stopped.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
need_trainer

# Published weights in which one byte, '~', has a row of NaN. Every document has it once or twice: a batch with such a row is
# not finite.
make_job start 1
run "weights to begin with" 0 launch start --threads 1 --stop-after 2
run "export" 0 "$distsetup" checkpoint export "$work/start" --output "$work/model" --dtype fp32
python3 - "$work/model/model.safetensors" <<'PY'
import json, struct, sys
with open(sys.argv[1], "r+b") as file:
    size = struct.unpack("<Q", file.read(8))[0]
    table = json.loads(file.read(size))["model.embed_tokens.weight"]
    assert table["dtype"] == "F32", table
    rows, columns = table["shape"]
    file.seek(8 + size + table["data_offsets"][0] + ord("~") * columns * 4)
    file.write(struct.pack("<f", float("nan")) * columns)
PY
for file in "$work"/data/*; do sed -i 's/~/-/g; 1s/$/ ~/; 12s/$/ ~/' "$file"; done

make_poisoned() { # NAME RANKS [FLAGS...]; HELD_OUT: one document in so many
  make_job "$1" "$2"
  (cd "$work" && "$distsetup" plan run.yaml --model model --init weights --learning-rate 1e-3 --held-out "${HELD_OUT:-0}" "${@:3}" --force --output "$1/plan.json" > "$1/preview.txt" 2> "$1/plan.log") ||
    fail "plan of $1" "$(cat "$work/$1/plan.log")"
}

# --- on_nan stop, the default: every rank ends with the same line, and the rank where it began is named with its rows
make_poisoned stops 2
run "a loss that is not finite" 6 launch stops --threads 1
for rank in 0 1; do
  grep -qE "^\[rank $rank\] rank $rank on $host, training step [0-9]+, the loss is nan; it began on rank [01], windows [0-9, ]+ of the training data(; rank [01], windows [0-9, ]+ of the training data)?; help: " <<< "$said" ||
    fail "a loss that is not finite: rank $rank" "$said"
done
is "both ranks say the same" "$(sed -nE 's/^\[rank [01]\] rank [01] on [^,]*, (.*the loss is nan.*)/\1/p' <<< "$said" | sort -u | wc -l)" 1
bad_step=$(sed -nE 's/^\[rank 0\] rank 0 on .*training step ([0-9]+), the loss is nan.*/\1/p' <<< "$said")
is "no line of the step that ended it" "$(losses "$work/stops/metrics.jsonl" | tail -n 1 | cut -d' ' -f1)" "$( ((bad_step == 1)) || echo $((bad_step - 1)))"

# --- on_nan skip: these steps are left out, counted, and have a line; parameters stay finite, or the next loss would not be
make_poisoned skips 2 --on-nan skip
run "skipped steps" 0 launch skips --threads 1
has "skipped steps" "$said" "completed at step 40 of 40"
skipped=$(grep -c '"skipped":"the loss is nan"' "$work/skips/metrics.jsonl")
((skipped >= 2 && skipped < 30)) || fail "skipped steps: $skipped" "$said"
is "every step has a line" "$(grep -c '"kind":"step"' "$work/skips/metrics.jsonl")" 40
is "and a loss, or a reason" "$(grep '"kind":"step"' "$work/skips/metrics.jsonl" | grep -cE '"loss":[0-9.]+.*"step"|"skipped":')" 40
has "they are counted" "$(cat "$work/skips/report.json")" "\"skipped_steps\": $skipped"
has "they are said" "$said" "step $(printf '%6d' "$bad_step")  skipped: the loss is nan; it began on rank"
for name in model.embed_tokens.weight model.layers.0.mlp.up_proj.weight; do has "$name" "$(cat "$work/skips/checkpoints/checkpoint_40/index.json")" "$name"; done

# --- a held-out loss that is not finite ends the run, too; with on_nan skip it is noted, is never the best, and the run goes on
HELD_OUT=8 make_poisoned held_out 2 --steps 8
run "held-out data that are not finite" 6 launch held_out --threads 1
has "held-out data that are not finite" "$said" "evaluation after step 0, the held-out loss is nan; help: "
HELD_OUT=8 make_poisoned held_out_skips 2 --steps 8 --on-nan skip --keep-best 1
run "evaluations that are not finite" 0 launch held_out_skips --threads 1
has "evaluations that are not finite" "$said" "step      0  held-out loss nan: not finite, so it does not count"
has "evaluations that are not finite" "$said" "completed at step 8 of 8"
is "each has a line" "$(grep -c '"kind":"evaluation","not_finite":"the held-out loss is nan"' "$work/held_out_skips/metrics.jsonl")" \
  "$(grep -c '"kind":"evaluation"' "$work/held_out_skips/metrics.jsonl")"
has_not "no loss of theirs is reported" "$(cat "$work/held_out_skips/report.json")" '"held_out_loss"'

# --- the same when it is stopped and goes on, also on another number of ranks' worth of processes
make_poisoned resumed 2 --on-nan skip
run "stopped" 0 launch resumed --threads 1 --stop-after "$bad_step"
run "gone on" 0 launch resumed --threads 1
is "losses after a resume" "$(losses "$work/resumed/metrics.jsonl")" "$(losses "$work/skips/metrics.jsonl")"
is "skipped steps after a resume" "$(grep -c '"skipped"' "$work/resumed/metrics.jsonl")" "$skipped"
is "parameters after a resume" "$(tensors "$work/resumed/checkpoints/checkpoint_40")" "$(tensors "$work/skips/checkpoints/checkpoint_40")"

# --- too many in a row: learning rate so large that everything is lost
make_job lost 2 --learning-rate 10 --warmup-steps 0 --min-learning-rate 0 --grad-clip 0 --weight-decay 10 --on-nan skip --max-skips 4 --init random --lr-schedule constant --steps 400
run "too many in a row" 6 launch lost --threads 1
has "too many in a row" "$said" "steps in a row would be skipped"
is "too many in a row: lines" "$(grep -c '"skipped"' "$work/lost/metrics.jsonl")" 3

# --- spikes: noted, skipped, or the end. With a factor near 1 a noisy loss has many.
noisy=(--learning-rate 1e-5 --min-learning-rate 1e-5 --on-spike)
make_job noted 2 "${noisy[@]}" note --spike-factor 1.0005
run "spikes are noted" 0 launch noted --threads 1
noted=$(grep -c '"spike":' "$work/noted/metrics.jsonl")
((noted > 0)) || fail "no spike is noted" "$said"
is "noted, not skipped" "$(grep -c '"skipped"' "$work/noted/metrics.jsonl" || true)" 0
make_job ignored 2 --learning-rate 1e-5 --min-learning-rate 1e-5
run "spikes are ignored" 0 launch ignored --threads 1
sed 's/"spike":[^,]*,//' "$work/noted/metrics.jsonl" > "$work/without"
is "noting changes nothing" "$(losses "$work/without")" "$(losses "$work/ignored/metrics.jsonl")"
is "ignoring records nothing" "$(grep -c '"losses"' "$work/ignored/checkpoints/checkpoint_40/metadata.json" || true)" 0
make_job spiky 2 "${noisy[@]}" skip --spike-factor 1.0005
run "spikes are skipped" 0 launch spiky --threads 1
spikes=$(grep -c '"skipped":"the loss is' "$work/spiky/metrics.jsonl")
((spikes > 0)) || fail "no spike is skipped" "$said"
make_job spiky_resumed 2 "${noisy[@]}" skip --spike-factor 1.0005
run "stopped among spikes" 0 launch spiky_resumed --threads 1 --stop-after 23
run "stopped among spikes again" 0 launch spiky_resumed --threads 1 --stop-after 8
run "gone on among spikes" 0 launch spiky_resumed --threads 1
# What a process took and when is not compared: the first steps of each also say where their memory went.
lines() { grep '"kind":"step"' "$1" | sed -E -e 's/("memory":.*,)?"peak_bytes":[0-9]+,//' -e 's/"(step_s|tokens_per_s|wait_s)":[^,}]*//g'; }
is "spikes after a resume" "$(lines "$work/spiky_resumed/metrics.jsonl")" "$(lines "$work/spiky/metrics.jsonl")"
is "parameters after spikes" "$(tensors "$work/spiky_resumed/checkpoints/checkpoint_40")" "$(tensors "$work/spiky/checkpoints/checkpoint_40")"
make_job spike_stops 2 "${noisy[@]}" stop --spike-factor 1.0005
run "a spike ends the run" 6 launch spike_stops --threads 1
first_spike=$(grep -m 1 '"spike":' "$work/noted/metrics.jsonl" | sed -nE 's/.*"step":([0-9]+).*/\1/p')
for rank in 0 1; do has "a spike ends the run" "$said" "[rank $rank] rank $rank on $host, training step $first_spike, the loss is"; done

# --- settings that would have no effect are refused
refused() { # NAME CODE PATTERN FLAGS...
  run "$1" "$2" "$distsetup" plan "$work/run.yaml" "${@:4}"
  has "$1" "$said" "$3"
}
cd "$work"
refused "a factor alone" 2 "spikes are ignored" --spike-factor 3
refused "skips alone" 2 "no step is skipped" --max-skips 3
refused "another trainer's" 3 "setting of the bundled trainer" --trainer fsdp2 --gpu h100_sxm --on-nan skip
echo "guard: all checks hold"
