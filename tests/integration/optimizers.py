"""optimizers.py BIN FOLDER [--every-mesh]: optimizers of the bundled trainer in whole runs, in fp32, of a tiny Llama.

  losses      of 8 steps those of torch with the same optimizer, to 1e-5; gradient norms to 1e-4
  parameters  that are left to 1e-4. A sign of a mean that is nearly zero may be another one, and a value between two codes may get the
              other: a few elements may be off by what that changes
  bytes       predicted are metered, of every class
  resume      stopped and gone on with ends in the same bytes; a run with another optimizer refuses the checkpoint
  adapters    the same, of PEFT's

SGD, Adafactor and Muon are torch.optim's, Muon of the matrices of layers beside AdamW. What Muon orthogonalises is rounded to 16 bits, so
that a gradient's last bit makes a step's 8th: its rate is small. Its products' scratch is predicted as a bound. Lion and AdamW in 8 bits are formulas written here (arXiv 2302.06675, 2110.02861); what bitsandbytes makes of the
latter is in tests/data/adamw_8bit.txt, which a unit test reads."""
import json
import shutil
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from lora import ADAPTERS, MESHES, STEPS, attempt, batch_of, check_bytes, close, count, counts, failures, load, run, save, tensors_of
from lora import LENGTH, SEQUENCES
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers.utils import logging

DECAY, CLIP = 0.1, 1.0
# Flags, rate, and how many elements may be off by at most so many rates.
OPTIMIZERS = {
    "sgd": (["--optimizer", "sgd"], 0.1, 0, 0),
    "sgd with momentum": (["--optimizer", "sgd", "--momentum", "0.9"], 0.05, 0, 0),
    "lion": (["--optimizer", "lion", "--beta1", "0.9", "--beta2", "0.97"], 1e-3, 8, 2 * STEPS),
    "adamw_8bit": (["--optimizer", "adamw_8bit", "--beta1", "0.9", "--beta2", "0.95"], 1e-3, 40, 4),
    "adafactor": (["--optimizer", "adafactor"], 1e-2, 0, 0),
    "adafactor told more": (["--optimizer", "adafactor", "--beta2-decay", "-0.6", "--epsilon", "1e-4", "--epsilon2", "1e-2",
                             "--clip-threshold", "1.5"], 3e-2, 0, 0),
    # Its products are bf16's, whose sums CPUs without AVX-512 take in another order: 1.4e-4 in one element was seen.
    "muon": (["--optimizer", "muon", "--adam-learning-rate", "2e-3", "--beta1", "0.9", "--beta2", "0.95"], 1e-3, 8, 0.2),
    "muon original": (["--optimizer", "muon", "--adjust-lr", "original", "--no-nesterov", "--momentum", "0.9",
                       "--newton-schulz-steps", "4", "--beta1", "0.9", "--beta2", "0.95"], 1e-3, 0, 0),
}
SHARDS = {"1": 1, "zero3 × 2": 2, "ddp × 3": 1, "zero1 × 2": 2, "zero2 × 2": 2, "hybrid × 4": 2, "cp 2": 2, "zero3 × 2, recomputed": 2}
# Of optimizers that see whole matrices.
MORE_MESHES = {
    "ddp × 2": ["--gpus", "2", "--sharding", "ddp"],
    "zero1 × 3": ["--gpus", "3", "--sharding", "zero1"],
    "zero3 × 3": ["--gpus", "3", "--sharding", "zero3"],
}
MESHES_OF_ALL = {**MESHES, **MORE_MESHES}
SLOTS = ["input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "post_attention_layernorm",
         "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]


def decay_of(parameter):
    return DECAY if parameter.dim() > 1 else 0


class Lion:
    def __init__(self, parameters, rate, betas):
        self.rate, self.betas = rate, betas
        self.moments = {p: torch.zeros_like(p) for p in parameters}

    @torch.no_grad()
    def step(self):
        for p, moment in self.moments.items():
            p.mul_(1 - self.rate * decay_of(p))
            p.sub_(self.rate * torch.sign(self.betas[0] * moment + (1 - self.betas[0]) * p.grad))
            moment.copy_(self.betas[1] * moment + (1 - self.betas[1]) * p.grad)


def code_values(signed):
    """Of seven decades each cut into twice as many parts as the one below, the middles of the parts; and zero and one."""
    values = [0.0, 1.0]
    for decade in range(7):
        bounds = torch.linspace(0.1, 1, 2**decade * (1 if signed else 2) + 1)
        middles = ((bounds[:-1] + bounds[1:]) / 2 * 10.0 ** (decade - 6)).tolist()
        values += middles + ([-v for v in middles] if signed else [])
    return torch.tensor(sorted(values))


class AdamW8bit:
    """On the flat shard of each of `shards` ranks: units one behind the other, each cut into equal parts of a multiple of 16."""

    def __init__(self, model, rate, betas, shards):
        self.rate, self.betas, self.count = rate, betas, 0
        named = dict(model.named_parameters())
        blocks = range(model.config.num_hidden_layers)
        units = [["model.embed_tokens"], *[[f"model.layers.{i}.{slot}" for slot in SLOTS] for i in blocks], ["model.norm", "lm_head"]]
        self.units = [[named[f"{name}.weight"] for name in unit] for unit in units]
        assert sum(len(unit) for unit in units) == len(named)
        self.sizes = [(-(-sum(p.numel() for p in unit) // shards) + 15) // 16 * 16 for unit in self.units]
        self.shards = shards
        numel = -(-sum(self.sizes) // 256) * 256  # the last block is padded: zeros change nothing
        self.maps = [code_values(True), code_values(False)]
        self.codes = [torch.zeros(shards, numel, dtype=torch.long) for _ in self.maps]
        self.scales = [torch.zeros(shards, numel // 256, 1) for _ in self.maps]

    def flat(self, value):
        """value(parameter) of all parameters, by rank."""
        ranks = [[] for _ in range(self.shards)]
        for unit, size in zip(self.units, self.sizes, strict=True):
            whole = torch.cat([value(p).reshape(-1) for p in unit])
            for rank, part in enumerate(F.pad(whole, (0, size * self.shards - len(whole))).split(size)):
                ranks[rank].append(part)
        rows = torch.stack([torch.cat(parts) for parts in ranks])
        return F.pad(rows, (0, self.codes[0].shape[1] - rows.shape[1]))

    def moment(self, which):
        return (self.maps[which][self.codes[which]].view(self.shards, -1, 256) * self.scales[which]).view(self.shards, -1)

    def keep(self, which, values):
        blocks = values.view(self.shards, -1, 256)
        self.scales[which] = blocks.abs().amax(-1, keepdim=True)
        code = self.maps[which]
        scaled = (blocks / self.scales[which].clamp(min=1e-38)).clamp(-1, 1)
        self.codes[which] = torch.bucketize(scaled, (code[:-1] + code[1:]) / 2).view(self.shards, -1)

    @torch.no_grad()
    def step(self):
        self.count += 1
        (beta1, beta2), gradient = self.betas, self.flat(lambda p: p.grad)
        first = beta1 * self.moment(0) + (1 - beta1) * gradient
        second = beta2 * self.moment(1) + (1 - beta2) * gradient * gradient
        change = first / (1 - beta1**self.count) / ((second / (1 - beta2**self.count)).sqrt() + 1e-8)
        at = 0
        for unit, size in zip(self.units, self.sizes, strict=True):
            whole, offset = change[:, at:at + size].reshape(-1), 0
            for p in unit:
                p.mul_(1 - self.rate * decay_of(p)).sub_(self.rate * whole[offset:offset + p.numel()].view_as(p))
                offset += p.numel()
            at += size
        self.keep(0, first)
        self.keep(1, second)


class MuonBesideAdamW:
    """torch.optim.Muon of the matrices of layers, AdamW of the rest."""

    def __init__(self, model, rate, name):
        named = [(key, p) for key, p in model.named_parameters() if p.requires_grad]
        matrices = [p for key, p in named if ".layers." in key and p.dim() == 2]
        rest = [p for key, p in named if not (".layers." in key and p.dim() == 2)]
        told = {"adjust_lr_fn": "original", "nesterov": False, "momentum": 0.9, "ns_steps": 4} if "original" in name else {"adjust_lr_fn": "match_rms_adamw"}
        self.parts = [torch.optim.Muon(matrices, lr=rate, weight_decay=DECAY, **told)]
        groups = [{"params": [p for p in rest if (decay_of(p) > 0) == decays], "weight_decay": DECAY * decays} for decays in (False, True)]
        groups = [g for g in groups if g["params"]]
        if groups:
            self.parts.append(torch.optim.AdamW(groups, lr=rate if "original" in name else 2e-3, betas=(0.9, 0.95), eps=1e-8))

    def step(self):
        for part in self.parts:
            part.step()


def optimizer_of(name, model, rate, shards):
    parameters = [p for p in model.parameters() if p.requires_grad]
    if name.startswith("sgd"):
        groups = [{"params": [p for p in parameters if (decay_of(p) > 0) == decays], "weight_decay": DECAY * decays} for decays in (False, True)]
        return torch.optim.SGD([g for g in groups if g["params"]], lr=rate, momentum=0.9 if "momentum" in name else 0)
    if name.startswith("adafactor"):
        told = {"beta2_decay": -0.6, "eps": (1e-4, 1e-2), "d": 1.5} if "told" in name else {}
        groups = [{"params": [p for p in parameters if (decay_of(p) > 0) == decays], "weight_decay": DECAY * decays} for decays in (False, True)]
        return torch.optim.Adafactor([g for g in groups if g["params"]], lr=rate, **told)
    if name.startswith("muon"):
        return MuonBesideAdamW(model, rate, name)
    return Lion(parameters, rate, (0.9, 0.97)) if name == "lion" else AdamW8bit(model, rate, (0.9, 0.95), shards)


def train(model, text, optimizer):
    inputs, targets = batch_of(text)
    parameters = [p for p in model.parameters() if p.requires_grad]
    losses, norms = [], []
    for _ in range(STEPS):
        for p in parameters:
            p.grad = None
        logits = model(input_ids=inputs, use_cache=False).logits
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, CLIP).item())
        losses.append(loss.item())
        optimizer.step()
    return losses, norms


def plan_and_train(binary, model, out, data, name, flags):
    of_optimizer, rate = OPTIMIZERS[name][:2]
    run([f"{binary}/distsetup", "plan", "--model", model, "--init", "weights", "--gpu", "cpu", "--nodes", "1", "--sequence-length", LENGTH,
         "--global-batch", SEQUENCES, "--warmup-steps", "0", "--precision", "fp32", "--data", data, "--held-out", "0", "--steps", STEPS,
         "--learning-rate", rate, "--min-learning-rate", rate, "--weight-decay", DECAY, "--grad-clip", CLIP, *of_optimizer, *flags,
         "--output", out / "plan.json"])
    run([f"{binary}/distsetup", "launch", "--plan", out / "plan.json"])
    count("runs")
    steps = [row for row in map(json.loads, (out / "metrics.jsonl").read_text().splitlines()) if row["kind"] == "step"]
    return [row["loss"] for row in steps], [row["gradient_norm"] for row in steps]


def close_but_for(found, expected, name, what):
    """To 1e-4, but for as many elements as the optimizer's row says."""
    _, rate, number, rates = OPTIMIZERS[name]
    off = 0
    for key, tensor in expected.items():
        difference = (found[key].float() - tensor.float()).abs()
        if difference.max().item() > max(1e-4, rates * rate):
            raise RuntimeError(f"{what}: {key} differs by {difference.max().item()}")
        off += (difference > 1e-4).sum().item()
    if off > number:
        raise RuntimeError(f"{what}: {off} elements differ by more than 1e-4")


def full_check(binary, folder, name, mesh, text):
    reference = load(folder / "llama")
    losses, norms = train(reference, text, optimizer_of(name, reference, OPTIMIZERS[name][1], SHARDS.get(mesh)))
    if not losses[-1] < losses[0] - 0.02:
        raise RuntimeError(f"the reference does not learn: {losses}")
    out = folder / f"{name}_{mesh}".replace(" ", "").replace(",", "_")
    found = plan_and_train(binary, folder / "llama", out, folder / "data", name, MESHES_OF_ALL[mesh])
    close(found[0], losses, 1e-5, "losses")
    close(found[1], norms, 1e-4, "gradient norms")
    check_bytes(out, but="workspace" if name.startswith("muon") else None, at_least=7 if name == "sgd" else 8)  # it has no optimizer state
    run([f"{binary}/distsetup", "checkpoint", "export", out, "--dtype", "fp32", "--output", out / "model"])
    stored, after = tensors_of(out / "model"), dict(reference.named_parameters())
    close_but_for(stored, {key: after[key].detach() for key in stored}, name, "trained model")
    count("models")


def adapter_check(binary, folder, name, mesh, text):
    begin = folder / "begin"
    if not begin.exists():
        torch.manual_seed(3)
        first = get_peft_model(load(folder / "llama"), LoraConfig(task_type="CAUSAL_LM", **ADAPTERS["q, v"]))
        with torch.no_grad():
            for key, parameter in first.named_parameters():
                if "lora_B" in key:
                    parameter.copy_(torch.randn_like(parameter) * 0.02)
        first.save_pretrained(begin)
    out = folder / f"adapter_{name}_{mesh}".replace(" ", "").replace(",", "_")
    found = plan_and_train(binary, folder / "llama", out, folder / "data", name, ["--adapter-from", begin, *MESHES[mesh]])
    check_bytes(out, but="workspace" if name.startswith("muon") else None, at_least=7 if name == "sgd" else 8)  # it has no optimizer state
    if name != "adamw_8bit":
        reference = PeftModel.from_pretrained(load(folder / "llama"), begin, is_trainable=True)
        losses, norms = train(reference, text, optimizer_of(name, reference, OPTIMIZERS[name][1], 1))
        close(found[0], losses, 1e-5, "losses")
        close(found[1], norms, 1e-4, "gradient norms")
        reference.save_pretrained(out / "reference")
        file = "adapter_model.safetensors"
        close_but_for(load_file(out / "adapter" / file), load_file(out / "reference" / file), name, "adapters")
    elif not found[0][-1] < found[0][0]:
        raise RuntimeError(f"losses {found[0]}")
    count("adapters")


def stored_bytes(out):
    files = sorted((out / f"checkpoints/checkpoint_{STEPS}").glob("rank_*.safetensors"))
    assert files
    return [path.read_bytes() for path in files]


def resume_check(binary, folder, name, mesh, other):
    whole = folder / f"{name}_{mesh}".replace(" ", "").replace(",", "_")
    if not whole.exists():
        plan_and_train(binary, folder / "llama", whole, folder / "data", name, MESHES[mesh])
    parts = folder / f"parts_{whole.name}"
    shutil.copytree(whole, parts, ignore=shutil.ignore_patterns("checkpoints", "model", "metrics.jsonl"))
    launch = [f"{binary}/distsetup", "launch", "--plan", parts / "plan.json"]
    run([*launch, "--", "--stop-after", "4"])
    strange = folder / f"strange_{whole.name}"
    shutil.copytree(folder / f"{other}_1".replace(" ", ""), strange, ignore=shutil.ignore_patterns("checkpoints", "model", "metrics.jsonl"))
    shutil.copytree(parts / "checkpoints", strange / "checkpoints")
    said = run([f"{binary}/distsetup", "launch", "--plan", strange / "plan.json"], good=False)
    if "is of the optimizer" not in said or "they keep other states" not in said:
        raise RuntimeError(said[-400:])
    count("checkpoints of others refused")
    run(launch)
    if stored_bytes(whole) != stored_bytes(parts):
        raise RuntimeError("a run that was stopped ends in other bytes")
    same = run([f"{binary}/distsetup", "checkpoint", "diff", whole, parts])
    if "are the same bit for bit" not in same:
        raise RuntimeError(f"checkpoint diff of two equal runs: {same[-400:]}")
    count("runs resumed")


def main():
    logging.disable_progress_bar()
    binary, folder = sys.argv[1], Path(sys.argv[2])
    every = "--every-mesh" in sys.argv
    generator = torch.Generator().manual_seed(3)
    text = bytes(torch.randint(97, 123, (LENGTH * SEQUENCES + 1,), generator=generator).tolist())
    (folder / "data").mkdir()
    (folder / "data/text.txt").write_bytes(text)
    save(folder / "llama", "llama", {})
    names = list(OPTIMIZERS)
    for number, name in enumerate(names):
        for offset, mesh in enumerate(MESHES):
            if every or mesh in ("1", "zero3 × 2") or offset == 2 + number % (len(SHARDS) - 2):
                attempt(f"{name}, {mesh}", full_check, binary, folder, name, mesh, text)
        for mesh in MORE_MESHES if name in ("adafactor", "muon") else ():
            attempt(f"{name}, {mesh}", full_check, binary, folder, name, mesh, text)
        for mesh in ("1", "zero3 × 2"):
            attempt(f"adapters, {name}, {mesh}", adapter_check, binary, folder, name, mesh, text)
    for number, name in enumerate(names):
        for mesh in ("1", "zero3 × 2") if every else (("1", "zero3 × 2")[number % 2],):
            attempt(f"resume, {name}, {mesh}", resume_check, binary, folder, name, mesh, names[(number + 2) % len(names)])
    print(", ".join(f"{number} {what}" for what, number in counts.items()) + f", {len(failures)} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
