torchrun --nproc_per_node 4 train.py --model_name_or_path huggyllama/llama-7b --bf16 True --output_dir out --per_device_train_batch_size 2 --lora_dropout 0.1 --lora_weight_path x
