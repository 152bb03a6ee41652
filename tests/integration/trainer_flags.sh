#!/usr/bin/env bash
# distsetup-train with flags of a run in place of a plan, in the spellings of two other trainers: the plan is the one that `distsetup
# plan` makes of the equal settings, one rank or several (torchrun's environment, srun's) lose what the plan's run loses, the same
# command again goes on; what cannot be done is refused by name.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
need_trainer
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
export OMP_NUM_THREADS=1 DISTSETUP=$distsetup
trainer=$DISTSETUP_BIN/distsetup-train
make_data
make_config_json "$work/tiny"
cd "$work"

# --- a plan of the run's own settings, made in its folder
planned() { # NAME RANKS BATCH ACCUMULATION [FLAGS]
  local name=$1
  mkdir -p "$name"
  run "plan of $name" 0 "$distsetup" plan --model tiny --trainer native --gpu cpu --nodes 1 --gpus "$2" --tp 1 --method pretrain \
    --sequence-length 32 --steps 40 --learning-rate 3e-3 --min-lr 3e-4 --warmup-steps 3 --weight-decay 0.1 --grad-clip 1.0 \
    --precision fp32 --micro-batch "$3" --gradient-accumulation "$4" --seed 1 --data data --checkpoint-every 7 \
    --checkpoint-dir . "${@:5}" --output "$name/plan.json" --force
}
flags=(--from-scratch --model-size tiny --seq-len 32 --max-steps 40 --max-lr 3e-3 --min-lr 3e-4 --warmup-steps 3
  --no-mixed-precision --seed 1 --data data --checkpoint-interval 7)
same_plan() { # NAME OTHER: but for the digest of how it was asked for, and what was assumed
  local one two
  one=$(sed '/"inputs_digest"/d; /"assumptions"/,/\]/d' "$1/plan.json")
  two=$(sed '/"inputs_digest"/d; /"assumptions"/,/\]/d' "$2/plan.json")
  is "plan of $1 beside $2" "$one" "$two"
}

# --- one process
planned one 1 4 2 --sharding zero3
run "one rank by its plan" 0 launch one
run "one rank by flags" 0 "$trainer" "${flags[@]}" --batch-size 4 --grad-accum-steps 2 --checkpoint-dir flags_one --log-interval 8
has "one rank by flags" "$said" "no GPU on $host"
is "lines, every 8 steps" "$(grep -c '^step .*tokens/s' <<<"$said")" 6
same_plan flags_one one
losses_agree "one rank by flags" flags_one/metrics.jsonl one/metrics.jsonl 1e-9
run "it is finished" 0 "$trainer" "${flags[@]}" --batch-size 4 --grad-accum-steps 2 --checkpoint-dir flags_one
has "it is finished" "$said" "nothing is left to do"
run "the plan that was kept" 0 "$distsetup" launch --plan flags_one/plan.json --dry-run
has "the plan that was kept" "$said" "40 of 40 steps are done"

# --- stopped, and the same command again
again=("${flags[@]}" --batch-size 4 --grad-accum-steps 2 --checkpoint-dir "a dir/again")
run "stopped" 0 "$trainer" "${again[@]}" --stop-after 10
run "the same command again" 0 "$trainer" "${again[@]}"
has "the same command again" "$said" "checkpoint_10, 10 of 40 steps are done"
losses_agree "the same command again" "a dir/again/metrics.jsonl" one/metrics.jsonl 1e-9

# --- several ranks, each of which asks for its plan: torchrun's words, then srun's
ranks() { # NAME COUNT ENVIRONMENT-FUNCTION FLAGS...
  local name=$1 count=$2 rank pids=() words code=0
  port=$(free_port)
  for ((rank = 0; rank < count; ++rank)); do
    read -r -a words <<<"$("$3" "$rank" "$count")"
    env MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "${words[@]}" "$trainer" "${@:4}" >"$name.rank$rank" 2>&1 &
    pids+=($!)
  done
  for rank in "${pids[@]}"; do wait "$rank" || code=$?; done
  said=$(cat "$name".rank*)
  return $code
}
torchrun_words() { echo "RANK=$1 WORLD_SIZE=$2 LOCAL_RANK=$1 LOCAL_WORLD_SIZE=$2"; }
srun_words() { echo "SLURM_STEP_ID=0 SLURM_JOB_ID=7 SLURM_PROCID=$1 SLURM_NTASKS=$2 SLURM_LOCALID=$1 SLURM_NTASKS_PER_NODE=$2"; }
planned two 2 2 2 --sharding zero3
run "two ranks by their plan" 0 launch two
for words in torchrun_words srun_words; do
  ranks "$words" 2 "$words" "${flags[@]}" --batch-size 2 --grad-accum-steps 2 --checkpoint-dir "$words" || fail "$words" "$said"
  same_plan "$words" two
  losses_agree "$words" "$words/metrics.jsonl" two/metrics.jsonl 1e-9
  losses_agree "$words beside one rank" "$words/metrics.jsonl" one/metrics.jsonl 1e-5
done
other_words() { echo "$(torchrun_words "$1" "$2") DISTSETUP_SEED=$1"; }
unseeded=()
for word in "${flags[@]}"; do [[ $word == --seed || $word == 1 ]] || unseeded+=("$word"); done
if ranks other 2 other_words "${unseeded[@]}" --batch-size 2 --checkpoint-dir other; then fail "two plans in one run were accepted"; fi
has "two plans in one run" "$said" "rank 1 has another plan than rank 0"

# --- named, not passed over
run "no kernel of another kind" 0 "$trainer" "${flags[@]}" --no-use-flash-attn --dry-run
has "no kernel of another kind" "$said" "'--use-flash-attn false' is not supported here"
run "an unknown flag" 2 "$trainer" "${flags[@]}" --bach-size 4
has "an unknown flag" "$said" "did you mean '--batch-size'"
run "two sources" 2 "$trainer" --plan one/plan.json --batch-size 4
has "two sources" "$said" "unknown argument '--batch-size' beside --plan"
run "an export" 0 "$distsetup" checkpoint export one --output published --dtype fp32
run "published weights" 0 "$trainer" --hf-model published "${flags[@]:3}" --checkpoint-dir from_weights --stop-after 1
has "published weights" "$said" "from the weights in"
run "published weights, left alone" 0 "$trainer" --hf-model published --init random "${flags[@]:3}" --checkpoint-dir from_random --stop-after 1
has "published weights, left alone" "$said" "random"
mkdir weights && cp tiny/config.json weights && touch weights/model.safetensors
run "weights that are none" 3 "$trainer" --hf-model weights "${flags[@]:3}"
has "weights that are none" "$said" "model.safetensors"
# A launcher may stop rank 0 before it has said anything: the others say what is wrong and how to mend it.
run "no weights, said by another rank" 3 env RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 HF_HOME="$work/no cache" \
  "$trainer" --hf-model meta-llama/Llama-2-7b-hf "${flags[@]:3}"
has "no weights, said by another rank" "$said" "is no folder, and no downloaded model in '$work/no cache/hub'; help: download it: hf download meta"
run "no data" 5 "$trainer" --from-scratch --model-size tiny --seq-len 32 --max-steps 4
run "more ranks than were started" 5 "$trainer" "${flags[@]}" --gpus 2
has "more ranks than were started" "$said" "the plan is for 2"
run "nothing fits" 3 "$trainer" --from-scratch --model-size 70B --data data
has "nothing fits" "$said" "nothing fits: no plan for these flags"

# --- the other spelling: an engine by name and ZeRO's stage
sft=(--pretrain tiny --pretrain_mode --micro_train_batch_size 2 --train_batch_size 8 --max_len 32 --max_samples 320 --max_epochs 1
  --learning_rate 3e-3 --lr_warmup_ratio 0.075 --l2 0.1 --max_norm 1.0 --seed 1 --adam_betas 0.9 0.95 --save_steps 7 --logging_steps 8
  --precision fp32 --data data)
planned stage2 2 2 2 --sharding zero2
run "two ranks, stage 2" 0 launch stage2
ranks engine 2 torchrun_words "${sft[@]}" --backend deepspeed --zero_stage 2 --overlap_comm --ckpt_path engine || fail "engine" "$said"
has "engine" "$said" "'--overlap_comm' is not supported here"
losses_agree "engine and stage" engine/metrics.jsonl stage2/metrics.jsonl 1e-9
ranks sharded 2 torchrun_words "${sft[@]}" --backend fsdp2 --ckpt_path sharded || fail "fsdp2" "$said"
losses_agree "fsdp2 beside stage 2" sharded/metrics.jsonl engine/metrics.jsonl 1e-5
run "fsdp2 is zero3" 0 grep -q '"sharding": "zero3"' sharded/plan.json
run "a ring without packing" 2 "$trainer" "${sft[@]}" --backend fsdp2 --ring_attn_size 2
has "a ring without packing" "$said" "'--ring_attn_size 2' without --packing_samples"
run "fine-tuning" 3 "$trainer" "${sft[@]/#--pretrain_mode/--packing_samples}" --backend fsdp2 --dry-run
has "fine-tuning" "$said" "sft trains on answers alone"
# Rows of questions and answers: their token ids are made when the run starts, once for all ranks and runs.
cp -r published rows_model
cp "$DISTSETUP_SOURCE/tests/data/tokenizers/unigram/tokenizer.json" rows_model
cat >rows_model/chat_template.jinja <<'JINJA'
{% for m in messages %}{{ m.role }}: {% generation %}{{ m.content }}{% endgeneration %} {% endfor %}{% if add_generation_prompt %}assistant: {% endif %}
JINJA
for ((i = 10; i < 50; ++i)); do echo "{\"question\": \"what is $i\", \"response\": \"it is $((i + 1))\"}"; done >rows.jsonl
export XDG_CACHE_HOME=$work/cache
rows=(--pretrain rows_model --dataset rows.jsonl --input_key question --output_key response --apply_chat_template --packing_samples
  --micro_train_batch_size 1 --train_batch_size 4 --max_len 64 --max_epochs 2 --learning_rate 1e-3 --precision fp32 --logging_steps 1)
ranks rows_two 2 torchrun_words "${rows[@]}" --backend fsdp2 --ckpt_path rows_two || fail "rows" "$said"
has "rows" "$said" "packed in"
is "two epochs of rows in batches of 4" "$(wc -l <rows_two/metrics.jsonl)" "$(sed -nE 's/.*packed in ([0-9]+) rows.*/\1/p' rows_two.rank0 | awk '{print int(2 * $1 / 4)}')"
is "sets that were made" "$(find cache -name dataset.json | wc -l)" 1
ranks rows_ring 2 torchrun_words "${rows[@]}" --backend fsdp2 --ring_attn_size 2 --ckpt_path rows_ring || fail "rows, a ring" "$said"
run "a ring splits sequences" 0 grep -q '"cp": 2' rows_ring/plan.json
losses_agree "rows, a ring" rows_ring/metrics.jsonl rows_two/metrics.jsonl 1e-5
ranks rows_tensor 2 torchrun_words "${rows[@]}" --backend fsdp2 --fsdp_tensor_parallel_size 2 --ckpt_path rows_tensor ||
  fail "rows, tensor parallelism" "$said"
losses_agree "rows, tensor parallelism" rows_tensor/metrics.jsonl rows_two/metrics.jsonl 1e-5
ranks rows_engine 2 torchrun_words "${rows[@]}" --backend deepspeed --zero_stage 2 --ckpt_path rows_engine || fail "rows, an engine" "$said"
losses_agree "rows, an engine" rows_engine/metrics.jsonl rows_two/metrics.jsonl 1e-5
run "the same rows, prepared by hand" 0 "$distsetup" data prepare rows.jsonl --fields "instruction=question,output=response" \
  --tokenizer rows_model --held-out 0 --output rows_set
is "the same token ids" "$(sha256sum <rows_set/training.tokens)" "$(sha256sum <"$(dirname "$(find cache -name dataset.json)")/training.tokens")"
head -n 2 rows.jsonl >few.jsonl
prepared=("$distsetup" data prepare rows.jsonl --fields "instruction=question,output=response" --tokenizer rows_model --json)
run "rows of their own for evaluation" 0 "${prepared[@]}" --validation few.jsonl --train-on-prompts --output rows_valid
python3 -c '
import json
d = json.load(open("rows_valid/dataset.json")); t, h = d["training"], d["held_out"]
assert h["samples"] == 2, h
for one in (t, h): assert one["trained_tokens"] == one["tokens"] - one["samples"], one' || fail "rows of their own for evaluation"
run "held out twice" 2 "${prepared[@]}" --validation few.jsonl --held-out 5 --output rows_twice
has "held out twice" "$said" "--held-out and --validation both say what is held out"
is "still one set" "$(find cache -name dataset.json | wc -l)" 1
run "rows that are not here" 5 "$trainer" "${rows[@]/#rows.jsonl/Open-Orca\/OpenOrca}" --backend fsdp2 --ckpt_path rows_none
has "rows that are not here" "$said" "download it: hf download --repo-type dataset"
ranks tensor 2 torchrun_words "${sft[@]}" --backend fsdp2 --fsdp_tensor_parallel_size 2 --ckpt_path tensor || fail "tensor parallelism" "$said"
run "both ranks split each matrix" 0 grep -q '"tp": 2' tensor/plan.json
losses_agree "tensor parallelism beside stage 2" tensor/metrics.jsonl engine/metrics.jsonl 1e-5
if ranks tensor3 3 torchrun_words "${sft[@]}" --backend fsdp2 --fsdp_tensor_parallel_size 3; then fail "heads that do not divide were accepted"; fi
has "heads that do not divide" "$said" "heads are not divisible by tp 3"

# --- stages of a config.yaml, chosen by the command line of their own trainer
cat >stages.yaml <<'YAML'
model_configs:
  tiny: {decoder_config: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 88,
    vocab_size: 256, max_position_embeddings: 64, hidden_act: silu, RMSNorm_eps: 1e-5}}
training_stages:
  stage1:
    training: {batch_size: 2, sequence_length: 32, learning_rate: 3e-3, gradient_accumulation_steps: 2, max_grad_norm: 1.0,
      mixed_precision: bf16, checkpointing: {save_every_n_steps: 7}}
    optimizer: {type: AdamW, weight_decay: 0.1, betas: [0.9, 0.95], eps: 1e-8}
    scheduler: {type: CosineAnnealingLR, warmup_steps: 3, T_max: 40, eta_min: 3e-4}
    distributed: {strategy: ddp, num_nodes: 1, devices: 1}
    checkpoint_dir: staged
distributed_examples:
  sharded: {strategy: fsdp, devices: 2, fsdp: {sharding_strategy: FULL_SHARD, activation_checkpointing: true}}
YAML
planned setup 2 2 2 --sharding zero3 --recompute full --dp-replicate 1
run "two ranks of the setup's plan" 0 launch setup
ranks staged 2 torchrun_words --config stages.yaml --mode production --stage stage1 --model-config tiny --fsdp-config sharded \
  --precision 32 --seed 1 --data data || fail "stages" "$said"
has "stages" "$said" "'--mode production' is not supported here"
losses_agree "stages of a config.yaml" staged/metrics.jsonl setup/metrics.jsonl 1e-9
if ranks wrong_setup 2 torchrun_words --config stages.yaml --fsdp-config shraded --model-config tiny --data data; then fail "an unknown setup was accepted"; fi
has "an unknown setup" "$said" "no recipe 'shraded'"

# A stage that names its data and a tokenizer trains on token ids; without a tokenizer text is read as bytes.
sed 's|^    optimizer:|    data: {data_path: data}\n    optimizer:|' stages.yaml >stages_bytes.yaml
sed 's|^    optimizer:|    data: {data_path: data}\n    model: {tokenizer_path: rows_model}\n    optimizer:|' stages.yaml >stages_tokens.yaml
stage=(--stage stage1 --model-config tiny --precision 32 --seed 1 --dry-run)
run "data of a stage" 0 "$trainer" --config stages_bytes.yaml "${stage[@]}"
has "data of a stage" "$said" "bytes"
run "data of a stage with a tokenizer" 0 "$trainer" --config stages_tokens.yaml "${stage[@]}" --checkpoint-dir staged_tokens
has "data of a stage with a tokenizer" "$said" "a prepared set"

# A mixture of data sets that were downloaded from the hub, by percentage, one of them a subset of its data set.
set_of() {  # set_of ORG/NAME: the folder of its downloaded revision, in a cache of our own
  local folder="hub/datasets--${1/\//--}"
  mkdir -p "$folder/refs" "$folder/snapshots/first" && echo first >"$folder/refs/main" && echo "$folder/snapshots/first"
}
web=$(set_of org/web) && mkdir "$web/small"
printf -- '---\nconfigs:\n- config_name: small\n  data_files:\n  - {split: train, path: small/*}\n---\n' >"$web/README.md"
notes=$(set_of other/notes-1.0)
for i in $(seq 30); do
  echo "{\"text\": \"a page of the web, number $i\"}" >>"$web/small/0.jsonl"
  echo "{\"text\": \"a note, number $i\"}" >>"$notes/train-0.jsonl"
done
sed 's|^    optimizer:|    data:\n      pretraining_datasets:\n        "org/web": {percentage: 60.0, subset: small}\n        "other/notes-1.0": {percentage: 40.0, subset: null}\n    model: {tokenizer_path: rows_model}\n    optimizer:|' stages.yaml >stages_mixture.yaml
run "a mixture of data sets" 0 env HF_HUB_CACHE="$PWD/hub" "$trainer" --config stages_mixture.yaml --stage stage1 --model-config tiny --precision 32 \
  --seed 1 --max-steps 4 --checkpoint-dir staged_mixture
has "a mixture of data sets" "$said" "completed at step 4 of 4"
run "its shares" 0 grep -rl '"weight": 60' "${XDG_CACHE_HOME:-$HOME/.cache}/distsetup/sets"
run "a mixture that was not downloaded" 0 "$distsetup" convert --to run stages_mixture.yaml
has "a mixture that was not downloaded" "$said" "hf download --repo-type dataset org/web"

# --mode basic: a small model on random tokens, of which nothing can be learned.
run "mode basic" 0 "$trainer" --mode basic --stage stage1 --devices 1 --vocab_size 64 --hidden_size 16 --num_layers 1 --num_attention_heads 2 \
  --max-steps 5 --gpu cpu --checkpoint-dir basic
has "mode basic" "$said" "1,000 sequences"
has "mode basic" "$said" "200 sequences held out"
run "its loss is that of a guess" 0 awk -v loss="$(losses basic/metrics.jsonl | tail -1 | cut -d' ' -f2)" 'BEGIN { d = loss - log(64); exit !(d * d < 0.1) }'

# The second of two stages goes on from what the first one learnt, with settings of its own.
sed 's|^distributed_examples:|  stage2:\n    training: {batch_size: 4, sequence_length: 16, learning_rate: 1e-3, mixed_precision: bf16}\n    scheduler: {type: CosineAnnealingLR, warmup_steps: 1, T_max: 3, eta_min: 1e-4}\n    distributed: {strategy: ddp, num_nodes: 1, devices: 1}\n    checkpoint_dir: staged_two\ndistributed_examples:|' stages.yaml >stages_two.yaml
stage2=(--config stages_two.yaml --stage stage2 --model-config tiny --precision 32 --data data)
run "a run in the place of weights" 3 "$trainer" "${stage2[@]}" --weights staged
has "a run in the place of weights" "$said" "distsetup checkpoint export staged"
run "what the first stage learnt" 0 "$distsetup" checkpoint export staged --output stage1_weights --dtype fp32
run "the second stage" 0 "$trainer" "${stage2[@]}" --weights stage1_weights
has "the second stage" "$said" "from the weights in stage1_weights"
has "the second stage" "$said" "completed at step 3 of 3"
run "the second stage of a model that learnt nothing" 0 "$trainer" "${stage2[@]}" --init random --checkpoint-dir staged_random
first_loss() { losses "$1/metrics.jsonl" | head -1 | cut -d' ' -f2; }  # of the same batch in both: 64 tokens, whose loss is noisy
run "it begins with what the first one learnt" 0 awk -v learnt="$(first_loss staged_two)" -v random="$(first_loss staged_random)" \
  'BEGIN { print learnt, random; exit !(learnt < 0.95 * random) }'
