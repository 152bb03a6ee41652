#!/usr/bin/env bash
# `distsetup launch` with stand-ins for the trainer: environment, output, first failure, signals, exit codes. Needs no libtorch.
# shellcheck disable=SC2016,SC2119,SC2120  # stand-ins expand in their own shell; go is called with and without arguments
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
make_job two 2
make_job one 1
make_job nodes 1 --nodes 2

# stand_in TEXT: a trainer that runs TEXT; it sees RANK and the arguments
stand_in() { printf '#!/usr/bin/env bash\n%s\n' "$1" > "$work/trainer"; chmod +x "$work/trainer"; }
go() { "$distsetup" launch --plan "$work/two/plan.json" --grace 1 --trainer-program "$work/trainer" "$@"; }

# --- the environment contract of torchrun, and arguments passed on
stand_in 'echo "$RANK/$WORLD_SIZE local $LOCAL_RANK/$LOCAL_WORLD_SIZE node $GROUP_RANK at $MASTER_ADDR:${MASTER_PORT:+port} args $*"'
run "environment" 0 go --output "$work/out dir" --stop-after 3 --poison
has "rank 0" "$said" "[rank 0] 0/2 local 0/2 node 0 at 127.0.0.1:port args --plan $work/two/plan.json --output $work/out dir"
has "rank 1" "$said" "[rank 1] 1/2 local 1/2 node 0 at 127.0.0.1:port"
has "arguments" "$said" "--stop-after 3"
has "arguments" "$said" "--poison"
run "second node" 0 "$distsetup" launch --plan "$work/nodes/plan.json" --node-rank 1 --master-addr first --master-port 4321 --trainer-program "$work/trainer"
has "second node" "$said" "[rank 1] 1/2 local 0/1 node 1 at first:port"
run "an inherited RANK is replaced" 0 env RANK=7 WORLD_SIZE=9 MASTER_ADDR=elsewhere "$distsetup" launch --plan "$work/one/plan.json" --trainer-program "$work/trainer"
has "an inherited RANK is replaced" "$said" "[rank 0] 0/1 local 0/1 node 0 at 127.0.0.1:port"

# --- whole lines, each with its prefix, also of many ranks at once and of an unfinished last line
stand_in 'for i in $(seq 2000); do echo "line $i of rank $RANK, quite long so that pipes fill: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"; done; printf "no newline"'
run "lines" 0 go
is "lines" "$(grep -cE '^\[rank ([01])\] line [0-9]+ of rank \1, quite long so that pipes fill: x{44}$' <<< "$said")" 4000
is "unfinished lines" "$(grep -cE '^\[rank [01]\] no newline$' <<< "$said")" 2
stand_in 'echo to stdout; echo to stderr >&2'
is "stdout stays stdout" "$(go 2> /dev/null | sort -u | paste -sd'|')" "[rank 0] to stdout|[rank 1] to stdout"

# --- the first failure is named, with its last line; the others are stopped; the exit code
stand_in 'if [[ $RANK == 1 ]]; then echo "it broke here" >&2; exit 9; fi; exec sleep 60'
SECONDS=0
run "a failed rank" 6 go
((SECONDS < 15)) || fail "a failed rank: the others were stopped after $SECONDS s"
has "a failed rank" "$said" "error[DS0802]: rank 1 on $host ended with exit code 9; its last line: it broke here (1 more rank ended because of it)"
stand_in 'if [[ $RANK == 0 ]]; then echo "peer is gone" >&2; exit 6; fi; sleep 0.05; kill -SEGV $$'
run "the cause, not the first to notice" 6 go
has "the cause, not the first to notice" "$said" "rank 1 on $host was killed by signal 11 (SIGSEGV)"
stand_in 'if [[ $RANK == 1 ]]; then kill -9 $$; fi; trap "" TERM; sleep 60 & wait; sleep 60'
SECONDS=0
run "a rank that ignores SIGTERM is killed" 6 go
((SECONDS < 15)) || fail "a rank that ignores SIGTERM is killed: after $SECONDS s"
has "help for signal 9" "$said" "kernel out of memory"
stand_in '[[ $RANK == 1 ]] || exit 0; exit 3'
run "exit code 3 is kept" 3 go
stand_in '[[ $RANK == 1 ]] || exit 0; exit 5'
run "exit code 5 is kept" 5 go

# --- signals
stand_in 'trap "echo got TERM; exit 0" TERM; trap "echo got USR1; exit 0" USR1; echo ready; while true; do sleep 0.05; done'
for signal in TERM USR1 INT; do
  # a background job of a script ignores SIGINT unless job control is on
  set -m
  : > "$work/log"  # what an earlier run said is no sign of this one
  "$distsetup" launch --plan "$work/two/plan.json" --trainer-program "$work/trainer" > "$work/log" 2>&1 &
  launcher=$!
  set +m
  until [[ $(grep -c ready "$work/log") == 2 ]]; do sleep 0.05; done
  kill -"$signal" "$launcher"
  code=0
  wait "$launcher" || code=$?
  expected=0 word=$signal
  [[ $signal == INT ]] && expected=130 word=TERM
  is "SIG$signal is passed on" "$(grep -c "got $word" "$work/log")" 2
  is "exit code after SIG$signal" "$code" "$expected"
done

stand_in 'echo ready; exec sleep 60'
: > "$work/log"  # what an earlier run said is no sign of this one
"$distsetup" launch --plan "$work/two/plan.json" --trainer-program "$work/trainer" > "$work/log" 2>&1 &
launcher=$!
until [[ $(grep -c ready "$work/log") == 2 ]]; do sleep 0.05; done
kill -TERM "$launcher"
code=0
wait "$launcher" || code=$?
is "stopped before training: exit code" "$code" 130
has "stopped before training" "$(cat "$work/log")" "stopped by SIGTERM before training began"
has_not "stopped before training is no failure" "$(cat "$work/log")" "error["

stand_in 'trap "" TERM; echo ready; while true; do sleep 0.05; done'
set -m
: > "$work/log"  # what an earlier run said is no sign of this one
"$distsetup" launch --plan "$work/two/plan.json" --grace 60 --trainer-program "$work/trainer" > "$work/log" 2>&1 &
launcher=$!
set +m
until [[ $(grep -c ready "$work/log") == 2 ]]; do sleep 0.05; done
SECONDS=0
kill -INT "$launcher"
until grep -q 'press Ctrl-C again' "$work/log"; do sleep 0.05; done
kill -INT "$launcher"
code=0
wait "$launcher" || code=$?
is "a second Ctrl-C kills at once" "$code" 130
((SECONDS < 15)) || fail "a second Ctrl-C kills at once: after $SECONDS s"

# --- ranks die with the launcher
stand_in 'echo $$ >> '"$work"'/pids; exec sleep 60'
"$distsetup" launch --plan "$work/two/plan.json" --trainer-program "$work/trainer" > /dev/null 2>&1 &
launcher=$!
until [[ -e $work/pids && $(wc -l < "$work/pids") == 2 ]]; do sleep 0.05; done
kill -9 "$launcher"
{ wait "$launcher"; } 2> /dev/null || true
sleep 0.5
while read -r pid; do
  if kill -0 "$pid" 2> /dev/null && [[ $(ps -o stat= -p "$pid") != Z* ]]; then fail "rank with pid $pid outlived its launcher"; fi
done < "$work/pids"

# --- refusals, before anything is started
stand_in 'echo started'
refused() { # NAME CODE TEXT COMMAND...
  run "$1" "$2" "${@:4}"
  has "$1" "$said" "$3"
  has_not "$1" "$said" "started"
}
launch_at() { "$distsetup" launch --trainer-program "$work/trainer" "$@"; }
refused "no plan" 3 "cannot read '$work/none.json', no such file or directory" launch_at --plan "$work/none.json"
head -c 500 "$work/one/plan.json" > "$work/half.json"
refused "half a plan" 3 "half.json" launch_at --plan "$work/half.json"
sed 's/"verdict": "[a-z_]*"/"verdict": "does_not_fit"/' "$work/one/plan.json" > "$work/big.json"
grep -q does_not_fit "$work/big.json"
refused "a plan that does not fit" 4 "marked 'does_not_fit'" launch_at --plan "$work/big.json"
refused "nodes without an address" 2 "the plan has 2 nodes, and --master-addr is not given" launch_at --plan "$work/nodes/plan.json"
refused "a node rank too large" 2 "--node-rank 2 with 2 nodes, expected 0 to 1" launch_at --plan "$work/nodes/plan.json" --node-rank 2 --master-addr a --master-port 1
refused "no trainer" 5 "'$work/nothing' is not there or not executable" "$distsetup" launch --plan "$work/one/plan.json" --trainer-program "$work/nothing"
printf 'not a program' > "$work/text"; chmod +x "$work/text"
run "a trainer that cannot run" 1 "$distsetup" launch --plan "$work/one/plan.json" --trainer-program "$work/text"
has "a trainer that cannot run" "$said" "exec format error"

# --- a port that another program listens on (bash cannot listen: another launch's rank would; the kernel's own table is asked)
if command -v python3 > /dev/null; then
  python3 -c 'import socket, time
s = socket.socket(); s.bind(("0.0.0.0", 0)); s.listen(1); print(s.getsockname()[1], flush=True); time.sleep(30)' > "$work/port" &
  listener=$!
  until [[ -s $work/port ]]; do sleep 0.05; done
  port=$(cat "$work/port")
  refused "port in use" 5 "port $port on $host cannot be used, address already in use" launch_at --plan "$work/one/plan.json" --master-port "$port"
  kill "$listener"
else
  echo "no python3: 'port in use' is tested by faults.sh only"
fi
echo "launch: all checks hold"
