"""One rank of the same training with PyTorch FSDP2 (fully_shard over blocks and root, Gloo), started with torchrun's environment.

usage: fsdp2_peer.py PLAN.json OUTPUT.json

bf16 as MixedPrecisionPolicy with fp32 reduction; the rest as peer.py says.
"""
import peer
import torch
import torch.distributed as dist
import torch.nn.functional as F
from peer import files
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def split(model, plan, world):
    mesh = init_device_mesh("cpu", (world,))
    bf16 = plan["precision"]["compute"] == "bf16"
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if bf16 else MixedPrecisionPolicy()
    for block in model.model.layers:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def train_step(model, batch, plan, rank, world):
    ids = torch.tensor([ids for ids, _, owner in batch if owner == rank])
    targets = torch.tensor([targets for _, targets, owner in batch if owner == rank])
    logits = model(ids)
    # FSDP2 means over ranks: with this sum the gradient is that of the mean over all valid tokens.
    loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=files.IGNORED, reduction="sum")
    loss = loss * (world / files.valid_tokens(batch))
    loss.backward()

    def of_all_ranks():
        total = loss.detach() / world
        dist.all_reduce(total)
        return total.item()

    return of_all_ranks


if __name__ == "__main__":
    peer.run(split, train_step)
