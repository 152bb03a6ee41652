#!/usr/bin/env bash
# The emitted launch_single_node.sh, launch_multi_node.sh and launch_slurm.sh for real: torchrun on one node and on two, sbatch on a
# SLURM of one machine; each run loses what the plan's own run loses, and a setting in the environment acts.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
need_trainer
python=${DISTSETUP_ORACLE_PYTHON:-$("$DISTSETUP_SOURCE/scripts/oracle_env" 2>/dev/null)} || { echo "not run: no Python with torch"; exit 77; }
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT NODE_RANK
put_torchrun "$python"
export OMP_NUM_THREADS=1

make_data
make_config_json "$work/tiny model"
cd "$work"
emitted() { # NAME NODES RANKS-PER-NODE MICRO-BATCH [FLAGS]: the scripts, and the run of their plan
  mkdir -p "$1" "$1 plan"
  run "emit $1" 0 "$distsetup" emit --target launch-scripts --model 'tiny model' --gpu cpu --nodes "$2" --gpus "$3" --data data \
    --sequence-length 32 --steps 40 --learning-rate 3e-3 --min-lr 3e-4 --warmup-steps 3 --seed 1 --precision fp32 \
    --micro-batch "$4" --gradient-accumulation 2 --checkpoint-every 7 --output "$1" "${@:5}"
}
export MODEL_SIZE="$work/tiny model" # its folder: a plan holds the geometry alone
agree() { # NAME FOLDER BESIDE
  losses_agree "$1" "$work/$2/checkpoints/metrics.jsonl" "$work/$3/metrics.jsonl" "$4"
  [[ -s $work/$2/checkpoints/checkpoint_40/COMMIT ]] || fail "$1: no committed checkpoint"
}

# --- one node
emitted 'one node' 1 2 2
run "the plan's own run" 0 "$distsetup" launch --plan 'one node/plan.json' --output 'one node plan'
cp 'one node plan/metrics.jsonl' 'one node plan/first.jsonl'
run "launch_single_node.sh" 0 "$work/one node/launch_single_node.sh"
has "its banner" "$said" "2 GPUs · 8 sequences per step · checkpoints in checkpoints"
agree "launch_single_node.sh beside the plan's run" 'one node' 'one node plan' 1e-9
run "the same command again" 0 "$work/one node/launch_single_node.sh"
has "the same command again" "$said" "nothing is left to do"
run "settings in the environment" 0 env NUM_GPUS=1 BATCH_SIZE=4 CHECKPOINT_DIR=other "$work/one node/launch_single_node.sh" --stop-after 3
has "settings in the environment" "$said" "8 sequences of 32 tokens = 4 micro × 2 accumulation × 1 data-parallel"
[[ -s "$work/one node/other/checkpoint_3/COMMIT" ]] || fail "settings in the environment: no checkpoint"
run "weights" 1 env HF_HOME="$work/no cache" USE_HF_MODEL=true HF_MODEL=meta-llama/Llama-2-7b-hf "$work/one node/launch_single_node.sh"
has "weights" "$said" "help: download it: hf download meta-llama/Llama-2-7b-hf"
run "no trainer" 5 env TRAINER=nowhere "$work/one node/launch_single_node.sh"
printf 'import sys\nprint("mine", *sys.argv[1:])\n' >"one node/train_llm.py"
run "a script of one's own" 0 env TRAINER=train_llm.py NUM_GPUS=1 "$work/one node/launch_single_node.sh"
has "a script of one's own" "$said" "mine --from-scratch --model-size $work/tiny model --seq-len 32 --batch-size 2"
has_not "a script of one's own" "$said" "--sharding"

# --- two nodes of two ranks
emitted 'two nodes' 2 2 1
run "without a place" 2 "$work/two nodes/launch_multi_node.sh"
has "without a place" "$said" "set NODE_RANK (0 to 1) and MASTER_ADDR"
port=$(free_port)
NODE_RANK=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$work/two nodes/launch_multi_node.sh" >"$work/second" 2>&1 &
run "launch_multi_node.sh" 0 env NODE_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" "$work/two nodes/launch_multi_node.sh"
wait $! || fail "launch_multi_node.sh, second node" "$(cat "$work/second")"
agree "launch_multi_node.sh beside the run on one node" 'two nodes' 'one node plan' 1e-5

# --- SLURM
if ! slurm=$("$DISTSETUP_SOURCE/tests/support/slurm_up" "$work/slurm" 2 8 2>&1); then
  echo "not run: launch_slurm.sh: $(tail -n 1 <<<"$slurm")"
  exit 77
fi
trap 'status=$?; "$DISTSETUP_SOURCE/tests/support/slurm_down" "$work/slurm" >/dev/null 2>&1; rm -rf "$work"; exit $status' EXIT
# shellcheck disable=SC1091
. "$work/slurm/env.sh"
emitted 'job' 2 2 1 --job-name llm-training --cpus-per-task 2 --time-limit 10m --exclusive --output-log 'the logs/train_%j.out'
"$DISTSETUP_SOURCE/tests/support/sbatch_wait" 180 "$work/job/launch_slurm.sh" >/dev/null || fail "launch_slurm.sh" "$(cat "$work"/slurm-*.out "$work/the logs"/* 2>/dev/null)"
agree "launch_slurm.sh beside the run on one node" job 'one node plan' 1e-5
