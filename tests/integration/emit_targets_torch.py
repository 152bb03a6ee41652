"""Targets read by their own parsers (emit_targets.py): torchtitan, before and since its configuration is a module, and Automodel."""

import ast
import copy
import importlib
import os
import sys
import tempfile
import types

from emitted import in_folder, launch_words, plans, world, yaml_of
from parser_checks import accept, expect, refuse
from stand_ins import stand_in_for


def torchtitan():
    import torch

    torch.compile(lambda x: x)  # before the stand-in: torch asks Triton more than it has
    stand_in_for("triton", "datasets", "torchdata")
    from torchtitan.config import ConfigManager
    from torchtitan.distributed import ParallelDims

    def parse(text):
        with tempfile.NamedTemporaryFile("w", suffix=".toml", delete=False) as file:
            file.write(text)
        return ConfigManager().parse_args(["--job.config_file", file.name])

    def sizes(config, ranks):
        axes = config.parallelism
        return ParallelDims(
            dp_replicate=axes.data_parallel_replicate_degree,
            dp_shard=axes.data_parallel_shard_degree,
            cp=axes.context_parallel_degree,
            tp=axes.tensor_parallel_degree,
            pp=axes.pipeline_parallel_degree,
            ep=axes.expert_parallel_degree,
            etp=axes.expert_tensor_parallel_degree,
            world_size=ranks,
        )

    def layers_of(model, flavor):
        """From the text of torchtitan's table of flavors: its models import kernels that are not here."""
        package = os.path.dirname(importlib.import_module("torchtitan.config").__file__)
        with open(f"{package}/../models/{model}/__init__.py", encoding="utf-8") as file:
            tables = [node.value for node in ast.parse(file.read()).body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)]
        call = {key.value: value for table in tables for key, value in zip(table.keys, table.values)}[flavor]
        return {word.arg: word.value for word in call.keywords}["n_layers"].value

    for name, folder, plan in plans("torchtitan-0.2"):
        path = f"{folder}/train.toml"
        with open(path, encoding="utf-8") as file:
            text = file.read()
        config = accept(path, lambda: parse(text))
        if config is None:
            continue
        mesh, train = plan["mesh"], plan["train"]
        accept(path + " sizes", lambda: sizes(config, world(plan)))
        refuse(path + " on twice as many ranks", lambda: sizes(config, 2 * world(plan)))
        layers = accept(path + " flavor", lambda: layers_of(config.model.name, config.model.flavor))
        expect(path + " layers", layers, plan["model"]["num_layers"])
        data_parallel = mesh["dp_replicate"] * mesh["dp_shard"]
        local = config.training.local_batch_size
        expect(path + " accumulation", config.training.global_batch_size // (local * data_parallel), 1 if mesh["pp"] > 1 else plan["gradient_accumulation"])
        expect(path + " micro-batch", config.parallelism.pipeline_parallel_microbatch_size if mesh["pp"] > 1 else local, plan["micro_batch"])
        expect(path + " lengths", (config.training.seq_len, config.training.steps, config.training.max_norm), (train["sequence_length"], train["steps"], train["grad_clip"]))
        wanted = {"none": "none", "full": "full", "selective": "selective", "every_k": "selective"}[plan["recompute"]["policy"]]
        expect(path + " recompute", config.activation_checkpoint.mode, wanted)
        for section in ("parallelism", "training", "optimizer", "checkpoint", "lr_scheduler", "comm"):
            written = getattr(config, section)
            for key, value in vars(written).items():
                if isinstance(getattr(type(written), key, None), (int, float, str, bool)):
                    default = getattr(type(written), key)
                    right = type(value) is type(default) or (isinstance(default, float) and isinstance(value, (int, float)))
                    expect(f"{path} type of {section}.{key}", right, True)  # the loader checks none
        refuse(path + " with an unknown key", lambda: parse(text.replace("tensor_parallel_degree", "tensor_parallel_degre")))
        refuse(path + " with an unknown section", lambda: parse(text + "\n[paralelism]\nx = 1\n"))


def automodel():
    from nemo_automodel.recipes._dist_utils import parse_distributed_section

    for name, folder, plan in plans("automodel"):
        path = f"{folder}/automodel.yaml"
        written = yaml_of(path)["distributed"]
        parsed = accept(path, lambda: parse_distributed_section(copy.deepcopy(written)))
        if parsed is None:
            continue
        mesh = plan["mesh"]
        found = tuple(parsed[key] for key in ("tp_size", "pp_size", "cp_size", "ep_size"))
        expect(path + " sizes", found, (mesh["tp"], mesh["pp"], mesh["cp"], mesh["ep"]))
        refuse(path + " with an unknown key", lambda: parse_distributed_section({**written, "shard": 2}))
        refuse(path + " with an unknown strategy", lambda: parse_distributed_section({**written, "strategy": "fsdp9"}))


def torchtitan_module():
    """From 0.3 on: the emitted module makes the Trainer's configuration, and the arguments of launch.sh override it."""
    in_folder("torchtitan-0.3")
    import torch.distributed.fsdp

    torch.compile(lambda x: x)
    stand_in_for("triton", "datasets", "tensorboard")
    # Names of a later torch that the parser does not come to.
    for module, name in (("torch.distributed.fsdp", "DataParallelMeshDims"), ("torch.utils.tensorboard", "SummaryWriter")):
        if module not in sys.modules:
            sys.modules[module] = types.ModuleType(module)
        if not hasattr(sys.modules[module], name):
            setattr(sys.modules[module], name, type(name, (), {}))
    from torchtitan.config import ConfigManager

    def parse(folder, words):
        sys.path.insert(0, folder)
        sys.modules.pop("plan_config", None)
        try:
            return ConfigManager().parse_args(words)
        finally:
            sys.path.remove(folder)

    for name, folder, plan in plans("torchtitan"):
        words = launch_words(folder)
        words = words[words.index("torchtitan.train") + 1 :]
        path = f"{folder}/launch.sh"
        config = accept(path, lambda: parse(os.path.abspath(folder), words))
        if config is None:
            continue
        mesh, train, axes = plan["mesh"], plan["train"], config.parallelism
        found = (axes.data_parallel_replicate_degree, axes.data_parallel_shard_degree, axes.context_parallel_degree, axes.tensor_parallel_degree, axes.pipeline_parallel_degree)
        expect(path + " sizes", found, tuple(mesh[axis] for axis in ("dp_replicate", "dp_shard", "cp", "tp", "pp")))
        expect(path + " expert ranks", axes.expert_parallel_degree, mesh["ep"])
        lengths = (config.training.seq_len, config.training.global_batch_size, config.training.steps, config.training.max_norm)
        expect(path + " lengths", lengths, (train["sequence_length"], train["global_batch"], train["steps"], train["grad_clip"]))
        expect(path + " layers", len(config.model_spec.model.layers), plan["model"]["num_layers"])
        kind = type(config.activation_checkpoint).__qualname__.partition(".")[0] if config.activation_checkpoint is not None else "none"
        expect(path + " recompute", kind, {"none": "none", "full": "FullAC", "selective": "SelectiveAC"}[plan["recompute"]["policy"]])
        group = config.optimizer.param_groups[0].optimizer_kwargs
        expect(path + " optimizer", (group["lr"], group["weight_decay"]), (train["learning_rate"], train["weight_decay"]))
        refuse(path + " with an unknown argument", lambda: parse(os.path.abspath(folder), [*words, "--training.sequence_len", "1"]))
        refuse(path + " with a text for a number", lambda: parse(os.path.abspath(folder), [*words, "--training.steps", "many"]))
        refuse(path + " with an unknown function", lambda: parse(os.path.abspath(folder), [*words[:2], "--config", "plans", *words[4:]]))
