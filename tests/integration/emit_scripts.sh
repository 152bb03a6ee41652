#!/usr/bin/env bash
# What emitted scripts do, with stand-ins for distsetup, torchrun, accelerate, srun and scontrol that write down how they were called:
# from any directory, with spaces in paths, through links; what is missing is said in one line before anything starts.
set -euo pipefail
distsetup=${DISTSETUP_BIN:?}/distsetup
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/emit_combinations.sh
. "${DISTSETUP_SOURCE:?}/tests/support/emit_combinations.sh"

fail() { printf 'emit_scripts: %s\n' "$@" >&2; exit 1; }
is() { [[ $2 == "$3" ]] || fail "$1" "found:    $2" "expected: $3"; }
has() { [[ $2 == *"$3"* ]] || fail "$1" "found:    $2" "expected: ...$3..."; }
# status NAME EXPECTED COMMAND...: exit code and output (in $said)
status() {
  local name=$1 expected=$2 code=0
  shift 2
  said=$("$@" 2>&1) || code=$?
  is "$name: exit code (it said: $said)" "$code" "$expected"
}

# Stand-ins: one line per call, the name and every argument in brackets.
tools="$work/the tools"
mkdir "$tools"
# shellcheck disable=SC2016 # for the stand-in to expand
for name in distsetup torchrun accelerate distsetup-train; do
  printf '#!/bin/bash\n{ printf "%%s" "${0##*/}"; printf " [%%s]" "$@"; echo; } >>%q\n' "$work/calls" >"$tools/$name"
done
cat >"$tools/scontrol" <<STUB
#!/bin/bash
case \$1 in
  show) if [[ \$2 == hostnames ]]; then printf 'node%s\n' 7 8 9; else printf 'JobId=%s\n   Command=%s\n' "\$3" "\$FAKE_COMMAND"; fi ;;
  *) { printf 'scontrol'; printf ' [%s]' "\$@"; echo; } >>'$work/calls' ;;
esac
STUB
cat >"$tools/srun" <<STUB
#!/bin/bash
{
  printf 'srun'
  printf ' [%s]' "\$@"
  echo " addr=\$MASTER_ADDR port=\$MASTER_PORT rank=\${RANK-none} cpus=\${SRUN_CPUS_PER_TASK-none}"
} >>'$work/calls'
if [[ -n \${FAKE_WAIT:-} ]]; then
  trap 'echo "srun got USR1" >>"$work/calls"; sleep 0.3; exit 0' USR1
  touch "\$FAKE_WAIT"
  for _ in {1..200}; do sleep 0.05; done
fi
exit "\${FAKE_STATUS:-0}"
STUB
sed -i "s|\$work|$work|g" "$tools/srun"
chmod +x "$tools"/*
path="$tools:/usr/bin:/bin"
calls() { cat "$work/calls" 2>/dev/null || true; }
fresh() { rm -f "$work/calls"; }

# --- bash -n on everything
emit_combinations "$work/all of them"
count=0
while IFS= read -r -d '' script; do
  bash -n "$script"
  count=$((count + 1))
done < <(find "$work/all of them" -type f \( -name '*.sh' -o -name '*.sbatch' -o -name '*.pbs' -o -name '*.lsf' \) -print0)
((count >= 90)) || fail "only $count scripts were emitted"

# --- native, one node
one="$work/one node"
emitted "$one" emit --target native --model llama3.2_1b --nodes 1 --gpus 2
fresh
(cd / && env PATH="$path" "$one/launch.sh" --dry-run 'a b')
is "launch.sh from another directory" "$(calls)" "distsetup [launch] [--plan] [$one/plan.json] [--dry-run] [a b]"
fresh
ln -s "$one/launch.sh" "$work/a link"
(cd "$work" && env PATH="$path" CDPATH=/ './a link')
is "launch.sh through a link" "$(calls)" "distsetup [launch] [--plan] [$one/plan.json]"
fresh
cp "$tools/distsetup" "$work/my distsetup"
env PATH=/usr/bin:/bin DISTSETUP="$work/my distsetup" "$one/launch.sh"
is "launch.sh with DISTSETUP" "$(calls)" "my distsetup [launch] [--plan] [$one/plan.json]"
status "launch.sh without distsetup" 5 env PATH=/usr/bin:/bin "$one/launch.sh"
has "launch.sh without distsetup" "$said" "set DISTSETUP="

# --- native, several nodes (regression 10: every node gets a rank of its own, from outside)
four="$work/four nodes"
emitted "$four" emit --target native --model llama3.2_1b --nodes 4 --gpus 8
status "launch.sh of a plan for four nodes" 2 env PATH="$path" "$four/launch.sh"
has "launch.sh of a plan for four nodes" "$said" "launch_node.sh"
start="distsetup [launch] [--plan] [$four/plan.json]"
for rank in 0 1 2 3; do
  fresh
  env PATH="$path" "$four/launch_node.sh" "$rank" head-node 2345 --dry-run
  is "launch_node.sh $rank" "$(calls)" \
    "$start [--node-rank] [$rank] [--master-addr] [head-node] [--master-port] [2345] [--dry-run]"
done
fresh
env PATH="$path" NODE_RANK=2 MASTER_ADDR=h MASTER_PORT=99 "$four/launch_node.sh"
is "launch_node.sh by environment" "$(calls)" "$start [--node-rank] [2] [--master-addr] [h] [--master-port] [99]"
fresh
status "launch_node.sh without a rank" 2 env PATH="$path" "$four/launch_node.sh"
status "launch_node.sh without an address" 2 env PATH="$path" NODE_RANK=1 "$four/launch_node.sh"
for wrong in 4 -1 x 01 1.5; do
  status "launch_node.sh with rank $wrong" 2 env PATH="$path" NODE_RANK="$wrong" MASTER_ADDR=h "$four/launch_node.sh"
done
is "nothing was started" "$(calls)" ""

# --- deepspeed and fsdp: torchrun and accelerate get what the plan says
for target in deepspeed fsdp; do
  emit=(emit --target "$target" --model llama3.2_1b --recompute full --sharding zero3 --dp-replicate 1 --gpus 8)
  emitted "$work/$target 1" "${emit[@]}" --nodes 1
  emitted "$work/$target 4" "${emit[@]}" --nodes 4
  status "$target without a script" 2 env PATH="$path" "$work/$target 1/launch.sh"
  status "$target, four nodes, no rank" 2 env PATH="$path" "$work/$target 4/launch.sh" train.py
  status "$target, four nodes, a rank too many" 2 env PATH="$path" NODE_RANK=4 MASTER_ADDR=h "$work/$target 4/launch.sh" train.py
done
fresh
env PATH="$path" "$work/deepspeed 1/launch.sh" train.py 'a b'
env PATH="$path" NODE_RANK=3 MASTER_ADDR=h "$work/deepspeed 4/launch.sh" train.py
env PATH="$path" "$work/fsdp 1/launch.sh" train.py 'a b'
env PATH="$path" NODE_RANK=3 MASTER_ADDR=h MASTER_PORT=9 "$work/fsdp 4/launch.sh" train.py
head="[--main_process_ip] [h] [--main_process_port] [9]"
is "torchrun and accelerate" "$(calls)" "torchrun [--standalone] [--nnodes=1] [--nproc_per_node=8] [train.py] [a b]
torchrun [--nnodes=4] [--nproc_per_node=8] [--node_rank=3] [--master_addr=h] [--master_port=29500] [train.py]
accelerate [launch] [--config_file] [$work/fsdp 1/accelerate.yaml] [--num_machines] [1] [train.py] [a b]
accelerate [launch] [--config_file] [$work/fsdp 4/accelerate.yaml] [--machine_rank] [3] $head [train.py]"

# --- slurm (regression 9: one task per GPU, nothing inside it starts more)
job_environment=(PATH="$path" SLURM_JOB_ID=50001 'SLURM_JOB_NODELIST=node[7-9]' RANK=5)
job() { env "${job_environment[@]}" FAKE_COMMAND="${FAKE_COMMAND:-(null)}" bash "$@"; }
mkdir "$work/submit here"
cd "$work/submit here"
"$distsetup" slurm --nodes 4 --gpus 8 >job.sbatch 2>/dev/null
fresh
status "job without a plan" 3 job job.sbatch
has "job without a plan" "$said" "no plan at 'plan.json'"
is "nothing was started" "$(calls)" ""
cp "$four/plan.json" plan.json
job job.sbatch
is "job" "$(calls)" "srun [--kill-on-bad-exit=1] [$tools/distsetup-train] [--plan] [plan.json] addr=node7 port=20001 rank=none cpus=8"
fresh
(job) <job.sbatch
has "job from standard input, as sbatch reads a pipe" "$(calls)" "[--plan] [plan.json]"
fresh
status "the exit code of the step" 7 env FAKE_STATUS=7 PATH="$path" SLURM_JOB_ID=1 SLURM_JOB_NODELIST=n bash job.sbatch
mv plan.json 'my plan.json'
PLAN='my plan.json' job job.sbatch
has "PLAN" "$(calls)" "[--plan] [my plan.json]"
status "job without a trainer" 5 env PATH=/usr/bin:/bin PLAN='my plan.json' bash job.sbatch
has "job without a trainer" "$said" "set DISTSETUP_TRAIN="

# regression 11: a job script made with a plan finds the plan beside itself and refuses another one
emitted "$work/job" emit --target slurm --model llama3.2_1b --nodes 2 --gpus 8
fresh
cp "$work/job/job.sbatch" "$work/copy of slurmd"
FAKE_COMMAND="$work/job/job.sbatch" job "$work/copy of slurmd"
has "plan beside the script" "$(calls)" "[--plan] [$work/job/plan.json]"
cp "$one/plan.json" "$work/job/plan.json"
FAKE_COMMAND="$work/job/job.sbatch" status "the plan of another run" 3 job "$work/copy of slurmd"
has "the plan of another run" "$said" "is not the plan this script was made for"

# regression 28: the folder of the log is made before srun writes to it
"$distsetup" slurm --nodes 4 --gpus 8 --output-log 'my logs/%x-%j.out' >logs.sbatch 2>/dev/null
grep -q '^#SBATCH --output=slurm-%j.out$' logs.sbatch || fail "a folder went into the directive"
fresh
PLAN='my plan.json' job logs.sbatch
[[ -d 'my logs' ]] || fail "the folder of the log was not made"
has "log of the step" "$(calls)" "[--output=my logs/%x-%j.out] [--open-mode=append] [--error=my logs/%x-%j.err]"

# requeue: the warning reaches the step, the script waits until it has saved, then queues the job again, up to a limit
"$distsetup" slurm --nodes 1 --gpus 2 --requeue --max-restarts 3 >again.sbatch 2>/dev/null
for restarts in 0 3; do
  fresh
  rm -f started
  env "${job_environment[@]}" PLAN='my plan.json' FAKE_WAIT="$PWD/started" SLURM_RESTART_COUNT=$restarts bash again.sbatch &
  shell=$!
  for _ in {1..200}; do if [[ -e started ]]; then break; fi; sleep 0.05; done
  kill -USR1 "$shell"
  wait "$shell" || fail "the warned job failed with $?"
  has "the step was warned" "$(calls)" "srun got USR1"
  if ((restarts == 0)); then
    has "requeued" "$(calls)" "scontrol [requeue] [50001]"
  else
    is "requeued beyond its limit" "$(calls | grep -c requeue || true)" 0
  fi
done
fresh
PLAN='my plan.json' job again.sbatch
is "requeued without a warning" "$(calls | grep -c requeue || true)" 0
cd "$work"

# --- a target that is nothing but files (templates/README.md)
mkdir "$work/templates"
cp -r "$DISTSETUP_SOURCE/templates/_example" "$work/templates/mytool"
emit=(emit --target mytool --templates "$work/templates" --model llama3.2_1b)
emitted "$work/mine" "${emit[@]}" --sharding zero3 --dp-replicate 1 --nodes 2 --gpus 8
is "files of mytool" "$(cd "$work/mine" && echo *)" "config.yaml plan.json start.sh"
bash -n "$work/mine/start.sh"
has "keys of mytool" "$(cat "$work/mine/config.yaml")" "  mode: shard"
has "keys of mytool" "$(cat "$work/mine/config.yaml")" "  size: 16"
status "mytool's rule" 3 "$distsetup" "${emit[@]}" --sharding zero2 --output "$work/none"
has "mytool's rule" "$said" "it has no form for zero2"
[[ ! -e $work/none ]] || fail "a refused emit wrote something"
status "an unknown target" 3 "$distsetup" emit --target mytol --templates "$work/templates" --model llama3.2_1b --output "$work/none"
has "an unknown target" "$said" "did you mean 'mytool'"
echo "$count scripts parsed, all behaviours as expected"
