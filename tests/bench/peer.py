"""What the PyTorch peers of the benchmark share: the model of tests/oracle, started from torchrun's environment on the plan that is their
first argument, trained with torch's fused AdamW on the plan's batches. Seconds and loss of every step are written to the second.
"""
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "oracle"))
import files  # noqa: E402
from model import Model  # noqa: E402


def draw_weights(model):
    """As ours begins, but for the projections into the residual stream."""
    for p in model.parameters():
        if p.dim() > 1:
            torch.nn.init.normal_(p, std=0.02)


def make_optimizer(model, train):
    """AdamW that decays matrices alone, as ours does."""
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": train["weight_decay"]},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=train["learning_rate"], betas=(train["beta1"], train["beta2"]), eps=train["epsilon"], fused=True)


def clip_all(model, limit):
    torch.nn.utils.clip_grad_norm_(model.parameters(), limit)


def run(split, train_step, clip=clip_all):
    """split(model, plan, world) shards the model in place; train_step(model, batch, plan, rank, world) leaves gradients and returns a
    function that gives the loss of the global batch; clip(model, limit) clips them.
    """
    plan_path = pathlib.Path(sys.argv[1])
    plan = json.loads(plan_path.read_text())
    train = plan["train"]
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Model(plan["model"])
    draw_weights(model)
    dist.init_process_group("gloo")
    split(model, plan, world)
    optimizer = make_optimizer(model, train)
    batches = files.Batches(plan, plan_path.parent)
    steps = [batches.next() for _ in range(train["steps"])]
    log = []
    for batch in steps:
        start = time.perf_counter()
        loss = train_step(model, batch, plan, rank, world)
        clip(model, train["grad_clip"])
        optimizer.step()
        optimizer.zero_grad()
        log.append({"loss": loss(), "step_s": time.perf_counter() - start})
    if rank == 0:
        pathlib.Path(sys.argv[2]).write_text(json.dumps(log))
    dist.barrier()
    dist.destroy_process_group()
