"""One rank of the same training with PyTorch FSDP2 (fully_shard over blocks and root, Gloo), started with torchrun's environment.

usage: fsdp2_peer.py PLAN.json OUTPUT.json

The model of tests/oracle, torch's fused AdamW, clip_grad_norm_, the plan's batches; bf16 as MixedPrecisionPolicy with fp32 reduction.
Writes seconds and loss of every step.
"""
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "oracle"))
import files  # noqa: E402
from model import Model  # noqa: E402


def main():
    plan_path = pathlib.Path(sys.argv[1])
    plan = json.loads(plan_path.read_text())
    train = plan["train"]
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Model(plan["model"])
    for p in model.parameters():
        if p.dim() > 1:
            torch.nn.init.normal_(p, std=0.02)  # as ours begins, but for the projections into the residual stream
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (world,))
    bf16 = plan["precision"]["compute"] == "bf16"
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if bf16 else MixedPrecisionPolicy()
    for block in model.model.layers:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": train["weight_decay"]},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=train["learning_rate"], betas=(train["beta1"], train["beta2"]), eps=train["epsilon"], fused=True)
    batches = files.Batches(plan, plan_path.parent)
    steps = [batches.next() for _ in range(train["steps"])]
    log = []
    for batch in steps:
        start = time.perf_counter()
        ids = torch.tensor([ids for ids, _, owner in batch if owner == rank])
        targets = torch.tensor([targets for _, targets, owner in batch if owner == rank])
        tokens = files.valid_tokens(batch)
        logits = model(ids)
        # FSDP2 means over ranks: with this sum the gradient is that of the mean over all valid tokens.
        loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=files.IGNORED, reduction="sum") * (world / tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), train["grad_clip"])
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach() / world
        dist.all_reduce(total)
        log.append({"loss": total.item(), "step_s": time.perf_counter() - start})
    if rank == 0:
        pathlib.Path(sys.argv[2]).write_text(json.dumps(log))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
