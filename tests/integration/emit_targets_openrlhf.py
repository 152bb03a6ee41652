"""Targets read by their own parsers (emit_targets.py): OpenRLHF, with its dotted names and without."""

import sys

from emitted import in_folder, launch_words, parser_of_names, plans, stage, world
from parser_checks import accept, expect, refuse
from stand_ins import stand_in_for


def parser_of_modules():
    """Runs a module with arguments as far as its parser: what that made of them."""
    import argparse
    import runpy

    stand_in_for("vllm", "flash_attn", "ring_flash_attn", "ray", "pylatexenc", "transformers_stream_generator", "torchdata", "bitsandbytes", "loralib", "optree", "datasets", "aiohttp", "jsonlines")
    original = argparse.ArgumentParser.parse_args

    class Done(Exception):
        pass

    def stop(self, *words, **more):
        raise Done(original(self, *words, **more))

    argparse.ArgumentParser.parse_args = stop

    def parse(module, words):
        sys.argv = [module, *words]
        try:
            runpy.run_module(module, run_name="__main__")
        except Done as done:
            return vars(done.args[0])
        raise ValueError("the module did not parse its arguments")

    return parse


def openrlhf():
    parse = parser_of_modules()
    for name, folder, plan in plans("openrlhf"):
        path = f"{folder}/launch.sh"
        words = launch_words(folder, "--data.dataset", "x")
        module = words[words.index("-m") + 1]
        words = words[words.index("-m") + 2 :]
        found = accept(path, lambda: parse(module, words))
        if found is None:
            continue
        train, mesh = plan["train"], plan["mesh"]
        expect(path + " module", module, f"openrlhf.cli.train_{'dpo' if train['method'] == 'dpo' else 'sft'}")
        expect(path + " stage", found["ds.zero_stage"], stage(plan))
        expect(path + " batch", (found["train.batch_size"], found["train.micro_batch_size"], found["data.max_len"]), (train["global_batch"], plan["micro_batch"], train["sequence_length"]))
        expect(path + " accumulation", found["train.batch_size"] * found["ds.ring_attn_size"] * found["ds.tensor_parallel_size"] // found["train.micro_batch_size"] // world(plan), plan["gradient_accumulation"])
        expect(path + " axes", (found["ds.tensor_parallel_size"], found["ds.ring_attn_size"]), (mesh["tp"], mesh["cp"]))
        expect(path + " offload", found["ds.adam_offload"], plan["offload"]["optimizer"] == "host")
        expect(path + " second copy", found["ds.zpg"], plan["strategy"]["hpz"])
        expect(path + " recompute", found["model.gradient_checkpointing_enable"], plan["recompute"]["policy"] == "full")
        expect(path + " LoRA", (found["ds.lora.rank"], found["ds.lora.dropout"]), (train["lora_rank"], train["lora_dropout"]))
        refuse(path + " with an unknown flag", lambda: parse(module, [*words, "--zero_stage", "3"]))
        refuse(path + " with a text for a number", lambda: parse(module, [*words, "--ds.zero_stage", "three"]))


def openrlhf_flags():
    """Names without dots: with DeepSpeed by the last release that has them, with FSDP2 by the table of the pull request."""
    in_folder("openrlhf-0.9")
    branch, release = parser_of_names("openrlhf-fsdp2", exact=False), parser_of_modules()
    for name, folder, plan in plans("openrlhf-flags"):
        path = f"{folder}/launch.sh"
        words = launch_words(folder, "--dataset", "x", "--input_key", "question")
        module = words[words.index("-m") + 1]
        words = words[words.index("-m") + 2 :]
        fsdp2 = plan["strategy"]["trainer"] == "fsdp2"

        def parse(words):
            return branch(words) if fsdp2 else release(module, words)

        found = accept(path, lambda: parse(words))
        if found is None:
            continue
        train, mesh = plan["train"], plan["mesh"]
        tp = found["fsdp_tensor_parallel_size" if fsdp2 else "ds_tensor_parallel_size"] or 1
        ring = found["ring_attn_size"] or 1
        expect(path + " batch", (found["train_batch_size"], found["micro_train_batch_size"], found["max_len"]), (train["global_batch"], plan["micro_batch"], train["sequence_length"]))
        expect(path + " accumulation", found["train_batch_size"] * ring * tp // found["micro_train_batch_size"] // world(plan), plan["gradient_accumulation"])
        expect(path + " axes", (tp, ring), (mesh["tp"], mesh["cp"]))
        expect(path + " packing", found["packing_samples"], mesh["cp"] > 1)
        expect(path + " offload", found["adam_offload"], plan["offload"]["optimizer"] == "host")
        expect(path + " recompute", found["gradient_checkpointing"], plan["recompute"]["policy"] == "full")
        expect(path + " LoRA", (found["lora_rank"] or 0, found["lora_dropout"] or 0), (train["lora_rank"], train["lora_dropout"]))
        expect(path + " steps", found["max_samples"], train["steps"] * train["global_batch"])
        expect(path + " schedule", (found["learning_rate"], found["l2"], list(found["adam_betas"])), (train["learning_rate"], train["weight_decay"], [train["beta1"], train["beta2"]]))
        expect(path + " checkpoints", (found["ckpt_path"], found["max_ckpt_num"]), (plan["checkpoint"]["directory"], plan["checkpoint"]["keep"]))
        if fsdp2:
            expect(path + " backend", found["backend"], "fsdp2")
            expect(path + " sequence parallel", found["sequence_parallel"], mesh["tp"] > 1 and plan["strategy"]["sequence_parallel"])
        else:
            expect(path + " stage", found["zero_stage"], stage(plan))
            expect(path + " second copy", found["zpg"], plan["strategy"]["hpz"])
        refuse(path + " with an unknown flag", lambda: parse([*words, "--ds.zero_stage", "3"]))
        refuse(path + " with a text for a number", lambda: parse([*words, "--micro_train_batch_size", "two"]))
        refuse(path + " with an unknown dtype", lambda: parse([*words, "--param_dtype", "fp8"]))
