torchrun --nproc_per_node=8 tune.py --model_name meta-llama/Llama-3.2-1B --use_peft --enable_fsdp --batch_size_training 4
