NPROC_PER_NODE=4 swift sft --model Qwen/Qwen2.5-7B --train_type full --dataset first.json second.json --torch_dtype bfloat16 \
  --per_device_train_batch_size 1 --learning_rate 5e-5 --lr_scheduler_type cosine_with_min_lr --lr_scheduler_kwargs '{"min_lr": 1e-6}' \
  --save_strategy epoch --output_dir out
