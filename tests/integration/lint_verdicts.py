"""Verdicts of DeepSpeed's and accelerate's parsers against those of `distsetup lint`.

A case is a file, what the tool does with it (takes or refuses it, and what it then understands), and the rule that lint must name where
the tool says nothing. lint agrees when it reports an error that bites at parse exactly where the tool refuses. A case where tool, table
and lint are not all the same is a failure.
"""

import copy
import enum
import json
import logging
import os
import subprocess
import sys

logging.disable(logging.WARNING)
DISTSETUP = sys.argv[1]
failures, cases = [], 0
TAKES, REFUSES = "takes", "refuses"


def lint(name, text, *flags):
    """The codes of lint's findings, and whether one of them is an error at parse."""
    with open(name, "w", encoding="utf-8") as file:
        file.write(text)
    done = subprocess.run([DISTSETUP, "lint", name, "--json", "-q", *flags], capture_output=True, text=True)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        sys.exit(f"lint of {text}: exit {done.returncode}, {done.stderr}")
    found = report["findings"]
    refuses = any(one["bites"] == "parse" and one["severity"] == "error" for one in found)
    return REFUSES if refuses else TAKES, [one["code"] for one in found], {one["code"]: one["bites"] for one in found}


def check(name, wanted, tool, linted, codes, named):
    global cases
    cases += 1
    if tool != wanted:
        failures.append(f"{name}: the tool {tool} it, the table says {wanted}")
    if linted != wanted:
        failures.append(f"{name}: lint says {linted} ({', '.join(codes) or 'nothing'}), the table says {wanted}")
    if named and named not in codes:
        failures.append(f"{name}: lint does not name {named} but {codes}")


# ---- DeepSpeed, eight ranks -------------------------------------------------------------------------------------------------------------
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
import deepspeed

sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # would compile a C++ extension that no check needs
deepspeed.init_distributed(dist_backend="fake", auto_mpi_discovery=False)
from deepspeed.runtime.config import DeepSpeedConfig

MICRO = {"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1.0}


def zero(**keys):
    return dict(MICRO, zero_optimization=keys)


def section(name, **keys):
    return dict(MICRO, **{name: keys})


# (name, JSON or text, verdict, the rule that lint names or "", what the tool understands: {attribute path: value})
DEEPSPEED = [
    ("micro 1", {"train_micro_batch_size_per_gpu": 1}, TAKES, "", {"train_batch_size": 8, "gradient_accumulation_steps": 1}),
    ("train 16", {"train_batch_size": 16}, TAKES, "", {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1}),
    ("train 10", {"train_batch_size": 10}, REFUSES, "PLAN002", {}),
    ("train 64 micro 2", {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2}, TAKES, "", {"gradient_accumulation_steps": 4}),
    ("train 60 micro 2", {"train_batch_size": 60, "train_micro_batch_size_per_gpu": 2}, REFUSES, "PLAN002", {}),
    ("train 64 gas 4", {"train_batch_size": 64, "gradient_accumulation_steps": 4}, TAKES, "", {"train_micro_batch_size_per_gpu": 2}),
    ("train 64 micro 2 gas 2", {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2}, REFUSES, "PLAN002", {}),
    ("gas 4 only", {"gradient_accumulation_steps": 4}, REFUSES, "DSJ043", {}),
    ("nothing at all", {}, REFUSES, "DSJ043", {}),
    ("micro 0", {"train_micro_batch_size_per_gpu": 0}, REFUSES, "PLAN003", {}),
    ("micro auto", {"train_micro_batch_size_per_gpu": "auto"}, REFUSES, "DSJ001", {}),
    ("gas auto", {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": "auto"}, REFUSES, "DSJ001", {}),
    ("micro as text", {"train_micro_batch_size_per_gpu": "4"}, REFUSES, "DSJ042", {}),
    ("clipping absent", {"train_micro_batch_size_per_gpu": 1}, TAKES, "DSJ018", {"gradient_clipping": 1.0}),
    ("clipping auto", dict(MICRO, gradient_clipping="auto"), TAKES, "DSJ001", {"gradient_clipping": "auto"}),
    ("unknown top-level key", dict(MICRO, gradient_clip=1.0), TAKES, "DSJ003", {"zero_optimization_stage": 0}),
    ("a comment as a key", dict(MICRO, _comment="x"), TAKES, "", {"zero_optimization_stage": 0}),
    ("misspelt section", dict(MICRO, zero_optimisation={"stage": 3}), TAKES, "DSJ003", {"zero_optimization_stage": 0}),
    ("key twice at the top", '{"train_micro_batch_size_per_gpu": 1, "train_micro_batch_size_per_gpu": 1}', REFUSES, "DSJ040", {}),
    ("key twice below", '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1, "stage": 2}}', REFUSES, "DSJ040", {}),
    ("stage as text", zero(stage="3"), TAKES, "", {"zero_optimization_stage": 3}),
    ("stage 4", zero(stage=4), REFUSES, "DSJ042", {}),
    ("zero_optimization true", dict(MICRO, zero_optimization=True), TAKES, "", {"zero_optimization_stage": 1}),
    ("section without stage", zero(overlap_comm=True), TAKES, "DSJ036", {"zero_optimization_stage": 0}),
    ("bucket 5e8", zero(stage=2, reduce_bucket_size=5e8), TAKES, "", {"zero_config.reduce_bucket_size": 500000000}),
    ("bucket as text", zero(stage=2, reduce_bucket_size="5e8"), REFUSES, "DSJ021", {}),
    ("bucket 1.5", zero(stage=2, reduce_bucket_size=1.5), REFUSES, "DSJ021", {}),
    ("bucket -1", zero(stage=2, reduce_bucket_size=-1), REFUSES, "DSJ021", {}),
    ("bucket auto", zero(stage=2, reduce_bucket_size="auto"), TAKES, "DSJ001", {"zero_config.reduce_bucket_size": 500000000}),
    ("all-gather bucket odd", zero(stage=2, allgather_bucket_size=5), TAKES, "DSJ021", {}),
    ("overlap absent stage 1", zero(stage=1), TAKES, "", {"zero_config.overlap_comm": False}),
    ("overlap absent stage 2", zero(stage=2), TAKES, "", {"zero_config.overlap_comm": False}),
    ("overlap absent stage 3", zero(stage=3), TAKES, "", {"zero_config.overlap_comm": True}),
    ("overlap as text", zero(stage=2, overlap_comm="true"), TAKES, "", {"zero_config.overlap_comm": True}),
    ("grad_hooks", zero(stage=2, grad_hooks=True), REFUSES, "DSJ004", {}),
    ("unknown zero key", zero(stage=2, overlap_com=True), REFUSES, "DSJ004", {}),
    ("prefetch without prefix", zero(stage=3, prefetch_bucket_size=1000), TAKES, "", {"zero_config.prefetch_bucket_size": 1000}),
    ("offload_param stage 0", zero(stage=0, offload_param={"device": "cpu"}), TAKES, "DSJ006", {}),
    ("offload_param stage 2", zero(stage=2, offload_param={"device": "cpu"}), TAKES, "DSJ006", {}),
    ("nvme stage 2", zero(stage=2, offload_optimizer={"device": "nvme", "nvme_path": "/local"}), TAKES, "DSJ007", {}),
    ("nvme without path", zero(stage=3, offload_optimizer={"device": "nvme"}), TAKES, "DSJ007", {}),
    ("device gpu", zero(stage=2, offload_optimizer={"device": "gpu"}), REFUSES, "DSJ042", {}),
    ("device CPU", zero(stage=2, offload_optimizer={"device": "CPU"}), REFUSES, "DSJ042", {}),
    ("device null", zero(stage=2, offload_optimizer={"device": None}), REFUSES, "DSJ042", {}),
    ("device auto", zero(stage=2, offload_optimizer={"device": "auto"}), TAKES, "DSJ001", {"zero_config.offload_optimizer.device": "none"}),
    ("offload_optimizer true", zero(stage=2, offload_optimizer=True), REFUSES, "DSJ042", {}),
    ("ratio 0.5 stage 2", zero(stage=2, offload_optimizer={"device": "cpu", "ratio": 0.5}), REFUSES, "DSJ008", {}),
    ("ratio 0.5 stage 3", zero(stage=3, offload_optimizer={"device": "cpu", "ratio": 0.5}), TAKES, "", {}),
    ("super_offload stage 2", zero(stage=2, offload_optimizer={"device": "cpu", "super_offload": True}), TAKES, "DSJ008", {}),
    ("cpu_offload true", zero(stage=2, cpu_offload=True), TAKES, "DSJ020", {"zero_config.offload_optimizer.device": "cpu"}),
    ("cpu_offload and new", zero(stage=2, cpu_offload=True, offload_optimizer={"device": "cpu"}), REFUSES, "DSJ019", {}),
    ("old and new gather key", zero(stage=3, stage3_gather_fp16_weights_on_model_save=True, stage3_gather_16bit_weights_on_model_save=True), REFUSES, "DSJ019", {}),
    ("hpz 3 on 8 ranks", zero(stage=3, zero_hpz_partition_size=3), TAKES, "DSJ011", {}),
    ("hpz stage 2", zero(stage=2, zero_hpz_partition_size=8), TAKES, "DSJ010", {}),
    ("hpz 1 stage 2", zero(stage=2, zero_hpz_partition_size=1), TAKES, "", {}),
    ("mics", zero(stage=3, mics_shard_size=8), REFUSES, "DSJ048", {}),
    ("mics off", zero(stage=2, mics_shard_size=-1), REFUSES, "DSJ048", {}),
    ("LoCo", zero(stage=3, zeropp_loco_param={"err_beta": 0.9}), REFUSES, "DSJ048", {}),
    ("legacy_stage1", zero(stage=1, legacy_stage1=True), TAKES, "DSJ044", {}),
    ("zenflow without offload", zero(stage=2, zenflow={"topk_ratio": 0.1}), TAKES, "DSJ009", {}),
    ("zenflow topk_ratio 2", zero(stage=2, offload_optimizer={"device": "cpu"}, zenflow={"topk_ratio": 2.0}), REFUSES, "DSJ042", {}),
    ("zenflow unknown key", zero(stage=2, offload_optimizer={"device": "cpu"}, zenflow={"topk": 0.1}), REFUSES, "DSJ004", {}),
    ("fp16 and bf16", dict(MICRO, fp16={"enabled": True}, bf16={"enabled": True}), REFUSES, "PLAN008", {}),
    ("bfloat16 section", section("bfloat16", enabled=True), TAKES, "", {"bfloat16_config.enabled": True}),
    ("bf16 auto", section("bf16", enabled="auto"), TAKES, "DSJ001", {"bfloat16_config.enabled": False}),
    ("bf16 with loss_scale", section("bf16", enabled=True, loss_scale=0), REFUSES, "DSJ034", {}),
    ("fp16 with opt_level", section("fp16", enabled=True, opt_level="O2"), REFUSES, "DSJ034", {}),
    ("fp16 loss_scale -1", section("fp16", enabled=True, loss_scale=-1), REFUSES, "DSJ042", {}),
    ("fp16 loss_scale_window 0", section("fp16", enabled=True, loss_scale_window=0), REFUSES, "DSJ042", {}),
    ("bf16 masters without ZeRO", section("bf16", enabled=True, bf16_master_weights_and_grads=True), REFUSES, "DSJ046", {}),
    ("bf16 states alone", dict(zero(stage=1), bf16={"enabled": True, "bf16_optimizer_states": True}), REFUSES, "DSJ046", {}),
    ("amp", section("amp", enabled=True), REFUSES, "DSJ048", {}),
    ("amp and ZeRO", dict(zero(stage=1), amp={"enabled": True}), REFUSES, "DSJ048", {}),
    ("amp and fp16", dict(section("amp", enabled=True), fp16={"enabled": True}), REFUSES, "DSJ048", {}),
    ("amp off", section("amp", enabled=False), REFUSES, "DSJ048", {}),
    ("nebula", section("nebula", enabled=False), REFUSES, "DSJ048", {}),
    ("compression_training", section("compression_training"), REFUSES, "DSJ048", {}),
    ("quantize_training", section("quantize_training"), REFUSES, "DSJ048", {}),
    ("sparse_gradients", dict(MICRO, sparse_gradients=False), REFUSES, "DSJ048", {}),
    ("eigenvalue", section("eigenvalue"), REFUSES, "DSJ048", {}),
    ("sparse_attention", section("sparse_attention"), REFUSES, "DSJ048", {}),
    ("graph_harvesting", dict(MICRO, graph_harvesting=False), REFUSES, "DSJ048", {}),
    ("curriculum_learning", section("curriculum_learning"), REFUSES, "DSJ048", {}),
    ("progressive_layer_drop", section("progressive_layer_drop"), REFUSES, "DSJ048", {}),
    ("optimizer Foo", section("optimizer", type="Foo", params={"lr": 1e-4}), TAKES, "DSJ025", {"optimizer_name": "Foo"}),
    ("scheduler WarmUpLR", section("scheduler", type="WarmUpLR", params={}), TAKES, "DSJ025", {"scheduler_name": "WarmUpLR"}),
    ("optimizer param", section("optimizer", type="AdamW", param={"lr": 1e-4}), TAKES, "DSJ005", {"optimizer_params": None}),
    ("communication type float16", dict(MICRO, communication_data_type="float16"), REFUSES, "DSJ042", {}),
    ("communication type fp16", dict(MICRO, communication_data_type="fp16"), TAKES, "", {}),
    ("allreduce avg", dict(MICRO, gradient_allreduce_op="avg"), REFUSES, "DSJ042", {}),
    ("allreduce sum stage 3", dict(zero(stage=3), gradient_allreduce_op="sum"), REFUSES, "DSJ047", {}),
    ("allreduce sum stage 1", dict(zero(stage=1), gradient_allreduce_op="sum"), TAKES, "", {}),
    ("tensor_parallel.enabled", section("tensor_parallel", enabled=True), REFUSES, "DSJ031", {}),
    ("tensor_parallel.tp_size", section("tensor_parallel", tp_size=4), REFUSES, "DSJ031", {}),
    ("autotp stage 1", dict(zero(stage=1), tensor_parallel={"autotp_size": 4}), TAKES, "", {}),
    ("autotp stage 3", dict(zero(stage=3), tensor_parallel={"autotp_size": 4}), TAKES, "DSJ032", {}),
    ("unknown preset_model", dict(zero(stage=1), tensor_parallel={"autotp_size": 4, "preset_model": "nothing"}), TAKES, "", {}),
    ("comms_logger.enable", section("comms_logger", enable=True), REFUSES, "DSJ004", {}),
    ("tensorboard.log_dir", section("tensorboard", enabled=False, log_dir="x"), REFUSES, "DSJ004", {}),
    ("comet unknown", section("comet", enabled=False, nothing=1), REFUSES, "DSJ004", {}),
    ("csv_monitor unknown", section("csv_monitor", enabled=False, nothing=1), REFUSES, "DSJ004", {}),
    ("timers unknown", section("timers", throughput={"nothing": 1}), REFUSES, "DSJ004", {}),
    ("compile unknown", section("compile", nothing=1), REFUSES, "DSJ004", {}),
    ("hybrid_engine unknown", section("hybrid_engine", nothing=1), REFUSES, "DSJ004", {}),
    ("activation_checkpointing unknown", section("activation_checkpointing", nothing=1), TAKES, "DSJ005", {}),
    ("flops_profiler unknown", section("flops_profiler", nothing=1), TAKES, "DSJ005", {}),
    ("elasticity off", section("elasticity", enabled=False), REFUSES, "DSJ048", {}),
    ("pipeline unknown", section("pipeline", nothing=1), TAKES, "DSJ005", {}),
    ("data_types unknown", section("data_types", nothing=1), TAKES, "DSJ005", {}),
    ("expert_parallel unknown", section("expert_parallel", nothing=1), TAKES, "DSJ005", {}),
    ("elasticity with a batch", section("elasticity", enabled=True, max_train_batch_size=2000, micro_batch_sizes=[1, 2]), REFUSES, "DSJ048", {}),
    ("tag_validation bogus", section("checkpoint", tag_validation="bogus"), REFUSES, "DSJ042", {}),
    ("tag_validation fail", section("checkpoint", tag_validation="fail"), TAKES, "", {}),
    ("wall_clock_breakdown yes", dict(MICRO, wall_clock_breakdown="yes"), REFUSES, "DSJ042", {}),
    ("steps_per_print inf", dict(MICRO, steps_per_print="inf"), TAKES, "", {}),
    ("sequence parallel 2", dict(MICRO, sequence_parallel_size=2), TAKES, "", {"train_batch_size": 4}),
    ("aio.thread_count", section("aio", thread_count=2), TAKES, "DSJ035", {"aio_config.intra_op_parallelism": 1}),
    ("1-bit optimizer and ZeRO", dict(zero(stage=1), optimizer={"type": "OneBitAdam", "params": {"lr": 1e-4}}), TAKES, "DSJ016", {}),
    ("warm-up without its shape", section("scheduler", type="WarmupLR", params={}), TAKES, "DSJ024", {}),
    (
        "a file for the Hugging Face Trainer, alone",
        {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 16, "gradient_clipping": 0.3, "zero_optimization": {"stage": 2, "overlap_comm": True}},
        REFUSES,
        "DSJ001",
        {},
    ),
    (
        "the same with a micro-batch",
        {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 16, "gradient_clipping": 0.3, "zero_optimization": {"stage": 2, "overlap_comm": True}},
        TAKES,
        "",
        {"train_batch_size": 128},
    ),
]


def attribute(value, path):
    for name in path.split("."):
        value = value[name] if isinstance(value, dict) else getattr(value, name)
    return getattr(value, "name", value) if isinstance(value, enum.Enum) else value


for name, value, verdict, named, meaning in DEEPSPEED:
    text = value if isinstance(value, str) else json.dumps(value)
    tool, config = TAKES, None
    try:
        if isinstance(value, str):
            with open("duplicate.json", "w", encoding="utf-8") as file:
                file.write(text)
            config = DeepSpeedConfig(os.path.abspath("duplicate.json"))
        else:
            config = DeepSpeedConfig(copy.deepcopy(value))
    except Exception:
        tool = REFUSES
    linted, codes, _ = lint("ds_config.json", text, "--as", "deepspeed", "--consumer", "deepspeed", "--nodes", "1", "--gpus", "8")
    is_of_release = "DSJ048" in codes or "DSJ034" in codes or (name.startswith("fp16") and "DSJ042" in codes)
    if is_of_release:  # warnings, since only some releases refuse the key or its value: this one does
        linted = REFUSES
    check("deepspeed: " + name, verdict, tool, linted, codes, named)
    if config is not None:
        for path, wanted in meaning.items():
            found = attribute(config, path)
            if found != wanted:
                failures.append(f"deepspeed: {name}: {path} is {found!r}, the table says {wanted!r}")

# ---- accelerate -------------------------------------------------------------------------------------------------------------------------
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.parallelism_config import ParallelismConfig
import accelerate.utils.dataclasses as dataclasses
from accelerate.utils import FullyShardedDataParallelPlugin

# sync_module_states asks for the GPU; there is none here, and nothing is put on it.
dataclasses.is_cuda_available = lambda: True
torch.cuda.current_device = lambda: 0


def loader(value):
    with open("loaded.yaml", "w", encoding="utf-8") as file:
        yaml.safe_dump(value, file)
    return load_config_from_file("loaded.yaml")


def plugin(value):
    """The fsdp_config as accelerate launch hands it on: environment variables."""
    loader(value)
    names = {"transformer_layer_cls_to_wrap": "TRANSFORMER_CLS_TO_WRAP"}
    saved = {key: text for key, text in os.environ.items() if key.startswith("FSDP_")}
    for key in saved:
        del os.environ[key]
    try:
        for key, one in value["fsdp_config"].items():
            short = key[5:]
            os.environ["FSDP_" + names.get(short, short.upper())] = str(one).lower() if isinstance(one, bool) else str(one)
        return FullyShardedDataParallelPlugin()
    finally:
        for key in [key for key in os.environ if key.startswith("FSDP_")]:
            del os.environ[key]


def arguments(value):
    """The fsdp_config as a script gives it: arguments of the plugin, which checks more than what accelerate launch hands on."""
    return FullyShardedDataParallelPlugin(**{key[5:].replace("version", "fsdp_version"): one for key, one in value["fsdp_config"].items()})


def mesh(value):
    loader(value)
    prefix = "parallelism_config_"
    return ParallelismConfig(**{key[len(prefix) :]: one for key, one in value["parallelism_config"].items()})


BASE = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "MULTI_GPU", "num_processes": 8}


def fsdp(**keys):
    return dict(BASE, distributed_type="FSDP", fsdp_config=dict({"fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}, **{"fsdp_" + k: v for k, v in keys.items()}))


def sizes(processes, **keys):
    return dict(fsdp(version=2), num_processes=processes, parallelism_config={"parallelism_config_" + k: v for k, v in keys.items()})


ACCELERATE = [
    ("unknown top key", loader, dict(BASE, num_procs=8), REFUSES, "ACC010", {}),
    ("missing distributed_type", loader, {"compute_environment": "LOCAL_MACHINE", "num_processes": 8}, REFUSES, "ACC009", {}),
    ("bad distributed_type", loader, dict(BASE, distributed_type="FSDP2"), REFUSES, "ACC009", {}),
    ("unknown key in fsdp_config", loader, fsdp(version=2, nothing=1), TAKES, "FSDP020", {}),
    ("num_processes -1", loader, dict(BASE, num_processes=-1), TAKES, "ACC011", {}),
    ("mixed_precision bfloat16", loader, dict(BASE, mixed_precision="bfloat16"), TAKES, "ACC011", {}),
    ("fsdp_config beside MULTI_GPU", loader, dict(fsdp(version=2), distributed_type="MULTI_GPU"), TAKES, "ACC012", {}),
    ("tp 2 replicate 2 shard 1", mesh, sizes(4, tp_size=2, dp_replicate_size=2), REFUSES, "ACC005", {}),
    ("cp 2 with sp 2", mesh, sizes(4, cp_size=2, sp_size=2), REFUSES, "ACC005", {}),
    ("size 0", mesh, sizes(8, tp_size=0), REFUSES, "ACC005", {}),
    ("sp_backend other", mesh, sizes(2, sp_size=2, sp_backend="ring"), REFUSES, "ACC005", {}),
    ("replicate 2 shard 4", mesh, sizes(8, dp_replicate_size=2, dp_shard_size=4), TAKES, "", {"total_size": 8}),
    ("cp 2 alone", mesh, sizes(2, cp_size=2), TAKES, "", {"total_size": 2}),
    ("FSDP2 with a strategy", plugin, fsdp(version=2, reshard_after_forward="FULL_SHARD"), REFUSES, "FSDP001", {}),
    ("FSDP1 with a bool", plugin, fsdp(version=1, reshard_after_forward=True), TAKES, "FSDP001", {"sharding_strategy": "FULL_SHARD"}),
    ("FSDP1 with a bool, as an argument", arguments, fsdp(version=1, reshard_after_forward=True), REFUSES, "FSDP001", {}),
    ("FSDP2 with a bool", plugin, fsdp(version=2, reshard_after_forward=True), TAKES, "", {"reshard_after_forward": True}),
    ("FSDP2 with LOCAL_STATE_DICT", plugin, fsdp(version=2, state_dict_type="LOCAL_STATE_DICT"), REFUSES, "FSDP004", {}),
    ("FSDP2 with forward_prefetch", plugin, fsdp(version=2, forward_prefetch=True), TAKES, "FSDP002", {"forward_prefetch": None}),
    ("FSDP2 with forward_prefetch, as an argument", arguments, fsdp(version=2, forward_prefetch=True), REFUSES, "FSDP002", {}),
    ("FSDP2 with use_orig_params", plugin, fsdp(version=2, use_orig_params=True), TAKES, "FSDP003", {}),
    ("unknown wrap policy", plugin, fsdp(version=1, auto_wrap_policy="TRANSFORMER_WRAP"), REFUSES, "FSDP021", {}),
    ("unknown sharding strategy", plugin, fsdp(version=1, sharding_strategy="FULL"), REFUSES, "FSDP021", {}),
    ("fsdp_version 3", plugin, fsdp(version=3), TAKES, "FSDP022", {"fsdp_version": 3}),
    ("CPU loading without sync", plugin, fsdp(version=1, cpu_ram_efficient_loading=True, sync_module_states=False), TAKES, "FSDP005", {"sync_module_states": True}),
    ("no version", plugin, fsdp(), TAKES, "FSDP018", {"fsdp_version": 1, "sharding_strategy": "FULL_SHARD", "state_dict_type": "FULL_STATE_DICT"}),
]

for name, parser, value, verdict, named, meaning in ACCELERATE:
    tool, config = TAKES, None
    try:
        config = parser(copy.deepcopy(value))
    except Exception:
        tool = REFUSES
    linted, codes, bites = lint("accelerate.yaml", yaml.safe_dump(value, sort_keys=False), "--as", "accelerate")
    if parser is arguments and named in codes and bites[named] == "silent":
        linted = REFUSES  # of a file lint says what accelerate launch does: it takes it, and the key is ignored
    check("accelerate: " + name, verdict, tool, linted, codes, named)
    if config is not None:
        for path, wanted in meaning.items():
            found = attribute(config, path)
            if found != wanted:
                failures.append(f"accelerate: {name}: {path} is {found!r}, the table says {wanted!r}")

for failure in failures:
    print(failure)
print(f"{cases} cases: DeepSpeed {deepspeed.__version__} and accelerate say what the table says, and so does lint" if not failures else f"{len(failures)} of {cases} cases differ")
sys.exit(1 if failures else 0)
