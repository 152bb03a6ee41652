#!/usr/bin/env bash
# The commands and configuration of a post-training service with a TRL provider (inline on one device; remote with FSDP), typed as its
# guide has them: read, planned, and what `emit --target llama-stack` writes answers each command of the guide.
# shellcheck disable=SC2016 # literal dollars
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
cd "$work"

# --- sections of the configuration
cat >run.yaml <<'YAML'
fsdp_config:
  sharding_strategy: "FULL_SHARD"     # FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD
  mixed_precision_policy: "bf16"
  cpu_offload: false
  limit_all_gathers: true
  forward_prefetch: true
  backward_prefetch: "BACKWARD_PRE"
torch_run_config:
  nnodes: 1
  nproc_per_node: 2
  master_port: 29500
YAML
run "sections" 0 "$distsetup" validate run.yaml
has "sections: settings" "$said" "run.yaml: valid, run file of llama-stack-provider-trl (remote), 6 settings, 2 keys not supported here"
for strategy in SHARD_GRAD_OP=zero2 NO_SHARD=ddp HYBRID_SHARD=hybrid_shard; do
  sed "s/\"FULL_SHARD\"/${strategy%=*}/" run.yaml >one.yaml
  run "${strategy%=*}" 0 "$distsetup" convert --to run one.yaml
  has "${strategy%=*} acts" "$said" "sharding: ${strategy#*=}"
done
sed 's/"bf16"/null/' run.yaml >one.yaml
run "no mixed precision" 0 "$distsetup" convert --to run one.yaml
has "no mixed precision is fp32" "$said" "compute: fp32"
sed 's/FULL_SHARD"/FULL_SHRD"/; s/limit_all_gathers: true/limit_all_gathers: mabe/; s/nproc_per_node/nproc_per_nod/; s/nnodes: 1/nnodes: one/' run.yaml >one.yaml
run "mistakes" 3 "$distsetup" validate one.yaml
has "mistakes: values and the nearest" "$said" "did you mean 'FULL_SHARD': the key takes NO_SHARD, HYBRID_SHARD, FULL_SHARD, SHARD_GRAD_OP"
has "mistakes: kind" "$said" "'torch_run_config.nnodes' is 'one': expected a whole number"
has "mistakes: kind of a key that no plan holds" "$said" "'fsdp_config.limit_all_gathers' is 'mabe': expected true or false"
has "mistakes: unknown key" "$said" "did you mean 'torch_run_config.nproc_per_node'"
# both are the provider's defaults
printf 'gradient_checkpointing: true\nactivation_checkpointing: "selective"\ndpo_beta: 0.1\n' >one.yaml
run "the defaults" 0 "$distsetup" convert --to run one.yaml
has "the defaults: which key acts" "$said" "recomputes whole layers, and the provider reads that one"
sed -i 's/true/false/; s/selective/full/' one.yaml
run "two recompute keys that disagree" 3 "$distsetup" validate one.yaml

# --- the guide's sizes: what it says fits is asked of the planner
printf 'fsdp_config:\n  sharding_strategy: "FULL_SHARD"\n  mixed_precision_policy: "bf16"\n  cpu_offload: false\nmax_seq_length: 4096\nbatch_size: 1\n' >r1.yaml
# in one micro-batch: whole gradients add up over several; of one pair, which is two sequences
run "7B on 2 x 24 GB" 4 "$distsetup" plan --from r1.yaml --model 7B --gpu rtx_4090 --nodes 1 --gpus 2 --gradient-accumulation 1
has "7B on 2 x 24 GB: preferences" "$said" "dpo"
has "7B on 2 x 24 GB: adapters would" "$said" "fits with --finetune lora"
has "7B on 2 x 24 GB: offload would" "$said" "fits with --offload-parameters host"
printf 'fsdp_config:\n  sharding_strategy: "FULL_SHARD"\n  mixed_precision_policy: "bf16"\n  cpu_offload: true\nmax_seq_length: 2048\nbatch_size: 1\ngradient_checkpointing: true\n' >r2.yaml
run "13B with offload" 0 "$distsetup" plan --from r2.yaml --model 13B --gpu a100_sxm_80 --nodes 1 --gpus 8 --json
has "13B with offload: parameters wait on the host" "$said" '"parameters": "host"'
printf 'torch_run_config:\n  nproc_per_node: 8\nfsdp_config:\n  sharding_strategy: "FULL_SHARD"\n  cpu_offload: true\nactivation_checkpointing: "full"\n' >r3.yaml
run "70B on 8 GPUs" 0 "$distsetup" convert --to run r3.yaml
for setting in 'gpus_per_node: 8' 'recompute: full' 'parameters: host' 'method: dpo'; do has "70B on 8 GPUs: $setting" "$said" "$setting"; done
printf 'torch_run_config:\n  nnodes: 2\n  nproc_per_node: 4\n  node_rank: 0\n  master_addr: "10.0.0.100"\n  master_port: 29500\n' >r4.yaml
run "two machines" 0 "$distsetup" convert --to run r4.yaml
has "two machines: nodes" "$said" "nodes: 2"
has "two machines: where a rank is told" "$said" "NODE_RANK, or --node-rank"
run "two machines with this service" 3 "$distsetup" emit --target llama-stack --from r4.yaml --model 1B --method dpo --sharding zero3 --recompute full --output none
has "two machines: another way" "$said" "use --target trl"

# --- the request, as the guide's program sends it
cat >request.json <<'JSON'
{"job_uuid": "fsdp-dpo-large-model", "model": "meta-llama/Llama-2-7b-hf", "finetuned_model": "llama-2-7b-dpo-fsdp",
 "checkpoint_dir": "./fsdp_checkpoints", "algorithm_config": {"type": "dpo", "reward_scale": 1.0, "reward_clip": 5.0},
 "training_config": {"n_epochs": 3, "max_steps_per_epoch": 100, "learning_rate": 5e-5,
  "data_config": {"dataset_id": "large-dpo-dataset", "batch_size": 4, "shuffle": true}}}
JSON
run "request" 0 "$distsetup" convert --to run request.json
for setting in 'micro_batch: 4' 'learning_rate: 5e-05' 'method: dpo' 'directory:'; do has "request: $setting" "$said" "$setting"; done
sed -i 's/"data_config"/"optimizer_config": {"optimizer_type": "adamw", "lr": 1e-4, "weight_decay": 0.01, "num_warmup_steps": 0}, "data_config"/' request.json
run "two learning rates" 3 "$distsetup" convert --to run request.json

# --- the flags of the provider's trainer, behind torchrun
printf '#!/bin/bash\ntorchrun --nproc_per_node=2 --nnodes=1 --node_rank=0 --master_addr=localhost --master_port=29500 --max_restarts=0 train_fsdp.py --job_uuid j --model meta-llama/Llama-2-7b-hf --dataset_id d --n_epochs 3 --batch_size 2 --learning_rate 5e-5 --max_seq_length 4096 --dpo_beta 0.1 --use_reference_model --fsdp_sharding_strategy SHARD_GRAD_OP --fsdp_mixed_precision none --fsdp_cpu_offload --output_dir out\n' >launch.sh
run "the launch line" 0 "$distsetup" convert --to run launch.sh
for setting in 'gpus_per_node: 2' 'sharding: zero2' 'compute: fp32' 'parameters: host' 'micro_batch: 2' 'sequence_length: 4096' 'method: dpo' 'recompute: full'; do
  has "the launch line: $setting" "$said" "$setting"
done
has_not "the launch line: nothing is unknown" "$said" "not a key"

# --- what is written: every command of the guide in its folder
"$distsetup" emit --target llama-stack --output service --model 7B --gpus 2 --nodes 1 --gpu a100_sxm_80 --recompute full --micro-batch 1 --method dpo \
  --sharding zero3 --partition gpu >emit.log 2>&1 || fail "emit" "$(cat emit.log)"
"$distsetup" emit --target llama-stack-inline --output inline --model 1B --gpus 1 --nodes 1 --method dpo >emit.log 2>&1 || fail "emit" "$(cat emit.log)"
for script in service/start.sh service/scripts/prepare-env.sh service/scripts/run-remote-fsdp-server.sh service/job.sbatch inline/start.sh inline/scripts/prepare-env.sh; do
  [[ -x $script ]] || fail "$script is there" "$(ls -R .)"
  bash -n "$script" # its style: emit_lint_all.sh
done
run "lint" 0 "$distsetup" lint service/build_fsdp.yaml inline/build.yaml service/job.sbatch
has_not "lint has nothing to say of a manifest" "$said" "LLS005"
run "prepare-env, dry" 0 env VENV="$work/no where" service/scripts/prepare-env.sh --dry-run
has "prepare-env, dry: environment" "$said" "-m venv $(printf %q "$work/no where")"
has "prepare-env, dry: packages" "$said" "pip install llama-stack==0.2.12 trl==0.18.1"
[[ ! -e "no where" ]] || fail "prepare-env, dry: nothing is made" "$(ls)"
run "prepare-env with other words" 2 service/scripts/prepare-env.sh now
run "prepare-env without a Python" 5 env PYTHON=/bin/false service/scripts/prepare-env.sh
has "prepare-env without a Python is told" "$said" "set PYTHON="

# llama, python3 and nvidia-smi print what they are asked for.
mkdir bin
printf '#!/bin/bash\nif [[ $1 == -c ]]; then exit "${MISSING:-0}"; fi\necho "python3 $*"\nsleep "${STAYS:-0}"\n' >bin/python3
printf '#!/bin/bash\necho "llama $* in $PWD"\n' >bin/llama
printf '#!/bin/bash\nif ((${NO_GPUS:-0})); then exit 9; fi\nprintf "GPU 0\\nGPU 1\\n"\n' >bin/nvidia-smi
chmod +x bin/*
export PATH=$work/bin:$PATH
cd service
run "server" 0 env -u CUDA_VISIBLE_DEVICES ./scripts/run-remote-fsdp-server.sh
is "server: what it says" "$said" "Starting TRL Remote FSDP Provider Server...
CUDA detected - distributed training will use GPUs
Using CUDA devices: 0,1
Server will listen on localhost:8322
python3 -m llama_stack_provider_trl_remote.server --config $work/service/run_fsdp.yaml --host localhost --port 8322 --log-level INFO"
run "server elsewhere" 0 env CUDA_VISIBLE_DEVICES=2,3 HOST=0.0.0.0 PORT=8400 LOG_LEVEL=DEBUG ./scripts/run-remote-fsdp-server.sh
has "server elsewhere: its GPUs are kept" "$said" "Using CUDA devices: 2,3"
has "server elsewhere: flags" "$said" "--host 0.0.0.0 --port 8400 --log-level DEBUG"
run "server without CUDA" 0 env NO_GPUS=1 ./scripts/run-remote-fsdp-server.sh
has "server without CUDA warns" "$said" "warning: 0 GPUs found, the plan has 2"
has_not "server without CUDA sets no devices" "$said" "Using CUDA devices"
run "server without its packages" 1 env MISSING=1 ./scripts/run-remote-fsdp-server.sh
has "server without its packages: what to do" "$said" "run scripts/prepare-env.sh"
run "server on a worker node" 2 env NODE_RANK=1 MASTER_ADDR=10.0.0.100 ./scripts/run-remote-fsdp-server.sh
has "server on a worker node: what to do" "$said" "emit --target trl"
run "llama stack run" 0 llama stack run --image-type venv --image-name trl-post-training-fsdp run_fsdp.yaml
[[ -s run_fsdp.yaml && -s build_fsdp.yaml ]] || fail "the guide's files are there" "$(ls)"
cd ..
run "both" 0 env STAYS=4 service/start.sh
has "both: the server" "$said" "Server will listen on localhost:8322"
has "both: in front of it" "$said" "llama stack run --image-type venv --image-name trl-post-training-fsdp $work/service/run_fsdp.yaml in $work/service"
run "both without the packages" 1 env MISSING=1 service/start.sh
has_not "both without the packages: nothing starts" "$said" "llama stack run"
# the job: SLURM runs a copy elsewhere
cp service/job.sbatch "$work/copy"
printf '#!/bin/bash\necho "   Command=%s"\n' "$work/service/job.sbatch" >bin/scontrol
chmod +x bin/scontrol
run "the job" 0 env SLURM_JOB_ID=1 bash "$work/copy"
has "the job starts both" "$said" "service/run_fsdp.yaml in $work/service"
has "the job: site flags" "$(cat service/job.sbatch)" "#SBATCH --partition=gpu"
has "the job: one task" "$(cat service/job.sbatch)" "#SBATCH --ntasks-per-node=1"
echo "dialects_service: every command and section of the guide"
