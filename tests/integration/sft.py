"""sft.py BIN FOLDER TOKENIZER: conversations through data prepare and the bundled trainer, and through Transformers.

Of each mesh the first step's loss is what Transformers has for the same conversations: its template, its assistant mask, its logits, and
the mean over the trained tokens of all of them. The second step's loss has to be another one, and lower."""
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

LENGTH, CONVERSATIONS = 96, 12
TEMPLATE = """{% for m in messages %}{{ '[' + m['role'] + '] ' }}{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] + eos_token }}\
{% endgeneration %}{% else %}{{ m['content'] }}{% endif %}{{ '\\n' }}{% endfor %}"""
MESHES = {
    "1": ["--gpus", "1"],
    "zero3 × 2": ["--gpus", "2", "--sharding", "zero3"],
    "ddp × 3": ["--gpus", "3", "--sharding", "ddp"],
    "tp 2": ["--gpus", "2", "--tp", "2"],
    "cp 2, ring": ["--gpus", "2", "--cp", "2", "--cp-method", "ring"],
    "pp 2": ["--gpus", "2", "--pp", "2"],
}
WORDS = "a plan that fits is better than the trainer reads every rank keeps its shard of state and gradients 345 Größe 東京".split()


def run(arguments):
    done = subprocess.run(arguments, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments[:4])}: {(done.stdout + done.stderr)[-600:]}")
    return done.stdout


def conversations():
    chance = random.Random(11)
    say = lambda: " ".join(chance.choice(WORDS) for _ in range(chance.randint(1, 9)))
    return [[{"role": role, "content": say()} for _ in range(chance.randint(1, 3)) for role in ("user", "assistant")]
            for _ in range(CONVERSATIONS)]


def write_model(folder, tokenizer):
    torch.manual_seed(5)
    shutil.copy(tokenizer / "tokenizer.json", folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "chat_template": TEMPLATE}))
    loaded = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), eos_token="</s>")
    loaded.chat_template = TEMPLATE
    config = LlamaConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64,
                         vocab_size=len(loaded) + len(loaded) % 2, max_position_embeddings=128)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder)
    return loaded, model


def transformers_loss(tokenizer, model, rows):
    total, count, cut = 0.0, 0, 0
    for messages in rows:
        made = tokenizer.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True, tokenize=True)
        ids, mask = made["input_ids"][:LENGTH + 1], made["assistant_masks"][:LENGTH + 1]
        cut += len(made["input_ids"]) > LENGTH + 1
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids[:-1]]), use_cache=False).logits[0].double()
        losses = F.cross_entropy(logits, torch.tensor(ids[1:]), reduction="none")
        trained = torch.tensor(mask[1:], dtype=torch.bool)
        total, count = total + losses[trained].sum().item(), count + int(trained.sum())
    return total / count, count, cut


def main():
    binary, folder, tokenizer_folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    model_folder = folder / "model"
    model_folder.mkdir()
    tokenizer, model = write_model(model_folder, tokenizer_folder)
    rows = conversations()
    (folder / "chats.jsonl").write_text("".join(json.dumps({"messages": m}, ensure_ascii=False) + "\n" for m in rows))
    run([f"{binary}/distsetup", "data", "prepare", str(folder / "chats.jsonl"), "--tokenizer", str(model_folder), "--held-out", "0",
         "--output", str(folder / "set")])
    expected, trained_tokens, cut = transformers_loss(tokenizer, model, rows)
    assert 0 < cut < CONVERSATIONS, f"{cut} conversations are longer than a sequence"
    failures = 0
    for mesh, flags in MESHES.items():
        out = folder / mesh.replace(" ", "")
        run([f"{binary}/distsetup", "plan", "--model", str(model_folder), "--method", "sft", "--data", str(folder / "set"),
             "--gpu", "cpu", "--nodes", "1", "--sequence-length", str(LENGTH), "--global-batch", str(CONVERSATIONS), "--warmup-steps", "0",
             "--steps", "3", "--learning-rate", "0.003", "--precision", "fp32", *flags, "--output", str(out / "plan.json")])
        run([f"{binary}/distsetup", "launch", "--plan", str(out / "plan.json")])
        losses = [row["loss"] for row in map(json.loads, (out / "metrics.jsonl").read_text().splitlines()) if row["kind"] == "step"]
        good = abs(losses[0] - expected) <= 1e-5 * expected and losses[2] < losses[1] < losses[0]
        failures += not good
        print(f"{mesh}: first loss {losses[0]:.7f}, Transformers {expected:.7f}{'' if good else '  DIFFERS'}; then {losses[1]:.4f}, {losses[2]:.4f}")
    print(f"{len(MESHES)} meshes, {trained_tokens} trained tokens, {cut} conversations cut, {failures} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
