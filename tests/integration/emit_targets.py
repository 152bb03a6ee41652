"""emit_targets.py TOOL FOLDER: the tool's own parser reads what emit_targets wrote for it (FOLDER/<target>/<plan>/...), understands by
it what the plan says, and refuses mutated files. One tool per process: some of them cannot be imported beside each other.

A parser is run without what it imports and does not use (kernels, data sets, inference engines): empty stand-ins take their place.
"""

import ast
import copy
import glob
import importlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from parser_checks import accept, changed, expect, fail, refuse, report
from stand_ins import import_llama_stack, import_megatron_bridge, stand_in_for

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


# --- DeepSpeed: as many ranks as the plan has data-parallel ones, in this one process
def deepspeed():
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=16)
    import deepspeed as tool

    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    tool.init_distributed(dist_backend="fake", auto_mpi_discovery=False)
    from deepspeed.runtime.config import DeepSpeedConfig

    class Ranks:
        def __init__(self, plan):
            self.plan = plan

        def get_data_parallel_world_size(self):
            return self.plan["mesh"]["dp_replicate"] * self.plan["mesh"]["dp_shard"]

    def parse(value, plan):
        return DeepSpeedConfig(copy.deepcopy(value), mpu=Ranks(plan))

    for target in ("deepspeed", "accelerate-deepspeed"):
        for name, folder, plan in plans(target):
            path = f"{folder}/ds_config.json"
            written = json_of(path)
            config = accept(path, lambda: parse(written, plan))
            if config is None:
                continue
            expect(path + " stage", config.zero_optimization_stage, stage(plan))
            expect(
                path + " batch",
                (config.train_batch_size, config.train_micro_batch_size_per_gpu, config.gradient_accumulation_steps),
                (plan["train"]["global_batch"], plan["micro_batch"], plan["gradient_accumulation"]),
            )
            expect(path + " clipping", config.gradient_clipping, plan["train"]["grad_clip"])
            expect(path + " bf16", config.bfloat16_config.enabled, plan["precision"]["compute"] == "bf16")
            tp = plan["mesh"]["tp"]
            expect(path + " tensor parallel", config.tensor_parallel_config.autotp_size, tp if tp > 1 else 0)
            zero = config.zero_config
            for found, what in ((zero.offload_optimizer, "optimizer"), (zero.offload_param, "parameters")):
                device = str(getattr(found.device, "value", found.device)) if found else "none"
                expect(f"{path} offload of {what}", device, {"none": "none", "host": "cpu", "nvme": "nvme"}[plan["offload"][what]])
            if stage(plan) == 3:
                hidden = plan["model"]["hidden"]
                expect(path + " prefetch", zero.prefetch_bucket_size, hidden * hidden * 9 // 10)
                expect(path + " persistence", zero.param_persistence_threshold, 10 * hidden)
            if plan["offload"]["parameters"] == "nvme":
                expect(path + " NVMe", str(zero.offload_param.nvme_path), "/local/scratch")
            refuse(path + " with a batch that does not multiply out", lambda: parse(changed(written, "train_batch_size", 7), plan))
            if stage(plan) > 0:
                refuse(path + " with an unknown key", lambda: parse(changed(written, "zero_optimization.bucket", 1), plan))
                refuse(path + " with stage 4", lambda: parse(changed(written, "zero_optimization.stage", 4), plan))


# --- accelerate
def accelerate():
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.utils import FullyShardedDataParallelPlugin
    from accelerate.utils.launch import prepare_multi_gpu_env

    known = set(vars(launch_command_parser().parse_args(["train.py"])))

    def worker(path, more):
        load_config_from_file(path)
        words = ["--config_file", path, *more, "train.py"]
        arguments, _, _ = _validate_launch_command(launch_command_parser().parse_args(words))
        environment = prepare_multi_gpu_env(arguments)
        for key in ("FSDP_SYNC_MODULE_STATES", "FSDP_CPU_RAM_EFFICIENT_LOADING"):  # version 1 asks for a GPU then
            if arguments.use_fsdp and arguments.fsdp_version == 1:
                environment[key] = "false"
        before = dict(os.environ)
        os.environ.update({k: v for k, v in environment.items() if k.startswith(("FSDP_", "ACCELERATE_", "PARALLELISM_CONFIG_"))})
        try:
            plugin = FullyShardedDataParallelPlugin() if arguments.use_fsdp else None
            mesh = ParallelismConfig() if arguments.use_parallelism_config else None
        finally:
            os.environ.clear()
            os.environ.update(before)
        return arguments, plugin, mesh

    def mutated(path, key, new):
        import yaml

        file = tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False)
        yaml.safe_dump(changed(yaml_of(path), key, new), file)
        file.close()
        return file.name

    for target in ("fsdp", "accelerate-fsdp1", "accelerate-fsdp2", "accelerate-deepspeed", "trl", "llamafactory"):
        for name, folder, plan in plans(target):
            path = f"{folder}/accelerate.yaml"
            if not os.path.exists(path):
                continue  # started by torchrun
            mesh, sharding = plan["mesh"], plan["strategy"]["sharding"]
            with_deepspeed = target == "accelerate-deepspeed"
            more = ["--deepspeed_config_file", f"{folder}/ds_config.json"] if with_deepspeed else []
            result = accept(path, lambda: worker(path, more))
            if result is None:
                continue
            arguments, plugin, axes = result
            expect(path + " processes", (arguments.num_processes, arguments.num_machines), (world(plan), plan["hardware"]["nodes"]))
            expect(path + " engine", (arguments.use_deepspeed, arguments.use_fsdp), (with_deepspeed, not with_deepspeed and sharding != "ddp"))
            if with_deepspeed:
                expect(path + " DeepSpeed's file", arguments.deepspeed_config_file, more[1])
            expect(path + " fsdp keys unknown to accelerate", set(yaml_of(path).get("fsdp_config", {})) - known, set())
            expect(path + " axes unknown to accelerate", set(yaml_of(path).get("parallelism_config", {})) - known, set())
            if plugin is not None:
                version = 1 if target == "accelerate-fsdp1" else 2
                expect(path + " version", plugin.fsdp_version, version)
                kept = sharding == "zero2" or not plan["strategy"]["reshard_after_forward"]
                if version == 2:
                    expect(path + " reshard", plugin.reshard_after_forward, not kept)
                else:
                    hybrid = mesh["dp_replicate"] > 1
                    found = (plugin.sharding_strategy or plugin.reshard_after_forward).name
                    expect(path + " strategy", found, "HYBRID_SHARD" if hybrid else "SHARD_GRAD_OP" if kept else "FULL_SHARD")
                expect(path + " classes", plugin.transformer_cls_names_to_wrap, [plan["model"]["layer_class"]])
                offloads = plugin.cpu_offload if version == 2 else plugin.cpu_offload.offload_params
                found = offloads if isinstance(offloads, bool) else "CPU" in type(offloads).__name__
                expect(path + " offload", found, plan["offload"]["parameters"] == "host")
                expect(path + " recompute", bool(plugin.activation_checkpointing), plan["recompute"]["policy"] == "full")
            several = mesh["tp"] > 1 or mesh["cp"] > 1 or (mesh["dp_replicate"] > 1 and sharding != "ddp")
            if several and target != "accelerate-fsdp1" and not with_deepspeed:
                found = (axes.dp_replicate_size, axes.dp_shard_size, axes.tp_size, axes.cp_size)
                expect(path + " mesh", found, (mesh["dp_replicate"], mesh["dp_shard"], mesh["tp"], mesh["cp"]))
            refuse(path + " with an unknown key", lambda: worker(mutated(path, "numprocesses", 2), more))
            refuse(path + " with an unknown type", lambda: worker(mutated(path, "distributed_type", "FSDP9"), more))


def world(plan):
    return plan["hardware"]["nodes"] * plan["hardware"]["gpus_per_node"]


def check_trainer(name, arguments, plan):
    train = plan["train"]
    expect(name + " batch", (arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps), (plan["micro_batch"], plan["gradient_accumulation"]))
    expect(name + " steps", (arguments.max_steps, arguments.warmup_steps), (train["steps"], train["warmup_steps"]))
    expect(name + " rates", (float(arguments.learning_rate), arguments.lr_scheduler_kwargs), (train["learning_rate"], {"min_lr": train["min_learning_rate"]}))
    found = (arguments.weight_decay, arguments.adam_beta1, arguments.adam_beta2, arguments.adam_epsilon, arguments.max_grad_norm)
    expect(name + " optimizer", tuple(map(float, found)), tuple(float(train[key]) for key in ("weight_decay", "beta1", "beta2", "epsilon", "grad_clip")))
    expect(name + " precision", (arguments.bf16, arguments.fp16), (plan["precision"]["compute"] == "bf16", False))


def without_hardware(value):
    """CPU in place of GPUs; bf16 and DeepSpeed are kept back, as both ask for a GPU or for processes that are there."""
    value = {**copy.deepcopy(value), "use_cpu": True}
    return value, value.pop("deepspeed", None)


def transformers():
    from transformers import HfArgumentParser, TrainingArguments
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    def parse(value):
        value, config = without_hardware({"output_dir": OUTPUT, **value})
        arguments = HfArgumentParser(TrainingArguments).parse_dict(value)[0]
        if config is not None:
            filled = HfTrainerDeepSpeedConfig(config)
            filled.trainer_config_process(arguments)
            if filled.mismatches:
                raise ValueError(filled.mismatches)
            config = filled.config
        return arguments, config

    for name, folder, plan in plans("deepspeed-hf"):
        path = f"{folder}/ds_config.json"
        written = json_of(path)
        batch = {"per_device_train_batch_size": plan["micro_batch"], "gradient_accumulation_steps": plan["gradient_accumulation"]}
        batch.update(max_grad_norm=plan["train"]["grad_clip"], bf16=plan["precision"]["compute"] == "bf16")
        result = accept(path, lambda: parse({**batch, "deepspeed": written}))
        if result is None:
            continue
        config = result[1]
        check_deepspeed(path, config, plan)
        found = (config["train_micro_batch_size_per_gpu"], config["gradient_accumulation_steps"], config["gradient_clipping"])
        expect(path + " filled", found, (plan["micro_batch"], plan["gradient_accumulation"], plan["train"]["grad_clip"]))
        refuse(path + " with another micro-batch", lambda: parse({**batch, "deepspeed": {**written, "train_micro_batch_size_per_gpu": 7}}))

    for name, folder, plan in plans("transformers"):
        path = f"{folder}/training_arguments.json"
        written = json_of(path)
        result = accept(path, lambda: parse(written))
        if result is None:
            continue
        arguments, config = result
        check_trainer(path, arguments, plan)
        expect(path + " fsdp", bool(arguments.fsdp), "fsdp_config" in written)
        if config is not None:
            check_deepspeed(path, config, plan)
            expect(path + " filled", config["gradient_accumulation_steps"], plan["gradient_accumulation"])
            refuse(path + " with another accumulation", lambda: parse(changed(written, "deepspeed.gradient_accumulation_steps", 5)))
        if "fsdp_config" in written:
            plugin = arguments.fsdp_plugin_args
            expect(path + " version", plugin["fsdp_version"], 2)
            expect(path + " classes", plugin["transformer_cls_names_to_wrap"], plan["model"]["layer_class"])
            refuse(path + " with a strategy name", lambda: parse(changed(written, "fsdp_config.reshard_after_forward", "full_shard")))
        refuse(path + " with an unknown key", lambda: parse({**written, "per_gpu_batch": 2}))
        refuse(path + " with bf16 and fp16", lambda: parse({**written, "bf16": True, "fp16": True}))


def trl():
    from trl import DPOConfig, ModelConfig, ScriptArguments, SFTConfig, TrlParser

    def parse(value, method):
        import yaml

        value, config = without_hardware(value)
        with tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False) as file:
            yaml.safe_dump({**value, "dataset_name": "x"}, file)
        kind = DPOConfig if method == "dpo" else SFTConfig
        script, arguments, model = TrlParser((ScriptArguments, kind, ModelConfig)).parse_args_and_config(["--config", file.name])
        return arguments, model, config

    for name, folder, plan in plans("trl"):
        path = f"{folder}/trl.yaml"
        written, method = yaml_of(path), plan["train"]["method"]
        result = accept(path, lambda: parse(written, method))
        if result is None:
            continue
        arguments, model, config = result
        check_trainer(path, arguments, plan)
        expect(path + " length", arguments.max_length, plan["train"]["sequence_length"])
        expect(path + " model", model.model_name_or_path, plan["model"]["hub_id"])
        expect(path + " LoRA", (model.use_peft, model.lora_r if model.use_peft else 0), (plan["train"]["finetune"] == "lora", plan["train"]["lora_rank"]))
        if config is not None:
            check_deepspeed(path, config, plan)
        expect(path + " module", f"trl.scripts.{'dpo' if method == 'dpo' else 'sft'}" in launch_words(folder, "--dataset_name", "x"), True)
        refuse(path + " with an unknown key", lambda: parse({**written, "max_seq_lenght": 1}, method))
        refuse(path + " with a text for a number", lambda: parse({**written, "max_steps": "many"}, method))


def llamafactory():
    os.environ["DISABLE_VERSION_CHECK"] = "1"
    stand_in_for("datasets", "av", "librosa", "soundfile")
    from llamafactory.hparams import get_train_args
    from omegaconf import OmegaConf

    def parse(path, **more):
        value, config = without_hardware(OmegaConf.to_container(OmegaConf.load(path)))
        model, data, arguments, tuning, _ = get_train_args({**value, "dataset": "x", "template": "llama3", **more})
        return model, data, arguments, tuning, config

    for name, folder, plan in plans("llamafactory"):
        path = f"{folder}/llamafactory.yaml"
        result = accept(path, lambda: parse(path))
        if result is None:
            continue
        model, data, arguments, tuning, config = result
        check_trainer(path, arguments, plan)
        packs = plan["train"]["method"] == "pretrain"  # and keeps one token back
        expect(path + " length", data.cutoff_len, plan["train"]["sequence_length"] - packs)
        expect(path + " stage", tuning.stage, {"pretrain": "pt", "sft": "sft", "dpo": "dpo"}[plan["train"]["method"]])
        expect(path + " tuning", tuning.finetuning_type, plan["train"]["finetune"])
        expect(path + " recompute", model.disable_gradient_checkpointing, config is None and plan["strategy"]["sharding"] != "ddp" or plan["recompute"]["policy"] == "none")
        if config is not None:
            check_deepspeed(path, config, plan)
        refuse(path + " with an unknown key", lambda: parse(path, cutof_len=1))
        refuse(path + " with an unknown precision", lambda: parse(path, bf16=True, fp16=True))


def axolotl():
    stand_in_for("datasets", "triton", "bitsandbytes", "ring_flash_attn")
    from axolotl.utils.config import validate_config
    from axolotl.utils.dict import DictDefault

    def parse(value, plan):
        hardware = plan["hardware"]
        capabilities = {"bf16": True, "fp8": False, "tf32": True, "n_gpu": hardware["gpus_per_node"], "n_node": hardware["nodes"], "compute_capability": "sm_90"}
        data = {"datasets": [{"path": "x", "type": "completion"}]}
        if plan["train"]["method"] == "dpo":
            data = {"datasets": [{"path": "x", "type": "chatml.intel", "split": "train"}]}
        return validate_config(DictDefault({**data, **copy.deepcopy(value)}), capabilities=capabilities, env_capabilities={"torch_version": "2.11.0"})

    from axolotl.utils.schemas.config import AxolotlInputConfig

    known = set(AxolotlInputConfig.model_fields)
    from axolotl.utils.schemas.fsdp import FSDPConfig

    for name, folder, plan in plans("axolotl"):
        path = f"{folder}/axolotl.yaml"
        written = yaml_of(path)
        config = accept(path, lambda: parse(written, plan))
        if config is None:
            continue
        mesh = plan["mesh"]
        expect(path + " keys unknown to Axolotl", set(written) - known, set())
        expect(path + " fsdp keys unknown to Axolotl", set(written.get("fsdp_config", {})) - set(FSDPConfig.model_fields), set())
        expect(path + " batch", (config.micro_batch_size, config.gradient_accumulation_steps, config.sequence_len), (plan["micro_batch"], plan["gradient_accumulation"], plan["train"]["sequence_length"]))
        if mesh["tp"] > 1:
            expect(path + " tp", config.tensor_parallel_size, mesh["tp"])
        if mesh["cp"] > 1:
            expect(path + " cp", config.context_parallel_size, mesh["cp"])
        if mesh["dp_replicate"] > 1 and plan["strategy"]["sharding"] != "ddp":
            expect(path + " mesh", (config.dp_replicate_size, config.dp_shard_size), (mesh["dp_replicate"], mesh["dp_shard"]))
        if "deepspeed" in written:
            check_deepspeed(path, written["deepspeed"], plan)
        if "fsdp_config" in written:
            expect(path + " fsdp", (config.fsdp_version, bool(config.fsdp_config.offload_params)), (2, plan["offload"]["parameters"] == "host"))
            refuse(path + " with an optimizer that FSDP2 does not take", lambda: parse({**written, "optimizer": "adamw_bnb_8bit"}, plan))
        # What lint says of them: silently ignored.
        ignored = accept(path + " with an unknown key", lambda: parse({**written, "gradient_accumulation_step": 8}, plan))
        expect(path + " takes over an unknown key", ignored is not None and "gradient_accumulation_step" in ignored, False)
        refuse(path + " with a text for a number", lambda: parse({**written, "micro_batch_size": "many"}, plan))
        refuse(path + " with three batch sizes", lambda: parse({**written, "batch_size": 7}, plan))


def lightning():
    import lightning.pytorch as tool
    from lightning.pytorch.cli import LightningArgumentParser

    parser = LightningArgumentParser()
    parser.add_argument("--seed_everything", type=int)
    parser.add_lightning_class_args(tool.Trainer, "trainer")

    def parse(value):
        return parser.parse_object(copy.deepcopy(value))

    kinds = {"ddp": "DDPStrategy", "fsdp": "FSDPStrategy"}
    for name, folder, plan in plans("lightning"):
        path = f"{folder}/lightning.yaml"
        written, strategy = yaml_of(path), plan["strategy"]
        config = accept(path, lambda: parser.parse_path(path))
        if config is None:
            continue
        sharding = strategy["sharding"]
        kept = sharding == "zero3" and not strategy["reshard_after_forward"]
        fsdp = sharding != "ddp" and (plan["mesh"]["dp_replicate"] > 1 or kept)
        kind = kinds["ddp" if sharding == "ddp" else "fsdp"] if sharding == "ddp" or fsdp else "DeepSpeedStrategy"
        expect(path + " strategy", config.trainer.strategy.class_path.split(".")[-1], kind)
        trainer = config.trainer
        expect(path + " size", (trainer.num_nodes * trainer.devices, trainer.accumulate_grad_batches), (world(plan), plan["gradient_accumulation"]))
        expect(path + " clipping", trainer.gradient_clip_val or 0, plan["train"]["grad_clip"])
        if kind == "DeepSpeedStrategy":
            from lightning.pytorch.strategies import DeepSpeedStrategy

            made = accept(path + " made", lambda: DeepSpeedStrategy(**vars(config.trainer.strategy.init_args)))
            if made is not None:
                check_deepspeed(path, made.config, plan)
        if kind == "FSDPStrategy":
            from lightning.pytorch.strategies import FSDPStrategy
            from transformers.models.llama.modeling_llama import LlamaDecoderLayer

            words = dict(written["trainer"]["strategy"]["init_args"])
            for key in ("auto_wrap_policy", "activation_checkpointing_policy"):
                if key in words:
                    words[key] = {LlamaDecoderLayer}
            words["device_mesh"] = tuple(words["device_mesh"]) if "device_mesh" in words else None
            made = accept(path + " made", lambda: FSDPStrategy(**words))
            if made is not None:
                expect(path + " sharding", made.sharding_strategy.name, "HYBRID_SHARD" if plan["mesh"]["dp_replicate"] > 1 else "SHARD_GRAD_OP")
        refuse(path + " with an unknown key", lambda: parse(changed(written, "trainer.gpus", 8)))
        refuse(path + " with an unknown strategy", lambda: parse(changed(written, "trainer.strategy.class_path", "lightning.pytorch.strategies.NoStrategy")))
        refuse(path + " with an unknown precision", lambda: parse(changed(written, "trainer.precision", "bf15-mixed")))


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


def parser_of_modules():
    """Runs a module with arguments as far as its parser: what that made of them."""
    import argparse
    import runpy

    stand_in_for("vllm", "flash_attn", "ring_flash_attn", "ray", "pylatexenc", "transformers_stream_generator", "torchdata", "bitsandbytes", "loralib", "optree", "datasets", "aiohttp", "jsonlines")
    original = argparse.ArgumentParser.parse_args

    class Done(Exception):
        pass

    def stop(self, *words, **more):
        raise Done(original(self, *words, **more))

    argparse.ArgumentParser.parse_args = stop

    def parse(module, words):
        sys.argv = [module, *words]
        try:
            runpy.run_module(module, run_name="__main__")
        except Done as done:
            return vars(done.args[0])
        raise ValueError("the module did not parse its arguments")

    return parse


def openrlhf():
    parse = parser_of_modules()
    for name, folder, plan in plans("openrlhf"):
        path = f"{folder}/launch.sh"
        words = launch_words(folder, "--data.dataset", "x")
        module = words[words.index("-m") + 1]
        words = words[words.index("-m") + 2 :]
        found = accept(path, lambda: parse(module, words))
        if found is None:
            continue
        train, mesh = plan["train"], plan["mesh"]
        expect(path + " module", module, f"openrlhf.cli.train_{'dpo' if train['method'] == 'dpo' else 'sft'}")
        expect(path + " stage", found["ds.zero_stage"], stage(plan))
        expect(path + " batch", (found["train.batch_size"], found["train.micro_batch_size"], found["data.max_len"]), (train["global_batch"], plan["micro_batch"], train["sequence_length"]))
        expect(path + " accumulation", found["train.batch_size"] * found["ds.ring_attn_size"] * found["ds.tensor_parallel_size"] // found["train.micro_batch_size"] // world(plan), plan["gradient_accumulation"])
        expect(path + " axes", (found["ds.tensor_parallel_size"], found["ds.ring_attn_size"]), (mesh["tp"], mesh["cp"]))
        expect(path + " offload", found["ds.adam_offload"], plan["offload"]["optimizer"] == "host")
        expect(path + " second copy", found["ds.zpg"], plan["strategy"]["hpz"])
        expect(path + " recompute", found["model.gradient_checkpointing_enable"], plan["recompute"]["policy"] == "full")
        expect(path + " LoRA", found["ds.lora.rank"], train["lora_rank"])
        refuse(path + " with an unknown flag", lambda: parse(module, [*words, "--zero_stage", "3"]))
        refuse(path + " with a text for a number", lambda: parse(module, [*words, "--ds.zero_stage", "three"]))


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


def openrlhf_flags():
    """Names without dots: with DeepSpeed by the last release that has them, with FSDP2 by the table of the pull request."""
    in_folder("openrlhf-0.9")
    branch, release = parser_of_names("openrlhf-fsdp2", exact=False), parser_of_modules()
    for name, folder, plan in plans("openrlhf-flags"):
        path = f"{folder}/launch.sh"
        words = launch_words(folder, "--dataset", "x", "--input_key", "question")
        module = words[words.index("-m") + 1]
        words = words[words.index("-m") + 2 :]
        fsdp2 = plan["strategy"]["trainer"] == "fsdp2"

        def parse(words):
            return branch(words) if fsdp2 else release(module, words)

        found = accept(path, lambda: parse(words))
        if found is None:
            continue
        train, mesh = plan["train"], plan["mesh"]
        tp = found["fsdp_tensor_parallel_size" if fsdp2 else "ds_tensor_parallel_size"] or 1
        ring = found["ring_attn_size"] or 1
        expect(path + " batch", (found["train_batch_size"], found["micro_train_batch_size"], found["max_len"]), (train["global_batch"], plan["micro_batch"], train["sequence_length"]))
        expect(path + " accumulation", found["train_batch_size"] * ring * tp // found["micro_train_batch_size"] // world(plan), plan["gradient_accumulation"])
        expect(path + " axes", (tp, ring), (mesh["tp"], mesh["cp"]))
        expect(path + " packing", found["packing_samples"], mesh["cp"] > 1)
        expect(path + " offload", found["adam_offload"], plan["offload"]["optimizer"] == "host")
        expect(path + " recompute", found["gradient_checkpointing"], plan["recompute"]["policy"] == "full")
        expect(path + " LoRA", found["lora_rank"] or 0, train["lora_rank"])
        expect(path + " steps", found["max_samples"], train["steps"] * train["global_batch"])
        expect(path + " schedule", (found["learning_rate"], found["l2"], list(found["adam_betas"])), (train["learning_rate"], train["weight_decay"], [train["beta1"], train["beta2"]]))
        expect(path + " checkpoints", (found["ckpt_path"], found["max_ckpt_num"]), (plan["checkpoint"]["directory"], plan["checkpoint"]["keep"]))
        if fsdp2:
            expect(path + " backend", found["backend"], "fsdp2")
            expect(path + " sequence parallel", found["sequence_parallel"], mesh["tp"] > 1 and plan["strategy"]["sequence_parallel"])
        else:
            expect(path + " stage", found["zero_stage"], stage(plan))
            expect(path + " second copy", found["zpg"], plan["strategy"]["hpz"])
        refuse(path + " with an unknown flag", lambda: parse([*words, "--ds.zero_stage", "3"]))
        refuse(path + " with a text for a number", lambda: parse([*words, "--micro_train_batch_size", "two"]))
        refuse(path + " with an unknown dtype", lambda: parse([*words, "--param_dtype", "fp8"]))


def fine_tuning():
    """The sections of config.yaml make the objects that their names are from: TrainingArguments, LoraConfig, BitsAndBytesConfig."""
    from peft import LoraConfig
    from transformers import BitsAndBytesConfig, HfArgumentParser, TrainingArguments
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    renamed = {"micro_batch_size": "per_device_train_batch_size", "optimizer": "optim"}

    def parse(written, folder):
        training, output = dict(written["training"]), dict(written["output"])
        precision, length = training.pop("mixed_precision"), training.pop("max_seq_length")
        value = {renamed.get(key, key): one for key, one in {**training, **output}.items()}
        value.update(output_dir=OUTPUT, use_cpu=True, bf16=precision == "bf16", report_to="none")
        arguments = HfArgumentParser(TrainingArguments).parse_dict(value)[0]
        tuning, model = written["fine_tuning"], written["model"]
        lora = None
        if tuning["method"] != "full":
            words = dict(tuning["lora"])
            lora = LoraConfig(lora_alpha=words.pop("alpha"), lora_dropout=words.pop("dropout"), **words)
        if tuning["method"] == "qlora":
            words = dict(tuning["quantization"])
            if words.pop("bits") != 4 or not model["load_in_4bit"]:
                raise ValueError("4 bits in one place only")
            BitsAndBytesConfig(load_in_4bit=True, **words)
        config = None
        if written["distributed"]["use_deepspeed"]:
            filled = HfTrainerDeepSpeedConfig(json_of(f"{folder}/{written['distributed']['deepspeed_config']}"))
            filled.trainer_config_process(arguments)
            if filled.mismatches:
                raise ValueError(filled.mismatches)
            config = filled.config
        return arguments, lora, config, length

    for name, folder, plan in plans("fine-tuning"):
        path = f"{folder}/config.yaml"
        written = yaml_of(path)
        result = accept(path, lambda: parse(written, folder))
        if result is None:
            continue
        arguments, lora, config, length = result
        train, distributed = plan["train"], written["distributed"]
        expect(path + " batch", (arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps, length), (plan["micro_batch"], plan["gradient_accumulation"], train["sequence_length"]))
        expect(path + " accumulation twice", distributed["gradient_accumulation_steps"], plan["gradient_accumulation"])
        expect(path + " steps", (arguments.max_steps, arguments.warmup_steps, arguments.save_total_limit), (train["steps"], train["warmup_steps"], plan["checkpoint"]["keep"]))
        expect(path + " optimizer", (arguments.learning_rate, arguments.weight_decay, arguments.max_grad_norm), (train["learning_rate"], train["weight_decay"], train["grad_clip"]))
        expect(path + " precision", arguments.bf16, plan["precision"]["compute"] == "bf16")
        expect(path + " recompute", arguments.gradient_checkpointing, plan["recompute"]["policy"] == "full")
        expect(path + " ranks", distributed["num_nodes"] * distributed["num_gpus_per_node"], world(plan))
        expect(path + " adapters", lora.r if lora else 0, train["lora_rank"])
        if config is not None:
            check_deepspeed(path, config, plan)
            expect(path + " stage", distributed["zero_stage"], stage(plan))
        refuse(path + " with an unknown key", lambda: parse(changed(written, "training.micro_batch", 2), folder))
        refuse(path + " with an unknown optimizer", lambda: parse(changed(written, "training.optimizer", "adamw_torc"), folder))
        refuse(path + " with an unknown schedule", lambda: parse(changed(written, "training.lr_scheduler_type", "cosin"), folder))
        if lora:
            refuse(path + " with an unknown key of lora", lambda: parse(changed(written, "fine_tuning.lora.rank", 2), folder))


def training_stages():
    """The sections of a stage make what their names are of: Lightning's Trainer, strategy and checkpoints, torch's optimizer and schedule."""
    import inspect

    import lightning.pytorch as tool
    import torch
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.cli import LightningArgumentParser
    from lightning.pytorch.strategies import FSDPStrategy
    from lightning.pytorch.utilities.types import LRSchedulerConfig
    from omegaconf import OmegaConf
    from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    parser = LightningArgumentParser()
    parser.add_lightning_class_args(tool.Trainer, "trainer")
    of_fsdp = set(inspect.signature(FullyShardedDataParallel.__init__).parameters)

    def parse(written):
        whole = OmegaConf.to_container(OmegaConf.create(written), resolve=True)
        one = whole["training_stages"]["stage1"]
        training, distributed = one["training"], one["distributed"]
        optimizer, schedule = dict(one["optimizer"]), dict(one["scheduler"])
        trainer = {
            "num_nodes": distributed["num_nodes"],
            "devices": distributed["devices"],
            "strategy": distributed["strategy"],
            "sync_batchnorm": distributed["sync_batchnorm"],
            "accumulate_grad_batches": training["gradient_accumulation_steps"],
            "gradient_clip_val": training["max_grad_norm"],
            "max_steps": schedule["T_max"],
            "precision": {"bf16": "bf16-mixed", "fp16": "16-mixed", "fp32": "32-true"}[training["mixed_precision"]],
        }
        config = parser.parse_object({"trainer": trainer}).trainer
        fsdp, strategy = dict(distributed["fsdp"]), None
        if fsdp.pop("enabled"):
            recompute = fsdp.pop("activation_checkpointing")
            fsdp["backward_prefetch"] = BackwardPrefetch[fsdp["backward_prefetch"]]
            if set(fsdp) - of_fsdp:
                raise ValueError(f"FullyShardedDataParallel has no {set(fsdp) - of_fsdp}")
            strategy = FSDPStrategy(activation_checkpointing_policy={LlamaDecoderLayer} if recompute else None, **fsdp)
        rate = training["learning_rate"]
        made = getattr(torch.optim, optimizer.pop("type"))([torch.nn.Parameter(torch.zeros(1))], lr=rate, **optimizer)
        schedule.pop("warmup_steps")
        words = {key: schedule.pop(key) for key in ("interval", "frequency")}
        cosine = getattr(torch.optim.lr_scheduler, schedule.pop("type"))(made, **schedule)
        LRSchedulerConfig(cosine, **words)
        keep = dict(training["checkpointing"])
        saves = ModelCheckpoint(dirpath=one["checkpoint_dir"], every_n_train_steps=keep.pop("save_every_n_steps"), **keep)
        return config, strategy, made, cosine, saves

    for name, folder, plan in plans("training-stages"):
        path = f"{folder}/config.yaml"
        written = yaml_of(path)
        result = accept(path, lambda: parse(written))
        if result is None:
            continue
        config, strategy, made, cosine, saves = result
        train, group = plan["train"], made.param_groups[0]
        expect(path + " ranks", config.num_nodes * config.devices, world(plan))
        expect(path + " accumulation", config.accumulate_grad_batches, plan["gradient_accumulation"])
        expect(path + " rates", (group["lr"], cosine.eta_min, cosine.T_max), (train["learning_rate"], train["min_learning_rate"], train["steps"]))
        expect(path + " optimizer", (list(group["betas"]), group["eps"], group["weight_decay"]), ([train["beta1"], train["beta2"]], train["epsilon"], train["weight_decay"]))
        expect(path + " precision", config.precision, {"bf16": "bf16-mixed", "fp16": "16-mixed", "fp32": "32-true"}[plan["precision"]["compute"]])
        expect(path + " checkpoints kept", (saves.save_top_k, saves.monitor, saves.mode), (plan["checkpoint"]["keep"], "step", "max"))
        sharding = plan["strategy"]["sharding"]
        expect(path + " strategy", strategy.sharding_strategy.name if strategy else "ddp", {"zero3": "FULL_SHARD", "zero2": "SHARD_GRAD_OP", "ddp": "ddp"}[sharding])
        if strategy:
            expect(path + " offload", strategy.cpu_offload.offload_params, plan["offload"]["parameters"] == "host")
            expect(path + " recompute", bool(strategy._activation_checkpointing_kwargs), plan["recompute"]["policy"] == "full")
        inside = "training_stages.stage1."
        refuse(path + " with an unknown optimizer", lambda: parse(changed(written, inside + "optimizer.type", "AdamX")))
        refuse(path + " with an unknown key of the schedule", lambda: parse(changed(written, inside + "scheduler.period", 5)))
        refuse(path + " with a text for a number", lambda: parse(changed(written, inside + "distributed.num_nodes", "two")))
        refuse(path + " that keeps the best of nothing", lambda: parse(changed(written, inside + "training.checkpointing.monitor", None)))
        if strategy:
            refuse(path + " with an unknown sharding", lambda: parse(changed(written, inside + "distributed.fsdp.sharding_strategy", "FULL")))
            refuse(path + " with an unknown key of FSDP", lambda: parse(changed(written, inside + "distributed.fsdp.prefetch", True)))


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


def in_folder(name):
    """A tool that is installed in a folder of its own beside the environment (tests/support/parsers_env.sh)."""
    sys.path.insert(0, os.path.join(sys.prefix, name))


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


def megatron_bridge():
    """The overlay merged into a ConfigContainer as Megatron-Bridge's own examples do it, and validated for the plan's ranks."""
    import torch

    import_megatron_bridge()
    from megatron.bridge.models.gpt_provider import GPTModelProvider
    from megatron.bridge.training import config as tool
    from megatron.bridge.training.mixed_precision import get_mixed_precision_config
    from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

    torch.cuda.get_device_capability = lambda *words: (9, 0)
    torch.cuda.get_device_properties = lambda *words: types.SimpleNamespace(major=9, minor=0, name="H100")

    def recipe(plan):
        model = plan["model"]
        experts = {"num_moe_experts": model["num_experts"], "moe_router_topk": model["experts_per_token"]} if model.get("num_experts", 0) > 1 else {}
        return tool.ConfigContainer(
            train=tool.TrainingConfig(micro_batch_size=1, global_batch_size=1, train_iters=10),
            model=GPTModelProvider(
                num_layers=model["num_layers"],
                hidden_size=model["hidden"],
                num_attention_heads=model["num_heads"],
                num_query_groups=model["num_kv_heads"],
                ffn_hidden_size=model["feed_forward"],
                vocab_size=model["vocabulary"],
                pipeline_dtype=torch.bfloat16,
                params_dtype=torch.bfloat16,
                bf16=True,
                **experts,
            ),
            optimizer=tool.OptimizerConfig(lr=1e-4, bf16=True),
            scheduler=tool.SchedulerConfig(lr_decay_iters=10),
            dataset=tool.MockGPTDatasetConfig(random_seed=1, reset_attention_mask=False, reset_position_ids=False, eod_mask_loss=False, seq_length=128),
            logger=tool.LoggerConfig(),
            tokenizer=tool.TokenizerConfig(tokenizer_type="NullTokenizer", vocab_size=model["vocabulary"]),
            checkpoint=tool.CheckpointConfig(),
        )

    def parse(path, plan, written=None):
        if written is not None:
            import yaml

            with tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False) as file:
                yaml.safe_dump(written, file)
            path = file.name
        os.environ["WORLD_SIZE"], os.environ["RANK"] = str(world(plan)), "0"
        config = process_config_with_overrides(recipe(plan), path)
        if isinstance(config.mixed_precision, str):  # as the trainer does when it starts
            get_mixed_precision_config(config.mixed_precision)
        config.validate()
        return config

    for name, folder, plan in plans("megatron-bridge"):
        path = f"{folder}/overrides.yaml"
        written = yaml_of(path)
        config = accept(path, lambda: parse(path, plan))
        if config is None:
            continue
        mesh, train = plan["mesh"], plan["train"]
        found = (config.train.micro_batch_size, config.train.global_batch_size, config.train.train_iters, config.model.seq_length)
        expect(path + " batch", found, (plan["micro_batch"], train["global_batch"], train["steps"], train["sequence_length"]))
        found = (config.model.tensor_model_parallel_size, config.model.pipeline_model_parallel_size, config.model.context_parallel_size, config.model.expert_model_parallel_size)
        expect(path + " axes", found, (mesh["tp"], mesh["pp"], mesh["cp"], mesh["ep"]))
        expect(path + " data-parallel ranks", config.data_parallel_size, mesh["dp_replicate"] * mesh["dp_shard"])
        expect(path + " distributed optimizer", config.ddp.use_distributed_optimizer, plan["strategy"]["sharding"] != "ddp")
        expect(path + " Megatron-FSDP", config.ddp.use_megatron_fsdp, plan["strategy"]["sharding"] in ("zero2", "zero3"))
        expect(path + " clipping", config.optimizer.clip_grad, train["grad_clip"])
        # Unknown keys pass with a line in the log: the emitted ones have to be there before the file is merged.
        before = recipe(plan)
        for section, keys in written.items():
            place = getattr(before, section, None)
            unknown = [key for key in keys if not hasattr(place, key)] if isinstance(keys, dict) else [] if hasattr(before, section) else [section]
            expect(f"{path} keys of {section} unknown to Megatron-Bridge", unknown, [])
        passed = accept(path + " with an unknown key", lambda: parse(path, plan, changed(written, "train.micro_batch", 1)))
        expect(path + " takes over an unknown key", hasattr(getattr(passed, "train", None), "micro_batch"), False)
        refuse(path + " with ranks that do not divide", lambda: parse(path, plan, changed(written, "model.context_parallel_size", 3)))
        refuse(path + " with an unknown precision", lambda: parse(path, plan, {**written, "mixed_precision": "bf15_mixed"}))
        refuse(path + " with an unknown granularity", lambda: parse(path, plan, changed(written, "model.recompute_granularity", "some")))


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


def megatron_lm():
    """No package has the parser of pretrain_gpt.py."""
    parse = parser_of_names("megatron-lm")
    script = tempfile.mkdtemp()
    open(f"{script}/pretrain_gpt.py", "w").close()
    for name, folder, plan in plans("megatron-lm"):
        path = f"{folder}/launch.sh"
        words = launch_words(folder, "--data-path", "x", "--tokenizer-model", "y", MEGATRON_LM=script)
        words = words[words.index(f"{script}/pretrain_gpt.py") + 1 :]
        found = accept(path, lambda: parse(words))
        if found is None:
            continue
        mesh, train = plan["mesh"], plan["train"]
        batch = (found["micro_batch_size"], found["global_batch_size"], found["seq_length"])
        expect(path + " batch", batch, (plan["micro_batch"], train["global_batch"], train["sequence_length"]))
        axes = tuple(found[key] or 1 for key in ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size"))
        expect(path + " axes", axes, (mesh["tp"], mesh["pp"], mesh["cp"], mesh["ep"]))
        refuse(path + " with an unknown argument", lambda: parse([*words, "--micro-batch", "1"]))
        refuse(path + " with a text for a number", lambda: parse([*words, "--train-iters", "many"]))
        refuse(path + " with an unknown choice", lambda: parse([*words, "--recompute-granularity", "some"]))


def main():
    tool = sys.argv[1]
    os.chdir(sys.argv[2])
    globals()[tool]()
    code = report(f"{tool}: ")
    sys.stdout.flush()
    os._exit(code)


main()
