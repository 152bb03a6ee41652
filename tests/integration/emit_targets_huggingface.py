"""Targets read by their own parsers (emit_targets.py): accelerate, the Trainer, TRL, LLaMA-Factory and Axolotl."""

import copy
import os
import tempfile

from emitted import OUTPUT, check_deepspeed, json_of, launch_words, plans, world, yaml_of
from parser_checks import accept, changed, expect, refuse
from stand_ins import stand_in_for


# --- accelerate
def accelerate():
    from accelerate.commands.launch import launch_command_parser
    from accelerate_worker import worker

    known = set(vars(launch_command_parser().parse_args(["train.py"])))

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
            result = accept(path, lambda: worker(path, *more))
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
            refuse(path + " with an unknown key", lambda: worker(mutated(path, "numprocesses", 2), *more))
            refuse(path + " with an unknown type", lambda: worker(mutated(path, "distributed_type", "FSDP9"), *more))


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
        expect(path + " dropout", model.lora_dropout if model.use_peft else 0, plan["train"]["lora_dropout"])
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
