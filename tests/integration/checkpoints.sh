#!/usr/bin/env bash
# Checkpoints as a user handles them: saved beside training, listed, verified, compared, kept by marks and by the best, pruned; a run that
# ends when it no longer gets better; a disk that fills up under a run.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
need_trainer
make_job straight 2
run "a straight run" 0 launch straight --threads 1

# --- beside training: the same bytes, and both are the same to `diff`
make_job beside 2 --async-save
run "saved beside training" 0 launch beside --threads 1
for step in 7 14 21 28 35 40; do has "saved beside training" "$said" "saved as checkpoint_$step"; done
grep -qE 'checkpoint copy .* equal$' <<< "$said" || fail "the bytes of the copy are not as predicted" "$said"
grep -qE 'peak allocated .* equal$' <<< "$said" || fail "the peak is not as predicted" "$said"
for step in 28 35 40; do
  is "the same bytes at step $step" "$(tensors "$work/beside/checkpoints/checkpoint_$step")" "$(tensors "$work/straight/checkpoints/checkpoint_$step")"
done
run "diff of equal runs" 0 "$distsetup" checkpoint diff "$work/straight" "$work/beside"
has "diff of equal runs" "$said" "are the same bit for bit"
run "diff of two steps" 7 "$distsetup" checkpoint diff "$work/straight/checkpoints/checkpoint_35" "$work/straight"
has "diff of two steps" "$said" "35 -> 40"
has "diff of two steps" "$said" "model.embed_tokens.weight.exp_avg"
make_job one 1
run "one rank" 0 launch one --threads 1
"$distsetup" checkpoint diff "$work/one" "$work/straight" --json > "$work/diff.json" && fail "one rank and two are bit-equal: the comparison cannot fail"
python3 -c '
import json, sys
tensors = json.load(open(sys.argv[1]))["tensors"]
assert len(tensors) == 3 * 21 and all(t["only_in"] == "" for t in tensors), len(tensors)
assert max(t["relative"] for t in tensors) < 1e-2, max(tensors, key=lambda t: t["relative"])' "$work/diff.json"

# --- list and verify
run "list" 0 "$distsetup" checkpoint list "$work/straight"
is "list" "$(awk '{ print $1 }' <<< "$said" | paste -sd' ')" "checkpoint checkpoint_40 checkpoint_35 checkpoint_28"
has "list" "$said" "best"
run "verify" 0 "$distsetup" checkpoint verify "$work/straight"
is "verify" "$(grep -c ': whole$' <<< "$said")" 3
cp -r "$work/straight" "$work/damaged"
file=$work/damaged/checkpoints/checkpoint_35/rank_1.safetensors
python3 -c 'import sys; p = sys.argv[1]; b = bytearray(open(p, "rb").read()); b[-1] ^= 1; open(p, "wb").write(b)' "$file"
run "verify a damaged one" 3 "$distsetup" checkpoint verify "$work/damaged"
has "verify a damaged one" "$said" "rank_1.safetensors' has the digest"
run "list looks at sizes" 0 "$distsetup" checkpoint list "$work/damaged"
has_not "list looks at sizes" "$said" "digest"
run "verify one" 0 "$distsetup" checkpoint verify "$work/damaged/checkpoints/checkpoint_40"
rm "$work/damaged/checkpoints/checkpoint_28/COMMIT"
run "list an unfinished one" 0 "$distsetup" checkpoint list "$work/damaged"
has "list an unfinished one" "$said" "has no COMMIT: it was never finished"
run "no checkpoints" 3 "$distsetup" checkpoint list "$work/data"
run "diff of what is no checkpoint" 3 "$distsetup" checkpoint diff "$work/data" "$work/straight"

# --- prune: what is damaged counts for nothing and stays, what is not ours stays
mkdir "$work/damaged/checkpoints/backup" && echo mine > "$work/damaged/checkpoints/backup/precious"
run "prune, dry" 0 "$distsetup" checkpoint prune "$work/straight" --keep 1 --dry-run
is "prune, dry" "$(cd "$work/straight/checkpoints" && echo *)" "checkpoint_28 checkpoint_35 checkpoint_40"
run "prune" 0 "$distsetup" checkpoint prune "$work/straight" --keep 1 --keep-every 14
is "prune" "$(cd "$work/straight/checkpoints" && echo *)" "checkpoint_28 checkpoint_40"
run "prune beside a damaged one" 0 "$distsetup" checkpoint prune "$work/damaged" --keep 1
is "prune beside a damaged one" "$(cd "$work/damaged/checkpoints" && echo *)" "backup checkpoint_28 checkpoint_35 checkpoint_40"
run "prune to nothing" 2 "$distsetup" checkpoint prune "$work/straight" --keep 0

# --- marks and the best
make_job kept 2 --keep-checkpoints 1 --keep-every 14 --keep-best 1 --learning-rate 0.3 --warmup-steps 0
run "marks and the best" 0 launch kept --threads 1
best=$("$distsetup" checkpoint list "$work/kept" | awk '/best$/ { print $1 }')
expected=$(printf '%s\n' checkpoint_14 checkpoint_28 checkpoint_40 "$best" | sort -u | paste -sd' ')
is "marks and the best" "$(cd "$work/kept/checkpoints" && echo *)" "$expected"
python3 -c '
import json, pathlib, sys
losses = {}
for line in open(sys.argv[1] + "/metrics.jsonl"):
    one = json.loads(line)
    if one["kind"] == "evaluation": losses[one["step"]] = one["held_out_loss"]
saved = {step: losses[step] for step in (7, 14, 21, 28, 35, 40)}
best = min(saved, key=saved.get)
assert sys.argv[2] == f"checkpoint_{best}", (saved, sys.argv[2])' "$work/kept" "$best"

# --- a run that no longer gets better ends, and stays ended
make_job patient 2 --patience 2 --evaluate-every 3 --learning-rate 2 --warmup-steps 0
run "patience" 0 launch patient --threads 1
has "patience" "$said" "2 evaluations without a smaller held-out loss: the run ends here"
has "patience" "$(cat "$work/patient/report.json")" '"status": "completed"'
last=$(losses "$work/patient/metrics.jsonl" | tail -n 1 | cut -d' ' -f1)
((last < 40)) || fail "patience: all steps were trained"
[[ -e $work/patient/checkpoints/checkpoint_$last/COMMIT ]] || fail "patience: its last step is not saved"
run "patience, again" 0 launch patient --threads 1
has "patience, again" "$said" "after 2 evaluations without a smaller held-out loss, nothing is left to do"
for flags in "--patience 2" "--keep-best 1"; do
  # shellcheck disable=SC2086
  run "nothing is held out: $flags" 3 "$distsetup" plan "$work/run.yaml" $flags --held-out 0
  has "nothing is held out: $flags" "$said" "no data are held out"
done

# --- a full disk: saves beside training fail, training does not, and the last save ends the run with the reason
cc -shared -fPIC -O1 -o "$work/failing_disk.so" "$DISTSETUP_SOURCE/tests/support/failing_disk.c" -ldl
make_job full 2 --async-save
run "the disk fills up" 6 env LD_PRELOAD="$work/failing_disk.so" FAIL_AT=100 FAIL_RANK=1 FAIL_WITH=ENOSPC "$distsetup" launch --plan "$work/full/plan.json" --grace 3 --threads 1
has "the disk fills up" "$said" "is not saved, and training goes on: cannot write"
is "the disk fills up: every step is trained" "$(losses "$work/full/metrics.jsonl")" "$(losses "$work/straight/metrics.jsonl")"
run "the disk fills up: what is there is whole" 0 "$distsetup" checkpoint verify "$work/full"
run "with room again" 0 launch full --threads 1
is "with room again: losses" "$(losses "$work/full/metrics.jsonl")" "$(losses "$work/straight/metrics.jsonl")"
is "with room again: parameters" "$(tensors "$work/full/checkpoints/checkpoint_40")" "$(tensors "$work/straight/checkpoints/checkpoint_40")"
echo "checkpoints: all checks hold"
