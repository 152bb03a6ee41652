"""lora.py BIN FOLDER [--every-mesh]: adapters and frozen parameters in the bundled trainer against PEFT and torch.

Of each tiny model, kind of adapters and mesh, in fp32:
  losses   of 8 steps PEFT's, to 1e-5; gradient norms to 1e-4; the adapters that are left to 1e-4
  bytes    predicted are metered, of every class
  folder   PeftModel.from_pretrained() loads what the trainer wrote, with the logits of the model that was trained
  merged   what export --merge writes is merge_and_unload(), to 1e-6; parameters without adapters are bit for bit what they were
  resume   stopped and gone on with ends in the same bytes; beside other weights it is refused
  moved    stopped on one mesh and gone on with on another it ends as on one; adapters that hardly learn are the same bytes on each mesh
Of parts of a model that are trained: torch's with requires_grad off for the rest, and the rest is bit for bit what it was."""
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

LENGTH, SEQUENCES, STEPS, RATE = 16, 12, 8, 0.01
MESHES = {
    "1": ["--gpus", "1"],
    "zero3 × 2": ["--gpus", "2", "--sharding", "zero3"],
    "ddp × 3": ["--gpus", "3", "--sharding", "ddp"],
    "zero1 × 2": ["--gpus", "2", "--sharding", "zero1", "--gradient-accumulation", "2"],
    "zero2 × 2": ["--gpus", "2", "--sharding", "zero2", "--gradient-accumulation", "3"],
    "hybrid × 4": ["--gpus", "4", "--sharding", "zero3", "--dp-shard", "2", "--dp-replicate", "2"],
    "cp 2": ["--gpus", "2", "--cp", "2"],
    "zero3 × 2, recomputed": ["--gpus", "2", "--sharding", "zero3", "--recompute", "full"],
    "tp 2": ["--gpus", "2", "--tp", "2"],
    "tp 2, zero3 × 2": ["--gpus", "4", "--tp", "2", "--sharding", "zero3"],
    "pp 2": ["--gpus", "2", "--pp", "2", "--gradient-accumulation", "3"],
    "pp 3, zero3 × 2": ["--gpus", "6", "--pp", "3", "--sharding", "zero3", "--gradient-accumulation", "2"],
}
ADAPTERS = {
    "q, v": {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]},
    "k, up, rslora": {"r": 3, "lora_alpha": 6, "target_modules": ["k_proj", "up_proj"], "use_rslora": True},
    "all": {"r": 2, "lora_alpha": 5, "target_modules": "all-linear"},
}
MODELS = {
    "llama": {},
    "qwen2": {},
    "llama tied": {"tie_word_embeddings": True},
    "gpt2": {},
    "ernie4_5": {"head_dim": 8, "use_bias": True, "pad_token_id": None},  # rows of q and k are published in another order
    "deepseek_v3": {"kv_lora_rank": 20, "q_lora_rank": 28, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 12, "num_key_value_heads": 4,
                    "first_k_dense_replace": 3},  # without experts: Transformers holds their matrices in one tensor, which PEFT has no adapters for
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5, "head_dim": 8, "pad_token_id": None},  # beside frozen experts
}
PARTS = {
    "mlp of layer 1": ["model.layers.1.mlp.*"],
    "q of layer 0, k of layer 1, norms": [r"model.layers.0.self_attn.q_proj", r"model.layers.1.self_attn.k_proj", r".*layernorm"],
    "embedding and head": ["^model.embed_tokens.weight$", "^lm_head.weight$"],
    "head alone": ["^lm_head.weight$"],
}
failures, counts = [], {}


def count(what):
    counts[what] = counts.get(what, 0) + 1


def run(arguments, good=True):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    if (done.returncode == 0) != good:
        raise RuntimeError(f"{' '.join(map(str, arguments[:3]))} ended with {done.returncode}: {(done.stdout + done.stderr)[-600:]}")
    return done.stdout + done.stderr


def save(folder, name, changes):
    torch.manual_seed(7)
    family = name.split()[0]
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 56}
    if family == "gpt2":
        sizes = {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_inner": 56, "n_positions": 64, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
    config = AutoConfig.for_model(family, **{"vocab_size": 260, "max_position_embeddings": 64, **sizes, **changes})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.08 + (parameter if parameter.dim() == 1 else 0))
    model.tie_weights()
    model.save_pretrained(folder)


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def batch_of(text):
    tokens = torch.tensor(list(text))
    inputs = torch.stack([tokens[i * LENGTH:(i + 1) * LENGTH] for i in range(SEQUENCES)])
    return inputs, torch.stack([tokens[i * LENGTH + 1:(i + 1) * LENGTH + 1] for i in range(SEQUENCES)])


def train(model, text):
    """Losses and gradient norms of torch; `model` is left trained."""
    inputs, targets = batch_of(text)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        logits = model(input_ids=inputs, use_cache=False).logits
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, 1.0).item())
        losses.append(loss.item())
        optimizer.step()
    return losses, norms


def plan_and_train(binary, model, out, data, flags, last=STEPS, rate=RATE):
    precision = [] if "--precision" in flags else ["--precision", "fp32"]
    run([f"{binary}/distsetup", "plan", "--model", model, "--init", "weights", "--gpu", "cpu", "--nodes", "1", "--sequence-length", LENGTH,
         "--global-batch", SEQUENCES, "--warmup-steps", "0", *precision, "--data", data, "--held-out", "0", "--steps", last,
         "--learning-rate", rate, "--min-learning-rate", rate, "--weight-decay", "0", "--beta2", "0.95", *flags, "--output", out / "plan.json"])
    run([f"{binary}/distsetup", "launch", "--plan", out / "plan.json"])
    count("runs")
    steps = [row for row in map(json.loads, (out / "metrics.jsonl").read_text().splitlines()) if row["kind"] == "step"]
    return [row["loss"] for row in steps], [row["gradient_norm"] for row in steps]


def close(found, expected, tolerance, what):
    for a, b in zip(found, expected, strict=True):
        if not abs(a - b) <= tolerance * max(abs(b), 1e-3):
            raise RuntimeError(f"{what} {found}, expected {expected}")


def close_tensors(found, expected, tolerance, what):
    if set(found) != set(expected):
        raise RuntimeError(f"{what}: only one side has {sorted(set(found) ^ set(expected))[:4]}")
    for name, tensor in expected.items():
        worst = (found[name].float() - tensor.float()).abs().max().item()
        if not worst <= tolerance:
            raise RuntimeError(f"{what}: {name} differs by {worst}")


def check_bytes(out, but=None, at_least=8):
    report = json.loads((out / "report.json").read_text())
    classes = [of["device_bytes"] for of in json.loads((out / "plan.json").read_text())["memory"]["by_rank_class"]]
    peaks = report["peak_allocated_bytes_by_rank"]
    if len(classes) > 1:  # of a pipeline: ranks of a stage follow each other
        predicted = [classes[rank * len(classes) // len(peaks)] for rank in range(len(peaks))]
        if any(a != b if but is None else a < b for a, b in zip(predicted, peaks, strict=True)):
            raise RuntimeError(f"the peaks of ranks are predicted to be {predicted}, metered {peaks}")
        return
    rows = report["comparison"]
    of_bytes = [row for row in rows if "predicted_bytes" in row]
    if len(of_bytes) < at_least:
        raise RuntimeError(f"the report compares {[row['what'] for row in rows]}")
    for row in of_bytes:
        at_most = row["what"] in (but, "peak allocated" if but else None) and row["predicted_bytes"] >= row["measured_bytes"]
        if row["predicted_bytes"] != row["measured_bytes"] and not at_most:
            raise RuntimeError(f"{row['what']}: predicted {row['predicted_bytes']} B, metered {row['measured_bytes']} B")


def tensors_of(folder):
    tensors = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        tensors.update(load_file(path))
    return tensors


def adapter_check(binary, folder, name, kind, mesh, text):
    model, data = folder / name.replace(" ", "_"), folder / "data"
    begin = folder / f"begin_{name}_{kind}".replace(" ", "").replace(",", "_")
    if not begin.exists():
        torch.manual_seed(3)
        first = get_peft_model(load(model), LoraConfig(task_type="CAUSAL_LM", **adapter_keys(name, kind)))
        with torch.no_grad():
            for key, parameter in first.named_parameters():
                if "lora_B" in key:
                    parameter.copy_(torch.randn_like(parameter) * 0.02)
        first.save_pretrained(begin)
    reference = PeftModel.from_pretrained(load(model), begin, is_trainable=True)
    losses, norms = train(reference, text)
    out = folder / f"{begin.name}_{mesh}".replace(" ", "").replace(",", "_")
    found = plan_and_train(binary, model, out, data, ["--adapter-from", begin, *MESHES[mesh]])
    close(found[0], losses, 1e-5, "losses")
    close(found[1], norms, 1e-4, "gradient norms")
    check_bytes(out)
    reference.save_pretrained(out / "reference")
    close_tensors(load_file(out / "adapter/adapter_model.safetensors"), load_file(out / "reference/adapter_model.safetensors"), 1e-4, "adapters")
    loaded = PeftModel.from_pretrained(load(model), out / "adapter")
    inputs, _ = batch_of(text)
    with torch.no_grad():
        close_tensors({"logits": loaded(input_ids=inputs).logits}, {"logits": reference(input_ids=inputs).logits}, 2e-3, "logits")
    count("adapters loaded by PEFT")
    run([f"{binary}/distsetup", "checkpoint", "export", out, "--merge", "--dtype", "fp32", "--output", out / "merged"])
    merged = {**dict(loaded.merge_and_unload().named_parameters())}
    stored, before = tensors_of(out / "merged"), tensors_of(model)
    close_tensors({k: v for k, v in stored.items() if k in merged}, {k: v for k, v in merged.items() if k in stored}, 1e-6, "merged")
    _, info = AutoModelForCausalLM.from_pretrained(out / "merged", output_loading_info=True)
    if any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")):
        raise RuntimeError(f"from_pretrained says {info}")
    modules = {re.sub(r"^base_model\.model\.|\.lora_[AB]\.weight$", "", key) for key in load_file(out / "adapter/adapter_model.safetensors")}
    for key, tensor in before.items():
        changed = not torch.equal(tensor, stored[key])
        if changed != (key.removesuffix(".weight") in modules):
            raise RuntimeError(f"merged: {key} has {'changed' if changed else 'not changed'}")
    count("models merged")


def adapter_keys(name, kind):
    keys = dict(ADAPTERS[kind])
    if name == "gpt2":
        names = {"q, v": ["c_attn"], "k, up, rslora": ["c_fc"], "all": "all-linear"}
        keys = {**keys, "target_modules": names[kind], "fan_in_fan_out": True}
    if name == "deepseek_v3":
        names = {"q, v": ["q_b_proj", "kv_a_proj_with_mqa"], "k, up, rslora": ["kv_b_proj", "o_proj"],
                 "all": ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"]}
        keys["target_modules"] = names[kind]
    return keys


def part_check(binary, folder, name, part, mesh, text):
    model, data, patterns = folder / name, folder / "data", PARTS[part]
    reference = load(model)
    for key, parameter in reference.named_parameters():
        parameter.requires_grad_(any(re.match(pattern, key) for pattern in patterns))
    losses, norms = train(reference, text)
    out = folder / f"part_{name}_{part}_{mesh}".replace(" ", "").replace(",", "_")
    settings = out / "part.yaml"
    out.mkdir()
    settings.write_text("version: 1\nunfrozen_parameters:\n" + "".join(f"- {json.dumps(pattern)}\n" for pattern in patterns))
    found = plan_and_train(binary, model, out, data, [settings, *MESHES[mesh]])
    close(found[0], losses, 1e-5, "losses")
    close(found[1], norms, 1e-4, "gradient norms")
    check_bytes(out)
    run([f"{binary}/distsetup", "checkpoint", "export", out, "--dtype", "fp32", "--output", out / "model"])
    stored, before, after = tensors_of(out / "model"), tensors_of(model), dict(reference.named_parameters())
    close_tensors(stored, {key: after[key].detach() for key in stored}, 1e-4, "trained model")
    for key, tensor in before.items():
        changed = not torch.equal(tensor, stored[key])
        if changed != any(re.match(pattern, key) for pattern in patterns):
            raise RuntimeError(f"{key} has {'changed' if changed else 'not changed'}")
    count("models with frozen parts")


def bf16_check(binary, folder, mesh, text):
    """What is frozen is held in bf16; fp32 losses to what bf16 rounds."""
    reference = load(folder / "llama")
    begin, out = folder / "begin_llama_q_v", folder / f"bf16_{mesh}".replace(" ", "").replace(",", "_")
    losses, _ = train(PeftModel.from_pretrained(reference, begin, is_trainable=True), text)
    found = plan_and_train(binary, folder / "llama", out, folder / "data", ["--adapter-from", begin, *MESHES[mesh], "--precision", "bf16"])
    close(found[0], losses, 2e-2, "losses in bf16")
    check_bytes(out, but="workspace")
    count("runs in bf16")


def resume_check(binary, folder, mesh):
    """Stopped after 4 of 8 steps and gone on with; then beside other weights."""
    model, data = folder / "llama", folder / "data"
    flags = ["--adapter", "lora", "--lora-rank", "4", "--lora-targets", "q_proj,v_proj", *MESHES[mesh]]
    whole, parts = folder / f"whole_{mesh}".replace(" ", ""), folder / f"parts_{mesh}".replace(" ", "")
    plan_and_train(binary, model, whole, data, flags)
    shutil.copytree(whole, parts, ignore=shutil.ignore_patterns("checkpoints", "adapter", "metrics.jsonl"))
    text = (parts / "plan.json").read_text()
    launch = [f"{binary}/distsetup", "launch", "--plan", parts / "plan.json", "--"]
    run([*launch, "--stop-after", "4"])
    stopped = folder / f"stopped_{mesh}".replace(" ", "")
    shutil.copytree(parts, stopped)
    run(launch[:-1])
    assert text == (parts / "plan.json").read_text()
    if (whole / "adapter/adapter_model.safetensors").read_bytes() != (parts / "adapter/adapter_model.safetensors").read_bytes():
        raise RuntimeError("adapters of a run that was stopped are others")
    zeros = [key for key, tensor in load_file(whole / "adapter/adapter_model.safetensors").items() if not tensor.any()]
    if zeros:
        raise RuntimeError(f"{zeros[0]} is zero")
    count("runs resumed")
    other, moved = folder / "other", folder / f"moved_{mesh}".replace(" ", "")
    if not other.exists():
        shutil.copytree(model, other)
        tensors = load_file(other / "model.safetensors")
        tensors["model.layers.2.mlp.down_proj.weight"][3, 5] += 1e-3
        save_file(tensors, other / "model.safetensors", metadata={"format": "pt"})
    shutil.copytree(whole, moved, ignore=shutil.ignore_patterns("adapter"))
    plan = json.loads((moved / "plan.json").read_text())
    plan["weights"]["directory"] = str(other)
    (moved / "plan.json").write_text(json.dumps(plan))
    said = run([f"{binary}/distsetup", "checkpoint", "export", moved, "--merge", "--output", moved / "merged"], good=False)
    if "the checkpoint was trained beside" not in said:
        raise RuntimeError(said[-400:])
    plan = json.loads((stopped / "plan.json").read_text())
    plan["weights"]["directory"] = str(other)
    (stopped / "plan.json").write_text(json.dumps(plan))
    said = run([f"{binary}/distsetup", "launch", "--plan", stopped / "plan.json"], good=False)
    if "was trained beside frozen parameters of the digest" not in said:
        raise RuntimeError(said[-400:])
    count("changed sources refused")


def moved_check(binary, folder, name, first, then):
    """Stopped on one mesh after 4 of 8 steps and gone on with on another. With steps too small for fp32, bit for bit what it began with."""
    model, data, begin = folder / name.replace(" ", "_"), folder / "data", folder / f"begin_{name}_all".replace(" ", "")
    flags = ["--adapter-from", begin]
    whole, out = folder / f"{begin.name}_whole", folder / f"{begin.name}_from_{first}_to_{then}".replace(" ", "")
    if not whole.exists():
        plan_and_train(binary, model, whole, data, [*flags, *MESHES["1"]])
    expected = [json.loads(row) for row in (whole / "metrics.jsonl").read_text().splitlines()]
    plan = ["--gpu", "cpu", "--nodes", "1", "--init", "weights", "--sequence-length", LENGTH, "--global-batch", SEQUENCES, "--warmup-steps", "0",
            "--precision", "fp32", "--data", data, "--held-out", "0", "--steps", STEPS, "--learning-rate", RATE, "--min-learning-rate", RATE,
            "--weight-decay", "0", "--beta2", "0.95", *flags]
    run([f"{binary}/distsetup", "plan", "--model", model, *plan, *MESHES[first], "--output", out / "plan.json"])
    run([f"{binary}/distsetup", "launch", "--plan", out / "plan.json", "--", "--stop-after", "4"])
    (out / "plan.json").unlink()
    run([f"{binary}/distsetup", "plan", "--model", model, *plan, *MESHES[then], "--output", out / "plan.json"])
    run([f"{binary}/distsetup", "launch", "--plan", out / "plan.json"])
    found = [json.loads(row) for row in (out / "metrics.jsonl").read_text().splitlines()]
    losses = [[row["loss"] for row in rows if row["kind"] == "step"] for rows in (found, expected)]
    close(*losses, 1e-5, "losses")
    close_tensors(tensors_of(out / "adapter"), tensors_of(whole / "adapter"), 1e-4, "adapters")
    count("runs moved")
    for mesh in (first, then):
        still = folder / f"{begin.name}_still_{mesh}".replace(" ", "")
        if not still.exists():
            plan_and_train(binary, model, still, data, [*flags, *MESHES[mesh]], last=2, rate=1e-30)
        close_tensors(tensors_of(still / "adapter"), tensors_of(begin), 0, "adapters that do not learn")
    first_bytes, then_bytes = ((folder / f"{begin.name}_still_{mesh}".replace(" ", "") / "adapter/adapter_model.safetensors").read_bytes() for mesh in (first, then))
    if first_bytes != then_bytes:
        raise RuntimeError("the same adapters are written otherwise on the other mesh")
    count("adapters of two meshes byte for byte")


def attempt(what, function, *arguments):
    try:
        function(*arguments)
    except (RuntimeError, AssertionError) as failure:
        failures.append(f"{what}: {failure}")
        print(failures[-1], flush=True)


def main():
    logging.disable_progress_bar()
    binary, folder = sys.argv[1], Path(sys.argv[2])
    every = "--every-mesh" in sys.argv
    generator = torch.Generator().manual_seed(3)
    text = bytes(torch.randint(97, 123, (LENGTH * SEQUENCES + 1,), generator=generator).tolist())
    (folder / "data").mkdir()
    (folder / "data/text.txt").write_bytes(text)
    for name, changes in MODELS.items():
        save(folder / name.replace(" ", "_"), name, changes)
    for number, (name, kind) in enumerate([(name, kind) for name in MODELS for kind in ADAPTERS]):
        for offset, mesh in enumerate(MESHES):
            if name == "gpt2" and mesh.startswith("pp"):
                continue  # its positions go with the embedding, which is tied to the head
            if name == "gpt_oss" and kind == "k, up, rslora":
                continue  # PEFT has no adapters for experts in one tensor
            if name == "deepseek_v3" and mesh.startswith("tp"):
                continue  # latent attention is not split
            if every or mesh in ("1", "zero3 × 2", "ddp × 3") and name in ("llama", "qwen2") and kind == "q, v" or offset == number % len(MESHES):
                attempt(f"{name}, adapters on {kind}, {mesh}", adapter_check, binary, folder, name, kind, mesh, text)
    for number, part in enumerate(PARTS):
        for offset, mesh in enumerate(MESHES):
            if every or offset in (0, (3 * number + 2) % len(MESHES)):
                attempt(f"{part}, {mesh}", part_check, binary, folder, "llama", part, mesh, text)
    for mesh in ("1", "zero3 × 2", "zero2 × 2"):
        attempt(f"bf16, {mesh}", bf16_check, binary, folder, mesh, text)
    for mesh in ("1", "zero3 × 2"):
        attempt(f"resume, {mesh}", resume_check, binary, folder, mesh)
    for name, first, then in (("llama", "1", "tp 2"), ("llama", "tp 2", "zero3 × 2"), ("llama", "tp 2, zero3 × 2", "pp 2"), ("llama tied", "1", "pp 2"),
                              ("llama tied", "pp 3, zero3 × 2", "1")):
        attempt(f"{name}, {first} to {then}", moved_check, binary, folder, name, first, then)
    print(", ".join(f"{number} {what}" for what, number in counts.items()) + f", {len(failures)} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
