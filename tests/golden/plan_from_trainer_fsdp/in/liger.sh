torchrun --nproc-per-node 8 sft.py --model_name_or_path Qwen/Qwen2.5-7B --block_size 16384 --bf16 True \
  --per_device_train_batch_size 1 --gradient_accumulation_steps 8 --gradient_checkpointing True --output_dir out \
  --fsdp "full_shard auto_wrap" --use_liger_kernel True
