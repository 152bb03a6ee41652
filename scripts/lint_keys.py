"""lint_keys.py OUTPUT SOURCE... [NAME=FOLDER ...]: the names that tools accept, read off the tools themselves, one table each into the
folder OUTPUT (templates/_lint/names). scripts/lint_keys calls it; what a SOURCE needs is said there.

A table is types of names. An entry is a name, or name:type where the value is a section of that type; of arguments the type is what
argparse takes: flag, int, number, text or a|b, with ? (may stand alone) or * (several).
"""

import argparse
import ast
import dataclasses
import glob
import importlib
import importlib.metadata
import inspect
import json
import logging
import os
import pathlib
import re
import runpy
import subprocess
import sys
import tempfile
import textwrap
import types
import typing

logging.disable(logging.WARNING)
OUTPUT = pathlib.Path(sys.argv[1])
FOLDERS = dict(word.split("=", 1) for word in sys.argv[2:] if "=" in word)
NAMES = [word for word in sys.argv[2:] if "=" not in word]
DATE = os.environ["LINT_KEYS_DATE"]

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "support"))
from stand_ins import import_llama_stack, import_megatron_bridge, stand_in_for  # noqa: E402


def version(package):
    return importlib.metadata.version(package)


def one_of_each(entries):
    """A name with several types: an option that may stand alone wins; a section of several kinds is not followed."""
    found = {}
    for entry in entries:
        name, _, kind = entry.partition(":")
        before = found.get(name)
        if before is None or before == kind:
            found[name] = kind
        else:
            found[name] = next((one for one in (before, kind) if one.endswith("?")), before) if name.startswith("-") else ""
    return sorted(f"{name}:{kind}" if kind else name for name, kind in found.items())


def write(name, tool, source, unknown, code, tables, roots=None, takes_prefixes=False):
    """tables: type -> list of entries."""
    lines = [
        "# Made by scripts/lint_keys; not edited by hand.",
        "version: 1",
        f"tool: {tool}",
        f"source: {source}",
        f"checked: {DATE}",
        f"unknown: {unknown}",
        f"code: {code}",
    ]
    if takes_prefixes:
        lines.append("takes_prefixes: true")
    if roots:
        lines += ["roots:"] + [f"  {kind}: {kind_type}" for kind, kind_type in roots.items()]
    lines.append("types:")
    for type_name, entries in tables.items():
        lines.append(f"  {json.dumps(type_name) if type_name in ('', '*') else type_name}: |")
        if not entries:
            raise SystemExit(f"{name}: no names in '{type_name}'")
        lines += textwrap.wrap(" ".join(one_of_each(entries)), 130, initial_indent="    ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    (OUTPUT / f"{name}.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{name}: {sum(len(one_of_each(one)) for one in tables.values())} names")


def snake(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


# --- pydantic models and dataclasses, sections followed


def models_in(annotation, is_model):
    """Every class of the kind asked for inside Optional, Union, list, dict, Annotated."""
    if isinstance(annotation, type) and not typing.get_origin(annotation):
        return [annotation] if is_model(annotation) else []
    return [one for part in typing.get_args(annotation) for one in models_in(part, is_model)]


def is_map(annotation):
    origin = typing.get_origin(annotation)
    if origin is dict:
        return True
    return any(is_map(part) for part in typing.get_args(annotation) if typing.get_origin(part)) if origin in (typing.Union, types.UnionType) else False


def pydantic_tables(top):
    """Types of a pydantic model; a model that lets unknown names through to its user has none."""
    import pydantic

    def is_model(one):
        return issubclass(one, pydantic.BaseModel)

    def is_open(one):
        return one.model_config.get("extra") == "allow"

    tables, waiting = {}, [("", [top])]
    while waiting:
        name, classes = waiting.pop(0)
        if name in tables:
            continue
        tables[name] = []
        for one in classes:
            for key, field in one.model_fields.items():
                inner = models_in(field.annotation, is_model)
                inner_names = list(dict.fromkeys(snake(part.__name__) for part in inner))
                inner_name = "_or_".join(inner_names) if len(inner_names) < 3 else f"one_of_{key}"
                followed = bool(inner) and not any(is_open(part) for part in inner) and not is_map(field.annotation)
                for spelled in dict.fromkeys([field.alias or key, key]):
                    tables[name].append(f"{spelled}:{inner_name}" if followed else spelled)
                if followed:
                    waiting.append((inner_name, inner))
    return tables


def axolotl():
    stand_in_for("datasets", "triton", "bitsandbytes", "ring_flash_attn")
    from axolotl.utils.schemas.config import AxolotlInputConfig

    tables = pydantic_tables(AxolotlInputConfig)
    # Plugins bring models of their own, some of which import what is not here: their fields are read off the source.
    folder = os.path.dirname(importlib.machinery.PathFinder.find_spec("axolotl").origin)
    tables["plugins"] = [
        field.target.id
        for path in glob.glob(f"{folder}/integrations/*/args.py")
        for one in ast.walk(ast.parse(pathlib.Path(path).read_text(encoding="utf-8")))
        if isinstance(one, ast.ClassDef)
        for field in one.body
        if isinstance(field, ast.AnnAssign)
    ]
    write("axolotl", f"Axolotl {version('axolotl')}", f"axolotl {version('axolotl')} (axolotl/utils/schemas/config.py, AxolotlInputConfig)", "silent", "AX004", tables)


def field_names(*classes):
    return [field.name for one in classes for field in dataclasses.fields(one) if field.init]


def llamafactory():
    stand_in_for("datasets", "triton", "bitsandbytes")
    os.environ["DISABLE_VERSION_CHECK"] = "1"
    from llamafactory.hparams.parser import _TRAIN_ARGS

    names = field_names(*_TRAIN_ARGS)
    write("llamafactory", f"LLaMA-Factory {version('llamafactory')}", f"llamafactory {version('llamafactory')} (llamafactory/hparams)", "parse", "LF002", {"": names})


def classes_of_swift(revision, megatron):
    """Of a repository of ms-swift: dataclass -> its bases, its fields. Of the two argument classes of a name the folder says which."""
    folder, found = FOLDERS["ms-swift"], {}
    paths = git_names(folder, revision, "swift")
    for path in paths:
        is_of_megatron = "/megatron/" in path
        if "arg" not in path or not path.endswith(".py") or (is_of_megatron and not megatron):
            continue
        for one in ast.parse(git_file(folder, path, revision)).body:
            if not isinstance(one, ast.ClassDef) or (one.name in found and not is_of_megatron):
                continue
            fields = [x.target.id for x in one.body if isinstance(x, ast.AnnAssign) and not x.target.id.startswith("_") and "ClassVar" not in ast.unparse(x.annotation)]
            found[one.name] = ([ast.unparse(base).split(".")[-1] for base in one.bases], fields)
    return found


def git_names(folder, revision, under):
    return subprocess.run(["git", "-C", folder, "ls-tree", "-r", "--name-only", revision, under], capture_output=True, text=True, check=True).stdout.split()


def names_of_swift(revision, roots, megatron=False):
    from transformers import Seq2SeqTrainingArguments

    classes, names, seen, wanted = classes_of_swift(revision, megatron), set(), set(), list(roots)
    while wanted:
        one = wanted.pop()
        if one in seen:
            continue
        seen.add(one)
        bases, fields = classes.get(one, ([], []))
        names.update(fields)
        wanted += bases
        if one == "HfSeq2SeqTrainingArguments" or (one == "Seq2SeqTrainingArguments" and one not in classes):
            names.update(field_names(Seq2SeqTrainingArguments))
    return sorted(names)


def ms_swift():
    revision = os.environ.get("MS_SWIFT_REVISION", "HEAD")
    made = subprocess.run(["git", "-C", FOLDERS["ms-swift"], "describe", "--tags", revision], capture_output=True, text=True, check=True).stdout.strip().lstrip("v")
    tables = {
        "": names_of_swift(revision, ["SftArguments", "PretrainArguments", "RLHFArguments"]),
        "megatron": names_of_swift(revision, ["MegatronSftArguments", "MegatronPretrainArguments", "MegatronRLHFArguments"], megatron=True),
    }
    for names in tables.values():
        names += ["ENV", "config"]  # of a file, and of the command line (swift/cli/main.py)
    write("ms-swift", f"ms-swift {made}", f"modelscope/ms-swift {made} (swift/arguments, swift/trainers/arguments.py, swift/rlhf_trainers/arguments.py, swift/megatron/arguments)", "parse", "SW001", tables)


def trainer():
    from transformers import TrainingArguments
    from transformers.trainer_utils import SchedulerType
    from transformers.training_args import OptimizerNames

    tool = f"the Trainer of transformers {version('transformers')}"
    write("trainer", tool, f"transformers {version('transformers')} (src/transformers/training_args.py)", "parse", "HF006", {"": field_names(TrainingArguments)})
    values = {"lr_scheduler_type": [one.value for one in SchedulerType], "optim": [one.value for one in OptimizerNames]}
    write("trainer-values", tool, f"transformers {version('transformers')} (src/transformers/trainer_utils.py SchedulerType, training_args.py OptimizerNames)", "parse", "HF008", values)


def trl():
    stand_in_for("datasets", "triton", "bitsandbytes", "vllm")
    import trl as tool

    # What the commands of `trl` parse: their trainer's configuration, the script's and the model's arguments, TrlParser's own two.
    names = field_names(tool.ScriptArguments, tool.ModelConfig) + ["env", "datasets", "reward_model_name_or_path", "reward_funcs"]
    for config in ("SFTConfig", "DPOConfig", "GRPOConfig", "KTOConfig", "RewardConfig", "RLOOConfig"):
        names += field_names(getattr(tool, config))
    write("trl", f"TRL {version('trl')}", f"trl {version('trl')} (trl/scripts, trl/trainer/*_config.py)", "parse", "TRL001", {"": names})


def lightning():
    import lightning.pytorch as tool
    from lightning.pytorch import strategies
    from lightning.pytorch.cli import LightningArgumentParser

    def words(function):
        return [name for name, one in inspect.signature(function).parameters.items() if name != "self" and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]

    parser = LightningArgumentParser()
    parser.add_lightning_class_args(tool.Trainer, "trainer")
    tables = {"trainer": words(tool.Trainer.__init__)}
    for name in ("DDPStrategy", "FSDPStrategy", "DeepSpeedStrategy"):
        made = LightningArgumentParser()
        made.add_class_arguments(getattr(strategies, name), "strategy")
        found = [action.dest.split(".", 1)[1] for action in made._actions if action.dest.startswith("strategy.") and not action.dest.endswith(".help")]
        # Words of **kwargs, which jsonargparse follows into the wrapped class where it can.
        tables[name] = found + words(getattr(strategies, name).__init__)
    write("lightning", f"Lightning {version('lightning')}", f"lightning {version('lightning')} (lightning/pytorch/trainer/trainer.py, strategies)", "parse", "LN005", tables)


def automodel():
    from nemo_automodel.components.distributed import config
    from nemo_automodel.recipes import _dist_utils

    common = {*_dist_utils._PARALLELISM_DEFAULTS, "strategy", "pipeline", "moe", "activation_checkpointing", "_target_", "_recursive_", "_convert_"}
    tables = {name: sorted(common | set(field_names(one))) for name, one in config._STRATEGY_MAP.items() if "-" not in name}
    source = f"nemo-automodel {version('nemo-automodel')} (nemo_automodel/recipes/_dist_utils.py, components/distributed/config.py)"
    write("automodel", f"NeMo Automodel {version('nemo-automodel')}", source, "parse", "AM002", tables)


def torchtitan():
    """Its table has types too, which torchtitan does not look at: torchtitan_keys.yaml, the grammar of the tables with types."""
    import torch

    torch.compile(lambda x: x)
    stand_in_for("triton", "datasets", "torchdata")
    from torchtitan.config import JobConfig

    in_rules = {"training.dtype", "training.mixed_precision_param", "training.mixed_precision_reduce"}  # TT001 says what they take
    words = {bool: "strict_bool", int: "strict_int", float: "strict number", str: "strict_text"}

    def type_of(hint):
        if typing.get_origin(hint) in (typing.Union, types.UnionType):
            parts = [part for part in typing.get_args(hint) if part is not type(None)]
            return type_of(parts[0]) if len(parts) == 1 else "any"
        if typing.get_origin(hint) is typing.Literal:
            choices = typing.get_args(hint)
            return "|".join(choices) if len(choices) > 1 and all(isinstance(one, str) for one in choices) else "any"
        return words.get(hint, "list" if typing.get_origin(hint) is list else "map" if dataclasses.is_dataclass(hint) else "any")

    lines = [
        "# Made by scripts/lint_keys; not edited by hand. Unknown names stop the run; types are not looked at when the file is loaded.",
        "version: 1",
        "kind: torchtitan",
        "tool: torchtitan",
        "other_releases: torchtitan",
        "extended_by: [job.custom_config_module, experimental.custom_args_module]",
        f"source: torchtitan {version('torchtitan')} (torchtitan/config/job_config.py, config/manager.py)",
        f"checked: {DATE}",
        "sections:",
    ]
    waiting, count = [("", JobConfig)], 0
    while waiting:
        name, one = waiting.pop(0)
        hints = typing.get_type_hints(one)
        lines += [f"  - section: {name or json.dumps(name)}", "    unknown: parse", "    code: TT007"]
        lines += ["    type_code: TT003", "    types: silent"] if name else []
        lines.append("    keys:")
        for field in dataclasses.fields(one):
            lines.append(f"      {field.name}: {'any' if f'{name}.{field.name}' in in_rules else type_of(hints[field.name])}")
            waiting += [(f"{name}.{field.name}".lstrip("."), part) for part in models_in(hints[field.name], dataclasses.is_dataclass)]
            count += 1
    (OUTPUT / ".." / "torchtitan_keys.yaml").resolve().write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"torchtitan: {count} names")


def llama_stack():
    import_llama_stack("jsonschema")
    from llama_stack.apis.post_training import post_training
    from llama_stack.distribution.datatypes import BuildConfig, StackRunConfig

    tables = pydantic_tables(StackRunConfig)
    keep, kept = {}, [""]
    while kept:
        name = kept.pop()
        if name in keep:
            continue
        # Of the server only: what it is told about registered models and tools is passed on.
        keep[name] = [entry.split(":")[0] if name or entry.split(":")[0] not in ("server", "logging") else entry for entry in tables[name]]
        kept += [entry.split(":")[1] for entry in keep[name] if ":" in entry]
    request = {}
    for function in ("supervised_fine_tune", "preference_optimize"):
        for name in inspect.signature(getattr(post_training.PostTraining, function)).parameters:
            if name != "self":
                request[name] = f"{name}:training_config" if name == "training_config" else name
    keep["request"] = list(request.values())
    training = pydantic_tables(post_training.TrainingConfig)
    keep["training_config"] = training.pop("")
    keep.update(training)
    build = pydantic_tables(BuildConfig)
    keep["build"] = [entry if entry.startswith("distribution_spec:") else entry.split(":")[0] for entry in build[""]]
    keep["distribution_spec"] = build["distribution_spec"]
    write("llama-stack", f"Llama Stack {version('llama-stack')}", f"llama-stack {version('llama-stack')} (llama_stack/distribution/datatypes.py, apis/post_training)", "silent", "LLS005", keep)


def megatron_bridge():
    import_megatron_bridge()
    from megatron.bridge.models.gpt_provider import GPTModelProvider
    from megatron.bridge.models.mamba.mamba_provider import MambaModelProvider
    from megatron.bridge.models.t5_provider import T5ModelProvider
    from megatron.bridge.training import config as tool

    def names(*classes):
        return [name for one in classes for name in dir(one) + field_names(one) if not name.startswith("_") and name.islower() and not callable(getattr(one, name, None))]

    sections = {
        "model": (GPTModelProvider, MambaModelProvider, T5ModelProvider),
        "dataset": (tool.GPTDatasetConfig, tool.MockGPTDatasetConfig, tool.FinetuningDatasetConfig),
        "mixed_precision": (tool.MixedPrecisionConfig,),
        "comm_overlap": (tool.CommOverlapConfig,),
        "ft": (tool.FaultToleranceConfig,),
        "straggler": (tool.StragglerDetectionConfig,),
        "nvrx_straggler": (tool.NVRxStragglerDetectionConfig,),
        "inprocess_restart": (tool.InProcessRestartConfig,),
        "tensor_inspect": (tool.TensorInspectConfig,),
    }
    single = {"rng": "RNGConfig", "train": "TrainingConfig", "optimizer": "OptimizerConfig", "ddp": "DistributedDataParallelConfig", "scheduler": "SchedulerConfig"}
    single.update(logger="LoggerConfig", tokenizer="TokenizerConfig", checkpoint="CheckpointConfig", dist="DistributedInitConfig", profiling="ProfilingConfig")
    single.update(rerun_state_machine="RerunStateMachineConfig")
    sections.update({section: (getattr(tool, name),) for section, name in single.items()})
    top = names(tool.ConfigContainer)
    tables = {"": [f"{name}:{name}" if name in sections else name for name in top]}
    tables.update({section: names(*classes) for section, classes in sections.items()})
    source = f"megatron-bridge {version('megatron-bridge')} (megatron/bridge/training/config.py), megatron-core {version('megatron-core')}"
    write("megatron-bridge", f"Megatron-Bridge {version('megatron-bridge')}", source, "silent", "BRG001", tables)


def skypilot():
    sys.path.insert(0, os.path.join(sys.prefix, "skypilot"))  # a folder of its own: tests/support/parsers_env.sh
    os.environ["HOME"] = tempfile.mkdtemp()
    from sky.utils import schemas

    tables = {}

    def follow(name, schema):
        if name in tables:
            return
        tables[name] = []
        for key, one in schema["properties"].items():
            parts = [one, *one.get("anyOf", []), *one.get("oneOf", [])]
            inner = [part for part in parts if part.get("properties") and part.get("additionalProperties") is False]
            if inner and name == "":
                tables[name].append(f"{key}:{key}")
                merged = {}
                for part in inner:
                    merged.update(part["properties"])
                follow(key, {"properties": merged})
            else:
                tables[name].append(key)

    follow("", schemas.get_task_schema())
    resources = dict(schemas.get_resources_schema()["properties"])
    tables["resources"] = list(resources)
    tables[""] = [entry if not entry.startswith("resources") else "resources:resources" for entry in tables[""]]
    write("skypilot", f"SkyPilot {version('skypilot')}", f"skypilot {version('skypilot')} (sky/utils/schemas.py)", "parse", "SKY002", tables)


# --- arguments


def argument_entries(parser):
    """Of every action: each spelling with what it takes."""
    entries = []
    for action in parser._actions:
        many = {None: "", "?": "?", "*": "*", "+": "*", "A...": None, "...": None}.get(action.nargs, "*")
        if many is None:
            continue
        is_flag = action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction)
        kind = {int: "int", float: "number"}.get(action.type, "text")
        if action.choices is not None and all(isinstance(one, (str, int)) and re.fullmatch(r"[\w.+-]+", str(one)) for one in action.choices):
            kind = "|".join(str(one) for one in action.choices) if len(action.choices) > 1 else kind
        for spelled in action.option_strings:
            entries.append(f"{spelled}:{'flag' if is_flag else kind + many}")
    return entries


def torchrun():
    from torch.distributed.run import get_args_parser

    import torch

    write("torchrun", f"torchrun of torch {torch.__version__.partition('+')[0]}", f"torch {torch.__version__.partition('+')[0]} (torch/distributed/run.py)", "parse", "TR011", {"": argument_entries(get_args_parser())}, takes_prefixes=get_args_parser().allow_abbrev)


def accelerate():
    from accelerate.commands.launch import launch_command_parser

    parser = launch_command_parser()
    write("accelerate-launch", f"accelerate launch {version('accelerate')}", f"accelerate {version('accelerate')} (accelerate/commands/launch.py)", "parse", "ACC013", {"": argument_entries(parser)}, takes_prefixes=parser.allow_abbrev)


class Parsed(Exception):
    def __init__(self, parser):
        super().__init__("parsed")
        self.parser = parser


def caught_parser(function):
    """The parser that `function` is about to use."""

    def stop(parser, *words, **more):
        raise Parsed(parser)

    saved = argparse.ArgumentParser.parse_args, argparse.ArgumentParser.parse_known_args
    argparse.ArgumentParser.parse_args = argparse.ArgumentParser.parse_known_args = stop
    try:
        function()
    except Parsed as done:
        return done.parser
    finally:
        argparse.ArgumentParser.parse_args, argparse.ArgumentParser.parse_known_args = saved
    raise SystemExit("nothing was parsed")


def deepspeed():
    os.environ["DS_ACCELERATOR"] = "cpu"
    from deepspeed.launcher import runner

    parser = caught_parser(runner.parse_args)
    write("deepspeed-launcher", f"the deepspeed launcher {version('deepspeed')}", f"deepspeed {version('deepspeed')} (deepspeed/launcher/runner.py)", "parse", "DL005", {"": argument_entries(parser)}, takes_prefixes=parser.allow_abbrev)


def openrlhf():
    stand_in_for("vllm", "flash_attn", "ray", "pylatexenc", "transformers_stream_generator", "torchdata", "bitsandbytes", "loralib", "optree", "datasets", "aiohttp", "jsonlines")
    sys.argv = ["openrlhf"]
    tables = {}
    for module in ("train_sft", "train_rm", "train_dpo", "train_ppo_ray"):
        parser = caught_parser(lambda: runpy.run_module(f"openrlhf.cli.{module}", run_name="__main__"))
        tables[module] = argument_entries(parser)
    write("openrlhf", f"OpenRLHF {version('openrlhf')}", f"openrlhf {version('openrlhf')} (openrlhf/cli)", "parse", "ORL004", tables, takes_prefixes=parser.allow_abbrev)


def openrlhf_fsdp2():
    """openrlhf-fsdp2=FOLDER: a checkout of OpenRLHF's pull request 1178, which is in no release."""
    sys.path.insert(0, FOLDERS["openrlhf-fsdp2"])
    stand_in_for("flash_attn", "ring_flash_attn", "ray", "torchdata", "bitsandbytes", "optree", "datasets")
    sys.argv = ["openrlhf"]
    parser = caught_parser(lambda: runpy.run_module("openrlhf.cli.train_sft", run_name="__main__"))
    made = os.environ.get("OPENRLHF_VERSION") or commit(FOLDERS["openrlhf-fsdp2"])
    write("openrlhf-fsdp2", "OpenRLHF with FSDP2", f"OpenRLHF, pull request 1178, {made} (openrlhf/cli/train_sft.py)", "parse", "ORL004", {"": argument_entries(parser)}, takes_prefixes=parser.allow_abbrev)


def commit(folder):
    return subprocess.run(["git", "-C", folder, "log", "-1", "--format=%h of %cs"], capture_output=True, text=True, check=True).stdout.strip()


def megatron_lm():
    """megatron-lm=FOLDER: a checkout of NVIDIA/Megatron-LM."""
    folder = FOLDERS["megatron-lm"]
    sys.path.insert(0, folder)
    import torch

    torch.compile(lambda x: x)
    if not hasattr(typing, "override"):  # Python 3.12
        typing.override = lambda function: function
    stand_in_for("triton", "datasets", "apex", "flash_attn", "modelopt", "wandb", "sentencepiece", "tiktoken", "mlflow", "tensorstore", "zarr", "tensorboard", "six")
    package = types.ModuleType("megatron.training")  # without its __init__, which imports the whole trainer
    package.__path__ = [f"{folder}/megatron/training"]
    sys.modules["megatron.training"] = package
    from megatron.training import global_vars

    for name in dir(global_vars):
        if name.startswith("get_"):
            setattr(package, name, getattr(global_vars, name))
    package.print_rank_0 = print
    from megatron.training import arguments

    parser = argparse.ArgumentParser(allow_abbrev=False)
    arguments.add_megatron_arguments(parser)
    made = os.environ.get("MEGATRON_LM_VERSION") or commit(folder)
    write("megatron-lm", "Megatron-LM", f"Megatron-LM {made} (megatron/training/arguments.py)", "parse", "MEG010", {"": argument_entries(parser)})


# --- schedulers


def git_file(folder, path, revision="HEAD"):
    return subprocess.run(["git", "-C", folder, "show", f"{revision}:{path}"], capture_output=True, text=True, check=True).stdout


def slurm():
    """slurm=FOLDER: a repository of SchedMD/slurm with its tags. The options of several releases together: sites differ."""
    folder, releases = FOLDERS["slurm"], ["slurm-22-05-8-1", "slurm-23-11-10-1", "slurm-24-11-5-1", "slurm-25-05-3-1", "slurm-26-05-3-1"]
    tables = {"sbatch": set(), "srun": set()}
    for release in releases:
        text = git_file(folder, "src/common/slurm_opt.c", release)
        for block in re.findall(r"static slurm_cli_opt_t slurm_opt_\w+ = \{(.*?)\n\};", text, re.S):
            name = re.search(r'\.name = "([^"]+)"', block)
            if not name:
                continue
            takes = {"no_argument": "flag", "required_argument": "text", "optional_argument": "text?"}[re.search(r"\.has_arg = (\w+)", block)[1]]
            short = re.search(r"\.val = '(.)'", block)
            for command in tables:
                if ".set_func =" in block or f".set_func_{command} =" in block:
                    tables[command].add(f"--{name[1]}:{takes}")
                    if short:
                        tables[command].add(f"-{short[1]}:{takes}")
    # The container plugin pyxis adds its own to both (NVIDIA/pyxis, args.c, 0.20).
    pyxis = "image mounts workdir name save mount-home no-mount-home remap-root no-remap-root entrypoint no-entrypoint entrypoint-log writable readonly env".split()
    for command in tables:
        for name in pyxis:
            no = "no-" if name.startswith("no-") else ""
            tables[command].add(f"--{no}container-{name[len(no):]}:text?")
    write("slurm", "sbatch", "SLURM 22.05.8 to 26.05.3 (src/common/slurm_opt.c), pyxis 0.20 (args.c)", "parse", "SL023", tables, takes_prefixes=True)


def pbs():
    """pbs=FOLDER: a checkout of openpbs/openpbs."""
    folder = FOLDERS["pbs"]
    options = re.search(r'GETOPT_ARGS\[\] = "([^"]+)"', git_file(folder, "src/cmds/qsub_sup.c"))[1]
    flags = [f"-{letter}:{'text' if colon else 'flag'}" for letter, colon in re.findall(r"([a-zA-Z])(:?)", options)]
    resources = re.findall(r'<member_name>"?(\w+)"?</member_name>', git_file(folder, "src/lib/Libattr/master_resc_def_all.xml"))
    attributes = re.findall(r"<member_name>(?:ATTR_\w+|\"(\w+)\")</member_name>", git_file(folder, "src/lib/Libattr/master_job_attr_def.xml"))
    header = git_file(folder, "src/include/pbs_ifl.h")
    values = dict(re.findall(r'#define\s+(ATTR_\w+)\s+"(\w+)"', header))
    wanted = re.findall(r"<member_name>(ATTR_\w+)</member_name>", git_file(folder, "src/lib/Libattr/master_job_attr_def.xml"))
    names = [values[one] for one in wanted if one in values] + [one for one in attributes if one]
    made = re.search(r"AC_INIT\(\[OpenPBS\],\s*\[([\d.]+)\]", git_file(folder, "configure.ac"))[1]
    write("pbs", f"qsub of OpenPBS {made}", f"OpenPBS {made} (src/cmds/qsub_sup.c, src/lib/Libattr)", "parse", "PBS001", {"": flags, "resources": [one.lower() for one in resources] + ["select", "place", "ngpus"], "attributes": names})


def lsf():
    """No source is published: the options of bsub in IBM's command reference, kept here by hand."""
    flags = """-ar -B -csm: -H -I -Ip -Is -IS -ISp -ISs -IX -jsm: -K -N -Ne -n: -r -rn -tty -ul -x -XF -Zs -h -V -datachk -hl -plan: -ti -nnodes: -a: -alloc_flags: -app: -b: -C:
    -c: -clusters: -cn_cu: -cn_mem: -core_isolation: -cwd: -D: -data: -datagrp: -E: -Ep: -e: -env: -eo: -eptl: -ext: -F: -f: -freq: -G: -g: -gpu: -hostfile: -i: -is:
    -J: -Jd: -jobaff: -jsdl: -jsdl_strict: -k: -L: -Lp: -ln_mem: -ln_slots: -M: -m: -mig: -network: -notify: -o: -oo: -outdir: -P: -p: -pack: -ptl: -Q: -q: -R:
    -rcacct: -rnc: -S: -s: -sla: -smt: -sp: -stage: -step_cgroup: -T: -t: -U: -u: -v: -W: -We: -w: -wa: -wt:""".split()
    entries = [one + "text" if one.endswith(":") else one + ":flag" for one in flags]
    write("lsf", "bsub of LSF 10.1", "IBM Spectrum LSF 10.1 command reference (bsub, options)", "parse", "LSF001", {"": entries})


# --- Kubernetes


def kubernetes():
    """kubernetes=FOLDER of kubernetes-json-schema; jobset=, trainer=, training-operator= and volcano= are files of the CRDs."""
    import yaml

    folder = sorted(glob.glob(FOLDERS["kubernetes"] + "/v1.*-local"), key=lambda one: int(os.path.basename(one).split(".")[1]))[-1]
    definitions = json.loads(pathlib.Path(folder, "_definitions.json").read_text(encoding="utf-8"))["$defs"]
    tables = {}

    def name_of(reference):
        return snake(reference.rsplit(".", 1)[1])

    def entry(key, schema, owner):
        many = schema.get("items", schema)
        reference = many.get("$ref", "").rsplit("/", 1)[-1]
        if reference:
            inner = definitions[reference]
            if "properties" not in inner:
                return key
            return f"{key}:{table(name_of(reference), inner)}"
        if many.get("properties"):
            return f"{key}:{table(f'{owner}_{snake(key)}', many)}"
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict) and extra.get("properties"):
            made = table(f"{owner}_{snake(key)}", extra)
            tables[f"{made}_by_name"] = [f"*:{made}"]
            return f"{key}:{made}_by_name"
        return key

    def table(name, schema):
        if schema.get("x-kubernetes-preserve-unknown-fields"):
            return "any"
        content = set(schema["properties"])
        # Custom resources repeat the core types of an earlier Kubernetes in full: known by their fields.
        for known, fields in core.items():
            if not collecting and {"apiVersion", "kind"} - content and len(content) > 3 and content <= fields and len(content) >= 0.6 * len(fields):
                return known
        if name in tables:
            return name
        if collecting:
            core[name] = content
        tables[name] = []
        tables[name] = [entry(key, one, name) if key != "status" else key for key, one in schema["properties"].items()]
        return name

    core, collecting = {}, True
    roots = {}
    for kind, reference in {
        "Pod": "core.v1.Pod",
        "Job": "batch.v1.Job",
        "CronJob": "batch.v1.CronJob",
        "Deployment": "apps.v1.Deployment",
        "StatefulSet": "apps.v1.StatefulSet",
        "Service": "core.v1.Service",
        "ConfigMap": "core.v1.ConfigMap",
        "PersistentVolumeClaim": "core.v1.PersistentVolumeClaim",
    }.items():
        full = "io.k8s.api." + reference
        roots[kind] = table(name_of(full), definitions[full])
    sources = [f"Kubernetes {os.path.basename(folder).split('-')[0].lstrip('v')}"]
    collecting = False
    meta = table("object_meta", definitions["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"])
    for name, kind, label in (
        ("jobset", "JobSet", "JobSet v1alpha2"),
        ("trainer", "TrainJob", "Kubeflow Trainer v1alpha1"),
        ("training-operator", "PyTorchJob", "kubeflow.org/v1"),
    ):
        if name not in FOLDERS:
            raise SystemExit(f"kubernetes: {name}=FILE of the {kind} custom resource definition is missing")
        crd = yaml.safe_load(pathlib.Path(FOLDERS[name]).read_text(encoding="utf-8"))
        assert crd["spec"]["names"]["kind"] == kind
        schema = crd["spec"]["versions"][-1]["schema"]["openAPIV3Schema"]
        top = snake(kind)
        made = table(top, {"properties": {**schema["properties"], "metadata": {}}})
        tables[made] = [f"metadata:{meta}" if one == "metadata" else one for one in tables[made]]
        roots[kind] = made
        sources.append(label)
    reached, waiting = {}, list(roots.values())
    while waiting:
        name = waiting.pop()
        if name in reached or name == "any":
            continue
        entries = [one for one in tables[name]]
        reached[name] = [one.split(":")[0] if one.endswith(":any") else one for one in entries]
        waiting += [one.split(":")[1] for one in reached[name] if ":" in one]
    write("kubernetes", f"Kubernetes {os.path.basename(folder).split('-')[0].lstrip('v').rpartition('.')[0]}", ", ".join(sources) + " (their OpenAPI schemas)", "parse", "K8S007", dict(sorted(reached.items())), roots)


for wanted in NAMES:
    globals()[wanted.replace("-", "_")]()
sys.stdout.flush()
os._exit(0)
