"""emit_strings.py DISTSETUP FOLDER SEED: awkward texts as --checkpoint-dir, found again by the readers of what is emitted."""

import json
import pathlib
import random
import subprocess
import sys
import tomllib

import yaml

distsetup, work, seed = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
PIECES = [" ", "'", '"', "$", "`", "\\", "\n", "\t", "\r", "!", "*", "&", ": ", " #", "#", "- ", "?", "|", ">", "%", "@", "{", "}", "[", "]", ",", "é",
          "日本", "🙂", "\x01", "\x7f", "\x85", "\x9f", "\u2028", "\u2029", "\ufeff", "no", "null", "~", "1e3", "010", "true", "{{x}}", "\\n", "=",
          "...", "---", "<<", "2026-01-01", "$(id)", "evil: true"]  # fmt: skip
READERS = {"json": json.loads, "yaml": yaml.safe_load, "toml": tomllib.loads}
TARGETS = {"llamafactory": "llamafactory.yaml", "axolotl": "axolotl.yaml", "trl": "trl.yaml", "automodel": "automodel.yaml",
           "megatron-bridge": "overrides.yaml", "torchtitan-0.2": "train.toml"}  # fmt: skip
random.seed(seed)
texts = [piece for piece in PIECES if piece.strip() == piece] + [
    "x" + "".join(random.choice(PIECES) for _ in range(random.randint(1, 6))) for _ in range(30)
]


def strings(value):
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
        yield from [one] if isinstance(one, str) else strings(one)


failures = found = 0
for number, text in enumerate(texts):
    target = list(TARGETS)[number % len(TARGETS)]
    file = work / str(number) / TARGETS[target]
    command = [distsetup, "emit", "--target", target, "--model", "llama3_8b", "--nodes", "1", "--gpus", "8", "--output", str(file.parent)]
    command += [f"--checkpoint-dir={text}", *(["--method", "sft"] if target == "trl" else [])]
    run = subprocess.run(command, capture_output=True)
    problem = ""
    if run.returncode != 0:
        problem = run.stderr.decode(errors="replace")
    else:
        try:
            written = READERS[file.suffix[1:]](file.read_bytes().decode())
            plan = json.loads((file.parent / "plan.json").read_bytes())
            if text not in strings(written):
                problem = "the text is not there"
            if plan["checkpoint"]["directory"] != text:
                problem = "plan.json has another text"
            if "evil" in written:
                problem = "a part of the text became a key"
            found += 1
        except Exception as stopped:
            problem = f"{type(stopped).__name__}: {stopped}"
    if problem:
        failures += 1
        print(f"{target} {text!r}: {problem}")
# Manifests hold a plan as JSON and a script as a block of YAML: both whole.
tools = work / "tools"
tools.mkdir()
(tools / "torchrun").write_text('#!/bin/bash\nprintf "%s\\0" "$@" >"$SHOWN"\n')
(tools / "torchrun").chmod(0o755)
for number, text in enumerate(texts[::3]):
    folder = work / f"manifests {number}"
    for target, more in {"kubernetes": ["--image", "x:1", "--nodes", "2"], "skypilot": ["--nodes", "1"]}.items():
        command = [distsetup, "emit", "--target", target, "--model", "llama3_8b", "--gpus", "8", *more, f"--checkpoint-dir={text}"]
        run = subprocess.run([*command, "--output", folder / target, "--", "train.py", text], capture_output=True)
        problem = run.stderr.decode(errors="replace") if run.returncode != 0 else ""
        try:
            if target == "kubernetes" and not problem:
                documents = list(yaml.safe_load_all((folder / target / "job.yaml").read_bytes().decode()))
                plans = [one["data"]["plan.json"] for one in documents if one["kind"] == "ConfigMap"]
                words = [one.replace("$$", "$") for document in documents for one in strings(document)]
                problem = "" if text in words else "the word is not there"
                if plans and json.loads(plans[0])["checkpoint"]["directory"] != text:
                    problem = "the plan has another text"
            elif not problem:
                task = yaml.safe_load((folder / target / "task.yaml").read_bytes().decode())
                shown = folder / "shown"
                settings = {"SKYPILOT_NODE_IPS": "a", "SKYPILOT_NODE_RANK": "0", "SKYPILOT_NUM_NODES": "1", "SKYPILOT_NUM_GPUS_PER_NODE": "8"}
                settings |= {"PATH": f"{tools}:/usr/bin:/bin", "SHOWN": str(shown), "LC_ALL": "C.UTF-8"}
                subprocess.run(["bash", "-c", task["run"]], env=settings, cwd=folder, check=True, capture_output=True)
                problem = "" if shown.read_bytes().decode().split("\0")[-2:] == [text, ""] else "the word arrives otherwise"
            found += 1
        except Exception as stopped:
            problem = problem or f"{type(stopped).__name__}: {stopped}"
        if problem:
            failures += 1
            print(f"{target} {text!r}: {problem}")
print(f"{found} texts found again, {failures} not (DISTSETUP_SEED={seed})")
sys.exit(1 if failures or found < 90 else 0)
