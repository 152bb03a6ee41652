"""Compares `distsetup convert --to accelerate-fsdp2` with accelerate's converter, case by case. usage: convert.py DISTSETUP WORK"""
import itertools, pathlib, subprocess, sys

import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.to_fsdp2 import ARGUMENT_KEY_MAPPING, ARGUMENT_VALUE_MAPPING, ConversionStatus, convert_config_to_fsdp2
from accelerate.utils import FullyShardedDataParallelPlugin

distsetup, work = sys.argv[1], pathlib.Path(sys.argv[2])

strategies = ["FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2", "NO_SHARD"]
cases = []
for strategy, offload, checkpointing in itertools.product(strategies, [False, True], [False, True]):
    cases.append({"fsdp_sharding_strategy": strategy, "fsdp_offload_params": offload, "fsdp_activation_checkpointing": checkpointing})
for state in ["FULL_STATE_DICT", "SHARDED_STATE_DICT"]:
    cases.append({"fsdp_sharding_strategy": "FULL_SHARD", "fsdp_state_dict_type": state, "fsdp_backward_prefetch": "BACKWARD_PRE",
                  "fsdp_use_orig_params": True, "fsdp_sync_module_states": True, "fsdp_forward_prefetch": False})
for strategy in strategies:  # the newer name of the strategy
    cases.append({"fsdp_reshard_after_forward": strategy})
# Every key of theirs alone, with each value that their tables or accelerate's questionnaire know.
VALUES = {
    "fsdp_backward_prefetch": ["BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"],
    "fsdp_forward_prefetch": [True, False],
    "fsdp_use_orig_params": [True, False],
    "fsdp_sync_module_states": [True, False],
    "fsdp_cpu_ram_efficient_loading": [True, False],
    "fsdp_offload_params": [True, False],
    "fsdp_activation_checkpointing": [True, False],
    "fsdp_state_dict_type": ["FULL_STATE_DICT", "SHARDED_STATE_DICT", "LOCAL_STATE_DICT"],
    "fsdp_auto_wrap_policy": ["TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"],
    "fsdp_transformer_layer_cls_to_wrap": ["LlamaDecoderLayer", "LlamaDecoderLayer,Embedding"],
    "fsdp_min_num_params": [100000000],
}
for key, values in VALUES.items():
    for value in values:
        cases.append({"fsdp_sharding_strategy": "FULL_SHARD", key: value})
cases.append({"fsdp_reshard_after_forward": "FULL_SHARD", "fsdp_backward_prefetch": "NO_PREFETCH"})

# What only one side writes, and why that is right.
OURS_ALONE = {
    "fsdp_auto_wrap_policy": "a plan wraps blocks; theirs leaves the default NO_WRAP",
    "fsdp_cpu_ram_efficient_loading": "the default, written out",
    "fsdp_offload_params": "the default, written out",
    "fsdp_activation_checkpointing": "the default, written out",
    "fsdp_state_dict_type": "the default, written out",
}
# What theirs carries and a plan cannot hold: it has to be told on stderr.
LOST = {("fsdp_auto_wrap_policy", "SIZE_BASED_WRAP"), ("fsdp_min_num_params", 100000000),
        ("fsdp_cpu_ram_efficient_loading", False)}
# What version 2 always does: nothing is lost with the key.
ALWAYS = {("fsdp_backward_prefetch", "BACKWARD_PRE"), ("fsdp_forward_prefetch", False), ("fsdp_use_orig_params", True),
          ("fsdp_sync_module_states", True)}
failures = 0
missing = set(ARGUMENT_KEY_MAPPING) - {"fsdp_version"} - {key for case in cases for key in case}
unsaid = [(key, value) for key, values in ARGUMENT_VALUE_MAPPING.items() for value in values if not any(c.get(key) == value for c in cases)]
if missing or unsaid:
    print(f"accelerate's converter has more than is compared here: {missing} {unsaid}")
    failures += 1
for number, fsdp in enumerate(cases):
    config = {"compute_environment": "LOCAL_MACHINE", "debug": False, "distributed_type": "FSDP", "downcast_bf16": "no",
              "fsdp_config": {"fsdp_version": 1, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                              "fsdp_transformer_layer_cls_to_wrap": "LlamaDecoderLayer", "fsdp_cpu_ram_efficient_loading": True, **fsdp},
              "machine_rank": 0, "main_training_function": "main", "mixed_precision": "bf16", "num_machines": 2,
              "num_processes": 16, "rdzv_backend": "static", "same_network": True, "use_cpu": False}
    source = work / f"fsdp1_{number}.yaml"
    source.write_text(yaml.safe_dump(config))
    theirs = convert_config_to_fsdp2(yaml.safe_load(source.read_text()))
    ours_file = work / f"fsdp2_{number}.yaml"
    run = subprocess.run([distsetup, "convert", "--to", "accelerate-fsdp2", str(source), "--output", str(ours_file)],
                         capture_output=True, text=True)
    strategy = fsdp.get("fsdp_sharding_strategy") or fsdp["fsdp_reshard_after_forward"]

    def fail(what):
        global failures
        failures += 1
        print(f"case {number} {fsdp}: {what}\n{run.stderr}")

    if fsdp.get("fsdp_state_dict_type") == "LOCAL_STATE_DICT":
        # Theirs copies it into a file that accelerate then refuses; ours refuses it by name.
        try:
            FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type="LOCAL_STATE_DICT")
            fail("accelerate takes a local state dict with version 2 now")
        except ValueError:
            pass
        if run.returncode == 0 or "no local state dict" not in run.stderr:
            fail("a local state dict has no form in version 2")
        continue
    if run.returncode != 0:
        fail(f"exit {run.returncode}")
        continue
    ours = yaml.safe_load(ours_file.read_text())
    load_config_from_file(str(ours_file))
    for key in ["mixed_precision", "num_machines", "num_processes", "downcast_bf16", "rdzv_backend", "same_network", "use_cpu"]:
        if ours.get(key) != theirs.get(key):
            fail(f"{key}: {ours.get(key)!r}, accelerate's converter says {theirs.get(key)!r}")
    if strategy == "NO_SHARD":
        # Theirs writes version 2 with reshard_after_forward false, which shards; NO_SHARD is plain data parallelism.
        assert theirs["fsdp_config"]["fsdp_reshard_after_forward"] is False
        if ours["distributed_type"] != "MULTI_GPU" or ours.get("fsdp_config"):
            fail("NO_SHARD is data parallelism: expected MULTI_GPU without fsdp_config")
        continue
    if ours["distributed_type"] != "FSDP":
        fail(f"distributed_type {ours['distributed_type']}")
        continue
    for key in fsdp:  # theirs drops these with a warning; ours must not have them, and says so
        if isinstance(ARGUMENT_KEY_MAPPING[key], ConversionStatus):
            if key in ours["fsdp_config"]:
                fail(f"{key} has no meaning in version 2")
            if key not in run.stderr and (key, fsdp[key]) not in ALWAYS:
                fail(f"{key} is dropped without a word")
    for key, value in theirs["fsdp_config"].items():
        if (key, value) in LOST:
            if key not in run.stderr:
                fail(f"{key} = {value} is lost without a word")
        elif ours["fsdp_config"].get(key) != value:
            fail(f"{key}: {ours['fsdp_config'].get(key)!r}, accelerate's converter says {value!r}")
    for key in set(ours["fsdp_config"]) - set(theirs["fsdp_config"]):
        if key not in OURS_ALONE:
            fail(f"{key} is ours alone")
    mesh = ours.get("parallelism_config")
    if strategy.startswith("HYBRID"):
        # Theirs loses the copies: 2 nodes of 8 would become one group of 16.
        assert "parallelism_config" not in theirs
        if not mesh or mesh["parallelism_config_dp_replicate_size"] != 2 or mesh["parallelism_config_dp_shard_size"] != 8:
            fail(f"hybrid: expected 2 copies of 8 shards, found {mesh}")
    elif mesh:
        fail(f"a mesh without need: {mesh}")
    plugin = {key.removeprefix("fsdp_"): value for key, value in ours["fsdp_config"].items()}
    FullyShardedDataParallelPlugin(
        fsdp_version=plugin["version"], reshard_after_forward=plugin["reshard_after_forward"], state_dict_type=plugin.get("state_dict_type"),
        cpu_offload=plugin.get("offload_params"), activation_checkpointing=plugin.get("activation_checkpointing"))
print(f"{len(cases)} cases, {failures} failed")
sys.exit(1 if failures or len(cases) < 12 else 0)
