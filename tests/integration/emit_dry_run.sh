#!/usr/bin/env bash
# Regression 2: no emitted line has a flag that the program it starts refuses. Every emitted script of the bundled trainer is run with
# the real programs up to the trainer's own --dry-run, which reads the line, the plan, the environment and the data. A line with one
# flag too many must fail, or this test could not.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
need_trainer
export DISTSETUP=$distsetup DISTSETUP_TRAIN="$work/dry trainer"
# For job.sbatch, which has no way to pass options on.
# shellcheck disable=SC2016 # for the stand-in to expand
printf '#!/bin/bash\nexec %q "$@" --dry-run ${MORE:+"$MORE"}\n' "$DISTSETUP_BIN/distsetup-train" >"$DISTSETUP_TRAIN"
chmod +x "$DISTSETUP_TRAIN"

emitted() { run "emit $1" 0 "$distsetup" emit --target "$1" --plan "$work/$2/plan.json" --output "$work/$2 $1"; }
dry="dry run: the plan, its schedule, the environment"

make_job one 2
emitted native one
run "launch.sh" 0 "$work/one native/launch.sh" --dry-run
has "launch.sh" "$said" "$dry"
run "launch.sh with a flag nobody has" 2 "$work/one native/launch.sh" --dry-run --no-such-flag

make_job two 1 --nodes 2
emitted native two
port=$(free_port)
"$work/two native/launch_node.sh" 1 127.0.0.1 $port --dry-run >"$work/node 1" 2>&1 &
other=$!
run "launch_node.sh 0" 0 "$work/two native/launch_node.sh" 0 127.0.0.1 $port --dry-run
wait $other || fail "launch_node.sh 1" "$(cat "$work/node 1")"
has "launch_node.sh 0" "$said" "$dry"

# The job script with stand-ins for SLURM's own programs: srun starts the line once per task with what SLURM sets.
emitted slurm one
mkdir "$work/slurm"
cat >"$work/slurm/scontrol" <<STUB
#!/bin/bash
if [[ \$2 == hostnames ]]; then echo 127.0.0.1; else echo '   Command=$work/one slurm/job.sbatch'; fi
STUB
cat >"$work/slurm/srun" <<'STUB'
#!/bin/bash
while [[ $1 == --* ]]; do shift; done
export SLURM_NTASKS=2 SLURM_NNODES=1 SLURM_NODEID=0 SLURM_STEP_ID=0
for SLURM_PROCID in 0 1; do
  SLURM_LOCALID=$SLURM_PROCID
  export SLURM_PROCID SLURM_LOCALID
  "$@" &
  tasks+=($!)
done
code=0
for task in "${tasks[@]}"; do wait "$task" || code=$?; done
exit $code
STUB
chmod +x "$work/slurm"/*
job() {
  env -u RANK PATH="$work/slurm:$PATH" SLURM_JOB_ID=7 SLURM_JOB_NODELIST=localhost SLURM_NTASKS_PER_NODE=2 "$@" \
    bash "$work/one slurm/job.sbatch"
}
run "job.sbatch" 0 job env
has "job.sbatch" "$said" "$dry"
run "job.sbatch with a flag nobody has" 2 job env MORE=--no-such-flag
echo "launch.sh, launch_node.sh and job.sbatch are read by the trainer"
