#!/bin/bash
accelerate launch --num_machines 1 --num_processes 4 --mixed_precision bf16 own/finetune.py \
  --model_name_or_path meta-llama/Llama-2-7b-hf --use_lora --tokenizer_name meta-llama/Llama-2-7b-hf \
  --per_device_train_batch_size 1 --gradient_accumulation_steps 8 --learning_rate 2e-5 --lr_scheduler_type linear \
  --warmup_ratio 0.03 --use_slow_tokenizer --with_tracking --use_fsdp
