#!/usr/bin/env bash
# Jobs on a real SLURM of four nodes: both shapes on two and on four nodes lose what one rank loses; a node that dies ends the job with
# its reason; a warned job comes back and ends with the loss of an uninterrupted one; a crash that comes back stops; what the cluster
# cannot give is refused before anything is submitted.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
export LC_ALL=C.UTF-8 # what ${words@Q} looks like depends on it
need_trainer
[[ $(id -u) == 0 ]] || { echo "not run: a SLURM on one machine needs root"; exit 77; }
unshare --mount --uts --propagation private true 2>/dev/null || { echo "not run: no CAP_SYS_ADMIN for the nodes' namespaces"; exit 77; }
python=${DISTSETUP_ORACLE_PYTHON:-$("$DISTSETUP_SOURCE/scripts/oracle_env" 2>/dev/null)} || { echo "not run: no Python with torch"; exit 77; }
export DISTSETUP_TRAIN=$DISTSETUP_BIN/distsetup-train OMP_NUM_THREADS=1
mkdir "$work/bin"
printf '#!/bin/bash\nexec %q -m torch.distributed.run "$@"\n' "$python" >"$work/bin/torchrun"
chmod +x "$work/bin/torchrun"
export PATH="$work/bin:$PATH"

"$DISTSETUP_SOURCE/tests/support/slurm_up" "$work/slurm" 4 8 2 >"$work/slurm.log" 2>&1 || fail "slurm_up" "$(cat "$work/slurm.log")"
trap 'status=$?; "$DISTSETUP_SOURCE/tests/support/slurm_down" "$work/slurm" > /dev/null; rm -rf "$work"; exit $status' EXIT
# shellcheck source=/dev/null
. "$work/slurm/env.sh"

declare -A code
logs() { cat "$work/$1"/slurm-* 2>/dev/null; }
job_of() { # NAME NODES [FLAGS OF emit] -- [FLAGS OF plan]
  local name=$1 nodes=$2 emit=()
  shift 2
  while (($# > 0)) && [[ $1 != -- ]]; do emit+=("$1"); shift; done
  make_job "$name" 2 --nodes "$nodes" "${@:2}"
  run "emit $name" 0 "$distsetup" emit --target slurm --plan "$work/$name/plan.json" --output "$work/$name" --force "${emit[@]}"
}
# Several jobs, at once where the four nodes are enough for them. Waits; their own exit codes are in ${code[NAME]}.
submit() { # NAME...
  local name waiting=()
  code=()
  for name in "$@"; do
    (cd "$work/$name" && "$DISTSETUP_SOURCE/tests/support/sbatch_wait" 240 job.sbatch) >"$work/submit.$name.log" 2>&1 &
    waiting+=("$!")
  done
  for name in "$@"; do
    code[$name]=0
    wait "${waiting[0]}" || code[$name]=$?
    waiting=("${waiting[@]:1}")
  done
}
wait_for() { # SECONDS WHAT COMMAND...
  local until=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    ((SECONDS < until)) || fail "waited in vain for $what" "$(scontrol show job "$job" 2>&1 | head -n 8)" "$(logs "$name")"
    sleep 0.2
  done
}
queued_again() { [[ $(scontrol show job "$job" 2>/dev/null) == *JobState=PENDING*Restarts=1* ]]; }
over() { [[ $(scontrol show job "$job" 2>/dev/null) =~ JobState=(COMPLETED|FAILED|NODE_FAIL|CANCELLED) ]]; }
start_now() { # a job that waits for its second life
  wait_for 60 "the job to be queued again" queued_again
  sleep 2 # the first life still completes
  scontrol update jobid="$job" starttime=now || fail "the job cannot be started" "$(scontrol show job "$job")" "$(logs "$name")"
}

make_job one 1
run "one rank" 0 launch one

# --- both shapes, two and four nodes; the ranks are where they should be
for nodes in 2 4; do
  names=("rank_$nodes" "torchrun_$nodes")
  for shape in rank torchrun; do job_of "${shape}_$nodes" "$nodes" --shape "$shape" --health-gate; done
  submit "${names[@]}"
  for name in "${names[@]}"; do
    [[ ${code[$name]} == 0 ]] || fail "$name: exit code ${code[$name]}" "$(logs "$name")"
    losses_agree "$name beside one rank" "$work/$name/metrics.jsonl" "$work/one/metrics.jsonl" 1e-5
    [[ -s $work/$name/checkpoints/checkpoint_40/COMMIT ]] || fail "$name: no committed checkpoint"
  done
done

# --- a chain by a job array: the second task finds nothing left to do
name=chain
job_of chain 2 --array 0-1%1
submit chain
[[ ${code[chain]} == 0 ]] || fail "chain: exit code ${code[chain]}" "$(logs chain)"
losses_agree "chain beside one rank" "$work/chain/metrics.jsonl" "$work/one/metrics.jsonl" 1e-5

# --- a node dies: the job ends, and says which rank was lost
name=dies
job_of dies 2 -- --steps 100000
job=$(cd "$work/dies" && sbatch --parsable job.sbatch)
trained() { grep -q '"step":10,' "$work/$name/metrics.jsonl" 2>/dev/null; }
wait_for 60 "ten steps" trained
second=$(sed -n 's/^slurmd-n2 \([0-9]*\) .*/\1/p' "$work/slurm/daemons")
# All of node 2: its daemon, the step's shepherd and the ranks.
for pid in $(pgrep -f "distsetup-train --plan $work/dies/plan.json") $(pgrep -f "slurmstepd: \[$job\.") "$second"; do
  if [[ $(nsenter --target "$pid" --uts hostname 2>/dev/null) == n2 ]]; then kill -9 "$pid"; fi
done
wait_for 120 "the job of a dead node to end" over
[[ $(scontrol show job "$job") != *JobState=COMPLETED* ]] || fail "a job that lost a node completed" "$(logs dies)"
said=$(logs dies)
[[ $said =~ rank\ [23]\ is\ gone || $said =~ ranks\ 2,\ 3\ is\ gone ]] || fail "no rank of the dead node is named" "$said"
[[ $said == *"job.sbatch: the step ended with"* || $(scontrol show job "$job") == *JobState=NODE_FAIL* ]] ||
  fail "neither the job nor SLURM says how it ended" "$(scontrol show job "$job" | head -n 8)" "$said"
# The node comes back for what follows.
# shellcheck disable=SC2016 # for the inner shell
setsid unshare --mount --uts --propagation private sh -c \
  'mount --bind "$1/hosts" /etc/hosts && hostname n2 && exec slurmd -D -N n2 -f "$1/slurm.conf"' sh "$work/slurm" >/dev/null 2>&1 </dev/null &
echo "slurmd-n2 $! $(sed 's/.*) //' "/proc/$!/stat" | cut -d' ' -f20)" >>"$work/slurm/daemons"
scontrol update nodename=n2 state=resume 2>/dev/null || true
idle() { [[ $(sinfo -h -N -t idle -o %N | wc -l) == 4 ]]; }
wait_for 60 "node 2 to come back" idle

# --- warned, saved, queued again, resumed: the curve of a run that nobody interrupted
for shape in rank torchrun; do
  job_of "whole_$shape" 2 --shape "$shape" -- --steps 300
  job_of "again_$shape" 2 --shape "$shape" --requeue -- --steps 300
done
submit whole_rank whole_torchrun
for name in whole_rank whole_torchrun; do
  [[ ${code[$name]} == 0 ]] || fail "$name: exit code ${code[$name]}" "$(logs "$name")"
done
declare -A ids
for shape in rank torchrun; do ids[again_$shape]=$(cd "$work/again_$shape" && sbatch --parsable job.sbatch); done
for name in again_rank again_torchrun; do
  wait_for 60 "ten steps" trained
  scancel --batch --signal=USR1 "${ids[$name]}"
done
for name in again_rank again_torchrun; do
  job=${ids[$name]}
  start_now
done
for name in again_rank again_torchrun; do
  job=${ids[$name]}
  wait_for 90 "the end of the second life" over
  [[ $(scontrol show job "$job") == *JobState=COMPLETED* ]] || fail "$name did not complete" "$(logs "$name")"
  [[ $(scontrol show job "$job") == *Restarts=1* ]] || fail "$name was not restarted once" "$(scontrol show job "$job")"
  losses_agree "$name beside an uninterrupted run" "$work/$name/metrics.jsonl" "$work/whole_${name#again_}/metrics.jsonl" 0
done

# --- a crash that comes back without progress stops after its limit; one with progress goes on
name=crash
job_of crash 2 --requeue --max-failures 2 -- --steps 300
cat >"$work/crashes" <<'SH'
#!/bin/bash
[[ $SLURM_PROCID != 3 ]] || exit 9
exec "$DISTSETUP_BIN/distsetup-train" "$@"
SH
chmod +x "$work/crashes"
job=$(cd "$work/crash" && DISTSETUP_TRAIN=$work/crashes sbatch --parsable job.sbatch)
start_now
wait_for 90 "the crash loop to stop" over
said=$(logs crash)
has "the crash loop says why it stopped" "$said" "failed 2 times in a row with 'no' as the newest checkpoint: not queued again"
[[ $(scontrol show job "$job") == *JobState=FAILED* && $(scontrol show job "$job") == *Restarts=1* ]] ||
  fail "the crash loop ended otherwise" "$(scontrol show job "$job")" "$said"

# --- scancel is no reason to queue again
name=cancelled
job_of cancelled 2 --requeue -- --steps 100000
job=$(cd "$work/cancelled" && sbatch --parsable job.sbatch)
wait_for 60 "ten steps" trained
scancel "$job"
wait_for 60 "the cancelled job to end" over
[[ $(scontrol show job "$job") == *JobState=CANCELLED* ]] || fail "a cancelled job is not cancelled" "$(scontrol show job "$job")"

# --- the health gate names a node before the ranks start
name=gate
job_of gate 2 --health-gate
sed -i "s|^gate=.*|gate=\"hostname() { echo \\\\\$SLURMD_NODENAME; }; \$(declare -f check_node); if [[ \\\\\$SLURMD_NODENAME == n2 ]]; then set -- 0 /nowhere/distsetup-train ''; fi; check_node \\\\\"\\\\\$@\\\\\"\"|" "$work/gate/job.sbatch"
submit gate
[[ ${code[gate]} == 5 ]] || fail "a node that cannot run the job: exit code ${code[gate]}, expected 5" "$(logs gate)"
has "the gate names the node" "$(logs gate)" "node n2: no '/nowhere/distsetup-train'"
[[ ! -e $work/gate/metrics.jsonl ]] || fail "the ranks started behind a closed gate"

# --- launch --check, and submission
check=("$distsetup" launch --plan "$work/rank_2/plan.json" --target slurm --output "$work/submitted")
mkdir "$work/submitted"
run "check of a job that fits" 0 "${check[@]}" --check
has "check of a job that fits" "$said" "ok    partition: 'main' has 4 nodes of up to 2 GPUs"
run "check of a partition that is not there" 5 "${check[@]}" --check --partition mian
has "check of a partition that is not there" "$said" "did you mean 'main'"
(cd "$work" && "$distsetup" plan --model llama3.2_1b --gpu h100_sxm --gpus 4 --nodes 2 --output "$work/gpus.json" >/dev/null 2>&1) || fail "plan for GPUs"
run "check of too many GPUs" 5 "$distsetup" launch --plan "$work/gpus.json" --target slurm --check
has "check of too many GPUs" "$said" "GPUs: found 2 per node in 'main', expected 4 per node"
(cd "$work" && "$distsetup" plan --model llama3.2_1b --gpu h100_sxm --gpus 2 --nodes 5 --output "$work/nodes.json" >/dev/null 2>&1) || fail "plan for nodes"
run "check of too many nodes" 5 "$distsetup" launch --plan "$work/nodes.json" --target slurm --check
has "check of too many nodes" "$said" "nodes: found 4 in 'main', expected 5"
run "check of what only sbatch knows" 5 "${check[@]}" --check --constraint nosuchfeature
has "check of what only sbatch knows" "$said" "sbatch --test-only"
is "nothing was submitted" "$(squeue -h | wc -l)" 0
run "submitting without a terminal" 2 "${check[@]}"
has "submitting without a terminal" "$said" "add --yes"
run "submitting to a partition that is not there" 5 "${check[@]}" --yes --partition mian
is "nothing was submitted" "$(squeue -h | wc -l)" 0
job=$("${check[@]}" --yes 2>"$work/said") || fail "submitting" "$(cat "$work/said")"
name=submitted
wait_for 60 "the submitted job" over
losses_agree "submitted beside one rank" "$work/submitted/metrics.jsonl" "$work/one/metrics.jsonl" 1e-5

# --- init --site: what sinfo says
run "init --site" 0 "$distsetup" init --site --output "$work/site.yaml"
has "init --site: partition" "$(cat "$work/site.yaml")" "partition: main"
has "init --site: GPUs" "$(cat "$work/site.yaml")" "request: gpus-per-node"
echo "account: nobody" >>"$work/site.yaml"
run "init --site over a file that was changed" 1 "$distsetup" init --site --output "$work/site.yaml"
has "init --site over a file that was changed" "$said" "--force"
run "a job by the site file" 0 "${check[@]}" --check --site "$work/site.yaml"
echo "both shapes train as one rank; a dead node, a warning, a crash loop and a cluster too small end as they should"
