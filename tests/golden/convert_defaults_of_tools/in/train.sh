torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024 \
  --max-position-embeddings 1024 --micro-batch-size 4 --global-batch-size 64 --train-iters 1000 --lr 1e-4 \
  --lr-warmup-fraction 0.01 --bf16
