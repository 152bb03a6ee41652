#!/usr/bin/env bash
# Files that people bring: a config.yaml in sections, a config.yaml of stages, the run files of two services. Read, held to be valid or
# not, planned, started; and what is written for them passes shellcheck, systemd-analyze and a start with stand-ins.
# shellcheck disable=SC2016 # literal dollars
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
cd "$work"

cat >config.yaml <<'YAML'
model: {base_model: meta-llama/Llama-2-7b-hf, use_flash_attention: true}
fine_tuning: {method: full}
training:
  micro_batch_size: 1
  gradient_accumulation_steps: 16
  learning_rate: 2e-4
  max_grad_norm: 0.3
  max_seq_length: 4096
  gradient_checkpointing: true
  mixed_precision: bf16
distributed: {use_deepspeed: true, use_fsdp: false, zero_stage: 2, offload_optimizer: true, gradient_accumulation_steps: 16}
output: {output_dir: out, save_steps: 500}
YAML
cat >stages.yaml <<'YAML'
training_stages:
  stage1:
    training: {batch_size: 8, sequence_length: 2048, learning_rate: 1e-6, gradient_accumulation_steps: 2}
    distributed: {strategy: fsdp, num_nodes: 1, devices: 8, fsdp: {sharding_strategy: FULL_SHARD, cpu_offload: false}}
  stage2:
    training: {batch_size: 16}
    distributed: {strategy: ddp, num_nodes: 1, devices: 4}
distributed_examples:
  multi_node_fsdp: {strategy: fsdp, num_nodes: 2, devices: 4, fsdp: {cpu_offload: true, sharding_strategy: FULL_SHARD}}
YAML

# validate: exit codes, places, what is meant.
printf 'version: 1\nmodel: 8B\nhardware: {gpus_per_node: 8, nodes: 1}\n' >run.yaml
printf 'version: 1\npartition: gpu\n' >site.yaml
run "validate" 0 "$distsetup" validate run.yaml site.yaml config.yaml stages.yaml
has "validate: a run" "$said" "run.yaml: valid, run file"
has "validate: a site" "$said" "site.yaml: valid, site file"
has "validate: a config" "$said" "config.yaml: valid, fine-tuning config.yaml"
sed 's/micro_batch_size/micro_batch_sze/; s/mixed_precision: bf16/mixed_precision: fp17/' config.yaml >wrong.yaml
run "validate: wrong keys and values" 3 "$distsetup" validate wrong.yaml
has "validate: place of a key" "$said" "wrong.yaml:4:3"
has "validate: what is meant" "$said" "did you mean 'training.micro_batch_size'"
has "validate: place of a value" "$said" "wrong.yaml:10:3"
has "validate: values it takes" "$said" "bf16, fp16, no"
sed 's/offload_optimizer: true, gradient_accumulation_steps: 16/offload_optimizer: true, gradient_accumulation_steps: 8/' config.yaml >two.yaml
run "validate: two keys that disagree" 3 "$distsetup" validate two.yaml
has "validate: both are told" "$said" "'training.gradient_accumulation_steps' in two.yaml:5 says 16"
printf 'version: 1\nmodel: 70B\nhardware: {gpu: rtx_4090, gpus_per_node: 1, nodes: 1}\n' >large.yaml
run "validate: nothing fits" 4 "$distsetup" validate large.yaml
printf '#!/bin/bash\n#SBATCH --nodes=2\nsrun bash -c "python t.py --rank $SLURM_PROCID"\n' >job.sbatch
run "validate: a job by lint's rules" 3 "$distsetup" validate job.sbatch
has "validate: lint's code" "$said" "SL003"

# A file of another tool where a run file is expected: stages, named setups, values over it, and where each came from.
run "stage" 0 "$distsetup" config show stages.yaml --stage stage2 --origin
has "stage: its value" "$(grep parallel.micro_batch <<<"$said" | tr -s ' ')" "16 stages.yaml:6"
run "named setup of the file" 0 "$distsetup" config show stages.yaml --distributed multi_node_fsdp --set training.batch_size=4 --origin
has "setup: nodes" "$(grep hardware.nodes <<<"$said")" "stages.yaml:9"
has "setup: over the file" "$(grep parallel.micro_batch <<<"$said")" "command line"
run "named setup that comes with it" 0 "$distsetup" config show --model 8B --distributed large_scale_fsdp --nodes 4 --origin
has "setup: flags win" "$(grep hardware.nodes <<<"$said")" "command line"
has "setup: its file" "$(grep parallel.sharding <<<"$said")" "presets/recipes/large_scale_fsdp.yaml"
run "wrong setup" 2 "$distsetup" config show stages.yaml --distributed multi_node_fsp
has "wrong setup: nearest" "$said" "did you mean 'multi_node_fsdp'"
run "wrong stage" 2 "$distsetup" config show stages.yaml --stage stge2
has "wrong stage: nearest" "$said" "did you mean 'stage2'"
run "the file is read, not written" 0 "$distsetup" plan stages.yaml --model 1B --distributed multi_node_fsdp
has "keys that are not supported are named" "$said" "not supported here: "

# Launchers of a config.yaml: its script gets --deepspeed; without one it is the script that such a file goes with.
run "launcher" 0 "$distsetup" launcher --config config.yaml --num_nodes 4 --num_gpus_per_node 8 --master_addr 192.168.1.100 \
  --master_port 29500 --use_deepspeed --output manual/ -- train.py --config config.yaml
has "launcher: the file beside it" "$(cat manual/run_training.sh)" '--deepspeed "$here/ds_config.json"'
run "launcher without a script" 0 "$distsetup" launcher --config config.yaml --num_gpus_per_node 4 --output unnamed/
has "launcher without a script: what to do" "$said" "-- train.py --config config.yaml"

# What is written for them.
emit() {  # TARGET FOLDER FLAGS...
  "$distsetup" emit --target "$1" --output "$2" --model llama3.2_1b "${@:3}" >emit.log 2>&1 || fail "emit $1" "$(cat emit.log)"
}
emit llama-stack remote --gpus 8 --nodes 1 --recompute full --micro-batch 1 --method dpo --sharding zero3
emit llama-stack-inline inline --gpus 1 --nodes 1 --method dpo
emit fine-tuning tuning --gpus 8 --nodes 1 --recompute full --micro-batch 1 --method sft --trainer deepspeed
emit training-stages staged --gpus 8 --nodes 2 --recompute full --micro-batch 1 --trainer fsdp1
for script in remote/start.sh inline/start.sh tuning/launch.sh staged/launch.sh; do
  [[ -x $script ]] || fail "$script is there" "$(ls -R .)"
  bash -n "$script" # its style: emit_lint_all.sh
done
if command -v systemd-analyze >/dev/null; then
  for unit in remote inline; do
    # the program of the unit is where the unit's comment puts it
    sed "s|%h/llama-stack-trl|$work/$unit|" "$unit/llama-stack.service" >"$work/distsetup-$unit.service"
    systemd-analyze verify --man=no "$work/distsetup-$unit.service" >unit.log 2>&1 || fail "systemd-analyze verify $unit" "$(cat unit.log)"
    has_not "systemd-analyze verify $unit has nothing to say" "$(grep "distsetup-$unit" unit.log || true)" "distsetup-$unit"
  done
fi

# The inline service starts on one device alone; worker variables of a launcher are refused.
mkdir bin
printf '#!/bin/bash\nexit 0\n' >bin/python3
printf '#!/bin/bash\necho "llama $*"\n' >bin/llama
printf '#!/bin/bash\necho "torchrun $*"\nenv | grep -E "^(RANK|LOCAL_RANK|NODE_RANK)=" || true\n' >bin/torchrun
chmod +x bin/*
run "inline" 0 env PATH="$work/bin:$PATH" PORT=8400 inline/start.sh
has "inline: the server" "$said" "--port 8400 $work/inline/run.yaml"
run "inline in several processes" 2 env PATH="$work/bin:$PATH" WORLD_SIZE=2 inline/start.sh

# By hand on two nodes: the node's number comes from the environment, a rank's own number never does (a framework that finds LOCAL_RANK
# waits for processes that nobody starts).
run "staged without a node's number" 2 env PATH="$work/bin:$PATH" staged/launch.sh train.py
touch train.py
run "staged" 0 env PATH="$work/bin:$PATH" NODE_RANK=1 MASTER_ADDR=node0 LOCAL_RANK=3 RANK=9 staged/launch.sh train.py --mode production
has "staged: node" "$said" "--node_rank=1"
has "staged: config" "$said" "/staged/config.yaml --mode production"
has_not "staged: no rank" "$said" "RANK=9"

# Written and read again: the same settings.
run "fine-tuning read back" 0 "$distsetup" convert --to run tuning/config.yaml tuning/ds_config.json
has "read back: sharding" "$said" "sharding: $(sed -n 's/^ *"sharding": "\(.*\)",/\1/p' tuning/plan.json)"
run "stages read back" 0 "$distsetup" convert --to run staged/config.yaml
has "read back: nodes" "$said" "nodes: 2"
run "provider read back" 0 "$distsetup" convert --to run remote/run_fsdp.yaml remote/request.json
has "read back: zero3" "$said" "sharding: zero3"
run "inline read back" 0 "$distsetup" convert --to run inline/run.yaml
has "read back: one device" "$said" "gpus_per_node: 1"

need_trainer

# --smoke: a few real steps of a stand-in with the plan's strategy; nothing is left behind.
mkdir scratch
export TMPDIR=$work/scratch
run "smoke of a run file" 0 "$distsetup" launch run.yaml --smoke
has "smoke: what it is" "$said" "4 steps of a stand-in of llama3_8b: 2 layers of width 64"
has "smoke: it trained" "$said" "completed at step 4 of 4"
has "smoke: passed" "$said" "smoke: passed, loss "
run "smoke of a config.yaml" 0 "$distsetup" launch config.yaml --smoke
has "smoke: the file's sharding" "$said" "zero2, recompute full, bf16; without offload, trainer deepspeed"
make_job small 2
run "smoke of a plan" 0 "$distsetup" launch --plan small/plan.json --smoke --output kept
[[ -s kept/metrics.jsonl ]] || fail "smoke: --output keeps what it left" "$(ls -R kept)"
is "smoke: nothing is left" "$(ls scratch)" ""
run "smoke as a job" 2 "$distsetup" launch run.yaml --smoke --target slurm
echo "dialects: read, validated, written, started"
