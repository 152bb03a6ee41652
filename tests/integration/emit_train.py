"""emit_train.py deepspeed|fsdp RUN: five steps of the plan's model with the files of RUN, and the same five by one rank alone.

Prints what ran (world, engine, class of the parameters, losses) on rank 0 and ends with 1 where it is not what the plan says.
"""

import copy
import json
import os
import sys

import torch
import torch.distributed as dist
import yaml
from transformers import LlamaConfig, LlamaForCausalLM

STEPS, TOLERANCE = 5, 1e-4
kind, run = sys.argv[-2], sys.argv[-1]
with open(f"{run}/plan.json", encoding="utf-8") as file:
    plan = json.load(file)
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
micro, accumulation, train = plan["micro_batch"], plan["gradient_accumulation"], plan["train"]


def build():
    torch.manual_seed(0)
    m = plan["model"]
    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=m["hidden"],
            intermediate_size=m["feed_forward"],
            num_hidden_layers=m["num_layers"],
            num_attention_heads=m["num_heads"],
            num_key_value_heads=m["num_kv_heads"],
            head_dim=m["head_size"],
            vocab_size=m["vocabulary"],
            tie_word_embeddings=m["tied_embeddings"],
        )
    )


def optimizer_of(parameters):
    betas = (train["beta1"], train["beta2"])
    return torch.optim.AdamW(
        parameters, lr=train["learning_rate"], betas=betas, eps=train["epsilon"], weight_decay=train["weight_decay"], foreach=False
    )


def batches():
    """Per step: all ranks' micro-batches, (rank, accumulation) in front. Each sequence counts up from a number of its own."""
    generator = torch.Generator().manual_seed(1)
    start = torch.randint(0, 16, (STEPS, world, accumulation, micro, 1), generator=generator)
    return (start + torch.arange(train["sequence_length"])) % plan["model"]["vocabulary"]


def loss_of(model, tokens):
    return model(input_ids=tokens, labels=tokens).loss


def alone(model):
    """The reference: the whole global batch on one rank, by plain PyTorch."""
    optimizer, losses = optimizer_of(model.parameters()), []
    for step in batches():
        total = 0.0
        for tokens in step.flatten(0, 1):
            loss = loss_of(model, tokens) / (world * accumulation)
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), train["grad_clip"])
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return losses


def mean_over_ranks(value):
    value = torch.tensor(value)
    dist.all_reduce(value)
    return value.item() / world


def with_deepspeed(model):
    import deepspeed

    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # would compile a C++ extension that no check needs
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
    whole = sum(p.numel() for p in model.parameters())
    engine, optimizer, _, _ = deepspeed.initialize(
        model=model, optimizer=optimizer_of(model.parameters()), config=f"{run}/ds_config.json"
    )
    stage = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3}[plan["strategy"]["sharding"]]
    assert engine.zero_optimization_stage() == stage, engine.zero_optimization_stage()
    assert dist.get_world_size() == world == plan["hardware"]["gpus_per_node"]
    assert engine.train_batch_size() == train["global_batch"], engine.train_batch_size()
    parameter = next(engine.parameters())
    if stage == 3:
        assert type(optimizer).__name__ == "DeepSpeedZeroOptimizer_Stage3", type(optimizer).__name__
        held = sum(p.ds_tensor.numel() for p in engine.parameters())
        small = sum(p.ds_numel for p in engine.parameters() if p.ds_persist)
        assert hasattr(parameter, "ds_id") and held < whole * 0.55 + small, (held, whole)
    else:
        assert type(optimizer).__name__ == "DeepSpeedZeroOptimizer", type(optimizer).__name__
        held = sum(p.numel() for p in optimizer.single_partition_of_fp32_groups)
        assert held < whole * 0.55, (held, whole)
    losses = []
    for step in batches():
        total = 0.0
        for tokens in step[rank]:
            loss = loss_of(engine, tokens)
            engine.backward(loss)
            engine.step()
            total += loss.item() / accumulation
        losses.append(mean_over_ranks(total))
    return losses, f"{type(engine).__name__}, stage {stage}, {type(optimizer).__name__}, {held} of {whole} elements held"


def with_fsdp(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard
    from torch.distributed.tensor import DTensor

    dist.init_process_group("gloo")
    with open(f"{run}/accelerate.yaml", encoding="utf-8") as file:
        config = yaml.safe_load(file)
    fsdp = config["fsdp_config"]
    assert config["distributed_type"] == "FSDP" and fsdp["fsdp_version"] == 2
    assert config["num_processes"] == dist.get_world_size() == world
    mesh = init_device_mesh("cpu", (world,))
    whole = sum(p.numel() for p in model.parameters())
    classes = fsdp["fsdp_transformer_layer_cls_to_wrap"].split(",")
    wrapped = [module for module in model.modules() if type(module).__name__ in classes]
    assert len(wrapped) == plan["model"]["num_layers"], (classes, len(wrapped))
    for module in [*wrapped, model]:
        fully_shard(module, mesh=mesh, reshard_after_forward=fsdp["fsdp_reshard_after_forward"])
    assert isinstance(model, FSDPModule)
    assert all(isinstance(p, DTensor) for p in model.parameters())
    held = sum(p.to_local().numel() for p in model.parameters())
    assert held < whole * 0.55, (held, whole)
    optimizer, losses = optimizer_of(model.parameters()), []
    for step in batches():
        total = 0.0
        for tokens in step[rank]:
            loss = loss_of(model, tokens) / accumulation
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), train["grad_clip"])
        optimizer.step()
        optimizer.zero_grad()
        losses.append(mean_over_ranks(total))
    return losses, f"{type(model).__name__}, {type(next(model.parameters())).__name__}, {held} of {whole} elements held"


model = build()
expected = alone(copy.deepcopy(model))
losses, what = (with_deepspeed if kind == "deepspeed" else with_fsdp)(model)
difference = max(abs(a - b) for a, b in zip(losses, expected))
if rank == 0:
    print(f"{kind} {plan['strategy']['sharding']}: {world} ranks, {what}")
    print(f"  losses {' '.join(f'{loss:.5f}' for loss in losses)}, one rank's differ by {difference:.1e}", flush=True)
assert expected[-1] < expected[0] - 0.01, expected  # it learns
assert difference < TOLERANCE, (losses, expected)
dist.barrier()
sys.stdout.flush()
os._exit(0)  # libtorch's own end, with Gloo's threads still there, aborts now and then; it is not what is tested
