"""Targets read by their own parsers (emit_targets.py): Megatron-LM and Megatron-Bridge."""

import os
import tempfile
import types

from emitted import launch_words, parser_of_names, plans, world, yaml_of
from parser_checks import accept, changed, expect, refuse
from stand_ins import import_megatron_bridge


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
