"""What the checks of emitted files share (tests/integration/emit_targets*.py): plans, files, and what launch.sh starts."""

import glob
import json
import logging
import os
import subprocess
import sys
import tempfile

from parser_checks import expect, fail

logging.disable(logging.WARNING)
OUTPUT = tempfile.mkdtemp()


def plans(target):
    """(name of the plan, its folder, plan.json) of every plan that the target takes."""
    found = sorted(glob.glob(f"{target}/*/plan.json"))
    if not found:
        fail(f"{target}: no plan was emitted")
    for path in found:
        with open(path, encoding="utf-8") as file:
            yield path.split("/")[-2], os.path.dirname(path), json.load(file)


def yaml_of(path):
    import yaml

    with open(path, encoding="utf-8") as file:
        return yaml.safe_load(file)


def json_of(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def stage(plan):
    return {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3}[plan["strategy"]["sharding"]]


def check_deepspeed(name, config, plan):
    """The section that the Hugging Face integration gets: our "auto"s and what is left to say."""
    zero = config.get("zero_optimization", {})
    expect(name + " stage", zero.get("stage", 0), stage(plan))
    for key, what in (("offload_optimizer", "optimizer"), ("offload_param", "parameters")):
        place = {"none": None, "host": "cpu", "nvme": "nvme"}[plan["offload"][what]]
        expect(f"{name} {key}", zero.get(key, {}).get("device"), place)


def launch_words(folder, *words, **settings):
    """What launch.sh starts: its torchrun (or accelerate) is replaced by one that prints its words."""
    tools = tempfile.mkdtemp()
    for tool in ("torchrun", "accelerate", "python3"):
        with open(f"{tools}/{tool}", "w", encoding="utf-8") as file:
            file.write('#!/bin/bash\nprintf "%s\\0" "$@"\n')
        os.chmod(f"{tools}/{tool}", 0o755)
    environment = {"PATH": f"{tools}:/usr/bin:/bin", "NODE_RANK": "0", "MASTER_ADDR": "h", **settings}
    done = subprocess.run(["bash", f"{folder}/launch.sh", *words], env=environment, capture_output=True, check=True)
    return done.stdout.decode().split("\0")[:-1]


def world(plan):
    return plan["hardware"]["nodes"] * plan["hardware"]["gpus_per_node"]


def parser_of_names(name, exact=True):
    """A parser by the table that scripts/lint_keys took from the tool's own, for a tool that no package has."""
    import argparse

    table = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "templates", "_lint", "names", f"{name}.yaml")
    class Parser(argparse.ArgumentParser):
        parse_args = argparse.ArgumentParser.parse_args  # as it is now: parser_of_modules() replaces it

    parser = Parser(allow_abbrev=not exact)
    for entry in yaml_of(table)["types"][""].split():
        name, _, takes = entry.partition(":")
        if name in ("-h", "--help"):
            continue
        bare = takes.rstrip("?*")
        if bare == "flag":
            parser.add_argument(name, action="store_true")
        else:
            choices = bare.split("|") if "|" in bare else None
            many = {"?": "?", "*": "+"}.get(takes[-1])
            parser.add_argument(name, type={"int": int, "number": float}.get(bare, str), choices=choices, nargs=many)
    return lambda words: vars(parser.parse_args(words))


def in_folder(name):
    """A tool that is installed in a folder of its own beside the environment (tests/support/parsers_env.sh)."""
    sys.path.insert(0, os.path.join(sys.prefix, name))
