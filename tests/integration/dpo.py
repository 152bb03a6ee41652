"""dpo.py BIN FOLDER TOKENIZER: preference pairs through data prepare and the bundled trainer, and through TRL's DPOTrainer.

The token ids of both are the same. For each loss, on several meshes, eight steps of AdamW over all pairs have TRL's losses, gradient
norms, rewards and log-probabilities; and with adapters beside the model. So they have whichever way the reference is had: found before the
first step, run in each step as the model without its adapters, or as a frozen copy. Then: a run that is stopped goes on with the same numbers, without the starting weights; a run is
the same bits when it is repeated; a pair turned round is another run; and a longer run widens the margin."""
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer

LENGTH, PAIRS, STEPS, RATE = 48, 12, 8, 0.002
TEMPLATE = """{% for m in messages %}{{ '[' + m['role'] + '] ' }}{{ m['content'] }}{{ eos_token if m['role'] == 'assistant' }}{{ '\\n' }}\
{% endfor %}{% if add_generation_prompt %}{{ '[assistant] ' }}{% endif %}"""
MESHES = {
    "1": ["--gpus", "1"],
    "zero3 × 2": ["--gpus", "2", "--sharding", "zero3"],
    "ddp × 3": ["--gpus", "3", "--sharding", "ddp"],
    "zero1 × 2, accumulation 3": ["--gpus", "2", "--sharding", "zero1", "--gradient-accumulation", "3"],
    "hybrid 2 × 2": ["--gpus", "4", "--sharding", "zero3", "--dp-replicate", "2"],
    "tp 2": ["--gpus", "2", "--tp", "2"],
    "cp 2, ring": ["--gpus", "2", "--cp", "2", "--cp-method", "ring"],
    "pp 2": ["--gpus", "2", "--pp", "2"],
}
# Where the reference runs in the step, too: found before it is what the others are.
SHARDED = ["1", "zero3 × 2", "zero1 × 2, accumulation 3", "ddp × 3", "hybrid 2 × 2", "tp 2"]
# Ours, and TRL's name for it. TRL's sigmoid does not read label_smoothing; its aot does, and with one pair to a batch, which leaves
# nothing to sort, is the same formula (cDPO).
LOSSES = {"sigmoid": ([], "sigmoid", 0), "hinge": (["--loss", "hinge"], "hinge", 0), "ipo": (["--loss", "ipo"], "ipo", 0),
          "sigmoid, smoothed": (["--label-smoothing", "0.2"], "aot", 0.2)}
METRICS = ["rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies", "logps/chosen", "logps/rejected"]
WORDS = "a plan that fits is better than the trainer reads every rank keeps its shard of state and gradients 345 Größe 東京".split()


def run(arguments, expect=0):
    done = subprocess.run(arguments, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}, check=False)
    if done.returncode != expect:
        raise RuntimeError(f"{' '.join(arguments[:4])}: {done.returncode} {(done.stdout + done.stderr)[-900:]}")
    return done.stdout


def make_pairs(chance, chats):
    say = lambda: " ".join(chance.choice(WORDS) for _ in range(chance.randint(1, 9)))
    rows = []
    for _ in range(PAIRS):
        prompt, chosen, rejected = say(), say() + " yes", say() + " no"
        if chats:
            message = lambda role, content: [{"role": role, "content": content}]
            rows.append({"prompt": message("user", prompt), "chosen": message("assistant", chosen), "rejected": message("assistant", rejected)})
        else:
            rows.append({"prompt": prompt + " ", "chosen": chosen, "rejected": rejected})
    return rows


def write_model(folder, tokenizer):
    torch.manual_seed(5)
    shutil.copy(tokenizer / "tokenizer.json", folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "chat_template": TEMPLATE}))
    loaded = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), eos_token="</s>", pad_token="</s>")
    loaded.chat_template = TEMPLATE
    config = LlamaConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64,
                         vocab_size=len(loaded) + len(loaded) % 2, max_position_embeddings=128)
    model = AutoModelForCausalLM.from_config(config).float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder)
    return loaded


def adapters_of(folder):
    """What PEFT begins with: the second matrix is zero, so that the model begins as its reference."""
    begin = folder.parent / "begin"
    if not begin.exists():
        torch.manual_seed(3)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
        get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "up_proj"])).save_pretrained(begin)
    return begin


def trl_steps(folder, out, rows, tokenizer, loss, smoothing, adapters=False):
    each = 1 if loss == "aot" else PAIRS
    arguments = DPOConfig(
        output_dir=str(out), per_device_train_batch_size=each, gradient_accumulation_steps=PAIRS // each, max_steps=STEPS, learning_rate=RATE,
        lr_scheduler_type="constant", weight_decay=0.0, max_grad_norm=1.0, adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-8,
        max_length=LENGTH + 1, beta=0.1, label_smoothing=smoothing, loss_type=[loss], report_to=[], use_cpu=True, bf16=False, fp16=False,
        logging_steps=1, gradient_checkpointing=False, disable_tqdm=True, save_strategy="no", disable_dropout=True,
        model_init_kwargs={"dtype": "float32", "attn_implementation": "eager"})
    model = str(folder)
    if adapters:
        base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
        model, arguments.model_init_kwargs = PeftModel.from_pretrained(base, adapters_of(folder), is_trainable=True), None
    trainer = DPOTrainer(model=model, args=arguments, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
    ids = [(r["prompt_ids"] + r["chosen_ids"], r["prompt_ids"] + r["rejected_ids"], len(r["prompt_ids"])) for r in trainer.train_dataset]
    trainer.train()
    return ids, [row for row in trainer.state.log_history if "loss" in row]


class Ours:
    def __init__(self, binary, folder):
        self.binary, self.folder, self.runs = binary, folder, 0

    def prepare(self, rows, name):
        source = self.folder / f"{name}.jsonl"
        source.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))
        run([f"{self.binary}/distsetup", "data", "prepare", str(source), "--tokenizer", str(self.folder / "model"), "--held-out", "0",
             "--output", str(self.folder / name)])
        shown = json.loads(run([f"{self.binary}/distsetup", "data", "show", str(self.folder / name), "--tokenizer", str(self.folder / "model"),
                                "--samples", str(PAIRS), "--json"]))["samples"]
        return [(shown[i]["ids"], shown[i + 1]["ids"]) for i in range(0, len(shown), 2)]

    def planning(self, data, steps=STEPS):
        return [f"{self.binary}/distsetup", "plan", "--model", str(self.folder / "model"), "--method", "dpo", "--data", str(self.folder / data),
                "--gpu", "cpu", "--nodes", "1", "--sequence-length", str(LENGTH), "--global-batch", str(PAIRS), "--warmup-steps", "0",
                "--steps", str(steps), "--learning-rate", str(RATE), "--min-learning-rate", str(RATE), "--precision", "fp32"]

    def plan(self, data, flags, steps=STEPS, out=None):
        self.runs += 1
        out = out or self.folder / f"run{self.runs}"
        run([*self.planning(data, steps), *flags, "--output", str(out / "plan.json"), *(["--force"] if (out / "plan.json").exists() else [])])
        return out

    def launch(self, out, more=()):
        return run([f"{self.binary}/distsetup", "launch", "--plan", str(out / "plan.json"), *more])

    @staticmethod
    def steps(out):
        return [row for row in map(json.loads, (out / "metrics.jsonl").read_text().splitlines()) if row["kind"] == "step"]


def problems_of(ours, theirs):
    problems = []
    near = lambda a, b, relative, absolute: abs(a - b) <= relative * abs(b) + absolute
    for step, (a, b) in enumerate(zip(ours, theirs, strict=True), 1):
        if not near(a["loss"], b["loss"], 1e-5, 1e-6):
            problems.append(f"step {step}: loss {a['loss']}, TRL {b['loss']}")
        if not near(a["gradient_norm"], b["grad_norm"], 1e-4, 1e-6):
            problems.append(f"step {step}: gradient norm {a['gradient_norm']}, TRL {b['grad_norm']}")
        for metric in METRICS:
            if not near(a[metric], b[metric], 1e-5 if metric.startswith("logps") else 1e-4, 2e-5):
                problems.append(f"step {step}: {metric} {a[metric]}, TRL {b[metric]}")
    if any(abs(ours[0][m]) > 1e-5 for m in METRICS[:3]):
        problems.append(f"rewards before the first step: {[ours[0][m] for m in METRICS[:3]]}")
    return problems


def other_bytes(out):
    comparison = json.loads((out / "report.json").read_text())["comparison"]
    return [f"predicted bytes are not the measured ones: {row['what']}" for row in comparison if row.get("difference_bytes")]


def check_adapters(ours, data, rows, tokenizer):
    """LoRA's adapters on pairs; TRL's reference is the model without them, and so are all of ours where these begin with zeros."""
    model = ours.folder / "model"
    _, theirs = trl_steps(model, ours.folder / "trl", rows, tokenizer, "sigmoid", 0, adapters=True)
    problems = []
    for mesh, flags in MESHES.items():
        if "--tp" in flags or "--pp" in flags:
            continue
        cached = None
        for reference in ("cached", "shared", "sharded"):
            if reference == "sharded" and mesh not in ("1", "zero3 × 2", "zero1 × 2, accumulation 3"):
                continue
            out = ours.plan(data, [*flags, "--adapter-from", str(adapters_of(model)), "--reference", reference])
            ours.launch(out)
            found = problems_of(ours.steps(out), theirs)[:4] + other_bytes(out)
            cached = cached or ours.steps(out)
            found += differences(ours.steps(out), cached, 1e-6)
            print(f"adapters, {mesh}, {reference}: {STEPS} steps, loss {theirs[0]['loss']:.4f} to {theirs[-1]['loss']:.4f}")
            problems += [f"adapters, {mesh}, {reference}: {p}" for p in found]
    return problems + check_trained_adapters(ours, data)


def check_trained_adapters(ours, data):
    """Adapters that have been trained: with shared the reference is the model without them, with the others the model that is started from."""
    begin = ours.plan(data, ["--gpus", "1", "--adapter-from", str(adapters_of(ours.folder / "model"))])
    ours.launch(begin)
    trained = begin / "adapter"
    first = {}
    for reference in ("cached", "shared", "sharded"):
        out = ours.plan(data, ["--gpus", "2", "--sharding", "zero3", "--adapter-from", str(trained), "--reference", reference])
        ours.launch(out)
        first[reference] = ours.steps(out)
    problems = differences(first["sharded"], first["cached"], 1e-6)
    before = ours.steps(begin)[-1]
    if max(abs(first["cached"][0][m]) for m in METRICS[:3]) > 1e-5 or not first["shared"][0]["rewards/margins"] > before["rewards/margins"] / 2 > 0.01:
        problems.append(f"margins of trained adapters at the first step: {[(r, rows[0]['rewards/margins']) for r, rows in first.items()]}")
    return [f"trained adapters: {p}" for p in problems]


def differences(ours, theirs, tolerance):
    """Of two runs of ours."""
    off = max(abs(a[n] - b[n]) / max(abs(b[n]), 1) for a, b in zip(ours, theirs, strict=True) for n in NUMBERS)
    return [f"the numbers of two runs differ by {off}"] if off > tolerance else []


NUMBERS = ["loss", "gradient_norm", *METRICS]


def numbers(rows):
    return [[row[n] for n in NUMBERS] for row in rows]


def check_copy(ours, data, flags, cached):
    """A run with a frozen copy as its reference: stopped, on another mesh, beside other weights, and where it cannot be."""
    problems = []
    straight = ours.plan(data, [*flags, "--reference", "sharded"])
    ours.launch(straight)
    problems += differences(ours.steps(straight), ours.steps(cached), 1e-6) + other_bytes(straight)
    if (straight / "checkpoints/reference.safetensors").exists():
        problems.append("a reference that runs in the step is written to a file, too")
    again = ours.plan(data, [*flags, "--reference", "sharded"])
    ours.launch(again, ["--stop-after", "3"])
    moved = ours.folder / "moved"
    shutil.copytree(again, moved)
    ours.launch(again)
    if numbers(ours.steps(straight)) != numbers(ours.steps(again)):
        problems.append("a run with a frozen copy that was stopped and went on has other numbers")
    ours.plan(data, ["--gpus", "3", "--sharding", "zero1", "--gradient-accumulation", "4", "--reference", "sharded"], out=moved)
    weights = ours.folder / "model/model.safetensors"
    kept = weights.read_bytes()
    weights.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    refused = subprocess.run([f"{ours.binary}/distsetup", "launch", "--plan", str(moved / "plan.json")], capture_output=True, text=True, check=False)
    weights.write_bytes(kept)
    if refused.returncode == 0 or "frozen parameters of the digest" not in refused.stdout + refused.stderr:
        problems.append(f"other weights for the frozen copy: {refused.returncode} {(refused.stdout + refused.stderr)[-400:]}")
    ours.launch(moved)
    problems += differences(ours.steps(straight), ours.steps(moved), 1e-5)
    staged = ours.plan(data, ["--gpus", "2", "--pp", "2", "--gradient-accumulation", "4", "--reference", "sharded"])
    ours.launch(staged)
    problems += differences(ours.steps(straight), ours.steps(staged), 1e-5) + other_bytes(staged)
    refused = subprocess.run([*ours.planning(data), "--gpus", "2", "--reference", "shared"], capture_output=True, text=True, check=False)
    if refused.returncode == 0 or "this plan has no adapters" not in refused.stderr:
        problems.append(f"shared without adapters: {refused.returncode} {refused.stderr[-400:]}")
    return [f"frozen copy: {p}" for p in problems]


def check_runs(ours, data):
    """Repeated, stopped and turned round."""
    problems = []
    flags = ["--gpus", "2", "--sharding", "zero3", "--gradient-accumulation", "2"]
    straight = ours.plan(data, flags)
    ours.launch(straight)
    again = ours.plan(data, flags)
    ours.launch(again, ["--stop-after", "3"])
    weights = ours.folder / "model/model.safetensors"
    weights.rename(ours.folder / "elsewhere")
    ours.launch(again)
    (ours.folder / "elsewhere").rename(weights)
    if numbers(ours.steps(straight)) != numbers(ours.steps(again)):
        problems.append("a run that was stopped and went on without the starting weights has other numbers")
    lost = ours.plan(data, flags)
    ours.launch(lost, ["--stop-after", "3"])
    (lost / "checkpoints/reference.safetensors").unlink()
    ours.launch(lost)
    if numbers(ours.steps(straight)) != numbers(ours.steps(lost)):
        problems.append("a run whose reference was found again has other numbers")
    problems += other_bytes(straight) + check_copy(ours, data, flags, straight)
    free = ours.plan(data, [*flags, "--reference", "none"])
    ours.launch(free)
    first = ours.steps(free)[0]
    if abs(first["rewards/chosen"] - 0.1 * first["logps/chosen"]) > 1e-6 or (free / "checkpoints/reference.safetensors").exists():
        problems.append("without a reference a reward is beta times the log-probability")
    long = ours.plan(data, ["--gpus", "1"], 40)
    ours.launch(long)
    margins = [row["rewards/margins"] for row in ours.steps(long)]
    print(f"margin after 1, 10, 20, 40 steps: {margins[0]:.3f}, {margins[9]:.3f}, {margins[19]:.3f}, {margins[39]:.3f}")
    if not margins[0] < margins[9] < margins[19] < margins[39] or ours.steps(long)[-1]["rewards/accuracies"] != 1:
        problems.append("the reward margin does not grow")
    return problems


def main():
    binary, folder, tokenizer_folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    (folder / "model").mkdir()
    tokenizer = write_model(folder / "model", tokenizer_folder)
    ours, failures, checked = Ours(binary, folder), 0, 0
    for data, chats in (("texts", False), ("chats", True)):
        rows = make_pairs(random.Random(11), chats)
        prepared = ours.prepare(rows, data)
        for loss, (flags, trl_loss, smoothing) in LOSSES.items():
            if chats and loss != "sigmoid":
                continue
            ids, theirs = trl_steps(folder / "model", folder / "trl", rows, tokenizer, trl_loss, smoothing)
            same_ids = [(chosen, rejected) for chosen, rejected, _ in ids] == prepared
            cut = sum(len(c) > LENGTH + 1 or len(r) > LENGTH + 1 for c, r, _ in ids)
            assert 0 < cut < PAIRS, f"{cut} pairs are longer than a sequence"
            for mesh, mesh_flags in MESHES.items():
                if (loss != "sigmoid" or chats) and mesh not in ("1", "zero3 × 2", "tp 2"):
                    continue
                both = loss == "sigmoid" and not chats
                references = (["cached"] if both or mesh != "zero3 × 2" else []) + (["sharded"] if mesh in SHARDED and (both or mesh == "zero3 × 2") else [])
                cached = None
                for reference in references:
                    out = ours.plan(data, [*mesh_flags, *flags, "--reference", reference])
                    ours.launch(out)
                    cached = cached or ours.steps(out)
                    problems = ([] if same_ids else ["other token ids than TRL's"]) + problems_of(ours.steps(out), theirs) + other_bytes(out)
                    problems += differences(ours.steps(out), cached, 1e-6)
                    checked, failures = checked + 1, failures + bool(problems)
                    worst = max(abs(a["loss"] - b["loss"]) / max(abs(b["loss"]), 0.1) for a, b in zip(ours.steps(out), theirs))
                    print(f"{data}, {loss}, {mesh}, {reference}: {STEPS} steps, loss {theirs[0]['loss']:.4f} to {theirs[-1]['loss']:.4f}, "
                          f"off by {worst:.1e} at most" + "".join(f"\n  {p}" for p in problems[:4]))
    turned = ours.prepare([{**r, "chosen": r["rejected"], "rejected": r["chosen"]} for r in make_pairs(random.Random(11), False)], "turned")
    assert [(r, c) for c, r in turned] == ours.prepare(make_pairs(random.Random(11), False), "texts_again")
    out = ours.plan("turned", ["--gpus", "1"])
    ours.launch(out)
    _, theirs = trl_steps(folder / "model", folder / "trl", make_pairs(random.Random(11), False), tokenizer, "sigmoid", 0)
    if not problems_of(ours.steps(out), theirs):
        failures += 1
        print("pairs that are turned round have the same numbers")
    rows = make_pairs(random.Random(11), False)
    for problem in [*check_runs(ours, "texts"), *check_adapters(ours, "texts", rows, tokenizer)]:
        failures += 1
        print(problem)
    print(f"{checked} runs of {STEPS} steps against TRL, {failures} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
