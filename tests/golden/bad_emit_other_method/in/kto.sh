accelerate launch --num_processes 8 kto.py --model_name_or_path Qwen/Qwen3-0.6B  --learning_rate 1e-6 \
  --per_device_train_batch_size 1 --max_steps 100 --output_dir out
