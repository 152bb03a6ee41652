#!/usr/bin/env bash
torchrun --nproc_per_node=8 -m openrlhf.cli.train_sft \
  --backend fsdp2 \
  --fsdp_tensor_parallel_size 2 \
  --use_hf_tp_plan \
  --ring_attn_size 2 \
  --packing_samples \
  --max_len 2048 \
  --train_batch_size 128 \
  --micro_train_batch_size 2 \
  --param_dtype bf16 \
  --gradient_checkpointing \
  --pretrain meta-llama/Meta-Llama-3-8B \
  --dataset Open-Orca/OpenOrca --input_key question --output_key response
