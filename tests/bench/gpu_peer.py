"""The same training with PyTorch on one GPU: FSDP2 (world size 1, parameters and reductions in fp32, compute in bf16), blocks and loss under
torch.compile, attention by scaled_dot_product_attention, AdamW fused.

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
        model = Model(plan["model"])
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
