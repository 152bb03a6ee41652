"""One rank of supervised fine-tuning with TRL's SFTTrainer under accelerate, sharded by FSDP2 over Gloo, started by sft.py.

usage: trl_peer.py MODEL CONVERSATIONS.jsonl LENGTH BATCH STEPS OUTPUT.json

accelerate 1.15 takes FSDP on accelerators alone: with use_cpu its state stays MULTI_CPU, the plugin is dropped without a word, and what
runs is DDP. So the state is told, once it is made, what it would be on a GPU; the rest (fsdp2_prepare_model, fully_shard over the
decoder layers and the root) is theirs. That the parameters really are sharded is checked before the first step."""
import json
import os
import sys
import time

import torch
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType
from datasets import Dataset
from torch.distributed.tensor import DTensor
from transformers import PreTrainedTokenizerFast, TrainerCallback
from trl import SFTConfig, SFTTrainer


def take_fsdp_on_cpu():
    made = AcceleratorState.__init__

    def make(self, *arguments, **named):
        made(self, *arguments, **named)
        if self.distributed_type == DistributedType.MULTI_CPU and named.get("fsdp_plugin") is not None:
            self.distributed_type, self.fsdp_plugin = DistributedType.FSDP, named["fsdp_plugin"]

    AcceleratorState.__init__ = make


class StepTimes(TrainerCallback):
    def __init__(self):
        self.steps, self.sharded = [], 0

    def on_step_begin(self, args, state, control, model=None, **_):
        if not self.steps:
            self.sharded = sum(isinstance(p, DTensor) for p in model.parameters())
        self.begin = time.perf_counter()

    def on_step_end(self, *_, **__):
        self.steps.append(time.perf_counter() - self.begin)


def main():
    model, conversations, length, batch, steps, output = sys.argv[1:]
    torch.set_num_threads(1)
    take_fsdp_on_cpu()
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=f"{model}/tokenizer.json", eos_token="</s>", pad_token="</s>")
    tokenizer.chat_template = json.load(open(f"{model}/tokenizer_config.json"))["chat_template"]
    rows = [json.loads(line) for line in open(conversations)]
    each = int(batch) // int(os.environ["WORLD_SIZE"])
    arguments = SFTConfig(
        output_dir=output + ".out", per_device_train_batch_size=each, max_steps=int(steps), learning_rate=1e-4, lr_scheduler_type="constant",
        weight_decay=0.0, max_grad_norm=1.0, adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-8, max_length=int(length) + 1, packing=False,
        assistant_only_loss=True, report_to=[], use_cpu=True, bf16=False, fp16=False, logging_steps=1, gradient_checkpointing=False,
        disable_tqdm=True, save_strategy="no", dataloader_drop_last=True, optim="adamw_torch_fused", fsdp=True,
        fsdp_config={"version": 2, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"], "reshard_after_forward": True},
        model_init_kwargs={"dtype": "float32", "attn_implementation": "sdpa"})
    times = StepTimes()
    trainer = SFTTrainer(model=model, args=arguments, train_dataset=Dataset.from_list(rows), processing_class=tokenizer, callbacks=[times])
    trainer.train()
    assert times.sharded > 0, "no parameter is sharded: this is not FSDP2"
    if os.environ["RANK"] == "0":
        losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
        json.dump({"losses": losses, "step_s": times.steps, "sharded": times.sharded}, open(output, "w"))


main()
