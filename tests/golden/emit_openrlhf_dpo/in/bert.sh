#!/bin/bash
torchrun --standalone --nproc_per_node 8 pretrain_bert.py --tensor-model-parallel-size 1 --num-layers 24 --hidden-size 1024 \
  --num-attention-heads 16 --seq-length 512 --max-position-embeddings 512 --micro-batch-size 4 --global-batch-size 32 --bf16
