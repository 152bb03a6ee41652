"""emit_targets.py TOOL FOLDER: the tool's own parser reads what emit_targets wrote for it (FOLDER/<target>/<plan>/...), understands by
it what the plan says, and refuses mutated files. One tool per process: some of them cannot be imported beside each other.
emit_targets_*.py have the checks, tests/support/emitted.py what these share.

A parser is run without what it imports and does not use (kernels, data sets, inference engines): empty stand-ins take their place.
"""

import importlib
import os
import sys

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


def main():
    tool = sys.argv[1]
    os.chdir(sys.argv[2])
    (module,) = (name for name, tools in MODULES.items() if tool in tools)
    getattr(importlib.import_module(module), tool)()
    code = report(f"{tool}: ")
    sys.stdout.flush()
    os._exit(code)


main()
