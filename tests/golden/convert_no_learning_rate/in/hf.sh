torchrun --nproc_per_node=8 run_clm.py --model_name_or_path Qwen/Qwen2.5-0.5B --per_device_train_batch_size 1 --num_train_epochs 2 --bf16 --output_dir out
