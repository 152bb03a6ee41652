"""sft.py BIN FOLDER TOKENIZER: conversations through data prepare and the bundled trainer, and through Transformers.

Of each mesh the first step's loss is what Transformers has for the same conversations: its template, its assistant mask, its logits, and
the mean over the trained tokens of all of them. The second step's loss has to be another one, and lower. Packed rows have the same loss,
in Transformers with positions that begin again and a mask that keeps conversations apart. A packed run goes on, on 1, 3 and 2 ranks, with
the losses that it has in one go."""
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
PACKED = {
    "1": ["--gpus", "1"],
    "1, in 6 micro-batches": ["--gpus", "1", "--micro-batch", "1"],
    "zero3 × 2": ["--gpus", "2", "--sharding", "zero3"],
    "ddp × 3": ["--gpus", "3", "--sharding", "ddp"],
    "tp 2": ["--gpus", "2", "--tp", "2"],
    "cp 2, ulysses": ["--gpus", "2", "--cp", "2", "--cp-method", "ulysses"],
    "cp 2, ring": ["--gpus", "2", "--cp", "2", "--cp-method", "ring"],
    "cp 2, allgather": ["--gpus", "2", "--cp", "2", "--cp-method", "allgather"],
    "pp 2": ["--gpus", "2", "--pp", "2"],
}
REFUSED = {"ring on GPUs": ["--gpu", "h100_sxm", "--gpus", "2", "--cp", "2", "--cp-method", "ring"],
           "allgather on GPUs": ["--gpu", "h100_sxm", "--gpus", "2", "--cp", "2", "--cp-method", "allgather"],
           "fsdp2": ["--gpu", "h100_sxm", "--gpus", "2", "--trainer", "fsdp2"]}
WORDS = "a plan that fits is better than the trainer reads every rank keeps its shard of state and gradients 345 Größe 東京".split()


def run(arguments):
    done = subprocess.run(arguments, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments[:4])}: {(done.stdout + done.stderr)[-600:]}")
    return done.stdout


def conversations(count=CONVERSATIONS):
    chance = random.Random(11)
    say = lambda: " ".join(chance.choice(WORDS) for _ in range(chance.randint(1, 9)))
    return [[{"role": role, "content": say()} for _ in range(chance.randint(1, 3)) for role in ("user", "assistant")]
            for _ in range(count)]


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


def packed_loss(tokenizer, model, rows):
    """All conversations in one row."""
    ids, targets, positions, starts = [], [], [], []
    for messages in rows:
        made = tokenizer.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True, tokenize=True)
        one, mask = made["input_ids"][:LENGTH + 1], made["assistant_masks"][:LENGTH + 1]
        starts += [len(ids)] * (len(one) - 1)
        positions += range(len(one) - 1)
        ids += one[:-1]
        targets += [t if m else -100 for t, m in zip(one[1:], mask[1:])]
    start, place = torch.tensor(starts), torch.arange(len(ids))
    sees = (start[:, None] == start[None, :]) & (place[None, :] <= place[:, None])
    bias = torch.zeros(1, 1, len(ids), len(ids)).masked_fill(~sees, torch.finfo(torch.float32).min)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids]), position_ids=torch.tensor([positions]), attention_mask=bias, use_cache=False).logits[0]
    return F.cross_entropy(logits.double(), torch.tensor(targets)).item()


def losses_of(out):
    return [row["loss"] for row in map(json.loads, (out / "metrics.jsonl").read_text().splitlines()) if row["kind"] == "step"]


def plan_arguments(binary, folder, steps, more):
    return [f"{binary}/distsetup", "plan", "--model", str(folder / "model"), "--method", "sft", "--nodes", "1", "--sequence-length",
            str(LENGTH), "--warmup-steps", "0", "--steps", str(steps), "--learning-rate", "0.003", "--precision", "fp32", *more]


def packed(binary, folder, tokenizer, model):
    """Failures of packed runs."""
    for count in range(3 * CONVERSATIONS, 6 * CONVERSATIONS):  # until every mesh divides the rows
        rows = conversations(count)
        (folder / "many.jsonl").write_text("".join(json.dumps({"messages": m}, ensure_ascii=False) + "\n" for m in rows))
        shutil.rmtree(folder / "many", ignore_errors=True)
        run([f"{binary}/distsetup", "data", "prepare", str(folder / "many.jsonl"), "--tokenizer", str(folder / "model"), "--held-out", "0",
             "--output", str(folder / "many")])
        stats = json.loads(run([f"{binary}/distsetup", "data", "stats", str(folder / "many"), "--sequence-length", str(LENGTH), "--json"]))
        made = stats["packing"]["rows_packed"]
        if made % 6 == 0:
            break
    expected, _, _ = transformers_loss(tokenizer, model, rows)
    in_one_row = packed_loss(tokenizer, model, rows)
    failures = abs(in_one_row - expected) > 1e-6 * expected
    print(f"packed, {count} conversations in {made} rows: Transformers {expected:.7f} one by one, {in_one_row:.7f} in one row")
    data = ["--data", str(folder / "many"), "--packing"]
    first = None
    for mesh, flags in PACKED.items():
        out = folder / ("packed" + mesh.replace(" ", ""))
        run(plan_arguments(binary, folder, 3, [*data, "--gpu", "cpu", "--global-batch", str(made), *flags, "--output", str(out / "plan.json")]))
        run([f"{binary}/distsetup", "launch", "--plan", str(out / "plan.json")])
        losses = losses_of(out)
        first = first or losses
        good = abs(losses[0] - expected) <= 1e-5 * expected and max(abs(a - b) for a, b in zip(losses, first)) < 1e-4 and losses[2] < losses[0]
        failures += not good
        print(f"packed {mesh}: first loss {losses[0]:.7f}, Transformers {expected:.7f}{'' if good else '  DIFFERS'}; then {losses[1]:.4f}, {losses[2]:.4f}")
    failures += resumed(binary, folder, data)
    for what, flags in REFUSED.items():
        done = subprocess.run(plan_arguments(binary, folder, 3, [*data, "--global-batch", "6", *flags]), capture_output=True, text=True, check=False)
        good = done.returncode == 3 and "data.packing" in done.stderr + done.stdout or "packed row" in done.stderr
        failures += not good
        print(f"packed {what}: {done.stderr.strip().splitlines()[0] if done.stderr else 'NOT REFUSED'}")
    return failures


def resumed(binary, folder, data):
    """A run of nine steps in one go, and on 1, 3 and 2 ranks in turn."""
    straight, turns = folder / "straight", folder / "turns"
    common = [*data, "--gpu", "cpu", "--global-batch", "6", "--checkpoint-every", "3"]
    run(plan_arguments(binary, folder, 9, [*common, "--gpus", "1", "--output", str(straight / "plan.json")]))
    run([f"{binary}/distsetup", "launch", "--plan", str(straight / "plan.json")])
    losses = []
    for stop, ranks in ((3, "1"), (6, "3"), (9, "2")):
        plan = turns / f"plan{stop}.json"
        run(plan_arguments(binary, folder, 9, [*common, "--gpus", ranks, "--sharding", "zero3", "--output", str(plan)]))
        run([f"{binary}/distsetup", "launch", "--plan", str(plan), "--stop-after", "3"])
        losses = losses_of(turns)
    expected = losses_of(straight)
    good = len(losses) == 9 and max(abs(a - b) for a, b in zip(losses, expected)) < 1e-5
    print(f"packed, 9 steps on 1, 3 and 2 ranks in turn: {'as in one go' if good else f'DIFFERS: {losses} {expected}'}")
    return not good


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
    failures += packed(binary, folder, tokenizer, model)
    print(f"{len(MESHES) + len(PACKED)} meshes, {trained_tokens} trained tokens, {cut} conversations cut, {failures} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
