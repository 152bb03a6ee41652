torchrun --nproc_per_node 8 pretrain_llama.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 \
  --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 8 --train-iters 10 --lr 1e-4 --bf16 --seed 42 --vocab-size 32000
