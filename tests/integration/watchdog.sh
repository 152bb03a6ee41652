#!/usr/bin/env bash
# A rank that waits says so after half of the time limit: in what, and for whom; rank 0 calls the roll. One rank is stopped in the middle of
# a step, one dies, one is late before the ranks have met.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
need_trainer
trainer=$DISTSETUP_BIN/distsetup-train
make_job job 2 --steps 40000 --init-timeout 6s --collective-timeout 6s --checkpoint-every 0
port=$(free_port)
pids=()
start_rank() { # RANK
  env RANK="$1" WORLD_SIZE=2 LOCAL_RANK="$1" LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" "$trainer" --threads 1 \
    --plan "$work/job/plan.json" > "$work/log$1" 2>&1 &
  pids[$1]=$!
}
until_steps() {
  until [[ -e $work/job/metrics.jsonl ]] && (($(wc -l < "$work/job/metrics.jsonl") > 5)); do
    kill -0 "${pids[0]}" 2> /dev/null || fail "the ranks ended by themselves" "$(cat "$work"/log?)"
    sleep 0.05
  done
}
start_pair() {
  rm -rf "$work/job/checkpoints" "$work/job/metrics.jsonl"
  port=$(free_port)
  start_rank 0
  start_rank 1
  until_steps
  sleep 1 # so that each rank has left a word from its steps
}
ended() { # NAME RANK CODE
  local code=0
  wait "${pids[$2]}" || code=$?
  said=$(cat "$work/log$2")
  is "$1: exit code" "$code" "$3"
}
end_hard() { kill -9 "${pids[$1]}"; { wait "${pids[$1]}"; } 2> /dev/null || true; }
matches() { grep -qE "$2" <<< "$said" || fail "$1" "found:    $said" "expected: $2"; }

# --- rank 1 stops: rank 0 names it, and calls the roll once, before it gives up
start_pair
kill -STOP "${pids[1]}"
ended "rank 1 stops" 0 6
matches "rank 1 stops" "^rank 0 has waited [0-9.]+ s in [A-Za-z]+ over [a-z_]+ \((training|training step [0-9]+|evaluation after step [0-9]+)(, instruction [0-9]+: [^)]+)?\): .*no sign of life from rank 1$"
matches "rank 1 stops: roll call" "^roll call of 2 ranks$"
matches "rank 1 stops: roll call of rank 0" "^  rank 0: (training|evaluation).*, waits in [A-Za-z]+ over [a-z_]+$"
matches "rank 1 stops: roll call of rank 1" "^  rank 1: (training|evaluation).*; no sign of life since then$"
is "the roll is called once" "$(grep -c '^roll call' <<< "$said")" 1
is "the roll call comes before the end" "$(grep -nE '^(roll call|rank 0 on )' <<< "$said" | sed 's/^[0-9]*://; s/ .*//' | paste -sd' ')" "roll rank"
end_hard 1

# --- rank 0 stops, and with it the store: rank 1 says that
start_pair
kill -STOP "${pids[0]}"
for _ in {1..200}; do grep -q 'has waited' "$work/log1" && break; sleep 0.1; done
said=$(cat "$work/log1")
matches "rank 0 stops" "^rank 1 has waited [0-9.]+ s in .*: the store, which rank 0 or its launcher keeps, does not answer$"
end_hard 0
end_hard 1

# --- a rank that goes on in time is no alarm; one that dies is named at once, without a roll call
start_pair
kill -STOP "${pids[1]}"
sleep 1.5
kill -CONT "${pids[1]}"
before=$(wc -l < "$work/job/metrics.jsonl")
for _ in {1..200}; do (($(wc -l < "$work/job/metrics.jsonl") > before + 5)) && break; sleep 0.1; done
(($(wc -l < "$work/job/metrics.jsonl") > before + 5)) || fail "the run does not go on" "$(cat "$work"/log?)"
end_hard 1
ended "rank 1 dies" 0 6
matches "rank 1 dies" "^rank 0 on .*rank 1 is gone"
is "no alarm before, no roll call after" "$(grep -cE 'has waited|^roll call' <<< "$said" || true)" 0

# --- late before the ranks meet: said after half of the time, and the run begins all the same
rm -rf "$work/job/metrics.jsonl" "$work/job/checkpoints"
port=$(free_port)
start_rank 0
for _ in {1..100}; do grep -q 'waits for rank' "$work/log0" && break; sleep 0.05; done
is "rank 1 is late" "$(grep 'waits for rank' "$work/log0")" "rank 0 waits for rank 1 of 2 to arrive; it gives up after 6 s in all"
start_rank 1
until_steps
end_hard 1
ended "after a late rank" 0 6
echo "watchdog: all checks hold"
