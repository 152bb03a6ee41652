#!/usr/bin/env bash
# Runs that stop and go on: the curve, the parameters and the log are those of a run that never stopped.
# Regressions: 21 22 23 25 1 19 (see the names below). KILLS (default 20), SEED,
# PLAN_FLAGS of the run that is killed can be given; with MESH_FLAGS, of both
# runs, nothing comes after the kills.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
need_trainer
seed=${SEED:-$RANDOM}
echo "resume: SEED=$seed"
RANDOM=$seed
# shellcheck disable=SC2086
make_job straight 2 ${MESH_FLAGS:-}
# shellcheck disable=SC2086
make_job killed 2 ${MESH_FLAGS:-} ${PLAN_FLAGS:-}
begin_ns=$(date +%s%N)
run "a straight run" 0 launch straight --threads 1
straight_ms=$((($(date +%s%N) - begin_ns) / 1000000))
has "a straight run" "$said" "completed at step 40 of 40"
is "a straight run logs each step" "$(losses "$work/straight/metrics.jsonl" | cut -d' ' -f1 | paste -sd' ')" "$(seq -s' ' 40)"
is "it keeps the newest three" "$(cd "$work/straight/checkpoints" && echo *)" "checkpoint_28 checkpoint_35 checkpoint_40"
straight_tensors=$(tensors "$work/straight/checkpoints/checkpoint_40")

# The loss falls by a fifth at least: what is compared below is a run that learns.
awk 'NR == 1 { first = $2 } { last = $2 } END { exit !(last < 0.8 * first) }' <(losses "$work/straight/metrics.jsonl") ||
  fail "the loss does not fall" "$(losses "$work/straight/metrics.jsonl")"

# Waits until the run of $launcher has printed a number of steps drawn at random, so that it trains, or until it has ended.
until_it_trains() {
  local steps=$((1 + RANDOM % 10))
  until (($(grep -c '^\[rank 0\] step ' "$work/log" || true) >= steps)) || ! kill -0 "$launcher" 2> /dev/null; do sleep 0.01; done
}

# --- regression 22: killed again and again, in turn while it trains and at any instant of a run's length: while it starts, writes checkpoints, ends
kills=0 kills_in_training=0 rounds=0 finished=0
while ((kills < ${KILLS:-20})); do
  if ((finished)); then # start over, as often as it takes
    rm -rf "$work/killed/checkpoints" "$work/killed/metrics.jsonl" "$work/killed/report.json"
    finished=0
  fi
  rounds=$((rounds + 1))
  : > "$work/log"
  "$distsetup" launch --plan "$work/killed/plan.json" --grace 3 --threads 1 > "$work/log" 2>&1 &
  launcher=$!
  if ((kills % 2 == 0)); then until_it_trains; else sleep "$(awk -v r="$RANDOM" -v ms="$straight_ms" 'BEGIN { printf "%.3f", 1.1 * ms / 1000 * r / 32768 }')"; fi
  mapfile -t ranks < <(pgrep -P "$launcher" || true)
  killed_rank=-1
  if ((${#ranks[@]} == 2)); then
    killed_rank=$((RANDOM % 2))
    kill -9 "${ranks[$killed_rank]}" 2> /dev/null || killed_rank=-1
  fi
  SECONDS=0
  code=0
  wait "$launcher" || code=$?
  case $code in
    0) finished=1 ;;
    6)
      ((killed_rank >= 0)) || fail "a run failed by itself" "$(cat "$work/log")"
      kills=$((kills + 1))
      if grep -q '^\[rank 0\] step ' "$work/log"; then kills_in_training=$((kills_in_training + 1)); fi
      ((SECONDS <= 15)) || fail "after a kill the others took $SECONDS s to end" "$(cat "$work/log")"
      grep -q "rank $killed_rank on $host was killed by signal 9 (SIGKILL)" "$work/log" || fail "the killed rank $killed_rank is not named" "$(tail -n 5 "$work/log")"
      ;;
    *) fail "exit code $code after a kill" "$(cat "$work/log")" ;;
  esac
  ((rounds < 10 * ${KILLS:-20})) || fail "only $kills kills in $rounds rounds"
  if ((finished)); then
    is "regression 22: losses after $kills kills" "$(losses "$work/killed/metrics.jsonl")" "$(losses "$work/straight/metrics.jsonl")"
    is "regression 22: parameters after $kills kills" "$(tensors "$work/killed/checkpoints/checkpoint_40")" "$straight_tensors"
  fi
done
((kills_in_training * 2 >= kills)) || fail "only $kills_in_training of $kills kills hit the training: SEED=$seed"
if ((!finished)); then
  run "the run after the last kill" 0 launch killed --threads 1
fi
is "regression 22: losses" "$(losses "$work/killed/metrics.jsonl")" "$(losses "$work/straight/metrics.jsonl")"
is "regression 22: parameters" "$(tensors "$work/killed/checkpoints/checkpoint_40")" "$straight_tensors"
is "regression 25: evaluations are logged once" "$(grep -c '"kind":"evaluation"' "$work/killed/metrics.jsonl")" "$(grep -c '"kind":"evaluation"' "$work/straight/metrics.jsonl")"

if [[ -n ${MESH_FLAGS:-} ]]; then
  echo "resume: $kills kills with $MESH_FLAGS, $kills_in_training of them while it trained"
  exit 0
fi

# --- regression 23: a finished run stays finished, and nothing in it changes
before=$(cd "$work/straight" && find . -type f ! -name .lock -exec sha256sum {} + | sort)
run "regression 23: the same command again" 0 launch straight --threads 1
has "regression 23: the same command again" "$said" "this run is finished"
is "regression 23: nothing changed" "$(cd "$work/straight" && find . -type f ! -name .lock -exec sha256sum {} + | sort)" "$before"

# --- stopped at a step border and gone on, on the same mesh: bit for bit (regressions 21, 25)
make_job stopped 2
run "stop after 5" 0 launch stopped --threads 1 --stop-after 5
has "stop after 5" "$said" "stopped after 5 steps as asked at step 5 of 40, saved as checkpoint_5"
has "regression 1: a stopped run is not completed" "$(cat "$work/stopped/report.json")" '"status": "stopped"'
run "stop after 3 more" 0 launch stopped --threads 1 --stop-after 3
has "regression 21: all ranks start at the same step" "$said" "checkpoint_5, 5 of 40 steps are done"
run "to the end" 0 launch stopped --threads 1
is "regression 22: stopped twice" "$(losses "$work/stopped/metrics.jsonl")" "$(losses "$work/straight/metrics.jsonl")"
is "regression 22: stopped twice, parameters" "$(tensors "$work/stopped/checkpoints/checkpoint_40")" "$straight_tensors"
has "regression 1: a completed run says so" "$(cat "$work/stopped/report.json")" '"status": "completed"'

# --- regressions 1 and 19: no step, no line of a step, no claim
make_job never 1 --steps 4
sed -i 's/"steps": 4,/"steps": 0,/' "$work/never/plan.json"
run "regression 1: a plan of no steps" 3 launch never
has_not "regression 19: no step line" "$said" "loss"
[[ ! -e $work/never/metrics.jsonl && ! -e $work/never/report.json ]] || fail "regression 1: a run of no steps left a log or a report"
is "regression 19: the first line of the log" "$(losses "$work/straight/metrics.jsonl" | head -n 1 | cut -d' ' -f1)" 1

# --- poisoned memory changes no bit; the trace has every step, the same on every rank
make_job poisoned 2
run "poisoned and traced" 0 launch poisoned --threads 1 --stop-after 5 --poison --trace "$work/trace" --profile 2:3
is "poisoned" "$(losses "$work/poisoned/metrics.jsonl")" "$(losses "$work/straight/metrics.jsonl" | head -n 5)"
is "trace: steps" "$(sed -nE 's/.*"step":([0-9]+)\}$/\1/p' "$work/trace" | paste -sd' ')" "1 2 3 4 5"
cmp -s "$work/trace" "$work/trace.rank1" || fail "trace: the ranks issued different collectives"
has "trace" "$(head -n 1 "$work/trace")" '"op":"ReduceScatter"'

# --- the profile has each instruction beside its prediction, with the predicted bytes, on each rank; without launch what was executed
check_profile() { python3 "$DISTSETUP_SOURCE/tests/support/check_profile.py" "$@"; }
profiled() { # NAME RANK
  local file=$work/$1/profile.json
  (($2 == 0)) || file=$work/$1/profile.rank$2.json
  run "profile of $1, rank $2" 0 check_profile "$file" "$2" 2,3
  has "profile of $1, rank $2" "$said" "ops have the predicted bytes"
}
profiled poisoned 0
profiled poisoned 1
for axis in pp tp; do
  make_job "profiled_$axis" 2 "--$axis" 2 --gradient-accumulation 4
  run "a profile with $axis" 0 launch "profiled_$axis" --threads 1 --stop-after 3 --profile 2:3
  has_not "a profile with $axis" "$said" "distsetup launch --profile"
  profiled "profiled_$axis" 0
  profiled "profiled_$axis" 1
done
make_job alone 1
run "a profile without launch" 0 "$DISTSETUP_BIN/distsetup-train" --plan "$work/alone/plan.json" --stop-after 3 --profile 2:3 --threads 1
has "a profile without launch" "$said" "\`distsetup launch --profile\` adds what was predicted"
run "what was executed" 0 check_profile "$work/alone/profile.json" 0 2,3 --executed-only
cp "$work/poisoned/profile.predicted.json" "$work/alone/"
run "a profile beside another plan's prediction" 0 "$DISTSETUP_BIN/distsetup-train" --plan "$work/alone/plan.json" --stop-after 3 --profile 5:6 --threads 1
has "a profile beside another plan's prediction" "$said" "is of another plan"
run "what was executed again" 0 check_profile "$work/alone/profile.json" 0 5,6 --executed-only

# --- another mesh: 4 -> 2 -> … -> 1 -> 4 ranks, over every axis, zero3 -> ddp -> zero2, to 1e-5
make_job meshes 4
run "4 ranks" 0 launch meshes --threads 1 --stop-after 10
mkdir "$work/kept" && cp -r "$work/meshes/checkpoints" "$work/meshes/metrics.jsonl" "$work/kept/"
num_meshes=0
next() { # RANKS STEPS FLAGS...: another plan, the same folder
  local count=$1 steps=$2
  shift 2
  num_meshes=$((num_meshes + 1))
  make_job "mesh$num_meshes" "$count" "$@"
  cp "$work/mesh$num_meshes/plan.json" "$work/meshes/plan.json"
  run "on $count ranks $*" 0 launch meshes --threads 1 ${steps:+--stop-after "$steps"}
  has "on $count ranks" "$said" "of 40 steps are done"
}
next 2 5 --sharding ddp
next 2 3 --tp 2 --sharding ddp
next 4 3 --tp 2 --sharding zero3
next 2 3 --pp 2 --sharding ddp
next 4 2 --cp 2 --cp-method ring
next 1 5
next 4 "" --sharding zero2 --gradient-accumulation 2
has "4 ranks again" "$said" "completed at step 40 of 40"
losses_agree "regression 22: 4 -> 2 -> … -> 1 -> 4" "$work/meshes/metrics.jsonl" "$work/straight/metrics.jsonl" 1e-5

# --- a broken newest checkpoint is refused with a line, the one before is used, and the curve is the same
break_newest() { # NAME HOW
  rm -rf "$work/stopped/checkpoints/checkpoint_40" "$work/stopped/report.json"
  local file=$work/stopped/checkpoints/checkpoint_35/$1
  case $2 in
    truncate) truncate -s -100 "$file" ;;
    flip) printf '\x55' | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") / 2)) conv=notrunc status=none ;;
    remove) rm "$file" ;;
  esac
}
for how in "rank_1.safetensors truncate" "rank_0.safetensors flip" "index.json remove" "COMMIT remove"; do
  read -r file what <<< "$how"
  break_newest "$file" "$what"
  run "newest with $file: $what" 0 launch stopped --threads 1
  has "newest with $file: $what" "$said" "checkpoint_35 is refused: "
  is "newest with $file: $what: said once" "$(grep -c 'is refused' <<< "$said")" 1
  has "newest with $file: $what" "$said" "checkpoint_28, 28 of 40 steps are done"
  is "newest with $file: $what: losses" "$(losses "$work/stopped/metrics.jsonl")" "$(losses "$work/straight/metrics.jsonl")"
  is "newest with $file: $what: parameters" "$(tensors "$work/stopped/checkpoints/checkpoint_40")" "$straight_tensors"
done
for checkpoint in "$work"/stopped/checkpoints/checkpoint_*; do truncate -s 10 "$checkpoint/index.json"; done
run "nothing valid is left" 6 launch stopped --threads 1
has "nothing valid is left" "$said" "has checkpoints, but none is valid"

# --- what belongs to another run is refused
make_job other 2 --seed 2
cp -r "$work/kept/checkpoints" "$work/other/"
run "another seed" 6 launch other
has "another seed" "$said" "was trained with seed 1, expected 2"
make_job longer 2 --sequence-length 16
cp -r "$work/kept/checkpoints" "$work/longer/"
run "other sequences" 6 launch longer
has "other sequences" "$said" "was trained on other data, another sequence length or another order"
echo "resume: all checks hold ($kills kills, $kills_in_training of them in training, in $rounds rounds)"
