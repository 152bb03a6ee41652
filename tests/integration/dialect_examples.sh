#!/usr/bin/env bash
# Commands and configuration blocks as three kinds of trainers' documents print them, typed unchanged: a trainer with --from-scratch and
# --hf-model, OpenRLHF with --backend fsdp2, and a trainer of stages with a config.yaml. Each is read, planned, or refused in words that
# say what to type instead; typed behind `distsetup plan --` the flags build the plan that reading the line builds.
# shellcheck disable=SC2016 # literal dollars
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
cd "$work"
unset NODE_RANK MASTER_ADDR MASTER_PORT RANK LOCAL_RANK WORLD_SIZE
mkdir bin
printf '#!/bin/bash\necho "torchrun $*"\n' >bin/torchrun
chmod +x bin/torchrun

# field FILE NAME: of plan.json, the first of that name
field() { sed -nE "s/^ *\"$2\": \"?([^\",]*)\"?,?\$/\1/p" "$1" | head -1; }
# planned NAME FILES AND FLAGS...: $work/NAME.json; what was said is in $said
planned() {
  local name=$1
  shift
  run "$name" 0 "$distsetup" plan --output "$name.json" --force "$@"
}
# flags_of FILE SCRIPT: the words behind the script's name of its last command
flags_of() { tr '\n' ' ' <"$1" | sed -E "s/.*$2//; s/\\\\ / /g"; }
# same_plan_of_flags NAME FILE SCRIPT GPUS NODES: typed flags and the line in a file; but for who runs it, and how it was asked for
same_plan_of_flags() {
  local name=$1 file=$2 script=$3 gpus=$4 nodes=$5 words
  read -r -a words <<<"$(flags_of "$file" "$script")"
  planned "$name read" --from "$file"
  planned "$name typed" --gpus "$gpus" --nodes "$nodes" --trainer fsdp2 -- "${words[@]}"
  local drop='/"inputs_digest"/d; /"assumptions"/,/\]/d; /"diagnostics"/,/^  \]/d; /"chosen_for"/d'
  is "$name: typed and read" "$(sed "$drop" "$name typed.json")" "$(sed "$drop" "$name read.json")"
}

# ---- flags of a trainer from scratch or of a published model (templates/launch-scripts)
cat >tune_7b.sh <<'SH2'
torchrun --nproc_per_node 8 train_llm.py \
    --hf-model meta-llama/Llama-2-7b-hf \
    --batch-size 4 \
    --grad-accum-steps 2 \
    --mixed-precision
SH2
cat >scratch_7b.sh <<'SH2'
torchrun --nproc_per_node 8 train_llm.py \
    --from-scratch \
    --model-size 7B \
    --batch-size 4 \
    --grad-accum-steps 2 \
    --mixed-precision
SH2
cat >example_1.sh <<'SH2'
torchrun --nproc_per_node 8 train_llm.py \
    --hf-model meta-llama/Llama-2-7b-hf \
    --batch-size 4 \
    --grad-accum-steps 2 \
    --max-lr 2e-5 \
    --warmup-steps 100 \
    --max-steps 10000 \
    --checkpoint-dir checkpoints/llama2-7b-finetuned \
    --mixed-precision
SH2
cat >example_2.sh <<'SH2'
torchrun --nproc_per_node 8 train_llm.py \
    --hf-model mistralai/Mistral-7B-v0.1 \
    --seq-len 4096 \
    --batch-size 2 \
    --grad-accum-steps 4 \
    --mixed-precision
SH2
cat >example_3.sh <<'SH2'
torchrun --nproc_per_node 8 train_llm.py \
    --from-scratch \
    --model-size 13B \
    --vocab-size 32000 \
    --seq-len 2048 \
    --batch-size 2 \
    --grad-accum-steps 4 \
    --max-lr 3e-4 \
    --mixed-precision
SH2
cat >advice_tune.sh <<'SH2'
torchrun --nproc_per_node 8 train_llm.py \
    --hf-model meta-llama/Llama-2-7b-hf \
    --max-lr 2e-5 \
    --warmup-steps 100 \
    --max-steps 5000
SH2
cat >advice_scratch.sh <<'SH2'
torchrun --nproc_per_node 8 train_llm.py \
    --from-scratch \
    --model-size 7B \
    --max-lr 3e-4 \
    --warmup-steps 2000 \
    --max-steps 100000
SH2
for example in tune_7b scratch_7b example_1 example_2 example_3 advice_tune advice_scratch; do
  same_plan_of_flags "$example" "$example.sh" train_llm.py 8 1
  is "$example: shards everything over all ranks" "$(field "$example read.json" sharding) $(field "$example read.json" dp_shard)" "zero3 8"
  run "$example: lint" 0 "$distsetup" lint "$example.sh"
done
planned "scratch 7B" --from scratch_7b.sh
has "scratch 7B: its true count" "$said" "8,047,038,464 parameters"
is "example 1: micro-batch, steps, folder" "$(field "example_1 read.json" micro_batch) $(field "example_1 read.json" steps) $(grep -A2 '"checkpoint": {' "example_1 read.json" | grep -o 'checkpoints/[^"]*')" \
  "4 10000 checkpoints/llama2-7b-finetuned"
# The smallest rate that nobody typed gives way to the one that somebody did.
is "example 1: rates" "$(field "example_1 read.json" learning_rate) $(field "example_1 read.json" min_learning_rate)" "2e-05 2e-06"
is "example 2: length" "$(field "example_2 read.json" sequence_length) $(field "example_2 read.json" micro_batch)" "4096 2"
is "example 3: global batch" "$(field "example_3 read.json" global_batch)" 64
is "defaults" "$(field "advice_scratch read.json" sequence_length) $(field "advice_scratch read.json" micro_batch) $(field "advice_scratch read.json" every_steps)" \
  "2048 4 1000"

# The scripts, started, and with other settings at their top.
emit() { run "emit $2" 0 "$distsetup" emit --target launch-scripts --output "$2" --gpus 8 --nodes "$1" "${@:3}"; }
emit 1 "one node" --use finetune_llama2_7b
cd "one node"
chmod +x launch_single_node.sh
run "launch_single_node.sh without its trainer" 5 env PATH="$work/bin:/usr/bin:/bin" ./launch_single_node.sh
has "launch_single_node.sh without its trainer" "$said" "set TRAINER=/path/to/it"
touch train_llm.py
run "launch_single_node.sh" 0 env PATH="$work/bin:/usr/bin:/bin" ./launch_single_node.sh
has "launch_single_node.sh" "$said" "torchrun --standalone --nnodes=1 --nproc_per_node=8 train_llm.py --hf-model meta-llama/Llama-2-7b-hf --seq-len 2048 --batch-size 4"
cd ..
emit 4 "four nodes" --use finetune_llama2_70b
cd "four nodes"
touch train_llm.py
export NODE_RANK=0
run "launch_multi_node.sh without an address" 2 env PATH="$work/bin:/usr/bin:/bin" ./launch_multi_node.sh
has "launch_multi_node.sh without an address" "$said" "set NODE_RANK (0 to 3) and MASTER_ADDR (host of node 0)"
export NODE_RANK=1 # Change for each node
run "launch_multi_node.sh" 0 env PATH="$work/bin:/usr/bin:/bin" MASTER_ADDR=192.168.1.100 ./launch_multi_node.sh
has "launch_multi_node.sh" "$said" "--nnodes=4 --nproc_per_node=8 --node_rank=1 --master_addr=192.168.1.100 --master_port=29500 train_llm.py"
unset NODE_RANK
cd ..
# The settings that the document says to change in launch_slurm.sh, in the lines of the emitted one.
cat >settings <<'SH2'
USE_HF_MODEL=true
HF_MODEL="meta-llama/Llama-2-70b-hf"
BATCH_SIZE=2
GRAD_ACCUM_STEPS=8
SH2
emit 4 "own settings" --model 13B --trainer fsdp2 --method pretrain --sharding zero3 --recompute none --micro-batch 1 --steps 100
script="own settings/launch_slurm.sh"
has "before" "$("$distsetup" convert --to run "$script" 2>/dev/null)" 'model: "meta-llama/Llama-2-13b-hf"'
while IFS='=' read -r name value; do sed -i "s|^$name=.*|$name=$value|" "$script"; done <settings
run "settings of launch_slurm.sh, read" 0 "$distsetup" convert --to run "$script"
for line in 'model: "meta-llama/Llama-2-70b-hf"' "micro_batch: 2" "gradient_accumulation: 8" "nodes: 4" "gpus_per_node: 8" "sharding: zero3"; do
  has "settings of launch_slurm.sh" "$said" "$line"
done
run "launch_slurm.sh: lint" 0 "$distsetup" lint "$script"
sed -i 's|^USE_HF_MODEL=.*|USE_HF_MODEL=false|; s|^MODEL_SIZE=.*|MODEL_SIZE=70B|' "$script"
run "the other branch of the script" 0 "$distsetup" convert --to run "$script"
has "the other branch of the script" "$said" 'model: "scratch_70b_wide"'
# The search stays with what the flags have a form for; what is pinned beyond it is refused.
emit 2 "searched" --model llama2_7b --trainer fsdp2 --method pretrain
is "searched" "$(field searched/plan.json sharding) $(field searched/plan.json dp_replicate)" "zero3 1"
run "copies of shards" 3 "$distsetup" emit --target launch-scripts --output none --model llama2_7b --trainer fsdp2 --nodes 2 --gpus 8 --dp-replicate 2
has "copies of shards" "$said" "it has no form for 2 copies of 8 shards"
run "another engine" 3 "$distsetup" emit --target launch-scripts --output none --model llama2_7b --trainer deepspeed --nodes 2 --gpus 8
has "another engine" "$said" "the plan is for deepspeed"
# Every script of this target says what its plan says.
for folder in "one node" "four nodes" searched; do
  for script in "$folder"/launch_*.sh; do
    run "$script is read" 0 "$distsetup" convert --to run "$script"
    for name in micro_batch gradient_accumulation sequence_length steps nodes gpus_per_node; do
      has "$script says its plan's $name" "$said" "$name: $(field "$folder/plan.json" $name)"
    done
    has_not "$script: no setting is left to the running script" "$said" "_lr = "
  done
done
cat >nccl.sh <<'SH2'
export NCCL_DEBUG=INFO
export NCCL_IB_DISABLE=0  # Enable InfiniBand
export NCCL_SOCKET_IFNAME=eth0  # Or your network interface
SH2
run "exports for debugging" 0 "$distsetup" lint nccl.sh
has "exports for debugging" "$said" "use NCCL_DEBUG=WARN"

# ---- OpenRLHF's names without dots, with --backend fsdp2 (templates/openrlhf-flags); the documents' dots are typed too
cat >fsdp2.sh <<'SH2'
torchrun --nproc_per_node=8 -m openrlhf.cli.train_sft \
    --backend fsdp2 \
    --pretrain meta-llama/Meta-Llama-3-8B \
    --dataset Open-Orca/OpenOrca \
    --input_key question \
    --output_key response \
    --train_batch_size 128 \
    --micro_train_batch_size 2 \
    --param_dtype bf16 \
    --gradient_checkpointing
SH2
cat >tensor.sh <<'SH2'
torchrun --nproc_per_node=8 -m openrlhf.cli.train_sft \
    --backend fsdp2 \
    --fsdp_tensor_parallel_size 2 \
    --use_hf_tp_plan \
    --pretrain meta-llama/Meta-Llama-3-8B \
    ...
SH2
cat >ring.sh <<'SH2'
torchrun --nproc_per_node=8 -m openrlhf.cli.train_sft \
    --backend fsdp2 \
    --ring_attn_size 2 \
    --packing_samples \
    --max_len 4096 \
    --pretrain meta-llama/Meta-Llama-3-8B \
    ...
SH2
cat >combined.sh <<'SH2'
# 8 GPUs: DP=2, TP=2, Ring=2
torchrun --nproc_per_node=8 -m openrlhf.cli.train_sft \
    --backend fsdp2 \
    --fsdp_tensor_parallel_size 2 \
    --use_hf_tp_plan \
    --ring_attn_size 2 \
    --packing_samples \
    --max_len 2048 \
    --pretrain meta-llama/Meta-Llama-3-8B \
    ...
SH2
mesh() { echo "dp $(field "$1" dp_shard) tp $(field "$1" tp) cp $(field "$1" cp) pp $(field "$1" pp)"; }
expect_mesh() { # NAME MESH ACCUMULATION: of 128 sequences, with a micro-batch that fits (the documents' 8 of default does not)
  planned "$1 read" --from "$1.sh" --gpu b200 --recompute full
  is "$1: mesh" "$(mesh "$1 read.json")" "$2"
  is "$1: accumulation = batch × ring × tp / micro / world" "$(field "$1 read.json" gradient_accumulation)" "$3"
  run "$1: lint" 0 "$distsetup" lint "$1.sh"
  has "$1: lint" "$said" "'--backend fsdp2' is in no release of OpenRLHF"
}
expect_mesh fsdp2 "dp 8 tp 1 cp 1 pp 1" 8
expect_mesh tensor "dp 4 tp 2 cp 1 pp 1" 4
expect_mesh ring "dp 4 tp 1 cp 2 pp 1" 4
expect_mesh combined "dp 2 tp 2 cp 2 pp 1" 8
for example in fsdp2 tensor ring combined; do
  read -r -a words <<<"$(flags_of "$example.sh" openrlhf.cli.train_sft)"
  [[ ${words[-1]} != ... ]] || unset 'words[-1]' # stands for more arguments
  planned "$example typed" --gpus 8 --nodes 1 --trainer fsdp2 --gpu b200 --recompute full -- "${words[@]}"
  is "$example: typed and read" "$(mesh "$example typed.json")" "$(mesh "$example read.json")"
done
read -r -a words <<<"$(flags_of tensor.sh openrlhf.cli.train_sft)"
run "the document's dots" 2 "$distsetup" plan -- "${words[@]}"
has "the document's dots" "$said" "'...'"
cat >compare.sh <<'SH2'
python compare_backends.py \
    --deepspeed_log logs/deepspeed_test.log \
    --fsdp2_log logs/fsdp2_test.log \
    --threshold 0.05
SH2
run "a program that is no trainer" 0 "$distsetup" convert --to run compare.sh
has "a program that is no trainer" "$said" "threshold = 0.05: no table knows the arguments of compare_backends.py"

# ---- a config.yaml of stages (templates/training-stages), its setups and its command lines (templates/training-stages-flags)
cat >stages.yaml <<'YAML'
training_stages:
  stage1:
    # ... other config ...
    
    # Distributed training configuration
    distributed:
      strategy: "fsdp"  # or "auto" with fsdp.enabled: true
      num_nodes: 1
      devices: 8  # Number of GPUs per node
      sync_batchnorm: false
      
      # FSDP specific configuration
      fsdp:
        enabled: true
        cpu_offload: false
        sharding_strategy: "FULL_SHARD"  # Options: "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"
        backward_prefetch: "BACKWARD_PRE"  # Options: "BACKWARD_PRE", "BACKWARD_POST", "NONE"
        forward_prefetch: false
        limit_all_gathers: true
        activation_checkpointing: true
        use_orig_params: false
YAML
cat >single.yaml <<'YAML'
distributed_examples:
  single_node_fsdp:
    strategy: "fsdp"
    num_nodes: 1
    devices: 8  # 8 GPUs on single node
    fsdp:
      enabled: true
      cpu_offload: false
      sharding_strategy: "FULL_SHARD"
      activation_checkpointing: true
YAML
cat >multi.yaml <<'YAML'
distributed_examples:
  multi_node_fsdp:
    strategy: "fsdp"
    num_nodes: 4  # 4 nodes
    devices: 8    # 8 GPUs per node
    fsdp:
      enabled: true
      cpu_offload: true  # Enable CPU offload for very large models
      sharding_strategy: "FULL_SHARD"
      activation_checkpointing: true
YAML
cat >large.yaml <<'YAML'
distributed_examples:
  large_scale_fsdp:
    strategy: "fsdp"
    num_nodes: 8
    devices: 8
    fsdp:
      enabled: true
      cpu_offload: true
      sharding_strategy: "FULL_SHARD"
      backward_prefetch: "BACKWARD_PRE"
      forward_prefetch: true
      limit_all_gathers: true
      activation_checkpointing: true
      use_orig_params: false
YAML
strategy() { echo "$(field "$1" trainer) $(field "$1" sharding) $(field "$1" nodes)x$(field "$1" gpus_per_node) offload $(sed -n '/"offload": {/,/}/p' "$1" | sed -nE 's/.*"optimizer": "([^"]*)".*/\1/p') recompute $(field "$1" policy) copies $(field "$1" dp_replicate)"; }
planned stage --from stages.yaml --model 1B
is "stage" "$(strategy stage.json)" "fsdp1 zero3 1x8 offload none recompute full copies 1"
for file in single:single_node_fsdp:1x8:none multi:multi_node_fsdp:4x8:host large:large_scale_fsdp:8x8:host; do
  IFS=: read -r name setup size offload <<<"$file"
  run "$name: not chosen" 0 "$distsetup" convert --to run "$name.yaml"
  has "$name: not chosen" "$said" "another setup: --distributed $setup"
  for form in "$name.yaml" "--from $name.yaml"; do
    # shellcheck disable=SC2086 # two words
    planned "$name" $form --distributed "$setup" --model 1B
    is "$name: $form" "$(strategy "$name.json")" "fsdp1 zero3 $size offload $offload recompute full copies 1"
  done
  run "$name: valid" 0 "$distsetup" validate "$name.yaml"
  run "$name: lint has no rules" 3 "$distsetup" lint "$name.yaml"
  has "$name: lint has no rules" "$said" "distsetup convert --to run $name.yaml"
done

# Parts of a stage, each as a file of its own.
part() { printf '%s\n' "${@:2}" >"$1.yaml"; }
part offload '   fsdp:' '     cpu_offload: true'
part recompute '   fsdp:' '     activation_checkpointing: true'
part accumulation '   training:' '     gradient_accumulation_steps: 4'
part batch '   training:' '     batch_size: 2  # Smaller batch size for large models'
part logging 'logging:' '  debug: true' '  log_file: "training.log"'
part wandb 'wandb:' '  use_wandb: true' '  project: "accfiy-fsdp"' '  tags: ["fsdp", "multi-node"]'
while IFS=: read -r name setting; do
  run "$name" 0 "$distsetup" convert --to run "$name.yaml"
  has "$name" "$said" "$setting"
  run "$name: valid" 0 "$distsetup" validate "$name.yaml"
done <<'PARTS'
offload:optimizer: host
recompute:recompute: full
accumulation:gradient_accumulation: 4
batch:micro_batch: 2
logging:log_file = training.log: where logs go is not planned
wandb:wandb.project = accfiy-fsdp: where logs go is not planned
PARTS
part misspelt 'wandb:' '  use_wandb: true' '  projet: "accfiy-fsdp"'
run "a misspelt key" 3 "$distsetup" validate misspelt.yaml
has "a misspelt key" "$said" "did you mean 'wandb.project'"

# Command lines: typed behind --, and in a file beside the configuration, they build the same plan.
cat >config.yaml <<'YAML'
model_configs:
  model_config_1.7B:
    decoder_config: {hidden_size: 2048, num_hidden_layers: 28, num_attention_heads: 16, num_key_value_heads: 8, intermediate_size: 6144,
      max_position_embeddings: 32768, vocab_size: 151676, hidden_act: silu, RMSNorm_eps: 1e-6}
training_stages:
  stage1:
    model: {model_config_key: model_config_1.7B}
    training: {batch_size: 8, sequence_length: 2048, learning_rate: 1e-6, gradient_accumulation_steps: 2, gradient_checkpointing: true}
    distributed: {strategy: ddp, num_nodes: 1, devices: 2}
  stage2:
    model: {model_config_key: model_config_1.7B}
    training: {batch_size: 4, sequence_length: 1024, learning_rate: 5e-6, gradient_checkpointing: false}
    distributed: {strategy: ddp, num_nodes: 1, devices: 2}
YAML
for file in single multi large; do grep -v '^distributed_examples' "$file.yaml" >"$file.part"; done
{ echo distributed_examples: && cat single.part multi.part large.part; } >>config.yaml
while IFS=: read -r line size offload micro; do
  read -r -a words <<<"$line"
  planned typed config.yaml -- "${words[@]:2}"
  is "typed: $line" "$(strategy typed.json) micro $(field typed.json micro_batch)" "fsdp1 zero3 $size offload $offload recompute full copies 1 micro $micro"
  echo "$line" >line.sh
  planned read --from config.yaml --from line.sh
  is "read: $line" "$(strategy read.json) micro $(field read.json micro_batch)" "fsdp1 zero3 $size offload $offload recompute full copies 1 micro $micro"
done <<'LINES'
python fsdp_example.py --fsdp-config single_node_fsdp --devices 8:1x8:none:8
python fsdp_example.py --fsdp-config multi_node_fsdp --num-nodes 4 --devices 8:4x8:host:8
python fsdp_example.py --fsdp-config large_scale_fsdp --num-nodes 8 --devices 8:8x8:host:8
python fsdp_example.py --fsdp-config single_node_fsdp --devices 4:1x4:none:8
python fsdp_example.py --fsdp-config multi_node_fsdp --num-nodes 2 --devices 8:2x8:host:8
python fsdp_example.py --fsdp-config large_scale_fsdp --num-nodes 4 --devices 8:4x8:host:8
python fsdp_example.py --stage stage2 --fsdp-config multi_node_fsdp --devices 8:4x8:host:4
LINES
cat >production.sh <<'SH2'
# Using the main training script with FSDP
python -m src.nemo.ModularModelstage1_NTPtraining \
    --mode production \
    --stage stage1 \
    --model-config model_config_1.7B \
    --devices 8 \
    --precision bf16-mixed
SH2
read -r -a words <<<"$(flags_of production.sh ModularModelstage1_NTPtraining)"
planned production config.yaml -- "${words[@]}"
has "production: --mode is told" "$said" "'--mode production' is not supported here: where data come from"
is "production" "$(strategy production.json) $(field production.json compute)" "ddp ddp 1x8 offload none recompute full copies 8 bf16"
planned "production read" --from config.yaml --from production.sh
is "production read" "$(strategy "production read.json") $(field "production read.json" compute)" "ddp ddp 1x8 offload none recompute full copies 8 bf16"
# Without the configuration: a setup that comes with distsetup acts, and what only the file knows is told.
planned "a setup of ours" --from line.sh --model 1B
is "a setup of ours" "$(field "a setup of ours.json" nodes)" 4
has "a stage of no file" "$said" "stage"
run "no configuration" 0 "$distsetup" convert --to run production.sh
has "no configuration" "$said" "model_config_key = model_config_1.7B: it names a part of a config.yaml, which is not given"
run "a mode that is none" 2 "$distsetup" plan config.yaml -- --mode productive
has "a mode that is none" "$said" "'--mode' is 'productive', expected one of basic, production, foundation"
run "a setup that is none" 2 "$distsetup" plan config.yaml -- --fsdp-config single_node_fsd
has "a setup that is none" "$said" "did you mean"
cat >several.sh <<'SH2'
# Single node, 8 GPUs
python fsdp_example.py --fsdp-config single_node_fsdp --devices 8

# Multi-node, 4 nodes with 8 GPUs each
python fsdp_example.py --fsdp-config multi_node_fsdp --num-nodes 4 --devices 8

# Large scale training
python fsdp_example.py --fsdp-config large_scale_fsdp --num-nodes 8 --devices 8
SH2
run "several runs in one file" 3 "$distsetup" plan --from several.sh --model 1B
has "several runs in one file" "$said" "'num_nodes' says hardware.nodes is 8, 'num_nodes' in several.sh:5 says 4"
has "several runs in one file" "$said" "the file starts several runs"
cat >by_hand.sh <<'SH2'
export MASTER_ADDR=<master_node_ip>
export MASTER_PORT=<port>
export WORLD_SIZE=<total_gpus>
export RANK=<node_rank>
export LOCAL_RANK=<local_gpu_rank>
SH2
run "ranks by hand, to be filled in" 3 "$distsetup" lint by_hand.sh
has "ranks by hand, to be filled in" "$said" "'<master_node_ip>' is no value"
has "ranks by hand" "$said" "LOCAL_RANK is set by hand"
has "ranks by hand" "$said" "export NODE_RANK and MASTER_ADDR instead"
sed 's/<master_node_ip>/node0/; s/<port>/29500/; s/<total_gpus>/32/; s/<node_rank>/1/; s/<local_gpu_rank>/0/' by_hand.sh >numbers.sh
run "ranks by hand, as numbers" 0 "$distsetup" lint numbers.sh
has "ranks by hand, as numbers" "$said" "RANK is set by hand"
echo "documents' examples: read, planned, started or refused in words"
