torchrun --nproc_per_node 4 train_lora.py --model_name_or_path huggyllama/llama-7b --bf16 True --output_dir out --per_device_train_batch_size 2 --lora_r 8
