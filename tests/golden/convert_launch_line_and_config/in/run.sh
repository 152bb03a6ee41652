#!/bin/bash
torchrun --nnodes=4 --nproc_per_node=8 --node_rank=0 --master_addr=192.168.1.100 --master_port=29500 src/train.py --config config.yaml
