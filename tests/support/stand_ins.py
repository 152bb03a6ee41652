"""Empty stand-ins for what a tool imports and its parser does not use (kernels, data sets, inference engines): any name of theirs is
there, a class that can be made, called (a decorator gives back what it decorates) and subclassed."""

import importlib.machinery
import os
import sys
import types


class Empty(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class StandIns:
    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__version__ = "0.0.0"

        def missing(name):
            if name.startswith("__"):
                raise AttributeError(name)
            made = Empty(
                name, (), {"__init_subclass__": classmethod(lambda cls, **words: None), "__init__": lambda self, *a, **words: None, "__call__": lambda self, *a, **words: a[0] if a else None}
            )
            setattr(module, name, made)
            return made

        module.__getattr__ = missing
        return module

    def exec_module(self, module):
        pass


def stand_in_for(*names):
    sys.meta_path.insert(0, StandIns(set(names)))


def import_megatron_bridge():
    """Megatron-Bridge's configuration classes can be imported after this, with PyTorch alone beside it."""
    import torch

    torch.compile(lambda x: x)
    stand_in_for("triton", "datasets", "apex", "flash_attn", "modelopt", "wandb", "sentencepiece", "tiktoken", "mlflow", "tensorstore", "zarr", "hydra")
    import megatron.core
    import megatron.core.extensions.transformer_engine  # noqa: F401

    stand_in_for("transformer_engine")  # after the core, which has a way without it
    package = types.ModuleType("megatron.bridge")  # without its __init__, which imports every model
    package.__path__ = [os.path.join(one, "bridge") for one in megatron.__path__]
    sys.modules["megatron.bridge"] = package


def import_llama_stack(*more):
    """Llama Stack's configuration and API models can be imported after this; `more` is stood in for too."""
    package = types.ModuleType("llama_stack")  # without its __init__, which imports the server
    package.__path__ = list(importlib.machinery.PathFinder.find_spec("llama_stack").submodule_search_locations)
    sys.modules["llama_stack"] = package
    stand_in_for("fastapi", "starlette", "uvicorn", "opentelemetry", "aiohttp", "fire", "llama_stack_client", "openai", "pandas", "tiktoken", "httpx", *more)
