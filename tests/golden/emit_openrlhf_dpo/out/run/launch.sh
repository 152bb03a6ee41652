#!/usr/bin/env bash
# distsetup 0.1.0, inputs 5fe72a20630d69245f236fa13d0abd2ff1561a8518713f4cbb55ac1e38f01b1c
# command: distsetup emit --target openrlhf --method dpo --model llama3.1_8b --nodes 1 --gpus 8
# plan: llama3.1_8b, zero3, recompute full, bf16: fits
# 1 node × 8 GPUs = 8 ranks
# global batch 128 = micro-batch 2 × accumulation 8 × data-parallel 8
#
# Starts OpenRLHF, one process per GPU, by torchrun; the data set and anything else are added:
#   launch.sh --data.dataset OpenRLHF/preference_dataset_mixture2_and_safe_pku --data.chosen_key chosen --data.rejected_key rejected
set -euo pipefail

if (($# == 0)); then
  echo "usage: launch.sh --data.dataset NAME [arguments]" >&2
  exit 2
fi
module=openrlhf.cli.train_dpo
arguments=(
  --model.model_name_or_path meta-llama/Llama-3.1-8B
  --model.gradient_checkpointing_enable
  --data.max_len 4096
  --data.max_samples 128000
  --train.max_epochs 1
  --train.batch_size 128
  --train.micro_batch_size 2
  --train.seed 0
  --ds.zero_stage 3
  --ds.param_dtype bf16
  --optim adam
  --adam.lr 1e-06
  --adam.betas 0.9 0.999
  --adam.eps 1e-08
  --adam.weight_decay 0.0
  --lr_scheduler cosine_with_min_lr
  --lr_warmup_ratio 0.1
  --min_lr_ratio 0.1
  --max_norm 1.0
  --ckpt.output_dir checkpoints
  --ckpt.save_steps 1000
  --ckpt.max_num 3
)
gpus_per_node=8
cores=$(nproc)
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$((cores > gpus_per_node ? cores / gpus_per_node : 1))}"
exec torchrun --standalone --nnodes=1 --nproc_per_node="$gpus_per_node" -m "$module" "${arguments[@]}" "$@"
