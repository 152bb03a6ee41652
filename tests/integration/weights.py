"""weights.py BIN FOLDER [--every-mesh] [FAMILY...]: models that save_pretrained() wrote, through the bundled trainer and back. Of each family
one mesh, in turn; --every-mesh: all. Those with experts run with shared experts, too.
Every sixth family is also generated from its checkpoint and trained again from its export; with --every-mesh or by name, each.

Of each family, type and mesh:
  loss     the first step's is Transformers' own, to 1e-5
  export   of a run that changes nothing: every tensor's bytes are the file's, and from_pretrained() misses nothing
  greedy   `distsetup generate` writes the tokens that Transformers' generate() writes, from the weights and from the checkpoint
  adapters of a model with pictures: PEFT finds them in the text model alone, and with them it is the merged export
  again    of a run that trains: its export starts a run whose first loss is Transformers' for that export"""
import json
import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from families import FAMILIES, MINISTRAL3, corrections, settings
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

LENGTH, SEQUENCES = 16, 12
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
MESHES = {
    "1": ["--gpus", "1"],
    "zero3 × 2": ["--gpus", "2", "--sharding", "zero3"],
    "zero3 × 3": ["--gpus", "3", "--sharding", "zero3"],
    "ddp × 2": ["--gpus", "2", "--sharding", "ddp"],
    "hybrid × 4": ["--gpus", "4", "--sharding", "zero3", "--dp-shard", "2", "--dp-replicate", "2"],
    "tp 2": ["--gpus", "2", "--tp", "2"],
    "pp 2": ["--gpus", "2", "--pp", "2"],
    "cp 2": ["--gpus", "2", "--cp", "2"],
}
SHARED_EXPERTS = {"ep 2": ["--gpus", "2", "--ep", "2"]}  # of families with experts, beside the others
# Text models beside a tower for pictures, which is left as it is: the three ways in which folders name them.
TEXT = {"hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "vocab_size": 259, "max_position_embeddings": 64}
SECTIONS = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}}
TOWER = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
DEEP_TOWER = {"depth": 1, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32, "patch_size": 14}
WITH_PICTURES = {
    "gemma3": {"text_config": {**TEXT, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8, "query_pre_attn_scalar": 8},
               "vision_config": TOWER, "mm_tokens_per_image": 4},
    "mistral3": {"text_config": {**TEXT, "model_type": "mistral", "sliding_window": None},
                 "vision_config": {**TOWER, "model_type": "pixtral", "head_dim": 8}},
    "llava": {"text_config": {**TEXT, "model_type": "llama"},
              "vision_config": {**TOWER, "model_type": "clip_vision_model", "projection_dim": 16}},
    "ministral3": {"model_type": "mistral3",
                   "text_config": {**TEXT, "model_type": "ministral3", "pad_token_id": None, "rope_parameters": MINISTRAL3},
                   "vision_config": {**TOWER, "model_type": "pixtral", "head_dim": 8}},
    "qwen2_vl": {"text_config": {**TEXT, **SECTIONS}, "vision_config": {"depth": 1, "embed_dim": 16, "hidden_size": 32, "num_heads": 2, "patch_size": 14}},
    "qwen2_5_vl": {"text_config": {**TEXT, **SECTIONS}, "vision_config": DEEP_TOWER},
    "qwen3_vl": {"text_config": {**TEXT, **SECTIONS}, "vision_config": {**DEEP_TOWER, "deepstack_visual_indexes": [0]}},
    "glm4v": {"text_config": {**TEXT, **SECTIONS}, "vision_config": DEEP_TOWER},
    "qwen3_vl_moe": {"text_config": {**TEXT, **SECTIONS, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
                     "vision_config": {**DEEP_TOWER, "deepstack_visual_indexes": [0]}},  # all experts of a layer in one tensor
    "glm4v_moe": {"text_config": {**TEXT, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                                  "first_k_dense_replace": 1, "pad_token_id": None,
                                  "rope_parameters": {**SECTIONS["rope_parameters"], "mrope_section": [1, 1, 0], "partial_rotary_factor": 0.5}},
                  "vision_config": DEEP_TOWER},
}
NOT_SPLIT = ("are not divisible by tp", "are not divisible by ep", "does not split", "tensor parallelism", "context parallelism", "--cp")

failures = []
counts = {"runs": 0, "answers": 0, "meshes that a family does not run on": 0, "exports": 0}


def run(arguments):
    done = subprocess.run(arguments, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    return done.returncode, done.stdout + done.stderr


def first_loss(binary, model, mesh, out, data, settings_of_run):
    """Of one run in the folder `out`; None where the model does not run on the mesh."""
    common = ["--gpu", "cpu", "--nodes", "1", "--sequence-length", str(LENGTH), "--global-batch", str(SEQUENCES), "--warmup-steps", "0",
              "--precision", "fp32", "--data", str(data), "--held-out", "0"]
    ranks = {**MESHES, **SHARED_EXPERTS}[mesh]
    code, said = run([f"{binary}/distsetup", "plan", "--model", str(model), "--init", "weights", *common, *ranks, *settings_of_run,
                      "--output", str(out / "plan.json")])
    if code != 0 and any(words in said for words in NOT_SPLIT):
        counts["meshes that a family does not run on"] += 1
        return None
    if code == 0:
        code, said = run([f"{binary}/distsetup", "launch", "--plan", str(out / "plan.json")])
    if code != 0:
        raise RuntimeError(said[-500:])
    counts["runs"] += 1
    for line in (out / "metrics.jsonl").read_text().splitlines():
        if json.loads(line)["kind"] == "step":
            return json.loads(line)["loss"]
    raise RuntimeError("no step in metrics.jsonl")


def class_of(folder):
    has_pictures = "vision_config" in json.loads((Path(folder) / "config.json").read_text())
    return AutoModelForImageTextToText if has_pictures else AutoModelForCausalLM


def transformers_loss(folder, text):
    model = class_of(folder).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    tokens = torch.tensor(list(text))
    inputs = torch.stack([tokens[i * LENGTH:(i + 1) * LENGTH] for i in range(SEQUENCES)])
    targets = torch.stack([tokens[i * LENGTH + 1:(i + 1) * LENGTH + 1] for i in range(SEQUENCES)])
    with torch.no_grad():
        logits = model(input_ids=inputs, use_cache=False).logits.double()
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)).item()


def tensors_of(folder):
    tensors = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        tensors.update(load_file(path))
    return tensors


def write(binary, out, to, dtype, *flags):
    code, said = run([f"{binary}/distsetup", "checkpoint", "export", str(out), "--output", str(to), "--dtype", dtype, *flags])
    if code != 0:
        raise RuntimeError(said[-500:])


def export(binary, out, dtype):
    write(binary, out, out / "model", dtype, "--max-shard-size", "60KB")
    counts["exports"] += 1
    _, info = class_of(out / "model").from_pretrained(out / "model", output_loading_info=True)
    missed = {kind: keys for kind, keys in info.items() if keys and kind != "error_msgs"}
    if missed or info.get("error_msgs"):
        raise RuntimeError(f"from_pretrained says {missed} {info.get('error_msgs')}")
    return out / "model"


def check_bytes(before, after):
    first, second = tensors_of(before), tensors_of(after)
    if set(first) != set(second):
        raise RuntimeError(f"tensors that only one side has: {sorted(set(first) ^ set(second))[:5]}")
    for name, tensor in first.items():
        other = second[name]
        if other.shape != tensor.shape and ".mlp.experts." in name:  # one way in modules, the other as published
            other = other.transpose(1, 2)
        same = tensor.dtype == other.dtype and tensor.shape == other.shape
        if not same or not torch.equal(tensor.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8)):
            raise RuntimeError(f"tensor {name} is not what it was")


def check_end(binary, folder, prompt, expected):
    """Ids end with the token that generation_config.json names, though no tokenizer is read."""
    config = folder / "generation_config.json"
    before = config.read_text() if config.exists() else None
    config.write_text(json.dumps({"eos_token_id": [expected[2]]}))
    code, said = run([f"{binary}/distsetup", "generate", str(folder), "--prompt-ids", " ".join(map(str, prompt[0].tolist())),
                      "--max-new-tokens", "12", "--quiet"])
    if before is None:
        config.unlink()
    else:
        config.write_text(before)
    if code != 0 or [int(word) for word in said.split()] != expected[:2]:
        raise RuntimeError(f"generate wrote {said[-500:]}, expected {expected[:2]} and the end")


def check_greedy(binary, path, folder):
    """As many tokens as the likeliest is clearly the likeliest: beyond a near tie both are right."""
    prompt = torch.randint(0, 259, (1, 37), generator=torch.Generator().manual_seed(5))
    model = class_of(folder).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        made = model.generate(prompt, max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0, output_logits=True,
                              return_dict_in_generate=True)
    expected = []
    ends = {end for of in (model.config, model.generation_config) for end in [getattr(of, "eos_token_id", None)] if isinstance(end, int)}
    if path != folder:  # a run that was trained on bytes, none of which ends a text
        ends = set()
    is_ended = False
    for token, logits in zip(made.sequences[0, 37:].tolist(), made.logits):
        is_ended = token in ends
        if is_ended:
            break
        best = logits[0].topk(2).values
        if best[0] - best[1] < 1e-3 * best[0].abs():
            break
        expected.append(token)
    code, said = run([f"{binary}/distsetup", "generate", str(path), "--prompt-ids", " ".join(map(str, prompt[0].tolist())),
                      "--max-new-tokens", "12", "--quiet"])
    if code != 0:
        raise RuntimeError(said[-500:])
    found = [int(word) for word in said.split()]
    ends_alike = found == expected if is_ended else len(found) == 12 or len(expected) < 12
    if found[:len(expected)] != expected or not ends_alike:
        raise RuntimeError(f"generate wrote {found}, Transformers {expected}")
    if path == folder and len(expected) > 2 and expected[2] not in expected[:2]:
        check_end(binary, folder, prompt, expected)
    counts["answers"] += 1


def check(binary, folder, name, dtype, mesh, text, whole):
    model, out = folder / f"{name}_{dtype}", folder / f"{name}_{dtype}_{mesh.replace(' ', '')}"
    data = folder / "data"
    still = ["--steps", "1", "--learning-rate", "0", "--min-learning-rate", "0"]
    loss = first_loss(binary, model, mesh, out / "still", data, still)
    if loss is None:
        return
    close(loss, transformers_loss(model, text))
    check_bytes(model, export(binary, out / "still", dtype))
    check_greedy(binary, model, model)
    if not whole:
        return
    check_greedy(binary, out / "still", model)
    first_loss(binary, model, mesh, out / "trained", data, ["--steps", "2", "--learning-rate", "0.01"])
    trained = export(binary, out / "trained", "fp32")
    again = first_loss(binary, trained, mesh, out / "again", data, still)
    close(again, transformers_loss(trained, text))
    if abs(again - loss) < 1e-4 * loss:
        raise RuntimeError(f"training changed nothing: {loss} {again}")


def check_adapters(binary, folder, name, text):
    """Beside a tower for pictures: PEFT's model with the adapters has the logits of the merged export, and none of them is in the tower."""
    model, out = folder / f"{name}_fp32", folder / f"{name}_adapters"
    # PEFT takes gate_proj, up_proj and down_proj of such a model for its experts (0.21, transformers_weight_conversion.py).
    targets = ["--lora-targets", "q_proj,k_proj,v_proj,o_proj"] if name == "glm4v_moe" else []
    first_loss(binary, model, "1", out, folder / "data", ["--finetune", "lora", "--steps", "3", "--learning-rate", "0.02", *targets])
    write(binary, out, out / "tuned", "fp32")
    write(binary, out, out / "merged", "fp32", "--merge")
    kind = class_of(model)
    base, merged = (kind.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval() for path in (model, out / "merged"))
    ids = torch.arange(97, 113)[None]
    with torch.no_grad():
        before = base(input_ids=ids).logits
        tuned = PeftModel.from_pretrained(base, out / "tuned").eval()
        with_adapters, expected = tuned(input_ids=ids).logits, merged(input_ids=ids).logits
    adapted = [key for key, _ in tuned.named_parameters() if ".lora_" in key]
    if not adapted or any(".language_model." not in key for key in adapted):
        raise RuntimeError(f"adapters are on {adapted[:3]}")
    if (with_adapters - expected).abs().max() > 1e-5 or (before - expected).abs().max() < 1e-3:
        raise RuntimeError("the adapters are not what was merged")
    # A run that goes on from them, and changes nothing.
    again, still = out / "again", ["--adapter-from", str(out / "tuned"), "--steps", "1", "--learning-rate", "0", "--min-learning-rate", "0"]
    close(first_loss(binary, model, "1", again, folder / "data", still), transformers_loss(out / "merged", text))
    write(binary, again, again / "tuned", "fp32")
    check_bytes(out / "tuned", again / "tuned")


def close(found, expected):
    if abs(found - expected) > 1e-5 * abs(expected):
        raise RuntimeError(f"loss {found}, Transformers has {expected}")


def save(folder, name, family, changes):
    torch.manual_seed(7)
    if family in WITH_PICTURES:
        config, kind = AutoConfig.for_model(**{"model_type": family, **changes}), AutoModelForImageTextToText
    else:
        config, kind = AutoConfig.for_model(family, **{**settings(family, changes), "vocab_size": 259}), AutoModelForCausalLM  # odd: padded with tp
    model = kind.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.08 + (parameter if parameter.dim() == 1 else 0))
        for _, correction in corrections(model):
            correction.copy_(torch.randn_like(correction) * 0.05)
    model.tie_weights()
    for number, (dtype, torch_type) in enumerate(TYPES.items()):
        model.to(torch_type).save_pretrained(folder / f"{name}_{dtype}", max_shard_size=["5GB", "60KB", "100KB"][number])


def to_mxfp4(folder):
    """The experts of a folder in MXFP4, as GPT-OSS is published: random codes, scales of 2^-9 to 2^-3."""
    tensors, generator = {}, torch.Generator().manual_seed(11)
    for name, tensor in load_file(folder / "model.safetensors").items():
        if not name.endswith((".gate_up_proj", ".down_proj")):
            tensors[name] = tensor
            continue
        experts, columns, rows = tensor.shape
        tensors[f"{name}_blocks"] = torch.randint(256, (experts, rows, columns // 32, 16), generator=generator).to(torch.uint8)
        tensors[f"{name}_scales"] = torch.randint(118, 125, (experts, rows, columns // 32), generator=generator).to(torch.uint8)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                                                         "model.embed_tokens", "lm_head"]}
    (folder / "config.json").write_text(json.dumps(config))


def check_mxfp4(binary, folder, text):
    """Of a folder in MXFP4: the first loss is Transformers', which widens it; what is exported is bf16 and goes on at the same loss."""
    name = "gpt_oss_mxfp4"
    save(folder, name, "gpt_oss", {**FAMILIES["gpt_oss"][1], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                            "num_local_experts": 6})
    model, out = folder / f"{name}_fp32", folder / name
    to_mxfp4(model)
    still = ["--steps", "1", "--learning-rate", "0", "--min-learning-rate", "0"]
    for mesh in ("1", "zero3 × 3", "tp 2", "ep 2"):
        loss = first_loss(binary, model, mesh, out / mesh.replace(" ", ""), folder / "data", still)
        close(loss, transformers_loss(model, text))
    exported = export(binary, out / "1", "bf16")
    close(first_loss(binary, exported, "zero3 × 2", out / "again", folder / "data", still), transformers_loss(exported, text))


def main():
    binary, folder, chosen = sys.argv[1], Path(sys.argv[2]), [name for name in sys.argv[3:] if name != "--every-mesh"]
    every_mesh = "--every-mesh" in sys.argv[3:]
    # A load-balancing loss is part of the printed loss and no weight; tokens of one expert are no other files.
    families = {name: family for name, family in FAMILIES.items() if not name.endswith(("_balanced", "_adversarial", "_capacity"))}
    families = {**families, "qwen3_tied": ("qwen3", {"tie_word_embeddings": True}), "granite_tied": ("granite", {"tie_word_embeddings": True}),
                **{name: (name, changes) for name, changes in WITH_PICTURES.items()}}
    generator = torch.Generator().manual_seed(3)
    text = bytes(torch.randint(97, 123, (LENGTH * SEQUENCES + 1,), generator=generator).tolist())
    (folder / "data").mkdir()
    (folder / "data/text.txt").write_bytes(text)
    for number, name in enumerate(chosen or families):
        save(folder, name, *families[name])
        chosen_meshes = [(offset, mesh) for offset, mesh in enumerate(MESHES)
                         if every_mesh or offset == number % len(MESHES)]
        if families[name][0] in ("mixtral", "gpt_oss", "granitemoe", "granitemoeshared", "flex_olmo", "hy_v3", "mellum") or families[name][0].endswith("_moe"):
            chosen_meshes += [(len(MESHES), mesh) for mesh in SHARED_EXPERTS]
        if name in WITH_PICTURES:
            try:
                check_adapters(binary, folder, name, text)
            except RuntimeError as failure:
                failures.append(f"{name}, adapters: {failure}")
                print(failures[-1], flush=True)
        for offset, mesh in chosen_meshes:
            dtype = list(TYPES)[(number + offset) % len(TYPES)]  # every family in every type, every mesh in every type
            try:
                check(binary, folder, name, dtype, mesh, text, every_mesh or chosen or number % 6 == 0)
            except RuntimeError as failure:
                failures.append(f"{name}, {dtype}, {mesh}: {failure}")
                print(failures[-1], flush=True)
    if not chosen or "gpt_oss" in chosen:
        try:
            check_mxfp4(binary, folder, text)
        except RuntimeError as failure:
            failures.append(f"gpt_oss in MXFP4: {failure}")
            print(failures[-1], flush=True)
    print(", ".join(f"{count} {what}" for what, count in counts.items()) + f", {len(failures)} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
