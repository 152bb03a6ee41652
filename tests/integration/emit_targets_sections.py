"""Targets read by their own parsers (emit_targets.py): DeepSpeed, Lightning, and the sections of a config.yaml that trainers hand to them and to Transformers."""

import copy
import sys

from emitted import OUTPUT, check_deepspeed, json_of, plans, stage, world, yaml_of
from parser_checks import accept, changed, expect, refuse


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
        expect(path + " adapters", (lora.r, lora.lora_dropout) if lora else (0, 0), (train["lora_rank"], train["lora_dropout"]))
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
