accelerate launch --config_file fsdp.yaml train.py --deepspeed ds.json --output_dir out --per_device_train_batch_size 1
