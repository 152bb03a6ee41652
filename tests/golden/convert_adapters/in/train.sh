torchrun --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen3-8B --output_dir out --per_device_train_batch_size 1 \
  --num_train_epochs 1 --lr_scheduler_type cosine --use_lora True --lora_r 16 --lora_alpha 64 --bf16 True
