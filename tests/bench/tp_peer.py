"""One rank of the same training with PyTorch's tensor parallelism (DTensor: tensor, sequence and loss parallel, Gloo), started with
torchrun's environment.

usage: tp_peer.py PLAN.json OUTPUT.json

In fp32; the rest as peer.py says.
"""
import peer
import torch
import torch.nn.functional as F
from peer import files
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, loss_parallel,
                                               parallelize_module)


def split(model, plan, world):
    mesh = init_device_mesh("cpu", (world,))
    parallelize_module(model, mesh, {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "model.norm": SequenceParallel(),
        "lm_head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    })
    for block in model.model.layers:
        parallelize_module(block, mesh, {
            "input_layernorm": SequenceParallel(),
            "self_attn": PrepareModuleInput(input_layouts=(Shard(1), None, None), desired_input_layouts=(Replicate(), None, None)),
            "self_attn.q_proj": ColwiseParallel(),
            "self_attn.k_proj": ColwiseParallel(),
            "self_attn.v_proj": ColwiseParallel(),
            "self_attn.o_proj": RowwiseParallel(output_layouts=Shard(1)),
            "post_attention_layernorm": SequenceParallel(),
            "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "mlp.gate_proj": ColwiseParallel(),
            "mlp.up_proj": ColwiseParallel(),
            "mlp.down_proj": RowwiseParallel(output_layouts=Shard(1)),
        })
        block.self_attn.heads //= world
        block.self_attn.kv_heads //= world


def train_step(model, batch, plan, rank, world):
    tokens, micro, total = files.valid_tokens(batch), plan["micro_batch"], 0.0
    for first in range(0, len(batch), micro):
        ids = torch.tensor([ids for ids, _, _ in batch[first:first + micro]])
        targets = torch.tensor([targets for _, targets, _ in batch[first:first + micro]])
        with loss_parallel():
            logits = model(ids)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=files.IGNORED, reduction="sum") / tokens
            loss.backward()
        total += (loss.full_tensor() if hasattr(loss, "full_tensor") else loss).item()
    return lambda: total


if __name__ == "__main__":
    peer.run(split, train_step)
