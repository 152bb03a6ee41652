#!/usr/bin/env python3
"""One rank of distsetup-train against a plain PyTorch model with autograd and torch.optim.AdamW, on the same tokens from the same start.

The first parameters come out of a run of one step with learning rate 0, which leaves them as they were made; its first moments are
(1 - beta1) times the clipped gradient, so that gradients are compared too, tensor by tensor. Needs torch (scripts/oracle_env).
"""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F

import files
from model import Model

SOURCE = pathlib.Path(os.environ["DISTSETUP_SOURCE"])
BIN = pathlib.Path(os.environ["DISTSETUP_BIN"])
sys.path.insert(0, str(SOURCE / "tests/integration"))
import parity  # noqa: E402  the corpus and the models of the parity cells

LOSS, NORM, PARAMETER, GRADIENT = 1e-5, 1e-4, 1e-4, 1e-5


def tensors(checkpoint, state=""):
    return {name: torch.tensor(values).reshape(shape) for name, (shape, values) in files.read_checkpoint(checkpoint, state).items()}


def learning_rate(train, step):
    """Linear warm-up to the peak, then half a cosine to the minimum, which the last step uses."""
    if step < train["warmup_steps"]:
        return train["learning_rate"] * (step + 1) / train["warmup_steps"]
    start, last = max(train["warmup_steps"] - 1, 0), train["steps"] - 1
    share = 0.5 * (1 + math.cos(math.pi * (step - start) / (last - start)))
    return train["min_learning_rate"] + share * (train["learning_rate"] - train["min_learning_rate"])


class Training:
    def __init__(self, plan, folder, start):
        self.train = plan["train"]
        self.batches = files.Batches(plan, folder)
        self.model = Model(plan["model"])
        self.model.load_state_dict(start)  # strict: the same names and shapes
        norms = [p for n, p in self.model.named_parameters() if p.dim() == 1]
        matrices = [p for n, p in self.model.named_parameters() if p.dim() > 1]
        groups = [{"params": matrices, "weight_decay": self.train["weight_decay"]}, {"params": norms, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, betas=(self.train["beta1"], self.train["beta2"]), eps=self.train["epsilon"])

    def step(self, index):
        """Loss and gradient norm; afterwards .grad is the clipped gradient."""
        batch = self.batches.next()
        ids, targets = torch.tensor([b[0] for b in batch]), torch.tensor([b[1] for b in batch])
        self.optimizer.zero_grad()
        logits = self.model(ids)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=files.IGNORED)
        loss.backward()
        # PyTorch's own norm sums in fp32 and is the less exact one.
        norm = math.sqrt(sum(p.grad.double().square().sum().item() for p in self.model.parameters()))
        clip = min(1.0, self.train["grad_clip"] / (norm + 1e-6))
        for p in self.model.parameters():
            p.grad.mul_(clip)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.train, index)
        self.optimizer.step()
        return loss.item(), norm


def worst(mine, reference):
    """Largest difference over the tensor's largest element; and whose."""
    assert mine.keys() == reference.keys(), (sorted(mine), sorted(reference))
    assert all(bool(t.isfinite().all()) for t in mine.values()), "NaN or infinity"
    return max((((mine[n] - reference[n]).abs().max() / reference[n].abs().max()).item(), n) for n in mine)


def planned(work, model, name, flags):
    cell = {"sharding": "ddp", "recompute": "none", "accumulation": 1, "precision": "fp32", "ranks": 1, "model": model, "more": flags}
    parity.plan(cell, work, name)
    return json.loads((work / name / "plan.json").read_text())


def initial_state(work, model):
    """Parameters before the first step, and the first step's clipped gradients."""
    name = f"{model}-start"
    plan = planned(work, model, name, ["--learning-rate", "0", "--min-learning-rate", "0"])
    folder = work / name
    launch = [BIN / "distsetup", "launch", "--plan", folder / "plan.json", "--threads", "1", "--stop-after", "1"]
    parity.command(launch, work, work / f"{name}.run.log")
    checkpoint = folder / "checkpoints/checkpoint_1"
    scale = 1 - plan["train"]["beta1"]
    return tensors(checkpoint), {n: t / scale for n, t in tensors(checkpoint, ".exp_avg").items()}


def compare(work, model):
    start, gradients = initial_state(work, model)
    name = f"{model}-run"
    plan = planned(work, model, name, [])
    ours = parity.launch(work, name, "run")
    training = Training(plan, work / name, start)
    complaints = []
    loss_difference = norm_difference = 0.0
    losses = []
    for index, line in enumerate(ours["steps"]):
        loss, norm = training.step(index)
        losses.append(loss)
        if index == 0:
            gradient_difference, gradient_of = worst(gradients, {n: p.grad for n, p in training.model.named_parameters()})
            parity.check(complaints, f"gradient of {gradient_of}", gradient_difference, GRADIENT)
        for what, mine, reference, limit in (("loss", line["loss"], loss, LOSS), ("gradient norm", line["gradient_norm"], norm, NORM)):
            parity.check(complaints, f"{what} of step {line['step']}: {mine} and {reference}", parity.relative(mine, reference), limit)
        loss_difference = max(loss_difference, parity.relative(line["loss"], loss))
        norm_difference = max(norm_difference, parity.relative(line["gradient_norm"], norm))
    if not losses[-1] <= 0.8 * losses[0]:
        complaints.append(f"the loss falls from {losses[0]} to {losses[-1]} only")
    parameter_difference, parameter_of = worst(tensors(ours["checkpoint"]), {n: p.detach() for n, p in training.model.named_parameters()})
    parity.check(complaints, f"parameter {parameter_of}", parameter_difference, PARAMETER)
    print(f"{model:<10} gradients {gradient_difference:.1e}  losses {loss_difference:.1e}  norms {norm_difference:.1e}  "
          f"parameters {parameter_difference:.1e}", flush=True)
    return complaints


def main():
    torch.set_num_threads(1)
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        parity.make_corpus(work / "data")
        parity.make_run_files(work)
        for model in sys.argv[1:] or parity.FACTORS["model"] + ["quickstart"]:
            failures += [f"{model}: {complaint}" for complaint in compare(work, model)]
    for failure in failures:
        print(f"FAILED {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
