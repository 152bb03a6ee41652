#!/usr/bin/env python3
"""Damaged files on the command line: each ends with one of the documented exit codes, in bounded time and memory, never by a signal.

usage: fuzz.py MUTANTS

A mutant is one or several files of tests/golden with bytes flipped, lines moved, numbers made absurd or two files spliced, given to one
of the commands that read files. Mutant N of a seed is always the same: DISTSETUP_SEED repeats a run, and what failed is printed.
"""
import concurrent.futures
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
import time

SOURCE = pathlib.Path(os.environ.get("DISTSETUP_SOURCE") or pathlib.Path(__file__).resolve().parents[2])
BIN = pathlib.Path(os.environ.get("DISTSETUP_BIN") or SOURCE / "build/release/bin")
EXIT_CODES = {0, 1, 2, 3, 4, 5, 7}
MOST_SECONDS, MOST_BYTES = 30, 64 * 1024
COMMANDS = [
    ["lint", "--json", "--quiet"],
    ["lint", "--fix", "--dry-run"],
    ["convert", "--to", "run"],
    ["convert", "--to", "deepspeed", "--json"],
    ["plan", "--quiet", "--model", "1B", "--gpu", "h100_sxm", "--nodes", "1", "--gpus", "8", "--from"],
    ["validate"],
    ["plan", "--quiet", "--json"],
]
ABSURD = ["-1", "0", "1e308", "9223372036854775808", "nan", "null", "true", '""', "[]", "{}", "&a [*a, *a]", "0x7f", "~", "'", '"', "auto", "\\", "$(x)",
          "[" * 300, "{a: " * 200, "é\u2028", "\0", "<<: *a", "!!binary x", "%", "#"]


def corpus():
    """Files that commands of the golden cases read or write: {name: bytes}."""
    found = {}
    for path in sorted((SOURCE / "tests/golden").glob("*/*/**/*")):
        if path.parts[len(SOURCE.parts) + 3] in ("in", "out") and path.is_file() and path.stat().st_size <= MOST_BYTES:
            found.setdefault(path.read_bytes(), path.name)
    return [(name, text) for text, name in found.items()]


def flip(rng, data):
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1:]


def cut(rng, data):
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.randrange(1, 40):]


def truncate(rng, data):
    return data[:rng.randrange(len(data))]


def lines(rng, data):
    rows = data.split(b"\n")
    at, other = rng.randrange(len(rows)), rng.randrange(len(rows))
    if rng.random() < 0.5:
        rows[at], rows[other] = rows[other], rows[at]
    else:
        rows.insert(at, rows[other])
    return b"\n".join(rows)


def absurd(rng, data):
    """A value, where there is one, becomes another."""
    places = list(re.finditer(rb"(?<=[:= ])[\w.\-\"]+", data))
    if not places:
        return data
    place = rng.choice(places)
    return data[:place.start()] + rng.choice(ABSURD).encode() + data[place.end():]


def insert(rng, data):
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(ABSURD).encode() + data[at:]


def mutant(rng, files):
    """A name and a text."""
    name, data = rng.choice(files)
    if rng.random() < 0.1:
        other = rng.choice(files)[1]
        data = data[:rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1):]
    for _ in range(rng.randrange(1, 5)):
        if data:
            data = rng.choice([flip, cut, truncate, lines, absurd, absurd, absurd, insert])(rng, data)
    return name, data


def complaint(command, folder):
    """What is wrong with how the command ended, or nothing."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LC_ALL": "C.UTF-8"}
    environment.update({key: os.environ[key] for key in ("ASAN_OPTIONS", "LSAN_OPTIONS") if key in os.environ})
    began_s = time.monotonic()
    try:
        done = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=MOST_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"not done after {MOST_SECONDS} s"
    said = done.stderr.decode(errors="replace")
    if done.returncode not in EXIT_CODES:
        return f"exit code {done.returncode} after {time.monotonic() - began_s:.1f} s\n{said[-2000:]}"
    if done.returncode != 0 and not done.stdout and not said:
        return f"exit code {done.returncode} without a word"
    if "--json" in command and done.stdout:
        try:
            json.loads(done.stdout)
        except ValueError as wrong:
            return f"--json printed no JSON: {wrong}\n{done.stdout[:500]!r}"
    return ""


def try_one(seed, number, files, work):
    rng = random.Random(f"{seed} {number}")
    folder = work / str(threading.get_ident())
    folder.mkdir(exist_ok=True)
    names = []
    for _ in range(rng.choice([1, 1, 1, 2])):
        name, data = mutant(rng, files)
        (folder / name).write_bytes(data)
        names.append(name)
    command = rng.choice(COMMANDS)
    if command[0] == "plan":
        names = names[:1]
    wrong = complaint([str(BIN / "distsetup"), *command, *dict.fromkeys(names)], folder)
    texts = "".join(f"--- {name}\n{(folder / name).read_bytes()[:3000]!r}\n" for name in dict.fromkeys(names)) if wrong else ""
    for name in set(names):
        (folder / name).unlink()
    return f"mutant {number}: distsetup {' '.join([*command, *names])}: {wrong}\n{texts}" if wrong else ""


def main():
    count = int(sys.argv[1])
    seed = os.environ.get("DISTSETUP_SEED") or str(random.randrange(10**9))
    print(f"fuzz: DISTSETUP_SEED={seed}", flush=True)
    files = corpus()
    if len(files) < 50:
        sys.exit(f"fuzz: only {len(files)} files to start from")
    failures = 0
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        for text in pool.map(lambda number: try_one(seed, number, files, pathlib.Path(name)), range(count)):
            if text:
                failures += 1
                print(text, flush=True)
    print(f"fuzz: {count} mutants of {len(files)} files, {failures} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
