#!/usr/bin/env bash
# A disk that is full, fails, writes half, or a process that ends, at random operations on checkpoint files of random ranks: what is
# committed is always whole, and the run goes on to the curve and the parameters of a run that nothing happened to. POINTS (12), SEED.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
need_trainer
seed=${SEED:-$RANDOM}
echo "checkpoint_faults: SEED=$seed"
RANDOM=$seed
cc -shared -fPIC -O1 -o "$work/failing_disk.so" "$DISTSETUP_SOURCE/tests/support/failing_disk.c" -ldl
make_job straight 2
make_job beside 2 --async-save
make_job at_once 2
run "a straight run" 0 env LD_PRELOAD="$work/failing_disk.so" FAIL_COUNT="$work/count" "$distsetup" launch --plan "$work/straight/plan.json" --threads 1
operations=("$(cat "$work/count.0")" "$(cat "$work/count.1")")
((operations[0] > 50 && operations[1] > 20)) || fail "only ${operations[*]} operations were counted"
kinds=(ENOSPC EIO SHORT STOP) ended=0 went_on=0
for ((point = 0; point < ${POINTS:-12}; ++point)); do
  job=beside
  ((RANDOM % 2)) || job=at_once
  rank=$((RANDOM % 2)) kind=${kinds[$((RANDOM % 4))]}
  at=$((1 + RANDOM % operations[rank]))
  name="$job, rank $rank, $kind at operation $at"
  rm -rf "$work/$job/checkpoints" "$work/$job/metrics.jsonl" "$work/$job/report.json"
  code=0
  said=$(LD_PRELOAD="$work/failing_disk.so" FAIL_AT=$at FAIL_WITH=$kind FAIL_RANK=$rank "$distsetup" launch --plan "$work/$job/plan.json" --grace 3 --threads 1 2>&1) || code=$?
  case $code in
    0) went_on=$((went_on + 1)) ;;
    6) ended=$((ended + 1)) ;;
    *) fail "$name: exit code $code" "$said" ;;
  esac
  [[ $kind != SHORT || $code == 0 ]] || fail "$name: a short write is no failure" "$said"
  for commit in "$work/$job"/checkpoints/checkpoint_*/COMMIT; do
    [[ -e $commit ]] || continue
    run "$name: what is committed" 0 "$distsetup" checkpoint verify "$(dirname "$commit")"
  done
  run "$name: it goes on" 0 launch "$job" --threads 1
  is "$name: losses" "$(losses "$work/$job/metrics.jsonl")" "$(losses "$work/straight/metrics.jsonl")"
  is "$name: parameters" "$(tensors "$work/$job/checkpoints/checkpoint_40")" "$(tensors "$work/straight/checkpoints/checkpoint_40")"
done
((ended > 0)) || fail "no run was ended: nothing was injected"
echo "checkpoint_faults: $point points, $ended ended the run, $went_on did not"
