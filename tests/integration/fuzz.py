#!/usr/bin/env python3
"""Damaged files on the command line: each ends with one of the documented exit codes, in bounded time and memory, never by a signal.

usage: fuzz.py MUTANTS [FOLDER] [--processes N] [--only N]

A mutant is one or several files with bytes flipped, lines moved or repeated, numbers made absurd, structures nested or two files
spliced, given to one of the commands that read files. The files are those of tests/golden, or of FOLDER. Mutant N of a seed is always
the same: DISTSETUP_SEED repeats a run, --only one mutant of it, and what failed is printed. A command gets as much of a processor as
fifteen plans of a 1B model without a file take here, a second at least, for files of up to 1 MB, and 256 MB of memory (ten seconds and ten
times that in a build with sanitizers, DISTSETUP_FUZZ_SLOWER of both where that is set).
"""
import argparse
import functools
import json
import multiprocessing
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
SLOWER = float(os.environ.get("DISTSETUP_FUZZ_SLOWER") or (10 if b"AddressSanitizer" in (BIN / "distsetup").read_bytes() else 1))
MOST_MEMORY, GIVE_UP_S = 256 * 1024 * SLOWER, 20 * SLOWER
MOST_BYTES, MOST_MUTANT_BYTES = 64 * 1024, 1000 * 1000
COMMANDS = [
    ["lint", "--json", "--quiet"],
    ["lint", "--fix", "--dry-run"],
    ["convert", "--to", "run"],
    ["convert", "--to", "deepspeed", "--json"],
    ["plan", "--quiet", "--model", "1B", "--gpu", "h100_sxm", "--nodes", "1", "--gpus", "8", "--from"],
    ["validate"],
    ["config", "show", "--from"],
    ["plan", "--quiet", "--json"],
]
ABSURD = ["-1", "0", "1e308", "9223372036854775808", "nan", "null", "true", '""', "[]", "{}", "&a [*a, *a]", "0x7f", "~", "'", '"', "auto", "\\", "$(x)",
          "[" * 300, "{a: " * 200, "é\u2028", "\0", "<<: *a", "!!binary x", "%", "#"]


def corpus(folder):
    """Files of the folder, or those that commands of the golden cases read or write: (name, bytes)."""
    found = {}
    paths = folder.rglob("*") if folder else (SOURCE / "tests/golden").glob("*/*/**/*")
    for path in sorted(paths):
        is_one = folder or path.parts[len(SOURCE.parts) + 3] in ("in", "out")
        if is_one and path.is_file() and path.stat().st_size <= MOST_BYTES:
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


def times(rng):
    return rng.choice([2, 8, 30, 200, 5000])


def repeated(text, count):
    """As often as a mutant can hold: the memory of this process counts as the command's, too (ru_maxrss lives through exec)."""
    return text * min(count, MOST_MUTANT_BYTES // max(len(text), 1) + 1)


def repeat_word(rng, data):
    """A flag, an option or a part of a word, many times."""
    places = list(re.finditer(rb"[^\s=]+|[^\s]+=[^\s]*", data))
    if not places:
        return data
    place = rng.choice(places)
    return data[:place.end()] + repeated(b" " + place.group(), times(rng)) + data[place.end():]


def repeat_lines(rng, data):
    rows = data.split(b"\n")
    at = rng.randrange(len(rows))
    some = rows[at:at + rng.choice([1, 1, 2, 5, 20])]
    return b"\n".join(rows[:at] + [repeated(b"\n".join(some) + b"\n", times(rng))] + rows[at + len(some):])


def indent(rng, data):
    """Lines of a block, deeper or less deep."""
    rows = data.split(b"\n")
    at = rng.randrange(len(rows))
    for i in range(at, min(at + rng.randrange(1, 12), len(rows))):
        rows[i] = b"  " + rows[i] if rng.random() < 0.7 else rows[i].lstrip()
    return b"\n".join(rows)


def nest(rng, data):
    """A part of the text inside brackets, once or very often."""
    begin, end = rng.choice([(b"{a: ", b"}"), (b"[", b"]"), (b'{"a": ', b"}"), (b"$(echo ", b")"), (b"${A:-", b"}"), (b"$((1+", b"))"), (b"bash -c '", b"'"),
                             (b"if true; then ", b"\nfi"), (b"((", b"))"), (b'"', b'"'), (b"A=(", b")"), (b"<<EOF\n", b"\nEOF\n")])
    at = rng.randrange(len(data) + 1)
    stop = min(len(data), at + rng.choice([1, 5, 20, 200]))
    count = rng.choice([1, 1, 2, 30, 3000])
    return data[:at] + begin * count + data[at:stop] + end * count + data[stop:]


def doubling(rng, data):
    """Variables that hold one another twice."""
    rows = [b'V0="--a 1"'] + [b'V%d="$V%d $V%d"' % (i, i - 1, i - 1) for i in range(1, 40)]
    if rng.random() < 0.5:
        rows = [b"V0=(--a 1)"] + [b'V%d=("${V%d[@]}" "${V%d[@]}")' % (i, i - 1, i - 1) for i in range(1, 40)]
    if rng.random() < 0.3:
        rows = [b"a0: &a0 [x, x]"] + [b"a%d: &a%d [*a%d, *a%d]" % (i, i, i - 1, i - 1) for i in range(1, 40)]
    at = data.rfind(b"\n", 0, rng.randrange(len(data) + 1)) + 1
    return data[:at] + b"\n".join(rows) + b"\ntorchrun train.py $V39 ${V39[@]}\n" + data[at:]


def mutant(rng, files):
    """A name and a text."""
    name, data = rng.choice(files)
    if rng.random() < 0.1:
        other = rng.choice(files)[1]
        data = data[:rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1):]
    for _ in range(rng.randrange(1, 5)):
        if data:
            data = rng.choice(KINDS)(rng, data)[:MOST_MUTANT_BYTES]
    return name, data


KINDS = [flip, flip, cut, truncate, lines, lines, absurd, absurd, absurd, absurd, insert, insert, indent, nest, repeat_word, repeat_lines, doubling]


def run(command, folder):
    """How the command ended, what it wrote, and what of a processor and of memory (KB) it used; None: it did not end."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LC_ALL": "C.UTF-8"}
    environment.update({key: os.environ[key] for key in ("ASAN_OPTIONS", "LSAN_OPTIONS") if key in os.environ})
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        timer = threading.Timer(GIVE_UP_S, process.kill)
        timer.start()
        _, status, used = os.wait4(process.pid, 0)
        is_late = not timer.is_alive()
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        return None if is_late else process.returncode, out.read(), err.read().decode(errors="replace"), used.ru_utime + used.ru_stime, used.ru_maxrss


@functools.lru_cache(maxsize=None)
def most_seconds():
    """What a command gets of a processor: machines differ in speed, and are shared."""
    plan = [str(BIN / "distsetup"), "plan", "--quiet", "--model", "1B", "--gpu", "h100_sxm", "--nodes", "1", "--gpus", "8"]
    with tempfile.TemporaryDirectory() as name:
        return max(SLOWER, 15 * min(run(plan, pathlib.Path(name))[3] for _ in range(3)))


def complaint(command, folder):
    """What is wrong with how the command ended, or nothing."""
    code, text, said, seconds, memory = run(command, folder)
    if code is None:
        return f"not done after {GIVE_UP_S:.0f} s"
    if code not in EXIT_CODES:
        return f"exit code {code} after {seconds:.1f} s\n{said[-2000:]}"
    if seconds > most_seconds() or memory > MOST_MEMORY:
        return f"{seconds:.1f} s of a processor, {memory / 1024:.0f} MB"
    if code != 0 and not text and not said:
        return f"exit code {code} without a word"
    if "--json" in command and text:
        try:
            json.loads(text)
        except ValueError as wrong:
            return f"--json printed no JSON: {wrong}\n{text[:500]!r}"
    return ""


def try_one(seed, files, work, number):
    rng = random.Random(f"{seed} {number}")
    folder = work / str(os.getpid())
    folder.mkdir(exist_ok=True)
    names = []
    for _ in range(rng.choice([1, 1, 1, 2])):
        name, data = mutant(rng, files)
        (folder / name).write_bytes(data)
        names.append(name)
    command = rng.choice(COMMANDS)
    if command[0] in ("plan", "config"):
        names = names[:1]
    wrong = complaint([str(BIN / "distsetup"), *command, *dict.fromkeys(names)], folder)
    texts = "".join(f"--- {name}\n{(folder / name).read_bytes()[:3000]!r}\n" for name in dict.fromkeys(names)) if wrong else ""
    keep = os.environ.get("DISTSETUP_FUZZ_KEEP")
    for name in {path.name for path in folder.iterdir()}:
        if wrong and keep:
            (pathlib.Path(keep) / f"{number}_{name}").write_bytes((folder / name).read_bytes())
        (folder / name).unlink()
    return f"mutant {number}: distsetup {' '.join([*command, *names])}: {wrong}\n{texts}" if wrong else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mutants", type=int)
    parser.add_argument("folder", nargs="?", type=pathlib.Path)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--only", type=int)
    arguments = parser.parse_args()
    seed = os.environ.get("DISTSETUP_SEED") or str(random.randrange(10**9))
    print(f"fuzz: DISTSETUP_SEED={seed}", flush=True)
    files = corpus(arguments.folder)
    if len(files) < (1 if arguments.folder else 50):
        sys.exit(f"fuzz: only {len(files)} files to start from")
    failures = 0
    print(f"fuzz: {most_seconds():.1f} s of a processor for a command", flush=True)  # asked here once, for all processes
    numbers = range(arguments.mutants) if arguments.only is None else [arguments.only]
    # Processes that are replaced after some hundred mutants: the kernel counts what the parent of a command had as the command's own
    # memory, and this program grows.
    with tempfile.TemporaryDirectory() as name, multiprocessing.Pool(arguments.processes, maxtasksperchild=500) as pool:
        for text in pool.imap(functools.partial(try_one, seed, files, pathlib.Path(name)), numbers):
            if text:
                failures += 1
                print(text, flush=True)
    print(f"fuzz: {len(numbers)} mutants of {len(files)} files, {failures} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
