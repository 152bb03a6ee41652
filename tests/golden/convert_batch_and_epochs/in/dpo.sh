deepspeed --num_gpus 8 --module openrlhf.cli.train_dpo --pretrain Qwen/Qwen3-4B --train_batch_size 128 --micro_train_batch_size 2 --dataset pairs --beta 0.3
