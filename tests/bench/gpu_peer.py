"""The same training with PyTorch on one GPU: FSDP2 (world size 1, parameters and reductions in fp32, compute in bf16), blocks and loss under
torch.compile, attention by scaled_dot_product_attention, experts by torch's grouped products, AdamW fused.

usage: gpu_peer.py PLAN.json OUTPUT.json

Seconds and loss of every step, and the most bytes that PyTorch's allocator had given out and had reserved, go to OUTPUT.json.
"""
import json
import os
import pathlib
import sys
import time

import peer
import torch
import torch.distributed as dist
import torch.nn.functional as F
from peer import Model, files
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Experts(torch.nn.Module):
    """A softmax router, the k best experts with weights that sum to one; rows sorted by expert, products of all experts by torch's grouped kernel."""

    def __init__(self, g):
        super().__init__()
        self.k, self.num = g["experts_per_token"], g["num_experts"]
        self.gate = torch.nn.Linear(g["hidden"], self.num, bias=False)
        self.gate_up = torch.nn.Parameter(torch.empty(self.num, 2 * g["expert_feed_forward"], g["hidden"]))
        self.down = torch.nn.Parameter(torch.empty(self.num, g["hidden"], g["expert_feed_forward"]))

    def forward(self, x):
        rows = x.flatten(0, 1)
        weights, choice = F.softmax(self.gate(rows).float(), -1).topk(self.k)
        weights = weights / weights.sum(-1, keepdim=True)
        choice = choice.flatten()
        order = choice.argsort(stable=True)
        counts = torch.zeros(self.num, dtype=torch.int32, device=x.device).index_add(0, choice, torch.ones_like(choice, dtype=torch.int32))
        ends = counts.cumsum(0).to(torch.int32)
        gate, up = torch._grouped_mm(rows[order // self.k], self.gate_up.transpose(1, 2), offs=ends).chunk(2, -1)
        weighted = (F.silu(gate) * up).float() * weights.flatten()[order, None]
        out = torch._grouped_mm(weighted.to(x.dtype), self.down.transpose(1, 2), offs=ends)
        return torch.zeros_like(rows).index_add(0, order // self.k, out).view_as(x)


def model_of(geometry):
    model = Model(geometry)
    if geometry["num_experts"] > 0:
        for block in model.model.layers:
            block.mlp = Experts(geometry)
    return model


def summed_loss(logits, targets):
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=files.IGNORED, reduction="sum")


def main():
    plan_path = pathlib.Path(sys.argv[1])
    plan = json.loads(plan_path.read_text())
    train = plan["train"]
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29511"))
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = model_of(plan["model"])
    peer.draw_weights(model)
    mesh = init_device_mesh("cuda", (1,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.model.layers:
        block.compile()
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = peer.make_optimizer(model, train)
    loss_of = torch.compile(summed_loss)
    batches = files.Batches(plan, plan_path.parent)
    micro = plan["micro_batch"]
    log = []
    for _ in range(train["steps"]):
        batch = batches.next()
        valid = files.valid_tokens(batch)
        ids = torch.tensor([ids for ids, _, _ in batch])
        targets = torch.tensor([targets for _, targets, _ in batch])
        torch.cuda.synchronize()
        start = time.perf_counter()
        total = 0.0
        for first in range(0, len(batch), micro):
            loss = loss_of(model(ids[first:first + micro].cuda()), targets[first:first + micro].cuda()) / valid
            loss.backward()
            total = total + loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), train["grad_clip"])
        optimizer.step()
        optimizer.zero_grad()
        value = total.item()
        torch.cuda.synchronize()
        log.append({"loss": value, "step_s": time.perf_counter() - start})
    free, total_bytes = torch.cuda.mem_get_info()
    pathlib.Path(sys.argv[2]).write_text(json.dumps({"steps": log, "allocated_bytes": torch.cuda.max_memory_allocated(),
                                                     "reserved_bytes": torch.cuda.max_memory_reserved(), "device_bytes": total_bytes - free}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
