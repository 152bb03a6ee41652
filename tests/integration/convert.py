"""Compares `distsetup convert --to accelerate-fsdp2` with accelerate's converter, case by case. usage: convert.py DISTSETUP WORK"""
import itertools, pathlib, subprocess, sys

import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.to_fsdp2 import convert_config_to_fsdp2
from accelerate.utils import FullyShardedDataParallelPlugin

distsetup, work = sys.argv[1], pathlib.Path(sys.argv[2])

strategies = ["FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2", "NO_SHARD"]
cases = []
for strategy, offload, checkpointing in itertools.product(strategies, [False, True], [False, True]):
    cases.append({"fsdp_sharding_strategy": strategy, "fsdp_offload_params": offload, "fsdp_activation_checkpointing": checkpointing})
for state in ["FULL_STATE_DICT", "SHARDED_STATE_DICT"]:
    cases.append({"fsdp_sharding_strategy": "FULL_SHARD", "fsdp_state_dict_type": state, "fsdp_backward_prefetch": "BACKWARD_PRE",
                  "fsdp_use_orig_params": True, "fsdp_sync_module_states": True, "fsdp_forward_prefetch": False})
cases.append({"fsdp_reshard_after_forward": "SHARD_GRAD_OP"})
cases.append({"fsdp_reshard_after_forward": "FULL_SHARD", "fsdp_backward_prefetch": "NO_PREFETCH"})

# What only one side writes, and why that is right.
OURS_ALONE = {
    "fsdp_auto_wrap_policy": "a plan wraps blocks; theirs leaves the default NO_WRAP",
    "fsdp_cpu_ram_efficient_loading": "the default, written out",
    "fsdp_offload_params": "the default, written out",
    "fsdp_activation_checkpointing": "the default, written out",
    "fsdp_state_dict_type": "the default, written out",
}
failures = 0
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
    for key, value in theirs["fsdp_config"].items():
        if ours["fsdp_config"].get(key) != value:
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
