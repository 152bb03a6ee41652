"""One rank of the same training with PyTorch's tensor parallelism (DTensor: tensor, sequence and loss parallel, Gloo), started with
torchrun's environment.

usage: tp_peer.py PLAN.json OUTPUT.json

The model of tests/oracle, torch's fused AdamW, clip_grad_norm_, the plan's batches, in fp32. Writes seconds and loss of every step.
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
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, loss_parallel,
                                               parallelize_module)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "oracle"))
import files  # noqa: E402
from model import Model  # noqa: E402


def split(model, mesh):
    tp = mesh.size()
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
        block.self_attn.heads //= tp
        block.self_attn.kv_heads //= tp


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
    split(model, init_device_mesh("cpu", (world,)))
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": train["weight_decay"]},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=train["learning_rate"], betas=(train["beta1"], train["beta2"]), eps=train["epsilon"], fused=True)
    batches = files.Batches(plan, plan_path.parent)
    steps = [batches.next() for _ in range(train["steps"])]
    micro, log = plan["micro_batch"], []
    for batch in steps:
        start = time.perf_counter()
        tokens, total = files.valid_tokens(batch), 0.0
        for first in range(0, len(batch), micro):
            ids = torch.tensor([ids for ids, _, _ in batch[first:first + micro]])
            targets = torch.tensor([targets for _, targets, _ in batch[first:first + micro]])
            with loss_parallel():
                logits = model(ids)
                loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=files.IGNORED, reduction="sum") / tokens
                loss.backward()
            total += (loss.full_tensor() if hasattr(loss, "full_tensor") else loss).item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), train["grad_clip"])
        optimizer.step()
        optimizer.zero_grad()
        log.append({"loss": total, "step_s": time.perf_counter() - start})
    if rank == 0:
        pathlib.Path(sys.argv[2]).write_text(json.dumps(log))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
