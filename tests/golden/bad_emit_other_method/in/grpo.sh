accelerate launch --num_processes 8 train_grpo.py --model_name_or_path Qwen/Qwen3-0.6B --num_generations 8 --learning_rate 1e-6 \
  --per_device_train_batch_size 1 --max_steps 100 --output_dir out
