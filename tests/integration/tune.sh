#!/usr/bin/env bash
# `distsetup tune`: every combination is trained, the ranking is that of their held-out losses, the same command goes on where it stopped,
# and what cannot be trained says why beside those that can.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
need_trainer
make_job base 2
cd "$work"
tune() { "$distsetup" tune run.yaml --gpus 2 --steps 8 --output tuning "$@"; }
grid=(--over "learning-rate=3e-3,4e-4,99" --over "train.warmup_steps=0,2")
run "tune" 0 tune "${grid[@]}"
has "tune" "$said" "best: --set train.learning_rate=3e-3 --set train.warmup_steps="
has "what cannot be planned" "$said" "found '99' for train.learning_rate, expected from 0 to 10"
is "its folders" "$(cd tuning && echo *)" "run_1 run_2 run_3 run_4 runs.json"
python3 - <<'PYTHON'
import json, pathlib
runs = json.load(open("tuning/runs.json"))["runs"]
assert len(runs) == 6
trained = [r for r in runs if "problem" not in r]
assert len(trained) == 4 and runs[:4] == trained, "what was trained comes first"
for r in trained:
    lines = [json.loads(line) for line in open(pathlib.Path(r["folder"]) / "metrics.jsonl")]
    assert [l["held_out_loss"] for l in lines if l["kind"] == "evaluation"][-1] == r["held_out_loss"], r
    plan = json.load(open(pathlib.Path(r["folder"]) / "plan.json"))
    assert plan["train"]["learning_rate"] == float(r["settings"]["train.learning_rate"])
    assert plan["train"]["warmup_steps"] == int(r["settings"]["train.warmup_steps"])
assert [r["held_out_loss"] for r in trained] == sorted(r["held_out_loss"] for r in trained)
PYTHON
before=$(cat tuning/runs.json)
rm -r tuning/run_2 tuning/runs.json
run "again" 0 tune "${grid[@]}"
is "again: three were trained before" "$(grep -c 'trained before' <<< "$said")" 3
is "again: the same ranking" "$(cat tuning/runs.json)" "$before"
run "other settings in the same folder" 6 tune --over learning-rate=1e-3
has "other settings in the same folder" "$said" "'tuning/run_1' holds another run's plan"
# A request to a training service has its grid in it.
cat >request.json <<'JSON'
{"job_uuid": "grid", "model": "quickstart", "finetuned_model": "tuned",
 "algorithm_config": {"type": "dpo", "reward_scale": 1.0, "reward_clip": 5.0, "epsilon": 0.1, "gamma": 0.99},
 "training_config": {"n_epochs": 1, "max_steps_per_epoch": 3, "gradient_accumulation_steps": 1,
   "data_config": {"dataset_id": "pairs", "batch_size": 1, "shuffle": true, "data_format": "instruct"}},
 "hyperparam_search_config": {"learning_rate": [1e-3, 3e-4], "beta": [0.1, 0.5]}, "logger_config": {}}
JSON
for ((i = 0; i < 12; ++i)); do
  echo "{\"prompt\": \"what is $i \", \"chosen\": \"it is $((i + i))\", \"rejected\": \"no idea $i\"}"
done >pairs.jsonl
service=("$distsetup" tune --from request.json --trainer native --gpu cpu --nodes 1 --gpus 2 --precision fp32 --init random
  --sources pairs.jsonl --tokenizer "$DISTSETUP_SOURCE/tests/data/tokenizers/unigram/tokenizer.json" --held-out 3 --sequence-length 64
  --global-batch 2 --data-cache kept --output grid)
run "the grid of a request" 0 "${service[@]}"
is "the grid of a request" "$(grep -c '"held_out_loss"' grid/runs.json)" 4
has "the grid of a request" "$said" "learning_rate × beta"
sed 's/"beta": \[0.1, 0.5\]/"beta": 0.1/' request.json >wrong.json
run "a grid that is none" 3 "$distsetup" tune --from wrong.json --gpu cpu --output none
has "a grid that is none" "$said" "hyperparam_search_config.beta is no list of values"
run "nothing to vary" 2 tune
run "no folder" 2 "$distsetup" tune run.yaml --over learning-rate=1e-3
run "no data" 2 "$distsetup" tune --model quickstart --gpu cpu --nodes 1 --gpus 1 --over learning-rate=1e-3 --output none
run "another trainer" 3 "$distsetup" tune --model 8B --nodes 1 --trainer fsdp2 --over learning-rate=1e-3 --output none
run "an unknown setting" 2 tune --over learning-rat=1e-3
has "an unknown setting" "$said" "did you mean 'learning-rate'"
[[ ! -e none ]] || fail "a command that is refused leaves a folder"
echo "tune: all checks hold"
