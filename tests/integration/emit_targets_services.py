"""Targets read by their own parsers (emit_targets.py): Llama Stack and SkyPilot."""

import copy
import logging
import os

from emitted import OUTPUT, in_folder, json_of, plans, world, yaml_of
from parser_checks import accept, changed, expect, refuse
from stand_ins import import_llama_stack


def llama_stack():
    """run.yaml by the server's own StackRunConfig, the build manifest and the provider's spec by what `llama stack build` reads them
    with, the request by the post-training API's models. The provider's package is in no registry."""
    import_llama_stack("jsonschema", "termcolor", "jinja2", "huggingface_hub", "dotenv")
    from llama_stack.apis.post_training import DPOAlignmentConfig, TrainingConfig
    from llama_stack.distribution.build import get_provider_dependencies
    from llama_stack.distribution.datatypes import BuildConfig, StackRunConfig

    logging.disable(logging.CRITICAL)  # it sets its own up when it is imported

    def build(folder, manifest):
        """The manifest, and the packages of its providers; they are found from the folder of the user."""
        before = os.getcwd()
        os.chdir(folder)
        try:
            config = BuildConfig(**copy.deepcopy(manifest))
            return config, get_provider_dependencies(config)[0]
        finally:
            os.chdir(before)

    for target in ("llama-stack", "llama-stack-inline"):
        suffix, provider_type = ("_fsdp", "remote::trl_fsdp") if target == "llama-stack" else ("", "inline::trl")
        for name, folder, plan in plans(target):
            path = f"{folder}/run{suffix}.yaml"
            written = yaml_of(path)
            config = accept(path, lambda: StackRunConfig(**copy.deepcopy(written)))
            if config is None:
                continue
            expect(path + " keys unknown to Llama Stack", set(written) - set(StackRunConfig.model_fields), set())
            provider = config.providers["post_training"][0]
            expect(path + " provider", (provider.provider_type, provider.config["max_seq_length"]), (provider_type, plan["train"]["sequence_length"]))
            if target == "llama-stack":
                ranks = provider.config["torch_run_config"]
                expect(path + " ranks", ranks["nnodes"] * ranks["nproc_per_node"], world(plan))
            ignored = accept(path + " with an unknown key", lambda: StackRunConfig(**{**written, "extrnal_providers_dir": "x"}))
            expect(path + " takes over an unknown key", hasattr(ignored, "extrnal_providers_dir"), False)
            refuse(path + " without providers", lambda: StackRunConfig(**{key: value for key, value in written.items() if key != "providers"}))
            refuse(path + " with a text for a port", lambda: StackRunConfig(**changed(written, "server.port", "many")))
            refuse(path + " with a provider that has no type", lambda: StackRunConfig(**changed(written, "providers", {"post_training": [{"provider_id": "x"}]})))

            path = f"{folder}/build{suffix}.yaml"
            manifest = yaml_of(path)
            built = accept(path, lambda: build(folder, manifest))
            if built is None:
                continue
            expect(path + " keys unknown to Llama Stack", set(manifest) - set(BuildConfig.model_fields), set())
            expect(path + " image", (built[0].image_type, built[0].image_name), ("venv", written["image_name"]))
            expect(path + " provider", built[0].distribution_spec.providers["post_training"], [provider_type])
            expect(path + " packages of the provider", {"torch", "trl==0.18.1"} <= set(built[1]), True)
            refuse(path + " without providers.d", lambda: build(folder, changed(manifest, "external_providers_dir", "./nowhere")))
            refuse(path + " with an unknown provider", lambda: build(folder, changed(manifest, "distribution_spec.providers.post_training", ["remote::other"])))
            refuse(path + " with a number for providers", lambda: build(folder, changed(manifest, "distribution_spec.providers", 2)))

            path = f"{folder}/request.json"
            request = json_of(path)
            training = changed(request["training_config"], "data_config.dataset_id", "x")
            config = accept(path, lambda: TrainingConfig(**copy.deepcopy(training)))
            if config is None:
                continue
            expect(path + " keys unknown to Llama Stack", set(training) - set(TrainingConfig.model_fields), set())
            expect(path + " accumulation", config.gradient_accumulation_steps, plan["gradient_accumulation"])
            accept(path + " algorithm", lambda: DPOAlignmentConfig(**request["algorithm_config"]))
            refuse(path + " without epochs", lambda: TrainingConfig(**{key: value for key, value in training.items() if key != "n_epochs"}))
            refuse(path + " with a text for a number", lambda: TrainingConfig(**changed(training, "optimizer_config.lr", "high")))


def skypilot():
    in_folder("skypilot")
    os.environ["HOME"] = OUTPUT  # its client keeps a data base there
    import sky

    for name, folder, plan in plans("skypilot"):
        path = f"{folder}/task.yaml"
        written = yaml_of(path)
        task = accept(path, lambda: sky.Task.from_yaml_config(copy.deepcopy(written)))
        if task is None:
            continue
        resources = list(task.resources)[0]
        expect(path + " nodes", task.num_nodes, plan["hardware"]["nodes"])
        expect(path + " GPUs", list((resources.accelerators or {}).values()), [plan["hardware"]["gpus_per_node"]] if plan["hardware"]["accelerator"] != "cpu" else [])
        refuse(path + " with an unknown key", lambda: sky.Task.from_yaml_config({**copy.deepcopy(written), "num_node": 2}))
        refuse(path + " with an unknown resource", lambda: sky.Task.from_yaml_config(changed(written, "resources.accelerator", "H100:8")))
        refuse(path + " with a text for the nodes", lambda: sky.Task.from_yaml_config({**copy.deepcopy(written), "num_nodes": "two"}))
