"""The class that is wrapped, family by family and model by model, against transformers: it is there, it is what the family's models call
not to be split, and what distsetup writes of a model is it."""

import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile

# Their code is in their own repositories (mpt: llm-foundry's class of that name).
OWN_CODE = {"baichuan", "chatglm", "deepseek", "internlm", "internlm2", "mimo", "minicpm", "minicpm3", "mpt", "qwen"}
NOT_NAMED = {"biogpt"}  # Transformers says of no class that it must not be split: the blocks are taken, as of the others
OWN_CODE_MODELS = {"grok_1", "mimo_7b"}


def module_of(family):
    name = family.removesuffix("_text")
    if importlib.util.find_spec(f"transformers.models.{name}.modeling_{name}") is None:  # its classes are those of another family
        import transformers
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

        return importlib.import_module(getattr(transformers, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[name]).__module__)
    return importlib.import_module(f"transformers.models.{name}.modeling_{name}")


def module_with(family, layer_class):
    """The family's module, or, for a model that is planned as the nearest family, the one that has its class."""
    module = module_of(family)
    if hasattr(module, layer_class):
        return module
    import transformers.models

    for path in sorted(pathlib.Path(transformers.models.__path__[0]).glob("*/modeling_*.py")):
        if re.search(rf"^class {layer_class}\b", path.read_text(), re.M):
            return importlib.import_module(f"transformers.models.{path.parent.name}.{path.stem}")
    return module


def not_split(module):
    out = set()
    for name, value in vars(module).items():
        if isinstance(value, type) and name.endswith("Model") and name != "PreTrainedModel":
            out |= set(getattr(value, "_no_split_modules", None) or [])
    return out


def main():
    distsetup, root = sys.argv[1], pathlib.Path(sys.argv[2])
    failures, pairs = [], set()
    families = []
    for path in sorted((root / "presets/families").glob("[a-z]*.yaml")):
        families += [(path.stem, layer_class) for layer_class in re.findall(r"^layer_class: (\S+)", path.read_text(), re.M)]
    assert len(families) > 15, families
    for family, layer_class in families:
        pairs.add((family, layer_class))
    models = {}
    for path in sorted((root / "presets/models").glob("*.yaml")):
        text = path.read_text()
        found = [re.search(rf"^{key}: (\S+)", text, re.M) for key in ("family", "layer_class")]
        if all(found):
            models[path.stem] = (found[0][1], found[1][1])
            if path.stem not in OWN_CODE_MODELS:
                pairs.add(models[path.stem])
    for family, layer_class in sorted(pairs):
        if family in OWN_CODE:
            continue
        module = module_with(family, layer_class)
        if not hasattr(module, layer_class):
            failures.append(f"{family}: transformers has no {layer_class}")
        elif family in NOT_NAMED:
            if not_split(module):
                failures.append(f"{family}: Transformers names {sorted(not_split(module))} now")
        elif layer_class not in not_split(module):
            failures.append(f"{family}: {layer_class} is not among {sorted(not_split(module))}")
    for model, (family, layer_class) in models.items():
        said = subprocess.run([distsetup, "fsdp", "--model", model, "--dialect", "accelerate"], capture_output=True, text=True)
        if said.returncode != 0 or f"fsdp_transformer_layer_cls_to_wrap: {layer_class}" not in said.stdout:
            failures.append(f"{model}: fsdp wrote another class than {layer_class}: {said.stdout}{said.stderr}")
    # Lightning imports the class by its path.
    for model in ("gemma3_1b", "llama3_8b", "qwen3_8b"):
        with tempfile.TemporaryDirectory() as folder:
            words = "--nodes 1 --gpus 8 --gpu h200_sxm --trainer fsdp2 --sharding zero3 --recompute full --micro-batch 1 --grad-clip 0"
            said = subprocess.run([distsetup, "emit", "--target", "lightning", "--model", model, *words.split(), "--output", folder],
                                  capture_output=True, text=True)
            if said.returncode not in (0, 4):
                failures.append(f"{model}: emit for lightning: {said.stderr}")
                continue
            text = pathlib.Path(folder, "lightning.yaml").read_text()
            found = re.search(r"(transformers\.models\.\S+)\.(\w+)", text)
            if not found or not hasattr(importlib.import_module(found[1]), found[2]):
                failures.append(f"{model}: lightning.yaml names no class that can be imported: {text}")
    print("\n".join(failures) or f"{len(pairs)} classes of {len(families)} families and {len(models)} models, all as transformers has them")
    sys.exit(1 if failures else 0)


main()
