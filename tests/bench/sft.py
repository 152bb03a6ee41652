"""Supervised fine-tuning with this trainer (zero3) against TRL's SFTTrainer under accelerate with FSDP2, two CPU ranks of a thread each.

usage: sft.py [--pairs N] [--steps N]

Both start from the same weights and train the same conversations with the same tokenizer, template and mask: the whole set is one
batch, so its order does not matter, and each conversation is longer than a row, so neither side pads. Packing is off. The losses of all
steps have to agree to 1e-3, or the comparison is void (exit code 1). A pair is a run of each, in turn; what counts is the median over
pairs of TRL's time over ours, of the median of a run's steps without the first three. MiB: the largest resident memory of a rank."""
import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

import peers
import runs
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

LENGTH, BATCH, WARM_UP = 256, 8, 3
TEMPLATE = """{% for m in messages %}{{ '[' + m['role'] + '] ' }}{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] + eos_token }}\
{% endgeneration %}{% else %}{{ m['content'] }}{% endif %}{{ '\\n' }}{% endfor %}"""
WORDS = "a plan that fits is better than the trainer reads every rank keeps its shard of state and gradients".split()


def write_model(folder):
    """Four layers of width 512, random weights; the tokenizer of the tests."""
    folder.mkdir()
    tokenizer = runs.SOURCE / "tests/data/tokenizers/bytes_of_words/tokenizer.json"
    shutil.copy(tokenizer, folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "chat_template": TEMPLATE}))
    described = json.loads(tokenizer.read_text())
    vocabulary = max([*described["model"]["vocab"].values(), *(t["id"] for t in described["added_tokens"])]) + 1
    torch.manual_seed(5)
    config = LlamaConfig(hidden_size=512, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4, intermediate_size=1408,
                         vocab_size=vocabulary + vocabulary % 2, max_position_embeddings=512)
    AutoModelForCausalLM.from_config(config).float().save_pretrained(folder)


def write_conversations(path):
    chance = random.Random(7)
    say = lambda words: " ".join(chance.choice(WORDS) for _ in range(words))
    rows = [[{"role": role, "content": say(30)} for _ in range(12) for role in ("user", "assistant")] for _ in range(BATCH)]
    path.write_text("".join(json.dumps({"messages": row}) + "\n" for row in rows))


def make_plan(work, steps):
    program = runs.BIN / "distsetup"
    quietly = {"check": True, "stdout": subprocess.DEVNULL}
    subprocess.run([program, "data", "prepare", work / "chats.jsonl", "--tokenizer", work / "model", "--held-out", "0", "--output", work / "set"], **quietly)
    subprocess.run([program, "plan", "--quiet", "--model", work / "model", "--method", "sft", "--data", work / "set", "--gpu", "cpu", "--nodes", "1", "--gpus", "2",
                    "--sharding", "zero3", "--sequence-length", str(LENGTH), "--global-batch", str(BATCH), "--micro-batch", str(BATCH // peers.RANKS),
                    "--recompute", "none", "--warmup-steps", "0", "--steps", str(steps), "--learning-rate", "1e-4", "--min-learning-rate", "1e-4",
                    "--precision", "fp32", "--checkpoint-every", "0", "--output", work / "plan.json"], **quietly)
    return work / "plan.json"


def run_ours(work, folder):
    steps, resident = peers.run_ours(work / "plan.json", folder)
    return {"s": [s["step_s"] for s in steps], "losses": [s["loss"] for s in steps], "mib": resident}


def run_trl(work, folder, steps):
    command = [sys.executable, "-W", "ignore", runs.SOURCE / "tests/bench/trl_peer.py", work / "model", work / "chats.jsonl", LENGTH, BATCH, steps, f"{folder}.json"]
    resident = peers.run_ranks("trl_peer.py", command, f"{folder}.log", repeats=2)
    found = json.loads(pathlib.Path(f"{folder}.json").read_text())
    return {"s": found["step_s"], "losses": found["losses"], "mib": resident}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=11)
    arguments = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp())
    write_model(work / "model")
    write_conversations(work / "chats.jsonl")
    plan = json.loads(make_plan(work, arguments.steps).read_text())
    ours, trl = [], []
    for pair in range(arguments.pairs):
        for who in ((ours, trl) if pair % 2 == 0 else (trl, ours)):
            who.append(run_ours(work, str(work / f"ours{pair}")) if who is ours else run_trl(work, str(work / f"trl{pair}"), arguments.steps))
        apart = max(abs(a - b) / b for a, b in zip(ours[-1]["losses"], trl[-1]["losses"], strict=True))
        print(f"pair {pair + 1}: losses {ours[-1]['losses'][0]:.5f} to {ours[-1]['losses'][-1]:.5f}, apart by {apart:.1e} at most", file=sys.stderr, flush=True)
        if apart > 1e-3:
            sys.exit(f"the losses differ, so the comparison is void: {ours[-1]['losses']} {trl[-1]['losses']}")
    middle = lambda run: statistics.median(run["s"][WARM_UP:])
    ratios = sorted(middle(t) / middle(o) for o, t in zip(ours, trl))
    tokens = BATCH * LENGTH
    speed = lambda many: tokens / statistics.median(middle(one) for one in many)
    print("| ours, tokens/s | TRL + FSDP2, tokens/s | TRL's time over ours: median of pairs (range) | ours, MiB per rank (predicted) | TRL, MiB per rank |\n|---|---|---|---|---|")
    print(f"| {speed(ours):.0f} | {speed(trl):.0f} | {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) | "
          f"{max(o['mib'] for o in ours):.0f} ({plan['memory']['device_bytes'] / 2**20:.0f}) | {max(t['mib'] for t in trl):.0f} |")
    shutil.rmtree(work)


main()
