#!/usr/bin/env bash
# Emitted job scripts on a real SLURM (two virtual nodes of two GPUs), with a stand-in for the trainer that writes down what it was
# given: sbatch reads every directive as it was meant, tasks get their ranks, a warned job saves and comes back, a failure ends all.
set -euo pipefail
source_dir=${DISTSETUP_SOURCE:?}
distsetup=${DISTSETUP_BIN:?}/distsetup
work=$(mktemp -d)
if ! said=$("$source_dir/tests/support/slurm_up" "$work/slurm" 2 8 2 2>&1); then
  rm -rf "$work"
  echo "no SLURM here: $said" | tail -n 1
  exit 77
fi
trap '"$source_dir/tests/support/slurm_down" "$work/slurm" >/dev/null 2>&1; rm -rf "$work"' EXIT
# shellcheck disable=SC1091
. "$work/slurm/env.sh"

fail() { printf 'emit_slurm: %s\n' "$@" >&2; exit 1; }
is() { [[ $2 == "$3" ]] || fail "$1" "found:    $2" "expected: $3"; }

mkdir "$work/submit here"
cd "$work/submit here"
cat >trainer <<TRAINER
#!/bin/bash
place="\$SLURM_PROCID/\$SLURM_NTASKS node \$SLURM_NODEID local \$SLURM_LOCALID of \$MASTER_ADDR cores \$SLURM_CPUS_PER_TASK"
echo "\$place name \$SLURM_JOB_NAME args \$*" >>'$work/ranks'
if [[ \${RANK+set} ]]; then echo "RANK is set" >>'$work/ranks'; fi
case \$TRAINER_DOES in
  fail) if ((SLURM_PROCID == 3)); then exit 7; fi; sleep 60 ;;
  save)
    trap 'exit 0' USR1
    if ((\${SLURM_RESTART_COUNT:-0} == 0)); then
      touch '$work/running'
      for _ in {1..600}; do sleep 0.1; done
    fi
    ;;
esac
TRAINER
chmod +x trainer
export DISTSETUP_TRAIN="$PWD/trainer" RANK=5 TRAINER_DOES=nothing
ranks() { sort "$work/ranks"; rm "$work/ranks"; }
expected() {  # NAME PLAN
  local rank
  for rank in 0 1 2 3; do echo "$rank/4 node $((rank / 2)) local $((rank % 2)) of n1 cores 2 name $1 args --plan $2"; done
}
options=(--nodes 2 --gpus 2 --cpus-per-task 2 --time-limit 10m)

# a script from a pipe; the plan is where the job was submitted
"$distsetup" emit --target slurm --model llama3.2_1b "${options[@]}" --output "$work/with a plan" >/dev/null 2>&1
cp "$work/with a plan/plan.json" .
"$distsetup" slurm "${options[@]}" 2>/dev/null | "$DISTSETUP_SOURCE/tests/support/sbatch_wait" 60 >/dev/null
is "from a pipe" "$(ranks)" "$(expected llm_finetune plan.json)"

# awkward values in directives, the log in a folder that did not exist
name=$'a "b" \\ \'c\' #d $(id)'
"$distsetup" slurm "${options[@]}" --job-name "$name" --output-log 'the logs/%j.out' >job.sbatch 2>/dev/null
"$DISTSETUP_SOURCE/tests/support/sbatch_wait" 60 job.sbatch >/dev/null || fail "the job with an awkward name failed"
is "awkward name" "$(ranks)" "$(expected "$name" plan.json)"
compgen -G 'the logs/*.out' >/dev/null || fail "no log in its folder"

# with a plan: found beside the script, from another directory
cd /
"$DISTSETUP_SOURCE/tests/support/sbatch_wait" 60 --output="$work/o" --error="$work/e" "$work/with a plan/job.sbatch" >/dev/null ||
  fail "the job with a plan failed: $(cat "$work/e")"
is "plan beside the script" "$(ranks)" "$(expected llm_finetune "$work/with a plan/plan.json")"
cd "$work/submit here"

# another trainer by way of SLURM: its own script once per node, with the node's number, from any folder
mkdir "$work/tools"
cat >"$work/tools/torchrun" <<RECORD
#!/bin/bash
printf '%s rank %s:%s args%s\n' "\$SLURM_NODEID" "\$NODE_RANK" "\$MASTER_ADDR" "\$(printf ' [%s]' "\$@")" >>'$work/ranks'
RECORD
chmod +x "$work/tools/torchrun"
"$distsetup" emit --target deepspeed --via slurm --model llama3.2_1b "${options[@]}" --requeue --output "$work/other trainer" \
  -- train.py 'a b' >/dev/null 2>&1
cd /
PATH="$work/tools:$PATH" "$DISTSETUP_SOURCE/tests/support/sbatch_wait" 60 --output="$work/o" --error="$work/e" "$work/other trainer/job.sbatch" >/dev/null ||
  fail "the job of another trainer failed: $(cat "$work/e")"
port=$(sed -nE '1s/.*--master_port=([0-9]+).*/\1/p' "$work/ranks")
is "another trainer" "$(ranks)" "$(for node in 0 1; do
  echo "$node rank $node:n1 args [--nnodes=2] [--nproc_per_node=2] [--node_rank=$node] [--master_addr=n1] [--master_port=$port] [train.py] [a b]"
done)"
cd "$work/submit here"

# a failing rank ends the others and the job
started=$SECONDS code=0
TRAINER_DOES=fail "$DISTSETUP_SOURCE/tests/support/sbatch_wait" 60 job.sbatch >/dev/null || code=$?
((code != 0)) || fail "a failed job ended with 0"
((SECONDS - started < 30)) || fail "the other ranks lived on for $((SECONDS - started)) s"
rm "$work/ranks"

# a warned job saves, goes back into the queue, and ends in its second life
"$distsetup" slurm "${options[@]}" --requeue >again.sbatch 2>/dev/null
job=$(TRAINER_DOES=save sbatch --parsable again.sbatch)
wait_for() {  # SECONDS COMMAND...
  local until=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < until)) || fail "waited in vain for: $*" "$(scontrol show job "$job")" "$(cat slurm-"$job".*)"
    sleep 0.2
  done
}
state() { [[ $(squeue --noheader --jobs="$job" --format=%T 2>/dev/null) == "$1" ]]; }
wait_for 30 test -e "$work/running"
sleep 0.5
scancel --batch --signal=USR1 "$job"
wait_for 30 state PENDING
sleep 2  # the first life still completes; SLURM itself would wait two minutes
scontrol update jobid="$job" starttime=now
completed() { [[ $(scontrol show job "$job") == *JobState=COMPLETED* ]]; }
wait_for 60 completed
is "two lives" "$(ranks)" "$( (expected llm_finetune plan.json; expected llm_finetune plan.json) | sort)"
[[ $(scontrol show job "$job") == *Restarts=1* ]] || fail "the job was not restarted once"
echo "directives, ranks, logs, failure and requeue as expected"
