"""qlora.py BIN FOLDER [--every-mesh]: adapters beside a base of four bits in the bundled trainer, against bitsandbytes and PEFT.

bitsandbytes is asked in plain PyTorch, with which its CUDA kernels agree: its CPU library is hidden, since that looks the numbers of scales
up in a table and is one off in some of a thousand. Of each tiny model, kind of adapters and mesh, in fp32:
  losses   of 8 steps those of PEFT on the base that bitsandbytes gives back, to 1e-5; gradient norms and adapters to 1e-4
  bytes    predicted are metered, of every class
  merged   what export --merge writes: matrices of blocks as bitsandbytes gives them back, with the adapters, to 1e-6; all else bit for
           bit what it was. With --merge-base original: the published matrices with the adapters
  resume   stopped and gone on with ends in the same bytes; on a base that has changed, or as lora, it is refused
Transformers' load_in_4bit has the same matrices in four bits, and no others."""
import ctypes
import json
import shutil
import sys
from pathlib import Path

import torch
import torch._dynamo

torch._dynamo.config.disable = True
load_library = ctypes.cdll.LoadLibrary


def without_bitsandbytes(path, *more):
    if "bitsandbytes" in str(path):
        raise OSError("hidden")
    return load_library(path, *more)


ctypes.cdll.LoadLibrary = without_bitsandbytes
import bitsandbytes as bnb  # noqa: E402, before PEFT, which imports it
import bitsandbytes.functional as quantization  # noqa: E402
import lora  # noqa: E402
from peft import LoraConfig, PeftModel, get_peft_model  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import BitsAndBytesConfig  # noqa: E402
from transformers.utils import logging  # noqa: E402

MODELS = {"llama": {"intermediate_size": 57}, "qwen2": {}, "llama tied": {"tie_word_embeddings": True, "hidden_size": 40}, "gpt2": {},
          "llama wide": {"hidden_size": 128, "intermediate_size": 384}}
ADAPTERS = ["q, v", "all"]
MESHES = [mesh for mesh in lora.MESHES if "tp" not in mesh]
SPLIT_MESHES = ["tp 2", "tp 2, zero3 × 2"]  # of the wide one, whose matrices are cut between blocks; others are refused: refused_check()


def of_blocks(name, tensor):
    return tensor.dim() == 2 and (".layers." in name or ".h." in name)


def given_back(name, tensor):
    """What bitsandbytes makes of a matrix in four bits and back."""
    transposed = ".c_" in name  # GPT-2's Conv1D
    matrix = (tensor.T if transposed else tensor).contiguous()
    packed, state = quantization.quantize_4bit(matrix, blocksize=64, compress_statistics=True, quant_type="nf4")
    back = quantization.dequantize_4bit(packed, state).reshape(matrix.shape)
    return (back.T if transposed else back).contiguous()


def quantized(folder):
    model = lora.load(folder)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if of_blocks(name, parameter):
                parameter.copy_(given_back(name, parameter))
    return model


def begin_of(folder, name, kind):
    begin = folder / f"begin_{name}_{kind}".replace(" ", "").replace(",", "_")
    if not begin.exists():
        torch.manual_seed(3)
        first = get_peft_model(lora.load(folder / name.replace(" ", "_")), LoraConfig(task_type="CAUSAL_LM", **lora.adapter_keys(name, kind)))
        with torch.no_grad():
            for key, parameter in first.named_parameters():
                if "lora_B" in key:
                    parameter.copy_(torch.randn_like(parameter) * 0.02)
        first.save_pretrained(begin)
    return begin


def merged_check(binary, out, model, reference):
    before = lora.tensors_of(model)
    for base, flags in (("dequantized", []), ("original", ["--merge-base", "original"])):
        lora.run([f"{binary}/distsetup", "checkpoint", "export", out, "--merge", *flags, "--dtype", "fp32", "--output", out / base])
        stored = lora.tensors_of(out / base)
        beside = PeftModel.from_pretrained(quantized(model) if base == "dequantized" else lora.load(model), out / "adapter")
        expected = dict(beside.merge_and_unload().named_parameters())
        for key, tensor in before.items():
            if of_blocks(key, tensor):
                worst = (stored[key] - expected[key.removeprefix("transformer.") if key not in expected else key]).abs().max().item()
                if not worst <= 1e-6:
                    raise RuntimeError(f"merged, {base}: {key} differs by {worst}")
            elif not torch.equal(tensor, stored[key]):
                raise RuntimeError(f"merged, {base}: {key} has changed")
        lora.count("models merged")


def adapter_check(binary, folder, name, kind, mesh, text):
    model = folder / name.replace(" ", "_")
    begin = begin_of(folder, name, kind)
    reference = PeftModel.from_pretrained(quantized(model), begin, is_trainable=True)
    losses, norms = lora.train(reference, text)
    out = folder / f"{begin.name}_{mesh}".replace(" ", "").replace(",", "_")
    found = lora.plan_and_train(binary, model, out, folder / "data", ["--adapter", "qlora", "--adapter-from", begin, *lora.MESHES[mesh]])
    lora.close(found[0], losses, 1e-5, "losses")
    lora.close(found[1], norms, 1e-4, "gradient norms")
    lora.check_bytes(out)
    reference.save_pretrained(out / "reference")
    # Adam moves an element whose gradient nearly vanishes as far as any other, and rounding decides where to: a wide model has some.
    tolerance = 5e-4 if name == "llama wide" else 1e-4
    lora.close_tensors(load_file(out / "adapter/adapter_model.safetensors"), load_file(out / "reference/adapter_model.safetensors"), tolerance, "adapters")
    merged_check(binary, out, model, reference)


def bf16_check(binary, folder, mesh, text):
    begin, out = begin_of(folder, "llama", "q, v"), folder / f"bf16_{mesh}".replace(" ", "").replace(",", "_")
    losses, _ = lora.train(PeftModel.from_pretrained(quantized(folder / "llama"), begin, is_trainable=True), text)
    flags = ["--adapter", "qlora", "--adapter-from", begin, *lora.MESHES[mesh], "--precision", "bf16"]
    lora.close(lora.plan_and_train(binary, folder / "llama", out, folder / "data", flags)[0], losses, 2e-2, "losses in bf16")
    lora.check_bytes(out, but="workspace")
    lora.count("runs in bf16")


def transformers_check(folder):
    """The base as load_in_4bit has it."""
    for name in MODELS:
        model = folder / name.replace(" ", "_")
        four_bits = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)
        loaded = lora.AutoModelForCausalLM.from_pretrained(model, quantization_config=four_bits, dtype=torch.float32, device_map="cpu")
        found = {f"{key}.weight" for key, module in loaded.named_modules() if isinstance(module, bnb.nn.Linear4bit)}
        expected = {key for key, parameter in lora.load(model).named_parameters() if of_blocks(key, parameter)}
        if found != expected:
            raise RuntimeError(f"{name}: only one side has {sorted(found ^ expected)[:4]} in four bits")
        lora.count("models whose matrices load_in_4bit quantises alike")


def resume_check(binary, folder, mesh):
    """Stopped after 4 of 8 steps and gone on with; then on another base, and as lora."""
    model = folder / "to_change"
    shutil.rmtree(model, ignore_errors=True)
    shutil.copytree(folder / "llama", model)
    flags = ["--adapter", "qlora", "--lora-rank", "4", "--lora-targets", "q_proj,v_proj", *lora.MESHES[mesh]]
    whole, parts = folder / f"whole_{mesh}".replace(" ", ""), folder / f"parts_{mesh}".replace(" ", "")
    lora.plan_and_train(binary, model, whole, folder / "data", flags)
    shutil.copytree(whole, parts, ignore=shutil.ignore_patterns("checkpoints", "adapter", "metrics.jsonl"))
    launch = [f"{binary}/distsetup", "launch", "--plan", parts / "plan.json"]
    lora.run([*launch, "--", "--stop-after", "4"])
    stopped = folder / f"stopped_{mesh}".replace(" ", "")
    shutil.copytree(parts, stopped)
    lora.run(launch)
    if (whole / "adapter/adapter_model.safetensors").read_bytes() != (parts / "adapter/adapter_model.safetensors").read_bytes():
        raise RuntimeError("adapters of a run that was stopped are others")
    lora.count("runs resumed")
    tensors = load_file(model / "model.safetensors")
    tensors["model.layers.2.mlp.down_proj.weight"][3, 5] += 1.0
    save_file(tensors, model / "model.safetensors", metadata={"format": "pt"})
    said = lora.run([f"{binary}/distsetup", "launch", "--plan", stopped / "plan.json"], good=False)
    if "was trained beside frozen parameters of the digest" not in said:
        raise RuntimeError(said[-400:])
    lora.count("changed bases refused")


def refused_check(binary, folder):
    said = lora.run([f"{binary}/distsetup", "plan", "--model", folder / "qwen2", "--gpu", "cpu", "--nodes", "1", "--adapter", "qlora",
                     *lora.MESHES["tp 2"]], good=False)
    if "nf4 takes the scale of 64 weights in a row" not in said:
        raise RuntimeError(f"no reason: {said}")


def main():
    logging.disable_progress_bar()
    binary, folder = sys.argv[1], Path(sys.argv[2])
    every = "--every-mesh" in sys.argv
    generator = torch.Generator().manual_seed(3)
    text = bytes(torch.randint(97, 123, (lora.LENGTH * lora.SEQUENCES + 1,), generator=generator).tolist())
    (folder / "data").mkdir()
    (folder / "data/text.txt").write_bytes(text)
    for name, changes in MODELS.items():
        lora.save(folder / name.replace(" ", "_"), name, changes)
    lora.attempt("load_in_4bit", transformers_check, folder)
    for number, (name, kind) in enumerate([(name, kind) for name in MODELS for kind in ADAPTERS]):
        for offset, mesh in enumerate(MESHES):
            if every or name == "llama" and kind == "q, v" or offset == number % len(MESHES):
                lora.attempt(f"{name}, adapters on {kind}, {mesh}", adapter_check, binary, folder, name, kind, mesh, text)
    for mesh, kind in zip(SPLIT_MESHES, ADAPTERS):
        lora.attempt(f"llama wide, adapters on {kind}, {mesh}", adapter_check, binary, folder, "llama wide", kind, mesh, text)
    lora.attempt("tensor parallelism", refused_check, binary, folder)
    for mesh in ("1", "zero3 × 2", "zero2 × 2"):
        lora.attempt(f"bf16, {mesh}", bf16_check, binary, folder, mesh, text)
    for mesh in ("1", "zero3 × 2"):
        lora.attempt(f"resume, {mesh}", resume_check, binary, folder, mesh)
    print(", ".join(f"{number} {what}" for what, number in lora.counts.items()) + f", {len(lora.failures)} failures")
    sys.exit(1 if lora.failures else 0)


if __name__ == "__main__":
    main()
