#!/usr/bin/env bash
# Mistakes other tools made, by number: each must not happen here.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
cd "$work"

# Regression 13: an output path whose folder does not exist yet is made, not a stack trace.
run "13: output into a new folder" 0 "$distsetup" fsdp --output new/folder/cfg.json
[[ -s new/folder/cfg.json ]] || fail "13: the file is there" "$(ls -R .)"

# Regression 32: a batch that the ranks do not divide is refused with the numbers.
run "32: indivisible batch" 3 "$distsetup" plan --model 8B --gpus 8 --nodes 1 --global-batch 100 --micro-batch 3
has "32: says the batch" "$said" "100"

# Regression 35: the master is fp32 unless asked otherwise, and there is no silent pure bf16.
run "35: plan" 0 "$distsetup" plan --model 8B --gpus 8 --nodes 1 --json
has "35: fp32 master" "$said" '"master": "fp32"'
has "35: fp32 moments" "$said" '"optimizer_state": "fp32"'
run "35: pure bf16 is refused" 3 "$distsetup" plan --model 8B --gpus 8 --nodes 1 --master-dtype bf16

# Regression 41: the user's run file is never rewritten.
printf 'version: 1\nmodel: 8B   # mine\nhardware: {gpu: h100_sxm, gpus_per_node: 8, nodes: 1}\n' > run.yaml
cp -p run.yaml before.yaml
"$distsetup" plan run.yaml --output plan.json > /dev/null 2>&1
"$distsetup" emit run.yaml --target native --output files > /dev/null 2>&1 || true
cmp run.yaml before.yaml || fail "41: run.yaml is untouched" "$(cat run.yaml)"
is "41: nor its time" "$(stat -c %Y run.yaml)" "$(stat -c %Y before.yaml)"

need_trainer

# Regression 26: targets are shifted exactly once: text whose every byte follows from the one before is learnt to (nearly) nothing.
mkdir -p "$work/data"
for i in $(seq 8); do
  for _ in $(seq $((40 + i))); do printf 'abcdefghijklmnopqrstuvwxyz'; done > "$work/data/alphabet_$i.txt"
done
make_job toy 1 --steps 150 --warmup-steps 10 --learning-rate 1e-2 --checkpoint-every 0 --held-out 0
run "26: toy task" 0 launch toy
last=$(losses "$work/toy/metrics.jsonl" | tail -n 1 | cut -d' ' -f2)
awk -v loss="$last" 'BEGIN { exit !(loss < 0.05) }' || fail "26: a sure next byte has no loss" "loss after 150 steps: $last"

# Regression 27: 4 sequences at once and 4 micro-batches of one give the same update.
rm -rf "$work/data"
make_job at_once 1 --steps 8 --global-batch 4 --micro-batch 4 --checkpoint-every 0
make_job one_by_one 1 --steps 8 --global-batch 4 --micro-batch 1 --checkpoint-every 0
run "27: at once" 0 launch at_once
run "27: one by one" 0 launch one_by_one
paste -d' ' <(losses "$work/at_once/metrics.jsonl") <(losses "$work/one_by_one/metrics.jsonl") |
  awk '{ d = ($2 - $6) / $2; g = ($3 - $7) / $3; if (d * d > 1e-10 || g * g > 1e-8) { print; bad = 1 } } END { exit bad || NR != 8 }' ||
  fail "27: losses or gradient norms differ" "$(losses "$work/at_once/metrics.jsonl")" "$(losses "$work/one_by_one/metrics.jsonl")"
echo "regressions 13, 26, 27, 32, 35, 41: not ours"
