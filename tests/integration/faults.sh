#!/usr/bin/env bash
# What goes wrong around a run: each fault ends every rank within seconds, with one line that names rank and phase, a non-zero exit code
# and nothing half-written. Signals that ask for an end are no fault: a checkpoint, exit 0. Regressions 18, 29, 37, 44, 50 are here too.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
need_trainer
trainer=$DISTSETUP_BIN/distsetup-train
make_job job 2
make_job one 1

written() { (cd "$work/$1" && find . -name '*.partial' -o -name 'metrics.jsonl' -o -name 'report.json' -o -name 'checkpoint_*' | sort | paste -sd' '); }
within() { ((SECONDS <= $2)) || fail "$1: it took $SECONDS s, expected at most $2" "${said:-}"; }
one_line() { # NAME RANK PATTERN: exactly one line of that rank, and it matches
  is "$1: one line of rank $2" "$(grep -cE "^(\[rank $2\] )?rank $2 on $host, " <<< "$said")" 1
  grep -qE "^(\[rank $2\] )?rank $2 on $host, $3" <<< "$said" || fail "$1: rank $2" "found:    $said" "expected: rank $2 on $host, $3"
}

# --- regression 50: data that is missing or changed is an error on every rank, never replaced
file=$(sed -nE 's/.*"path": "(.*schedule.h)".*/\1/p' "$work/job/plan.json" | head -n 1)
mv "$work/$file" "$work/away"
SECONDS=0
run "regression 50: a data file is missing" 5 launch job
within "regression 50: a data file is missing" 20
one_line "a data file is missing" 0 "data, cannot read '.*schedule.h', no such file or directory"
is "a data file is missing: nothing is written" "$(written job)" ""
{ cat "$work/away"; echo more; } > "$work/$file"
run "regression 50: a data file has grown" 5 launch job
one_line "a data file has grown" 0 "data, '.*schedule.h' has [0-9]+ bytes, expected [0-9]+ as planned"
tr a b < "$work/away" > "$work/$file"
run "regression 50: a data file has changed" 5 launch job --dry-run
one_line "a data file has changed" 0 "data, '.*schedule.h' has the digest"
mv "$work/away" "$work/$file"
run "with the data back" 0 launch job --dry-run
has "with the data back" "$said" "nothing was trained"
is "a dry run writes nothing" "$(written job)" ""
sed 's/"files": \[/"unread": [/' "$work/job/plan.json" > "$work/bad.json"
run "a plan with an unknown key" 3 "$trainer" --plan "$work/bad.json" --dry-run

# --- plans that are not for this trainer
change() { mkdir -p "$work/changed"; sed -E "$1" "$work/one/plan.json" > "$work/changed/plan.json"; cmp -s "$work/changed/plan.json" "$work/one/plan.json" && fail "nothing was changed by $1"; true; }
change 's/("schedule_digest": ")[0-9a-f]{8}/\100000000/'
run "another schedule" 3 "$trainer" --plan "$work/changed/plan.json"
one_line "another schedule" 0 "plan, this trainer compiles another schedule than the plan was made with"
change 's/"sequence_length": 32/"sequence_length": 16/'
run "a changed plan" 3 "$trainer" --plan "$work/changed/plan.json" --dry-run
change 's/"schema_version": 1/"schema_version": 9/'
run "another version" 3 "$trainer" --plan "$work/changed/plan.json"
change 's/"verdict": "fits"/"verdict": "does_not_fit"/'
run "a plan that does not fit" 3 "$trainer" --plan "$work/changed/plan.json"
one_line "a plan that does not fit" 0 "plan, the plan is marked 'does_not_fit'"
run "no plan" 3 "$trainer" --plan "$work/none.json"
run "an unknown flag" 2 "$trainer" --plan "$work/one/plan.json" --stop-aftr 3
run "a flag without value" 2 "$trainer" --plan

# --- the environment against the plan
run "two ranks for one" 5 env RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 "$trainer" --plan "$work/one/plan.json"
one_line "two ranks for one" 1 "plan, torchrun started 2 ranks, the plan is for 1"
run "one rank for two" 5 "$trainer" --plan "$work/job/plan.json"
has "one rank for two" "$said" "distsetup launch"
run "half an environment" 5 env RANK=0 "$trainer" --plan "$work/one/plan.json"
has "half an environment" "$said" "WORLD_SIZE is not set"
run "not a number" 5 env RANK=zero WORLD_SIZE=2 LOCAL_RANK=0 "$trainer" --plan "$work/job/plan.json"
has "not a number" "$said" "RANK is 'zero', expected a number from 0 to 1"

# --- a port in use, a peer that never comes, a peer that dies, a peer that hangs: without a launcher, as under SLURM
port=$(free_port)
rank() { env RANK="$1" WORLD_SIZE=2 LOCAL_RANK="$1" LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" "$trainer" --threads 1 --plan "$work/$2/plan.json"; }
rank_in_background() { # RANK JOB LOG; pid in $pid
  env RANK="$1" WORLD_SIZE=2 LOCAL_RANK="$1" LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" "$trainer" --threads 1 --plan "$work/$2/plan.json" > "$3" 2>&1 &
  pid=$!
}
ended() { # NAME PID CODE LOG SECONDS
  local code=0
  SECONDS=0
  wait "$2" || code=$?
  said=$(cat "$4")
  is "$1: exit code" "$code" "$3"
  within "$1" "$5"
}
sed 's/init_timeout: 60s, collective_timeout: 20s/init_timeout: 3s, collective_timeout: 3s/' "$work/run.yaml" > "$work/hasty.yaml"
sed -i 's/steps: 40/steps: 4000/; s/every_steps: 7/every_steps: 1000/; s/gpus_per_node: 1/gpus_per_node: 2/' "$work/hasty.yaml"
mkdir "$work/hasty"
(cd "$work" && "$distsetup" plan hasty.yaml --output hasty/plan.json > /dev/null 2>&1)
grep -q '"init_timeout_s": 3' "$work/hasty/plan.json" || fail "the hasty plan"
SECONDS=0
run "a peer that never comes" 5 rank 0 hasty
within "a peer that never comes" 20
one_line "a peer that never comes" 0 "rendezvous, .*(arrive|1)"
SECONDS=0
run "nobody listens" 5 rank 1 hasty
within "nobody listens" 20
one_line "nobody listens" 1 "rendezvous, "

rank_in_background 0 hasty "$work/log0"; pid0=$pid
until ss -ltn 2> /dev/null | grep -q ":$port " || ! kill -0 "$pid0" 2> /dev/null; do sleep 0.05; done
run "port in use" 5 rank 0 hasty
one_line "port in use" 0 "rendezvous, .*port $port.* in use"
kill -9 "$pid0" 2> /dev/null || true
{ wait "$pid0"; } 2> /dev/null || true

start_pair() {
  port=$(free_port)
  rm -rf "$work/hasty/checkpoints" "$work/hasty/metrics.jsonl"
  rank_in_background 0 hasty "$work/log0"; pid0=$pid
  rank_in_background 1 hasty "$work/log1"; pid1=$pid
  until [[ -e $work/hasty/metrics.jsonl ]] && (($(wc -l < "$work/hasty/metrics.jsonl") > 3)); do
    kill -0 "$pid0" 2> /dev/null || fail "the pair ended by itself" "$(cat "$work/log0" "$work/log1")"
    sleep 0.05
  done
}
start_pair
lines=$(wc -l < "$work/hasty/metrics.jsonl")
run "a second run in the same folder" 5 launch hasty
one_line "a second run in the same folder" 0 "checkpoint, another run writes its checkpoints into '.*hasty/checkpoints': process $pid0 of $host"
(($(wc -l < "$work/hasty/metrics.jsonl") >= lines)) || fail "a second run cuts the log of the first"
kill -0 "$pid0" "$pid1" || fail "a second run ends the first" "$(cat "$work/log0" "$work/log1")"
kill -9 "$pid0" "$pid1"
{ wait "$pid0" "$pid1"; } 2> /dev/null || true
for victim in 0 1; do
  start_pair
  other=$((1 - victim))
  pids=("$pid0" "$pid1")
  kill -9 "${pids[$victim]}"
  { wait "${pids[$victim]}"; } 2> /dev/null || true
  ended "rank $victim dies" "${pids[$other]}" 6 "$work/log$other" 20
  one_line "rank $victim dies" "$other" "(training step|evaluation after step) [0-9]+, "
done
start_pair
kill -STOP "$pid1"
ended "rank 1 hangs" "$pid0" 6 "$work/log0" 20
one_line "rank 1 hangs" 0 "(training step|evaluation after step) [0-9]+, "
kill -9 "$pid1"
{ wait "$pid1"; } 2> /dev/null || true
is "no half-written checkpoint is left" "$(find "$work/hasty" -name '*.partial')" ""

# --- SIGTERM, SIGUSR1 and Ctrl-C: a checkpoint at the next step, exit 0; one rank's signal stops all
make_job signalled 2 --steps 400
stopped_by() { # SIGNAL WHO CODE
  "$distsetup" launch --plan "$work/signalled/plan.json" --threads 1 > "$work/log" 2>&1 &
  local launcher=$! lines=0 code=0
  [[ -e $work/signalled/metrics.jsonl ]] && lines=$(wc -l < "$work/signalled/metrics.jsonl")
  until [[ -e $work/signalled/metrics.jsonl ]] && (($(wc -l < "$work/signalled/metrics.jsonl") > lines + 3)); do sleep 0.05; done
  case $2 in
    launcher) kill -"$1" "$launcher" ;;
    rank*) pkill -"$1" -o -P "$launcher" ;;
  esac
  wait "$launcher" || code=$?
  said=$(cat "$work/log")
  is "SIG$1 to the $2: exit code" "$code" "$3"
  has "SIG$1 to the $2" "$said" "stopped by signal $(kill -l "$1") at step"
  local last
  last=$(losses "$work/signalled/metrics.jsonl" | tail -n 1 | cut -d' ' -f1)
  has "SIG$1 to the $2: saved" "$said" "saved as checkpoint_$last"
  [[ -e $work/signalled/checkpoints/checkpoint_$last/COMMIT ]] || fail "SIG$1 to the $2: checkpoint_$last is not committed"
}
stopped_by TERM launcher 0
stopped_by USR1 launcher 0
has "it goes on where it stopped" "$said" "of 400 steps are done"
stopped_by USR1 "rank alone" 0
is "steps are logged once" "$(losses "$work/signalled/metrics.jsonl" | cut -d' ' -f1 | sort -n | uniq -d)" ""

# --- disk full: the run ends with a line, the checkpoint before stays valid, and the run goes on when there is room
run "the first checkpoint" 0 launch job --threads 1 --stop-after 3
(
  ulimit -f 100 # KiB a file; a rank file has some 160
  run "disk full" 6 launch job --threads 1
  grep -qE "rank [01] on $host, checkpoint of step 7, cannot write '.*rank_[01].safetensors', file too large" <<< "$said" || fail "disk full" "$said"
) || exit 1
is "disk full: nothing half-written" "$(find "$work/job/checkpoints" -mindepth 1 -maxdepth 1 ! -name .lock -printf '%f\n')" "checkpoint_3"
if mkdir "$work/small" && mount -t tmpfs -o size=500k none "$work/small" 2> /dev/null; then
  trap 'status=$?; umount "$work/small" 2> /dev/null || true; rm -rf "$work"; exit $status' EXIT
  SECONDS=0
  run "a full file system" 6 launch job --threads 1 --output "$work/small"
  within "a full file system" 20
  has "a full file system" "$said" "no space left on device"
  is "a full file system: nothing half-written" "$(find "$work/small" -name '*.partial')" ""
  umount "$work/small"
else
  echo "faults: no right to mount: a full file system is tested by a file size limit only"
fi
mkdir "$work/readonly" && chmod 555 "$work/readonly"
if [[ ! -w $work/readonly ]]; then
  run "a folder that cannot be written" 5 launch job --threads 1 --output "$work/readonly"
  one_line "a folder that cannot be written" 0 "checkpoint, cannot write into '.*readonly.*', permission denied"
fi
touch "$work/is_a_file"
run "an output that is a file" 5 launch job --threads 1 --output "$work/is_a_file"
one_line "an output that is a file" 0 "checkpoint, cannot write into '.*is_a_file/checkpoints', not a directory"
one_line "an output that is a file" 1 "checkpoint, stopped, because 1 of 2 ranks failed here"

# --- regression 37: what is not ours stays
mkdir -p "$work/job/checkpoints/checkpoint_2" "$work/job/checkpoints/checkpoint_002" "$work/job/checkpoints/backup"
for name in checkpoint_2 checkpoint_002 backup; do echo mine > "$work/job/checkpoints/$name/precious"; done
run "with room again" 0 launch job --threads 1
has "with room again" "$said" "completed at step 40 of 40"
is "regression 37" "$(cd "$work/job/checkpoints" && echo *)" "backup checkpoint_002 checkpoint_2 checkpoint_28 checkpoint_35 checkpoint_40"
is "regression 37: contents" "$(cat "$work"/job/checkpoints/*/precious | sort -u)" mine

# --- regression 44: loss per token, not per rank: documents of unequal length on 1 and 2 ranks, with and without accumulation
run "one rank" 0 launch one --threads 1
losses_agree "regression 44: 1 and 2 ranks" "$work/one/metrics.jsonl" "$work/job/metrics.jsonl" 1e-5
make_job accumulated 2 --gradient-accumulation 4
run "accumulation 4" 0 launch accumulated --threads 1
losses_agree "regression 44: accumulation 4" "$work/one/metrics.jsonl" "$work/accumulated/metrics.jsonl" 1e-5
is "token counts differ between steps" "$(sed -nE 's/.*"valid_tokens":([0-9]+).*/\1/p' "$work/one/metrics.jsonl" | sort -u | wc -l | awk '{ print ($1 > 3) }')" 1

# --- regression 29: tokens per second are tokens over one clock's seconds
sed -nE 's/.*"step_s":([^,]*),.*"tokens_per_s":([^,]*),.*"valid_tokens":([0-9]+),.*/\1 \2 \3/p' "$work/job/metrics.jsonl" |
  awk '{ d = $1 * $2 / $3 - 1; if (d > 1e-9 || d < -1e-9 || $1 <= 0) { print "line " NR; exit 1 } } END { exit NR != 40 }' || fail "regression 29"

# --- regression 18: never the whole model gathered: with twelve layers less than a third of it at once, measured
sed 's/num_layers: 2/num_layers: 12/; s/gpus_per_node: 1/gpus_per_node: 2/; s/steps: 40/steps: 4/; s/sharding: zero3/sharding: zero3, reshard_after_forward: true/' "$work/run.yaml" > "$work/deep.yaml"
mkdir "$work/deep"
(cd "$work" && "$distsetup" plan deep.yaml --output deep/plan.json > /dev/null 2>&1)
run "twelve layers" 0 launch deep --threads 1
gathered=$(sed -n '/"difference_bytes"/,/"what"/p' "$work/deep/report.json" | tr -d '\n' | grep -oE '"measured_bytes": [0-9]+, +"predicted_bytes": [0-9]+, +"what": "gathered parameter"' | sed -E 's/[^0-9]*([0-9]+).*/\1/')
shard=$(sed -n '/"difference_bytes"/,/"what"/p' "$work/deep/report.json" | tr -d '\n' | grep -oE '"measured_bytes": [0-9]+, +"predicted_bytes": [0-9]+, +"what": "parameter shard"' | sed -E 's/[^0-9]*([0-9]+).*/\1/')
((gathered > 0 && shard > 0 && gathered * 3 < shard * 2)) || fail "regression 18: $gathered bytes gathered at once, the model has $((2 * shard))"

# --- two nodes: two launchers, one job
make_job nodes 1 --nodes 2
port=$(free_port)
"$distsetup" launch --plan "$work/nodes/plan.json" --node-rank 1 --master-addr 127.0.0.1 --master-port "$port" --threads 1 > "$work/log1" 2>&1 &
second=$!
run "first of two nodes" 0 "$distsetup" launch --plan "$work/nodes/plan.json" --node-rank 0 --master-addr 127.0.0.1 --master-port "$port" --threads 1
wait "$second" || fail "second of two nodes" "$(cat "$work/log1")"
is "two nodes: losses" "$(losses "$work/nodes/metrics.jsonl")" "$(losses "$work/job/metrics.jsonl")"
echo "faults: all checks hold"
