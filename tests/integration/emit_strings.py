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
print(f"{found} texts found again, {failures} not (DISTSETUP_SEED={seed})")
sys.exit(1 if failures or found < 60 else 0)
