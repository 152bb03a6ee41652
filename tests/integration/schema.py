"""usage: schema.py RUN-SCHEMA SITE-SCHEMA ROOT: checks run files and site files (site*.yaml) of the project against their schemas."""
import copy, glob, json, pathlib, sys

import jsonschema
import yaml

schema = json.load(open(sys.argv[1]))
site_schema = json.load(open(sys.argv[2]))
root = pathlib.Path(sys.argv[3])
for one in (schema, site_schema):
    jsonschema.Draft7Validator.check_schema(one)
validator, site_validator = jsonschema.Draft7Validator(schema), jsonschema.Draft7Validator(site_schema)


class Loader(yaml.SafeLoader):
    """1e-6 is a number, 48:00:00 is text: YAML 1.2 as run files are read."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in ("tag:yaml.org,2002:float", "tag:yaml.org,2002:int", "tag:yaml.org,2002:bool")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()}
import re
Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789"))
Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^[-+]?([0-9]+[.]?[0-9]*([eE][-+]?[0-9]+)?|[.][0-9]+)$"), list("-+.0123456789"))
Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|false)$"), list("tf"))


def load(path):
    return yaml.load(path.read_text(), Loader)


right = sorted(path for path in [*root.glob("presets/recipes/*.yaml"), *root.glob("tests/golden/*/in/*.yaml")]
               if not path.parent.parent.name.startswith("bad_") and isinstance(load(path), dict) and "version" in load(path)
               and not {"gpus", "hidden", "source"} & set(load(path)) and not path.name.startswith("site"))
sites = sorted(root.glob("tests/golden/*/in/site*.yaml"))
failures = []
for path in right:
    for problem in validator.iter_errors(load(path)):
        failures.append(f"{path.relative_to(root)}: {problem.json_path}: {problem.message}")

wrong = 0
for path in sites:
    is_wrong = path.name == "site_wrong.yaml" or path.parent.parent.name == "site_bad"
    problems = list(site_validator.iter_errors(load(path)))
    wrong += is_wrong
    if is_wrong and not problems:
        failures.append(f"{path.relative_to(root)} is right by the schema of site files")
    if not is_wrong:
        failures += [f"{path.relative_to(root)}: {problem.json_path}: {problem.message}" for problem in problems]

for case in ["bad_key_unknown", "bad_enum_unknown", "bad_type", "bad_unit_missing", "bad_version", "bad_range"]:
    for path in (root / "tests/golden" / case / "in").glob("*.yaml"):
        wrong += 1
        if validator.is_valid(load(path)):
            failures.append(f"{path.relative_to(root)} is right by the schema")

base = {"version": 1, "model": "8B", "hardware": {"nodes": 2, "gpus_per_node": 8, "gpu": "H100"},
        "train": {"sequence_length": 4096, "learning_rate": 1e-5, "optimizer": "AdamW"},
        "parallel": {"sharding": "FULL_SHARD", "micro_batch": "auto", "recompute": "every_k:2", "offload": {"optimizer": "cpu"}},
        "checkpoint": {"every_steps": 10}, "launch": {"time_limit": "1h30m"}, "use": ["finetune"], "stages": {"a": {"train": {"steps": 3}}}}
assert validator.is_valid(base), [problem.message for problem in validator.iter_errors(base)]
mutations = {
    ("version",): 2, ("hardware", "nodes"): 0, ("hardware", "gpus_per_nod"): 8, ("train", "sequence_length"): "long",
    ("train", "learning_rate"): -1, ("parallel", "sharding"): "zero5", ("parallel", "recompute"): "every_k:0",
    ("parallel", "offload"): "cpu", ("checkpoint", "every_steps"): 1.5, ("launch", "time_limit"): 90, ("use",): [],
    ("stages",): {"a": {"train": {"step": 3}}}, ("parallel", "micro_batch"): "some", ("model",): 7, ("train", "optimizer"): "sgdd",
    ("launch", "time_limit"): "4 hours and a bit", ("model",): {"hiden": 1}}
for path, value in mutations.items():
    mutated = copy.deepcopy(base)
    node = mutated
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    if validator.is_valid(mutated):
        failures.append(f"mutation {'.'.join(path)} = {value!r} is right by the schema")
print(f"{len(right)} run files, {len(sites)} site files, {wrong} wrong ones, {len(mutations)} mutations, {len(failures)} failures")
print("\n".join(failures))
sys.exit(1 if failures or len(right) < 3 or len(sites) < 5 or wrong < 6 else 0)
