"""What accelerate makes of a configuration file: the launcher's arguments, and the plugin that a worker makes of its environment."""

import os

from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.launch import prepare_multi_gpu_env


def launch(path, *more):
    load_config_from_file(path)
    arguments, _, _ = _validate_launch_command(launch_command_parser().parse_args(["--config_file", path, *more, "train.py"]))
    return arguments, prepare_multi_gpu_env(arguments)


def worker(path, *more):
    """The launcher's arguments and, under FSDP, the plugin that a worker makes of the environment it is given."""
    arguments, environment = launch(path, *more)
    if arguments.use_fsdp and arguments.fsdp_version == 1:
        # The plugin of version 1 asks for a GPU when it is to send parameters from rank 0; that it is told to is checked here.
        for key in ("FSDP_SYNC_MODULE_STATES", "FSDP_CPU_RAM_EFFICIENT_LOADING"):
            assert environment[key] == "true", key
            environment[key] = "false"
    before = dict(os.environ)
    os.environ.update(
        {key: value for key, value in environment.items() if key.startswith(("FSDP_", "ACCELERATE_", "PARALLELISM_CONFIG_"))}
    )
    try:
        plugin = FullyShardedDataParallelPlugin() if arguments.use_fsdp else None
        mesh = ParallelismConfig() if arguments.use_parallelism_config else None
    finally:
        os.environ.clear()
        os.environ.update(before)
    return arguments, plugin, mesh
