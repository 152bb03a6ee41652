"""Reads the files of emit_parsers_all.sh with the parsers of the tools they are for. A failure names the file and the reason.

Acceptance alone proves little (several of these parsers swallow unknown keys), so every file is compared with what it should mean, and
mutated files have to be refused.
"""

import copy
import glob
import json
import logging
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from parser_checks import accept, expect, fail, refuse, report

logging.disable(logging.WARNING)
os.chdir(sys.argv[1])


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


# --- DeepSpeed: eight ranks in this one process, by torch's stand-in backend. Without it the world has size 1, silently.
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
import deepspeed

sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # would compile a C++ extension that no check needs
deepspeed.init_distributed(dist_backend="fake", auto_mpi_discovery=False)
from deepspeed.runtime.config import DeepSpeedConfig

STAGES = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3}


def deepspeed_config(value):
    config = DeepSpeedConfig(copy.deepcopy(value))
    assert config.world_size == 8
    return config


for path in sorted(glob.glob("ds_*.json")):
    written, config = read(path), accept(path, lambda: deepspeed_config(read(path)))
    if config is None:
        continue
    expect(path + " stage", config.zero_optimization_stage, int(path[3]))
    expect(
        path + " batch",
        (config.train_batch_size, config.train_micro_batch_size_per_gpu, config.gradient_accumulation_steps),
        (64, 2, 4),
    )
    expect(path + " clipping", config.gradient_clipping, 0.3)
    expect(
        path + " precision",
        (config.bfloat16_config.enabled, config.float16_config.enabled),
        ("bf16" in path or "offload" in path, "fp16" in path),
    )
    zero = config.zero_config
    if int(path[3]) > 0:
        expect(path + " buckets", (zero.reduce_bucket_size, zero.allgather_bucket_size), (500000000, 500000000))
        optimizer, parameters = (
            str(getattr(part.device, "value", part.device)) if part else "none"
            for part in (zero.offload_optimizer, zero.offload_param)
        )
        expect(
            path + " offload",
            (optimizer, parameters),
            ("cpu" if "offload" in path else "none", "cpu" if "3_offload" in path else "none"),
        )
    accept(path + " read from the file", lambda: DeepSpeedConfig(path))

for sharding, stage in STAGES.items():
    path = f"deepspeed {sharding}/ds_config.json"
    written, plan = read(path), read(f"deepspeed {sharding}/plan.json")
    config = accept(path, lambda: deepspeed_config(written))
    if config is not None:
        expect(path + " stage", config.zero_optimization_stage, stage)
        expect(path + " global batch", config.train_batch_size, plan["train"]["global_batch"])
        expect(path + " micro-batch", config.train_micro_batch_size_per_gpu, plan["micro_batch"])
        expect(path + " accumulation", config.gradient_accumulation_steps, plan["gradient_accumulation"])


def mutate(path, **changes):
    value = read(path)
    for key, change in changes.items():
        section, _, inner = key.partition("__")
        if inner:
            value.setdefault(section, {})[inner] = change
        else:
            value[section] = change
    return value


plan_json = "deepspeed zero3/ds_config.json"
refuse(
    "deepspeed: batch keys that do not agree",
    lambda: deepspeed_config(mutate(plan_json, train_batch_size=read(plan_json)["train_batch_size"] + 1)),
)
refuse("deepspeed: an unknown key of zero_optimization", lambda: deepspeed_config(mutate(plan_json, zero_optimization__bucket=1)))
refuse("deepspeed: a bucket as text", lambda: deepspeed_config(mutate(plan_json, zero_optimization__reduce_bucket_size="5e8")))
refuse("deepspeed: fp16 beside bf16", lambda: deepspeed_config(mutate(plan_json, fp16={"enabled": True})))
refuse("deepspeed: stage 4", lambda: deepspeed_config(mutate(plan_json, zero_optimization__stage=4)))
refuse('deepspeed: "auto" without an integration', lambda: deepspeed_config(read("auto.json")))

# --- transformers: "auto" filled, arguments understood
from transformers import HfArgumentParser, TrainingArguments
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

output = tempfile.mkdtemp(dir=".")


def fill(value):
    arguments = TrainingArguments(
        output, use_cpu=True, bf16=True, per_device_train_batch_size=3, gradient_accumulation_steps=4, max_grad_norm=0.3
    )
    filled = HfTrainerDeepSpeedConfig(value)
    filled.trainer_config_process(arguments)
    if filled.mismatches:
        raise ValueError(filled.mismatches)
    return filled.config


filled = accept("auto.json filled by transformers", lambda: fill(read("auto.json")))
if filled is not None:
    expect("auto.json micro-batch", filled["train_micro_batch_size_per_gpu"], 3)
    accept("auto.json filled, then DeepSpeed", lambda: deepspeed_config(filled))
refuse(
    "transformers: an accumulation that differs from the argument", lambda: fill(mutate("auto.json", gradient_accumulation_steps=5))
)


def training_arguments(value):
    return HfArgumentParser(TrainingArguments).parse_dict({"output_dir": output, "use_cpu": True, **copy.deepcopy(value)})[0]


STRATEGY = {"FULL_SHARD": (True, "full_shard"), "SHARD_GRAD_OP": (False, "shard_grad_op")}
READ_BY_TRAINER = {
    1: {
        "version",
        "reshard_after_forward",
        "auto_wrap_policy",
        "transformer_layer_cls_to_wrap",
        "state_dict_type",
        "cpu_offload",
        "cpu_ram_efficient_loading",
        "activation_checkpointing",
        "sync_module_states",
        "use_orig_params",
        "backward_prefetch",
        "forward_prefetch",
    },
    2: {
        "version",
        "reshard_after_forward",
        "auto_wrap_policy",
        "transformer_layer_cls_to_wrap",
        "state_dict_type",
        "cpu_offload",
        "cpu_ram_efficient_loading",
        "activation_checkpointing",
    },
}
for path in sorted(glob.glob("trainer_*.json")):
    version, strategy, precision = int(path[8]), path[10:].rsplit("_", 1)[0], path[:-5].rsplit("_", 1)[1]
    written = read(path)
    arguments = accept(path, lambda: training_arguments(written))
    if arguments is None:
        continue
    expect(path + " precision", (arguments.bf16, arguments.fp16), (precision == "BFLOAT16", precision == "FP16"))
    expect(path + " fsdp", bool(arguments.fsdp), strategy != "NO_SHARD")
    if strategy == "NO_SHARD":
        continue
    expect(path + " keys that the Trainer reads", set(written["fsdp_config"]), READ_BY_TRAINER[version])
    plugin = arguments.fsdp_plugin_args
    expect(path + " version", plugin["fsdp_version"], version)
    expect(path + " strategy", plugin["reshard_after_forward"], STRATEGY[strategy][2 - version])
    expect(path + " classes", plugin["transformer_cls_names_to_wrap"], "LlamaDecoderLayer")
    expect(path + " state dict", plugin["state_dict_type"], "SHARDED_STATE_DICT")
    expect(path + " loading", plugin["cpu_ram_efficient_loading"], True)
    expect(path + " recompute", plugin["activation_checkpointing"], False)

trainer = "trainer_2_FULL_SHARD_BFLOAT16.json"
refuse("transformers: an unknown argument", lambda: training_arguments(mutate(trainer, per_gpu_batch=2)))
refuse("transformers: an unknown wrap policy", lambda: training_arguments(mutate(trainer, fsdp_config__auto_wrap_policy="BY_LAYER")))
refuse("transformers: bf16 and fp16", lambda: training_arguments(mutate(trainer, fp16=True)))
refuse(
    "transformers: a strategy name under version 2",
    lambda: training_arguments(mutate(trainer, fsdp_config__reshard_after_forward="full_shard")),
)

# --- accelerate: loader, launcher, and the plugin as a worker builds it from its environment
import yaml
from accelerate.commands.launch import launch_command_parser
from accelerate_worker import launch, worker

dist.destroy_process_group()  # the plugin asks for the world of a run of its own


def check_accelerate(
    path, version, strategy, precision, processes, machines, classes=None, state="SHARDED_STATE_DICT", offload=False, recompute=False
):
    result = accept(path, lambda: worker(path))
    if result is None:
        return
    arguments, plugin, _ = result
    known = set(vars(launch_command_parser().parse_args(["train.py"])))
    expect(path + " fsdp keys unknown to accelerate", set(yaml.safe_load(open(path)).get("fsdp_config", {})) - known, set())
    expect(path + " processes", (arguments.num_processes, arguments.num_machines), (processes, machines))
    expect(path + " precision", arguments.mixed_precision, precision)
    expect(path + " type", (arguments.use_fsdp, arguments.multi_gpu), (strategy != "NO_SHARD", strategy == "NO_SHARD"))
    if plugin is None:
        return
    expect(path + " version", plugin.fsdp_version, version)
    if version == 2:
        expect(path + " reshard", plugin.reshard_after_forward, strategy in ("FULL_SHARD", "HYBRID_SHARD"))
    else:
        expect(path + " strategy", (plugin.sharding_strategy or plugin.reshard_after_forward).name, strategy)
        expect(path + " original parameters", plugin.use_orig_params, not path.startswith("accelerate_"))  # of `distsetup fsdp`: as its guide has it
    expect(path + " state dict", plugin.state_dict_type.name, state)
    expect(path + " loading", plugin.cpu_ram_efficient_loading, version == 2)
    expect(path + " recompute", bool(plugin.activation_checkpointing), recompute)
    expect(path + " classes", plugin.transformer_cls_names_to_wrap, classes)
    offloads = plugin.cpu_offload if version == 2 else plugin.cpu_offload.offload_params
    expect(path + " offload", bool(offloads) if isinstance(offloads, bool) else "CPU" in type(offloads).__name__, offload)


PRECISION = {"BFLOAT16": "bf16", "FP16": "fp16", "FULL": "no"}
for path in sorted(glob.glob("accelerate_[12]_*.yaml")):
    version, strategy, precision = int(path[11]), path[13:].rsplit("_", 1)[0], path[:-5].rsplit("_", 1)[1]
    check_accelerate(path, version, strategy, PRECISION[precision], 8, 2, ["LlamaDecoderLayer"])
check_accelerate(
    "accelerate_offload.yaml", 2, "FULL_SHARD", "bf16", 4, 1, ["LlamaDecoderLayer"], "FULL_STATE_DICT", offload=True, recompute=True
)
check_accelerate("accelerate_hybrid.yaml", 2, "HYBRID_SHARD", "bf16", 8, 2)
for sharding, strategy in {"ddp": "NO_SHARD", "zero2": "SHARD_GRAD_OP", "zero3": "FULL_SHARD"}.items():
    for version in (1, 2):
        path = f"fsdp{'' if version == 2 else 1} {sharding}/accelerate.yaml"
        if sharding == "zero3" and not read(path.replace("accelerate.yaml", "plan.json"))["strategy"]["reshard_after_forward"]:
            strategy = "SHARD_GRAD_OP"
        check_accelerate(path, version, strategy, "bf16", 16, 2, ["LlamaDecoderLayer"], recompute=True)
for path, replicas, shards in (("fsdp hybrid/accelerate.yaml", 2, 8), ("accelerate_hybrid.yaml", 2, 4)):
    result = accept(path, lambda: worker(path))
    if result is not None:
        expect(
            path + " mesh",
            (result[2].dp_replicate_size, result[2].dp_shard_size, result[2].total_size),
            (replicas, shards, replicas * shards),
        )
# The flags of the emitted launch.sh.
result = accept(
    "launch.sh of several nodes",
    lambda: launch("fsdp zero3/accelerate.yaml", "--machine_rank", "1", "--main_process_ip", "h", "--main_process_port", "9"),
)
if result is not None:
    expect(
        "launch.sh of several nodes",
        (int(result[0].machine_rank), result[0].main_process_ip, int(result[0].main_process_port)),
        (1, "h", 9),
    )


def mutated_yaml(path, section=None, **changes):
    value = yaml.safe_load(open(path))
    (value[section] if section else value).update(changes)
    file = tempfile.NamedTemporaryFile("w", suffix=".yaml", dir=".", delete=False)
    yaml.safe_dump(value, file)
    file.close()
    return file.name


good = "accelerate_2_FULL_SHARD_BFLOAT16.yaml"
refuse("accelerate: an unknown key", lambda: worker(mutated_yaml(good, numprocesses=2)))
refuse("accelerate: an unknown type", lambda: worker(mutated_yaml(good, distributed_type="FSDP9")))
refuse(
    "accelerate: a strategy under version 2",
    lambda: worker(mutated_yaml(good, "fsdp_config", fsdp_reshard_after_forward="FULL_SHARD")),
)
refuse(
    "accelerate: a local state dict under version 2",
    lambda: worker(mutated_yaml(good, "fsdp_config", fsdp_state_dict_type="LOCAL_STATE_DICT")),
)
refuse("accelerate: an unknown wrap policy", lambda: worker(mutated_yaml(good, "fsdp_config", fsdp_auto_wrap_policy="BY_LAYER")))
refuse("accelerate: no number of processes", lambda: worker(mutated_yaml(good, num_processes=-1)))

# --- what the classic dialect says about itself: three of its keys are read by nobody
known = set(vars(launch_command_parser().parse_args(["train.py"])))
unread = sorted(key for key in read("classic.json") if key not in known)
expect("classic keys unknown to accelerate", unread, ["fsdp_backward_prefetch_policy", "fsdp_cuda_graphs", "fsdp_mixed_precision"])
expect("classic keys unknown to the Trainer", {key[5:] for key in unread} & READ_BY_TRAINER[1], set())

sys.exit(report("", 40, 15))
