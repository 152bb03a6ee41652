#!/usr/bin/env bash
# The emitted batch script on a real SLURM: two nodes of two ranks train, report, leave a checkpoint, and lose what one node of four
# ranks loses; a rank that fails fails the job at once; SLURM's warning signal ends the run with a checkpoint.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
need_trainer
[[ $(id -u) == 0 ]] || { echo "not run: a SLURM on one machine needs root"; exit 77; }
unshare --mount --uts --propagation private true 2>/dev/null || { echo "not run: no CAP_SYS_ADMIN for the nodes' namespaces"; exit 77; }
export DISTSETUP_TRAIN=$DISTSETUP_BIN/distsetup-train

make_job one 4
run "one node of four ranks" 0 launch one

"$DISTSETUP_SOURCE/tests/support/slurm_up" "$work/slurm" 2 8 > "$work/slurm.log" 2>&1 || fail "slurm_up" "$(cat "$work/slurm.log")"
trap 'status=$?; "$DISTSETUP_SOURCE/tests/support/slurm_down" "$work/slurm" > /dev/null; rm -rf "$work"; exit $status' EXIT
# shellcheck source=/dev/null
. "$work/slurm/env.sh"

# submit NAME: the job's own exit code in $code, its output in $said
submit() {
  code=0
  (cd "$work/$1" && "$DISTSETUP_SOURCE/tests/support/sbatch_wait" 120 job.sbatch) > "$work/submit.log" 2>&1 || code=$?
  said=$(cat "$work/submit.log" "$work/$1"/slurm-*.out "$work/$1"/slurm-*.err 2>/dev/null)
  rm -f "$work/$1"/slurm-*
}
two_nodes() {  # NAME [FLAGS]
  make_job "$1" 2 --nodes 2 "${@:2}"
  run "emit $1" 0 "$distsetup" emit --target slurm --plan "$work/$1/plan.json" --output "$work/$1" --force
}

two_nodes two
submit two
[[ $code == 0 ]] || fail "two nodes of two ranks" "$said"
losses_agree "two nodes beside one" "$work/two/metrics.jsonl" "$work/one/metrics.jsonl" 1e-5
[[ -s $work/two/checkpoints/checkpoint_40/COMMIT ]] || fail "no committed checkpoint" "$(ls "$work/two")"

# A rank that dies takes the job with it.
cat > "$work/trainer" <<'SH'
#!/bin/bash
[[ $SLURM_PROCID != 3 ]] || exit 9
exec "$DISTSETUP_BIN/distsetup-train" "$@"
SH
chmod +x "$work/trainer"
rm -rf "$work/two/checkpoints"
started=$SECONDS
DISTSETUP_TRAIN=$work/trainer submit two
[[ $code != 0 ]] || fail "a rank exits 9 and the job succeeds" "$said"
((SECONDS - started < 60)) || fail "a rank exits 9: the job took $((SECONDS - started)) s to end"

# SLURM's warning signal: a checkpoint at the next step and an end.
two_nodes long --steps 2000
(cd "$work/long" && sbatch --parsable job.sbatch > "$work/job") 2> /dev/null || fail "sbatch refused the long job"
job=$(cat "$work/job")
for _ in $(seq 300); do
  ! grep -q '"step":20,' "$work/long/metrics.jsonl" 2> /dev/null || break
  sleep 0.2
done
scancel --signal=USR1 "$job"
for _ in $(seq 300); do
  [[ -n $(squeue -h -j "$job" 2> /dev/null) ]] || break
  sleep 0.2
done
[[ -z $(squeue -h -j "$job" 2> /dev/null) ]] || fail "USR1 did not end the job" "$(tail -n 20 "$work"/long/slurm-*)"
reached=$(find "$work/long/checkpoints" -name COMMIT -path '*checkpoint_*' | sed -E 's/.*checkpoint_([0-9]+).*/\1/' | sort -n | tail -n 1)
[[ $reached -ge 20 && $reached -lt 2000 ]] || fail "checkpoint after USR1: found step '$reached', expected 20 to 1999"
echo "two nodes train as one; a failed rank fails the job; USR1 at step $reached left a checkpoint"
