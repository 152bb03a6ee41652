torchrun --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen2.5-7B --output_dir out --per_device_train_batch_size 1 --learning_rate 5e-5 \
  --lr_scheduler_type cosine_with_min_lr --lr_scheduler_kwargs '{"min_lr": 1e-6}' --warmup_ratio 0.03 --save_strategy no --bf16 True
