#!/usr/bin/env python3
"""The emitted scripts on 1, 2 and 4 ranks against the one-rank run: same losses, gradient norms and parameters, and bytes as predicted.

usage: parity.py light|pairwise|all

A cell is sharding x recompute x accumulation x precision x ranks x model; some have tensor or context parallelism too. Each is planned,
emitted, started with its launch.sh; every other one a second time with freed memory poisoned, which must give the same bits, and with
`all` the others a second time too. `light` is a handful of cells, `pairwise` a selection in which every pair of values of two factors
occurs, `all` every cell. Standard library only; steps and sizes are small.
Leaves out: comparison with PyTorch (parity_oracle_all.sh), resuming (resume.sh).
"""
import concurrent.futures
import hashlib
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(os.environ.get("DISTSETUP_SOURCE") or pathlib.Path(__file__).resolve().parents[2])
BIN = pathlib.Path(os.environ.get("DISTSETUP_BIN") or SOURCE / "build/release/bin")
sys.path.insert(0, str(SOURCE / "tests/oracle"))
import files  # noqa: E402

STEPS, LENGTH, GLOBAL_BATCH = 20, 32, 16
LOSS, NORM, PARAMETER, BF16_LOSS = 1e-5, 1e-4, 1e-4, 1e-2  # relative
# bf16 runs drift apart from fp32's step by step, and single norms then differ at will: the first steps say whether the sum is right.
BF16_NORM, BF16_NORM_STEPS = 1e-2, 5
WORKSPACE_SHARE, WORKSPACE_BYTES = 0.02, 64 * 1024

FACTORS = {
    "sharding": ["ddp", "zero1", "zero2", "zero3", "hybrid"],
    "recompute": ["none", "selective", "keep_attention", "full"],
    "accumulation": [1, 4],
    "precision": ["fp32", "bf16"],
    "ranks": [1, 2, 4],
    "model": ["tiny", "tiny_tied", "tiny_qwen", "odd"],
}
# Nothing in it is a multiple of the shard alignment: every rank's shard is padded.
ODD = "{family: llama, num_layers: 3, hidden: 30, num_heads: 5, num_kv_heads: 1, head_size: 6, feed_forward: 37, vocabulary: 259}"


def is_legal(cell):
    return cell.get("sharding") != "hybrid" or cell.get("ranks", 4) == 4


def all_cells():
    """Every cell of the first five factors; models take turns."""
    names = list(FACTORS)[:-1]
    cells = [dict(zip(names, values)) for values in itertools.product(*(FACTORS[n] for n in names))]
    cells = [c for c in cells if is_legal(c)]
    return [dict(c, model=FACTORS["model"][i % 4]) for i, c in enumerate(cells)]


def pairs_of(cell):
    return {(a, cell[a], b, cell[b]) for a, b in itertools.combinations(FACTORS, 2) if a in cell and b in cell}


def pairwise_cells():
    """Greedy: always the cell that covers most pairs that are still uncovered, the first among equals."""
    legal = [c for c in (dict(zip(FACTORS, v)) for v in itertools.product(*FACTORS.values())) if is_legal(c)]
    uncovered = set().union(*(pairs_of(c) for c in legal))
    cells = []
    while uncovered:
        best = max(legal, key=lambda c: len(pairs_of(c) & uncovered))
        uncovered -= pairs_of(best)
        cells.append(best)
    return cells


def extra_cells():
    """What the factors do not name."""
    cell = {"sharding": "zero3", "recompute": "none", "accumulation": 4, "precision": "fp32", "ranks": 2, "model": "odd"}
    return [
        dict(cell, more=["--reshard-after-forward", "false"]),
        dict(cell, ranks=4, accumulation=1, recompute="every_k:2", more=["--reshard-after-forward", "false"]),
        dict(cell, ranks=4, sharding="zero2", more=["--dp-replicate", "2", "--dp-shard", "2"]),
        dict(cell, ranks=4, sharding="zero1", recompute="full", more=["--dp-replicate", "2", "--dp-shard", "2"]),
        dict(cell, ranks=3, recompute="selective", accumulation=1, batch=15),
        dict(cell, recompute="selective", model="quickstart"),
        dict(cell, recompute="keep_attention", more=["--loss-head", "chunked"]),
        dict(cell, ranks=4, tp=2, model="tiny_tied", more=["--loss-head", "chunked"]),
        dict(cell, ranks=4, sharding="zero2", accumulation=1, precision="bf16", more=["--loss-head", "chunked"]),
        dict(cell, ranks=4, sharding="zero2", more=["--reductions-in-flight", "3"]),
        dict(cell, ranks=4, tp=2, model="tiny"),
        dict(cell, ranks=4, tp=2, model="tiny_tied", sharding="zero1", recompute="full"),
        dict(cell, ranks=4, tp=2, model="tiny_qwen", sharding="ddp", recompute="selective"),
        dict(cell, ranks=2, tp=2, model="tiny_qwen", sharding="ddp", recompute="full", accumulation=1),
        dict(cell, ranks=4, tp=2, model="tiny", sharding="zero2", accumulation=1, precision="bf16"),
        dict(cell, ranks=4, cp=2, model="tiny_qwen"),
        dict(cell, ranks=4, cp=4, model="tiny_tied", sharding="ddp", recompute="full"),
        dict(cell, ranks=4, cp=2, tp=2, model="tiny_qwen", sharding="zero1", recompute="selective"),
        dict(cell, ranks=4, cp=2, method="ulysses", model="tiny_qwen", sharding="zero2"),
        dict(cell, ranks=2, cp=2, model="tiny", sharding="zero3", accumulation=1, precision="bf16"),
    ]


def light_cells():
    row = lambda *values: dict(zip(FACTORS, values))
    return [
        row("zero3", "selective", 4, "fp32", 2, "odd"),
        row("zero2", "none", 4, "fp32", 4, "odd"),
        row("hybrid", "full", 1, "fp32", 4, "tiny_qwen"),
        row("ddp", "none", 1, "bf16", 2, "tiny_qwen"),
        row("zero1", "full", 4, "bf16", 1, "odd"),
        dict(row("zero3", "full", 4, "fp32", 4, "tiny_qwen"), tp=2),
        dict(row("zero3", "full", 4, "fp32", 4, "tiny_qwen"), cp=2),
        dict(row("zero3", "keep_attention", 4, "fp32", 2, "tiny_tied"), more=["--loss-head", "chunked", "--reductions-in-flight", "2"]),
    ]


def data_ranks(cell):
    return cell["ranks"] // cell.get("tp", 1) // cell.get("cp", 1)


def name_of(cell):
    name = "-".join(str(cell[f]) for f in ("model", "sharding", "recompute")) + f"-a{cell['accumulation']}-{cell['precision']}-{cell['ranks']}ranks"
    for axis in ("tp", "cp"):
        name += f"-{axis}{cell[axis]}" if axis in cell else ""
    name += "-" + cell["method"] if "method" in cell else ""
    return (name + "".join(cell.get("more", [])).replace("--", "-")).replace(":", "")


class Failed(Exception):
    pass


def command(arguments, work, log):
    environment = dict(os.environ, PATH=f"{BIN}:{os.environ['PATH']}", OMP_NUM_THREADS="1", DISTSETUP=str(BIN / "distsetup"))
    with open(log, "w") as out:
        ended = subprocess.run([str(a) for a in arguments], cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
    code = ended.returncode
    if code != 0:
        raise Failed(f"{' '.join(str(a) for a in arguments)}: exit code {code}\n{pathlib.Path(log).read_text()}")


def make_corpus(folder):
    """Documents of 20 to 620 bytes: most are shorter than a window or end inside one. The text never changes (it is a copy of headers of
    this repository): whether two runs drift apart in 20 steps depends on the text as much as on the learning rate.
    """
    folder.mkdir()
    text = (SOURCE / "tests/data/parity.txt").read_bytes()
    at = 0
    for i in range(100):
        size = 20 + (i * 7919) % 601
        (folder / f"{i:03}.txt").write_bytes(text[at : at + size])
        at += size
    if at != len(text):
        raise Failed(f"tests/data/parity.txt has {len(text)} bytes, expected {at}")


def make_run_files(work):
    """A rate at which the loss falls by a fifth while rounding stays rounding: at larger ones PyTorch, started from weights that differ
    by 1e-7, differs from itself in a gradient norm by up to 3e-2 after 15 steps. Epsilon 1e-6 keeps gradients that are zero but for
    rounding from moving a parameter by a whole step.
    """
    for model in FACTORS["model"] + ["quickstart"]:
        rate = "1.5e-4" if model == "quickstart" else "2e-3"
        (work / f"{model}.yaml").write_text(f"""version: 1
model: {ODD if model == "odd" else model}
hardware: {{gpu: cpu, nodes: 1}}
train: {{sequence_length: {LENGTH}, global_batch: {GLOBAL_BATCH}, steps: {STEPS}, learning_rate: {rate}, min_learning_rate: {rate}, warmup_steps: 5,
  epsilon: 1e-6, seed: 1}}
data: {{paths: [data], tokenizer: bytes}}
launch: {{init_timeout: 120s, collective_timeout: 120s}}
""")


def plan(cell, work, name):
    batch = cell.get("batch", GLOBAL_BATCH)
    flags = ["--gpus", cell["ranks"], "--tp", cell.get("tp", 1), "--cp", cell.get("cp", 1), "--cp-method", cell.get("method", "allgather"), "--recompute", cell["recompute"], "--precision", cell["precision"], "--global-batch", batch,
             "--gradient-accumulation", cell["accumulation"], "--micro-batch", batch // cell["accumulation"] // data_ranks(cell)]
    if cell["sharding"] == "hybrid":
        flags += ["--sharding", "zero3", "--dp-replicate", "2", "--dp-shard", cell["ranks"] // 2]
    else:
        flags += ["--sharding", cell["sharding"]]
    if cell["sharding"] in ("zero3", "hybrid") and "more" not in cell:
        flags += ["--reshard-after-forward", "true"]
    flags += cell.get("more", [])
    command([BIN / "distsetup", "plan", f"{cell['model']}.yaml", *flags, "--output", f"{name}/plan.json"], work, work / f"{name}.log")
    made = json.loads((work / name / "plan.json").read_text())
    mesh = made["mesh"]
    found = [made["strategy"]["sharding"], made["gradient_accumulation"], mesh["dp_replicate"] * mesh["dp_shard"],
             made["precision"]["compute"], made["recompute"]["policy"]]
    asked = ["zero3" if cell["sharding"] == "hybrid" else cell["sharding"], cell["accumulation"], data_ranks(cell),
             cell["precision"], cell["recompute"].split(":")[0]]
    if found != asked:
        raise Failed(f"the plan is {found}, asked for {asked}")


def launch(work, name, run, arguments=()):
    """Emits the plan into NAME/RUN and starts launch.sh there; what it left."""
    folder = work / name / run
    command([BIN / "distsetup", "emit", "--target", "native", "--plan", f"{name}/plan.json", "--output", folder], work, work / f"{name}.{run}.log")
    command([folder / "launch.sh", "--threads", "1", *arguments], work, work / f"{name}.{run}.log")
    checkpoint = folder / "checkpoints" / f"checkpoint_{STEPS}"
    result = {
        "folder": folder,
        "checkpoint": checkpoint,
        "steps": files.read_metrics(folder / "metrics.jsonl"),
        "evaluations": files.read_metrics(folder / "metrics.jsonl", "evaluation"),
        "report": json.loads((folder / "report.json").read_text()),
        "digests": {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(checkpoint.glob("rank_*.safetensors"))},
    }
    if len(result["steps"]) != STEPS or result["report"]["status"] != "completed" or not result["digests"]:
        raise Failed(f"{len(result['steps'])} steps, {result['report']['status']}, {len(result['digests'])} checkpoint files")
    return result


def relative(a, b):
    """NaN, which max() may drop, counts as infinite."""
    difference = abs(a - b) / abs(b)
    return difference if difference == difference else float("inf")


def worst(mine, reference, key):
    return max(relative(m[key], r[key]) for m, r in zip(mine["steps"], reference["steps"], strict=True))


def worst_parameter(mine, reference):
    """Largest difference of a tensor's elements over its largest element; and whose."""
    mine, reference = files.read_checkpoint(mine["checkpoint"]), files.read_checkpoint(reference["checkpoint"])
    if {n: s for n, (s, _) in mine.items()} != {n: s for n, (s, _) in reference.items()}:
        raise Failed(f"parameters differ in name or shape: {sorted(mine)} and {sorted(reference)}")
    differences = []
    for name, (_, values) in mine.items():
        if any(value != value for value in values):
            raise Failed(f"{name} holds NaN")
        expected = reference[name][1]
        differences.append((max(abs(a - b) for a, b in zip(values, expected)) / max(abs(b) for b in expected), name))
    return max(differences)


def check(complaints, what, value, limit):
    if not value <= limit:  # so that NaN is a complaint
        complaints.append(f"{what}: {value:.3g}, at most {limit:g}")


def check_memory(result, precision, complaints):
    """Every class of bytes as planned, to the byte; what library operations take (workspace) within its limits. In bf16 they take
    oneDNN's scratch, which depends on the processor: its table is an upper bound, and where less than half of it is taken, or much
    less in bytes, the peak may move.
    """
    report = result["report"]
    rows = {row["what"]: row for row in report["comparison"] if "predicted_bytes" in row}
    missing = {"parameter shard", "gradient", "optimizer state", "activation", "arena", "workspace", "peak allocated"} - rows.keys()
    if missing:
        complaints.append(f"report.json does not compare {sorted(missing)}")
        return "?"
    limit = max(WORKSPACE_BYTES, WORKSPACE_SHARE * rows["workspace"]["predicted_bytes"])
    slack = rows["workspace"]["predicted_bytes"] if precision == "bf16" else limit
    for what, row in rows.items():
        low, high = (-slack, limit) if what in ("workspace", "peak allocated") else (0, 0)
        if not low <= row["difference_bytes"] <= high:
            complaints.append(f"{what}: {row['measured_bytes']} bytes, predicted {row['predicted_bytes']}")
    measured, predicted = report["measured_peak_instruction"], report["predicted_peak_instruction"]
    far = min(limit, rows["workspace"]["predicted_bytes"] / 2)
    loose = precision == "bf16" and -rows["peak allocated"]["difference_bytes"] > far
    if measured != predicted and not loose:
        complaints.append(f"the peak is at {measured}, predicted {predicted}")
    return f"{rows['workspace']['difference_bytes']:+d} B" + (f" (peak at {measured}, predicted {predicted})" if measured != predicted else "")


def check_tokens(result, cell, complaints):
    """The log's token counts are those of the documents, and ranks have different ones."""
    made = json.loads((result["folder"] / "plan.json").read_text())
    batches = files.Batches(made, result["folder"])
    unequal = 0
    for step in result["steps"]:
        batch = batches.next()
        if files.valid_tokens(batch) != step["valid_tokens"]:
            complaints.append(f"step {step['step']}: {step['valid_tokens']} tokens in the log, {files.valid_tokens(batch)} in the documents")
        unequal += len({files.valid_tokens(batch, rank) for rank in range(data_ranks(cell))}) > 1
    if data_ranks(cell) > 1 and unequal < STEPS // 2:
        complaints.append(f"ranks have different numbers of tokens in {unequal} steps only")


def run_cell(index, cell, work, references, reruns_each):
    name, complaints, start = f"{index:03}-{name_of(cell)}", [], time.monotonic()
    try:
        plan(cell, work, name)
        first = launch(work, name, "first")
        poison = index % 2 == 0
        second = launch(work, name, "second", ["--poison"] if poison else []) if poison or reruns_each else first
        for what in ("loss", "gradient_norm", "valid_tokens"):
            if [s[what] for s in first["steps"]] != [s[what] for s in second["steps"]]:
                complaints.append(f"{what} differs between the first and the {'poisoned' if poison else 'second'} run")
        if first["digests"] != second["digests"]:
            complaints.append(f"checkpoints differ between the first and the {'poisoned' if poison else 'second'} run")
        workspace = check_memory(first, cell["precision"], complaints)
        check_tokens(first, cell, complaints)
        reference = references[cell["model"], cell.get("batch", GLOBAL_BATCH)]
        if reference is None:
            raise Failed("its one-rank run failed")
        loss, norm = worst(first, reference, "loss"), worst(first, reference, "gradient_norm")
        if cell["precision"] == "fp32":
            difference, whose = worst_parameter(first, reference)
            parameter = f"{difference:.1e} {whose}"
            check(complaints, "losses against the one-rank run", loss, LOSS)
            check(complaints, "gradient norms against the one-rank run", norm, NORM)
            check(complaints, f"parameters against the one-rank run, {whose}", difference, PARAMETER)
            held_out = worst({"steps": first["evaluations"]}, {"steps": reference["evaluations"]}, "held_out_loss")
            check(complaints, "held-out losses against the one-rank run", held_out, LOSS)
        else:
            parameter = "-"
            check(complaints, "final loss against fp32", relative(first["steps"][-1]["loss"], reference["steps"][-1]["loss"]), BF16_LOSS)
            early = worst({"steps": first["steps"][:BF16_NORM_STEPS]}, {"steps": reference["steps"][:BF16_NORM_STEPS]}, "gradient_norm")
            check(complaints, f"gradient norms of the first {BF16_NORM_STEPS} steps against fp32", early, BF16_NORM)
        line = f"{time.monotonic() - start:5.1f} s  loss {loss:.1e}  norm {norm:.1e}  workspace {workspace}  parameters {parameter}"
    except (Failed, OSError, ValueError, KeyError, AssertionError) as failure:
        complaints.append(f"{type(failure).__name__}: {failure}")
        line = "did not finish"
    return name, line, complaints


def run_reference(model, batch, work):
    """One rank, everything kept, one micro-batch. Its loss must fall by a fifth: what is compared is a run that learns."""
    cell = {"sharding": "ddp", "recompute": "none", "accumulation": 1, "precision": "fp32", "ranks": 1, "model": model, "batch": batch}
    name = f"reference-{model}-{batch}"
    plan(cell, work, name)
    result = launch(work, name, "first")
    losses = [s["loss"] for s in result["steps"]]
    if not losses[-1] <= 0.8 * losses[0]:
        raise Failed(f"the loss of {model} falls from {losses[0]} to {losses[-1]} only")
    return result


def main():
    which = sys.argv[1] if len(sys.argv) == 2 else ""
    if which not in ("light", "pairwise", "all"):
        sys.exit(__doc__)
    cells = light_cells() if which == "light" else (pairwise_cells() if which == "pairwise" else all_cells()) + extra_cells()
    start = time.monotonic()
    failures = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2)) as pool:
        work = pathlib.Path(folder)
        make_corpus(work / "data")
        make_run_files(work)
        wanted = sorted({(c["model"], c.get("batch", GLOBAL_BATCH)) for c in cells})
        references = {}
        for key, future in [(key, pool.submit(run_reference, *key, work)) for key in wanted]:
            try:
                references[key] = future.result()
            except (Failed, OSError, ValueError, KeyError) as failure:
                references[key] = None
                failures += 1
                print(f"FAILED one-rank run of {key[0]}: {failure}", flush=True)
        for future in [pool.submit(run_cell, i, cell, work, references, which == "all") for i, cell in enumerate(cells)]:
            name, line, complaints = future.result()
            print(f"{name:<52} {line}", flush=True)
            for complaint in complaints:
                print(f"FAILED {name}: {complaint}", flush=True)
            failures += len(complaints) > 0
    print(f"{len(cells)} cells, {failures} failed, {time.monotonic() - start:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
