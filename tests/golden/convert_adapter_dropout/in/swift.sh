NPROC_PER_NODE=8 swift sft --model Qwen/Qwen3-8B --dataset data.jsonl --train_type lora --lora_rank 8 --torch_dtype bfloat16
