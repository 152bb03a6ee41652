torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py \
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8 \
  --seq-length 4096 --max-position-embeddings 4096 --vocab-size 128256 --swiglu --normalization RMSNorm --disable-bias-linear \
  --position-embedding-type rope --untie-embeddings-and-output-weights --micro-batch-size 1 --global-batch-size 32 --train-iters 100 \
  --lr 1e-4 --bf16 --use-distributed-optimizer --tensor-model-parallel-size 2 --sequence-parallel
