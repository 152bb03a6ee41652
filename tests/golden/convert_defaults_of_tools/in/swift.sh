NPROC_PER_NODE=8 swift sft --model Qwen/Qwen3-8B --dataset data.jsonl --train_type full --learning_rate 1e-5 --warmup_ratio 0.05
