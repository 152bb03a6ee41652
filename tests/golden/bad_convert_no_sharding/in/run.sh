accelerate launch --config_file zero3.yaml sft.py --output_dir out --per_device_train_batch_size 2 --learning_rate 1e-5
