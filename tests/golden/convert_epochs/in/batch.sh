torchrun --nproc_per_node=4 mnist_ddp.py --epochs=100 --batch-size 4
