#!/usr/bin/env python3
"""distsetup-train and PyTorch on one GPU, in turn: step times, memory, and what the plan predicted.

usage: gpu.py [--pairs N] [--cases 1b,8b_slice] [--steps N] [--profile DIR]
       gpu.py --alone [--cases slice,slice_lora] [--steps N]

PyTorch is FSDP2 at world size 1 with torch.compile (gpu_peer.py). A run's time is the median of its steps without the first four; a
pair is one run of each; what counts is the median over pairs of the peer's time over ours. Bytes on the device are what the driver says
while the run trains, less what it said before. With --profile, profile.json of the last steps of each case is left in DIR.
--alone: no PyTorch; what was measured beside what the plan said, for ways to train and kinds of models (ALONE).
"""
import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import runs

WARM_UP = 4
CASES = {
    "1b": {"model": "llama3.2_1b", "length": 4096, "batch": 2, "recompute": "none"},
    "1b_same_bits": {"model": "llama3.2_1b", "length": 4096, "batch": 2, "recompute": "none", "deterministic": True},
    "1b_2k": {"model": "llama3.2_1b", "length": 2048, "batch": 8, "recompute": "selective"},
    "8b_slice": {"model": "{family: llama, num_layers: 2, hidden: 4096, num_heads: 32, num_kv_heads: 8, feed_forward: 14336, "
                          "vocabulary: 128256, rope_base: 500000}", "length": 8192, "batch": 1, "recompute": "none"},
    # Two layers of Qwen3 30B-A3B, with a smaller vocabulary.
    "experts": {"model": "{family: qwen3_moe, num_layers: 2, hidden: 2048, num_heads: 32, num_kv_heads: 4, head_size: 128, feed_forward: 6144, "
                         "vocabulary: 32000, rope_base: 1000000, qk_norm: true, num_experts: 128, experts_per_token: 8, "
                         "expert_feed_forward: 768, router_normalized: true}", "length": 4096, "batch": 2, "recompute": "none"},
    "small": {"model": "{family: llama, num_layers: 8, hidden: 512, num_heads: 8, num_kv_heads: 8, feed_forward: 1408, vocabulary: 1024}",
              "length": 512, "batch": 16, "recompute": "none"},
}

# Four layers as Llama 3.2 1B has them, and what the plan says of other ways to train them; then layers of other kinds.
LLAMA = ("{family: llama, num_layers: 4, hidden: 2048, num_heads: 32, num_kv_heads: 8, feed_forward: 8192, vocabulary: 32000, rope_base: 500000}")
SLICE = {"model": LLAMA, "length": 4096, "batch": 2, "recompute": "none"}
ALONE = {
    "slice": SLICE,
    "slice_full": SLICE | {"recompute": "full"},
    "slice_optimizer_on_host": SLICE | {"flags": ["--offload-optimizer", "host"]},
    "slice_parameters_on_host": SLICE | {"flags": ["--offload-parameters", "host"]},
    "slice_activations_on_host": SLICE | {"flags": ["--offload-activations", "host"]},
    "slice_lora": SLICE | {"flags": ["--finetune", "lora"]},
    "slice_qlora": SLICE | {"flags": ["--finetune", "qlora"]},
    "slice_8bit": SLICE | {"flags": ["--optimizer", "adamw_8bit"]},
    "slice_muon": SLICE | {"flags": ["--optimizer", "muon"]},
    "slice_32k": SLICE | {"length": 32768, "batch": 1, "recompute": "full", "flags": ["--loss-head", "chunked"]},
    "gpt_oss": SLICE | {"model": "{family: gpt_oss, num_layers: 2, hidden: 2880, num_heads: 64, num_kv_heads: 8, head_size: 64, feed_forward: 2880, vocabulary: 32000, "
                                 "rope_base: 150000, num_experts: 8, experts_per_token: 4, expert_feed_forward: 2880, router_normalized: true, sliding_window: 128, "
                                 "global_layer_every: 2, attention_sinks: true, qkv_bias: true, output_bias: true, mlp_bias: true, swiglu_limit: 7, swiglu_alpha: 1.702}"},
    "deepseek": SLICE | {"model": "{family: deepseek_v2, attention: latent, num_layers: 3, hidden: 2048, num_heads: 16, num_kv_heads: 16, head_size: 192, kv_lora_rank: 512, "
                                  "qk_nope_head_size: 128, qk_rope_head_size: 64, v_head_size: 128, feed_forward: 10944, vocabulary: 32000, num_experts: 16, "
                                  "experts_per_token: 6, expert_feed_forward: 1408}"},
    "gemma": SLICE | {"model": "{family: gemma3_text, num_layers: 6, hidden: 1152, num_heads: 4, num_kv_heads: 1, head_size: 256, feed_forward: 6912, vocabulary: 32000, "
                               "activation: gelu_tanh, norms_per_layer: 4, qk_norm: true, tied_embeddings: true, sliding_window: 512, global_layer_every: 6}"},
}


def driver_bytes():
    out = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"], capture_output=True, text=True, check=True)
    return int(out.stdout.split()[0]) << 20


class Watch:
    """The most bytes in use on the device while something runs."""

    def __enter__(self):
        self.before = self.most = driver_bytes()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def look(self):
        while not self.over.wait(0.3):
            self.most = max(self.most, driver_bytes())

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.bytes = self.most - self.before


def plan_of(work, name, steps):
    case = (CASES | ALONE)[name]
    return runs.make_plan(work, name, f"""version: 1
model: {case["model"]}
hardware: {{gpu: {gpu_preset()}, gpus_per_node: 1, nodes: 1}}
train: {{sequence_length: {case["length"]}, global_batch: {case["batch"]}, steps: {steps}, learning_rate: 3e-4, min_learning_rate: 3e-4, warmup_steps: 0,
  deterministic: {str(case.get("deterministic", False)).lower()}}}
parallel: {{sharding: ddp, micro_batch: {case["batch"]}, recompute: {case["recompute"]}}}
precision: {{compute: bf16}}
data: {{paths: [data], tokenizer: bytes, held_out: 0}}
checkpoint: {{every_steps: 0}}
""", case.get("flags", ()))


def gpu_preset():
    name = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader", "--id=0"], capture_output=True, text=True, check=True).stdout
    for part, preset in (("H100", "h100_sxm"), ("H200", "h200_sxm"), ("A100-SXM4-80GB", "a100_sxm_80"), ("A100-SXM4-40GB", "a100_sxm_40"), ("B200", "b200")):
        if part in name:
            return preset
    sys.exit(f"no preset is named here for '{name.strip()}'")


def run(command, log):
    began = time.monotonic()
    with open(log, "w") as out, Watch() as watch:
        done = subprocess.run([str(c) for c in command], stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: exit code {done.returncode}\n{pathlib.Path(log).read_text()[-3000:]}")
    print(f"    {pathlib.Path(log).stem}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return watch.bytes


def run_ours(plan, folder, steps):
    device = run([runs.BIN / "distsetup-train", "--plan", plan, "--output", folder, "--profile", f"{steps - 1}:{steps - 1}"], f"{folder}.log")
    folder = pathlib.Path(folder)
    report = json.loads((folder / "report.json").read_text())
    peak = next(c for c in report["comparison"] if c["what"] == "peak allocated")
    times = [s["step_s"] for s in runs.files.read_metrics(folder / "metrics.jsonl")]
    losses = [s["loss"] for s in runs.files.read_metrics(folder / "metrics.jsonl")]
    return {"s": statistics.median(times[WARM_UP:-2]), "device": device, "allocated": peak["measured_bytes"], "losses": losses, "report": report}


def run_peer(plan, folder):
    device = run([sys.executable, runs.SOURCE / "tests/bench/gpu_peer.py", plan, f"{folder}.json"], f"{folder}.log")
    found = json.loads(pathlib.Path(f"{folder}.json").read_text())
    return {"s": statistics.median(s["step_s"] for s in found["steps"][WARM_UP:]), "device": device, "allocated": found["allocated_bytes"],
            "losses": [s["loss"] for s in found["steps"]]}


def largest(profile, count):
    """Where the time of the profiled step went, by op whatever its layer."""
    sums = {}
    for event in json.loads(profile.read_text())["traceEvents"]:
        name = event["name"].split()[0]
        if event["ph"] != "X" or event["cat"] != "executed" or name in ("Forward", "Backward", "wait"):  # whose ops are counted
            continue
        entry = sums.setdefault(name, [0.0, 0])
        entry[0] += event["dur"] / 1000
        entry[1] += 1
    total = sum(ms for ms, _ in sums.values())
    lines = [f"    {name:<34} {ms:9.3f} ms {100 * ms / total:5.1f} % {n:5} times" for name, (ms, n) in sorted(sums.items(), key=lambda x: -x[1][0])[:count]]
    return f"    {'all ops':<34} {total:9.3f} ms\n" + "\n".join(lines)


def measure(work, name, arguments):
    plan_path = plan_of(work, name, arguments.steps)
    plan = json.loads(plan_path.read_text())
    ours, peer = [], []
    for pair in range(arguments.pairs):
        for who in ((ours, peer) if pair % 2 == 0 else (peer, ours)):
            folder = str(plan_path.parent / f"{'ours' if who is ours else 'peer'}{pair}")
            who.append(run_ours(plan_path, folder, arguments.steps) if who is ours else run_peer(plan_path, folder))
    gib = 1 << 30
    ratios = [p["s"] / o["s"] for o, p in zip(ours, peer)]
    us, them = statistics.median(o["s"] for o in ours), statistics.median(p["s"] for p in peer)
    print(f"| {name} | {us * 1e3:.1f} | {plan['time']['step_s'] * 1e3:.1f} | {them * 1e3:.1f} | **{statistics.median(ratios):.2f}** | {ours[0]['allocated'] / gib:.2f} | "
          f"{plan['memory']['peak_allocated_bytes'] / gib:.2f} | {peer[0]['allocated'] / gib:.2f} | {ours[0]['device'] / gib:.2f} | {plan['memory']['device_bytes'] / gib:.2f} | "
          f"{peer[0]['device'] / gib:.2f} | {ours[0]['losses'][-1]:.3f}, {peer[0]['losses'][-1]:.3f} |", flush=True)
    profile = plan_path.parent / "ours0" / "profile.json"
    print(largest(profile, 24), file=sys.stderr, flush=True)
    if arguments.profile:
        (pathlib.Path(arguments.profile) / f"{name}.json").write_bytes(profile.read_bytes())
        (pathlib.Path(arguments.profile) / f"{name}.log").write_bytes((plan_path.parent / "ours0.log").read_bytes())


def measure_alone(work, name, arguments):
    plan_path = plan_of(work, name, arguments.steps)
    plan = json.loads(plan_path.read_text())
    try:
        ours = run_ours(plan_path, str(plan_path.parent / "ours"), arguments.steps)
    except SystemExit as failed:
        print(f"| {name} | failed: {str(failed)[-300:]!r} |", flush=True)
        return
    gib = 1 << 30
    predicted = plan["time"]["step_s"]
    print(f"| {name} | {ours['s'] * 1e3:.1f} | {predicted * 1e3:.1f} | {100 * (predicted / ours['s'] - 1):+.0f} % | {ours['allocated'] / gib:.3f} | "
          f"{plan['memory']['peak_allocated_bytes'] / gib:.3f} | {ours['device'] / gib:.2f} | {plan['memory']['device_bytes'] / gib:.2f} | {ours['losses'][-1]:.3f} |", flush=True)
    print(largest(plan_path.parent / "ours" / "profile.json", 16), file=sys.stderr, flush=True)
    if arguments.profile:
        (pathlib.Path(arguments.profile) / f"{name}.json").write_bytes((plan_path.parent / "ours" / "profile.json").read_bytes())


def check_machine():
    if shutil.which("nvidia-smi") is None or subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0:
        sys.exit("scripts/bench gpu: no NVIDIA GPU on this machine (nvidia-smi finds none)")
    seen = subprocess.run([sys.executable, "-c", "import torch, sys; sys.exit(not torch.cuda.is_available())"], stderr=subprocess.DEVNULL)
    if seen.returncode != 0:
        sys.exit(f"scripts/bench gpu: the torch of {sys.executable} sees no GPU; set BENCH_PYTHON to a Python whose torch does")


def main():
    check_machine()
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--cases", default="")
    parser.add_argument("--profile", default="")
    parser.add_argument("--alone", action="store_true")
    arguments = parser.parse_args()
    if arguments.alone:
        cases, measured = ALONE, measure_alone
        print("| run | ms | predicted | off by | GiB allocated | predicted | GiB on the device | predicted | last loss |")
        print("|---|---|---|---|---|---|---|---|---|", flush=True)
    else:
        cases, measured = CASES, measure
        print("| run | ours, ms | predicted | PyTorch, ms | ours is faster by | ours, GiB allocated | predicted | PyTorch | ours, GiB on the device | predicted | PyTorch | last losses |")
        print("|---|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        runs.write_data(work)
        for name in (arguments.cases or ",".join(cases)).split(","):
            measured(work, name, arguments)


if __name__ == "__main__":
    main()
