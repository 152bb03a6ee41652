"""emit_targets.py FOLDER TOOL...: each tool's own parser reads what emit_targets wrote for it (FOLDER/<target>/<plan>/...), understands
by it what the plan says, and refuses mutated files. One tool per process: some of them cannot be imported beside each other. All are
forked from one that has imported torch, which takes longer than most checks.
emit_targets_*.py have the checks, tests/support/emitted.py what these share.

A parser is run without what it imports and does not use (kernels, data sets, inference engines): empty stand-ins take their place.
"""

import importlib
import os
import sys
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from parser_checks import report

MODULES = {
    "emit_targets_huggingface": ["accelerate", "transformers", "trl", "llamafactory", "axolotl"],
    "emit_targets_sections": ["deepspeed", "lightning", "fine_tuning", "training_stages"],
    "emit_targets_torch": ["torchtitan", "automodel", "torchtitan_module"],
    "emit_targets_openrlhf": ["openrlhf", "openrlhf_flags"],
    "emit_targets_megatron": ["megatron_bridge", "megatron_lm"],
    "emit_targets_services": ["llama_stack", "skypilot"],
}


def check(tool):
    (module,) = (name for name, tools in MODULES.items() if tool in tools)
    getattr(importlib.import_module(module), tool)()
    return report(f"{tool}: ")


def main():
    os.chdir(sys.argv[1])
    for module in ("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor"):
        importlib.import_module(module)
    failed = 0
    for tool in sys.argv[2:]:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = check(tool)
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        if status != 0:
            print(f"{tool}: status {status}", flush=True)
            failed = 1
    sys.exit(failed)


main()
