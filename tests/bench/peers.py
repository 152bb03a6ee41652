#!/usr/bin/env python3
"""distsetup-train and PyTorch on the same model, tokens and two ranks, in turn: ratios of step times, and memory.

usage: peers.py PEER [--pairs N] [--sizes small,big] [--precisions fp32,bf16] [--steps N]

PEER is fsdp2 (fully_shard against zero3), tp (DTensor's tensor, sequence and loss parallel against tp 2; fp32 alone), pp
(torch.distributed.pipelining's 1F1B against pp 2, four micro-batches of one sequence; fp32 alone) or interleaved (the same with two
chunks per stage).

A pair is one run of each, one straight after the other; which goes first changes from pair to pair. A run's time is the median of its
steps without the first three; a pair's ratio is the peer's time over ours; what counts is the median over pairs. Both sides are started
the same way (torchrun's environment, a thread per rank); resident memory is what the kernel says at the end of each rank (the largest).

A peer that is ended by a signal (PyTorch sometimes aborts while it shuts down, its results already printed) is run again, twice at
most, and a line says so: results of a run that did not end well count for nothing.
"""
import argparse
import json
import os
import pathlib
import platform
import socket
import statistics
import subprocess
import sys
import tempfile

import runs

RANKS, WARM_UP = 2, 3
SIZES = {
    "small": {"hidden": 256, "num_layers": 8, "feed_forward": 704, "vocabulary": 1024, "length": 128, "steps": 23},
    "big": {"hidden": 512, "num_layers": 6, "feed_forward": 1408, "vocabulary": 8192, "length": 256, "steps": 9},
}


def plan_of(work, peer, size, precision, steps):
    s = SIZES[size]
    name = f"{size}-{precision}"
    return runs.make_plan(work, name, f"""version: 1
model: {{family: llama, num_layers: {s["num_layers"]}, hidden: {s["hidden"]}, num_heads: 8, num_kv_heads: 2, feed_forward: {s["feed_forward"]},
  vocabulary: {s["vocabulary"]}}}
hardware: {{gpu: cpu, gpus_per_node: {RANKS}, nodes: 1}}
train: {{sequence_length: {s["length"]}, global_batch: 4, steps: {steps or s["steps"]}, learning_rate: 3e-4, min_learning_rate: 3e-4, warmup_steps: 0}}
parallel: {{{PEERS[peer]["parallel"]}, micro_batch: {PEERS[peer].get("micro_batch", 2)}, recompute: none}}
precision: {{compute: {precision}}}
data: {{paths: [data], tokenizer: bytes, held_out: 0}}
""")


PEERS = {
    "fsdp2": {"name": "FSDP2", "program": "fsdp2_peer.py", "parallel": "tp: 1, sharding: zero3, reshard_after_forward: true", "precisions": "fp32,bf16"},
    "tp": {"name": "DTensor TP", "program": "tp_peer.py", "parallel": "tp: 2", "precisions": "fp32"},
    "pp": {"name": "pipelining", "program": "pp_peer.py", "parallel": "pp: 2", "micro_batch": 1, "precisions": "fp32"},
    "interleaved": {"name": "pipelining", "program": "pp_peer.py", "parallel": "pp: 2, virtual_stages: 2", "micro_batch": 1, "precisions": "fp32"},
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start_ranks(command, log):
    """Starts the command once per rank and waits: exit codes (negative: the signal), largest resident memory of a rank in MiB."""
    port = str(free_port())
    ranks, codes, resident = [], [], []
    with open(log, "w") as out:
        for rank in range(RANKS):
            environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS), GROUP_RANK="0",
                               MASTER_ADDR="127.0.0.1", MASTER_PORT=port, OMP_NUM_THREADS="1")
            ranks.append(subprocess.Popen([str(c) for c in command], env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out))
        for rank in ranks:
            _, status, usage = os.wait4(rank.pid, 0)
            rank.returncode = os.waitstatus_to_exitcode(status)  # wait4 has reaped it
            codes.append(rank.returncode)
            resident.append(usage.ru_maxrss / 1024)
    return codes, max(resident)


def run_ranks(who, command, log, repeats=0):
    """The largest resident memory of a rank in MiB. Ends the program where a rank fails; one ended by a signal is run again, `repeats` times."""
    for again in range(repeats + 1):
        codes, resident = start_ranks(command, log)
        if all(code == 0 for code in codes):
            return resident
        text = f"{who}: exit codes {codes}"
        if again == repeats or not any(code < 0 for code in codes):
            sys.exit(f"{text} in run {again + 1} of at most {repeats + 1}\n{pathlib.Path(log).read_text()}")
        print(f"{text}: a rank was ended by a signal, so this run is done again ({again + 1} of {repeats})", file=sys.stderr, flush=True)


def run_ours(plan, folder):
    rss = run_ranks("distsetup-train", [runs.BIN / "distsetup-train", "--plan", plan, "--output", folder, "--threads", "1"], f"{folder}.log")
    return runs.files.read_metrics(pathlib.Path(folder) / "metrics.jsonl"), rss


def run_peer(plan, folder, peer):
    rss = run_ranks(pathlib.Path(peer).name, [sys.executable, runs.SOURCE / "tests/bench" / peer, plan, f"{folder}.json"], f"{folder}.log", repeats=2)
    return json.loads(pathlib.Path(f"{folder}.json").read_text()), rss


def measure(work, size, precision, arguments):
    plan = plan_of(work, arguments.peer, size, precision, arguments.steps)
    peer = PEERS[arguments.peer]["name"]
    results = {"ours": [], peer: []}
    for pair in range(arguments.pairs):
        order = ["ours", peer] if pair % 2 == 0 else [peer, "ours"]
        for who in order:
            folder = str(work / f"{size}-{precision}" / f"{who.replace(' ', '_')}{pair}")
            steps, rss = run_ours(plan, folder) if who == "ours" else run_peer(plan, folder, PEERS[arguments.peer]["program"])
            times = [s["step_s"] for s in steps[WARM_UP:]]
            results[who].append({"s": statistics.median(times), "best_s": min(times), "rss": rss, "first": steps[0]["loss"], "last": steps[-1]["loss"]})
    ratios = sorted(p["s"] / o["s"] for o, p in zip(results["ours"], results[peer]))
    best = {who: min(r["best_s"] for r in rows) for who, rows in results.items()}
    middle = {who: statistics.median(r["s"] for r in rows) for who, rows in results.items()}
    rss = {who: statistics.median(r["rss"] for r in rows) for who, rows in results.items()}
    last = {who: rows[0]["last"] for who, rows in results.items()}
    print(f"| {size} {precision} | {1 / middle['ours']:.2f} | {1 / middle[peer]:.2f} | **{statistics.median(ratios):.2f}** ({ratios[0]:.2f} to {ratios[-1]:.2f}) | "
          f"{best[peer] / best['ours']:.2f} | {rss['ours']:.0f} | {rss[peer]:.0f} | {last['ours']:.2f}, {last[peer]:.2f} |", flush=True)


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", choices=list(PEERS))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--sizes", default="small,big")
    parser.add_argument("--precisions", default="")
    arguments = parser.parse_args()
    peer = PEERS[arguments.peer]["name"]
    load = os.getloadavg()
    print(f"{processor()}, {os.cpu_count()} cores; load before {load[0]:.1f}; {arguments.pairs} pairs")
    print(f"| run | ours, steps/s | {peer}, steps/s | ours is faster by (median of pairs, range) | by the best steps | ours, MiB per rank | {peer}, MiB per rank | last losses |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        runs.write_data(work)
        for size in arguments.sizes.split(","):
            for precision in (arguments.precisions or PEERS[arguments.peer]["precisions"]).split(","):
                measure(work, size, precision, arguments)
    print(f"load after {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
