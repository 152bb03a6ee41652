"""One rank of the same training with torch.distributed.pipelining (Schedule1F1B; with several chunks per stage ScheduleInterleaved1F1B;
Gloo), started with torchrun's environment.

usage: pp_peer.py PLAN.json OUTPUT.json

In fp32; the rest as peer.py says.
"""
import peer
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from peer import files
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B


class Chunk(nn.Module):
    """Consecutive layers; the first one has the embedding, the last one the head."""

    def __init__(self, model, layers, first, last):
        super().__init__()
        self.rotations = model.rotations
        self.embed_tokens = model.model.embed_tokens if first else None
        self.layers = nn.ModuleList(layers)
        self.norm, self.lm_head = (model.model.norm, model.lm_head) if last else (None, None)

    def forward(self, x):
        if self.embed_tokens is not None:
            x = self.embed_tokens(x)
        cos, sin = self.rotations(x.shape[1], x)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return x if self.lm_head is None else self.lm_head(self.norm(x))


def layers_of_chunks(num_layers, chunks):
    """Spread evenly, what is left over in the middle: as the plan's."""
    each, rest = divmod(num_layers, chunks)
    first = (chunks - rest) // 2
    return [each + (first <= c < first + rest) for c in range(chunks)]


class Pipeline:
    """This rank's schedule, and what its loss function divides by."""
    schedule, tokens = None, 1


def split(model, plan, world):
    rank, per_rank = dist.get_rank(), plan["strategy"]["virtual_stages"]
    sizes = layers_of_chunks(len(model.model.layers), world * per_rank)
    mine = []
    for c in range(rank, len(sizes), world):
        begin = sum(sizes[:c])
        mine.append((c, Chunk(model, model.model.layers[begin:begin + sizes[c]], c == 0, c == len(sizes) - 1)))
    del model.model, model.lm_head
    model.chunks = nn.ModuleList(chunk for _, chunk in mine)
    stages = [PipelineStage(chunk, c, len(sizes), torch.device("cpu")) for c, chunk in mine]

    def loss(logits, targets):
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=files.IGNORED, reduction="sum") / Pipeline.tokens

    micro_batches = plan["gradient_accumulation"]
    if per_rank == 1:
        Pipeline.schedule = Schedule1F1B(stages[0], micro_batches, loss_fn=loss, scale_grads=False)
    else:
        Pipeline.schedule = ScheduleInterleaved1F1B(stages, micro_batches, loss_fn=loss, scale_grads=False)


def train_step(model, batch, plan, rank, world):
    Pipeline.tokens = files.valid_tokens(batch)
    losses = []
    inputs = [torch.tensor([ids for ids, _, _ in batch])] if rank == 0 else []
    outputs = {"target": torch.tensor([targets for _, targets, _ in batch]), "losses": losses} if rank == world - 1 else {}
    Pipeline.schedule.step(*inputs, **outputs)

    def on_all_ranks():
        total = sum((loss.detach() for loss in losses), torch.zeros(()))
        dist.all_reduce(total)
        return total.item()

    return on_all_ranks


def clip(model, limit):
    """By the norm over the parameters of all stages."""
    gradients = [p.grad for p in model.parameters()]
    total = torch.nn.utils.get_total_norm(gradients) ** 2
    dist.all_reduce(total)
    torch.nn.utils.clip_grads_with_norm_(model.parameters(), limit, total.sqrt())


if __name__ == "__main__":
    peer.run(split, train_step, clip)
