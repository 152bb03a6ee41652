"""What a run leaves and reads, read a second time by other code: checkpoints, logs, and which tokens a step trains on.

Standard library only. Checkpoints are read as any reader would: index.json says which boxes of which file make up a parameter. The
order of sequences is written down again from its description (runtime/data/sampler.h), and checked against the log's token counts.
"""
import array
import hashlib
import json
import pathlib
import struct
import sys

MASK = (1 << 64) - 1
IGNORED = -1


def read_safetensors(path):
    """{name: (shape, array of floats)}"""
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32", (path, name, entry["dtype"])
        begin, end = entry["data_offsets"]
        values = array.array("f", data[8 + length + begin : 8 + length + end])
        if sys.byteorder == "big":
            values.byteswap()
        tensors[name] = (entry["shape"], values)
    return tensors


def read_checkpoint(folder, state=""):
    """{parameter: (shape, array of floats)}; state: "" (parameters), ".exp_avg" or ".exp_avg_sq". Every element must come from one box."""
    folder = pathlib.Path(folder)
    index = json.loads((folder / "index.json").read_text())
    files = {}
    parameters = {}
    for name, stored in index["parameters"].items():
        shape = stored["shape"]
        count = 1
        for size in shape:
            count *= size
        values = array.array("f", bytes(4 * count))
        covered = bytearray(count)
        for box in stored["boxes"]:
            if box["file"] not in files:
                files[box["file"]] = read_safetensors(folder / box["file"])
            size, piece = files[box["file"]][name + state]
            assert size == box["size"], (name, size, box)
            row = size[-1]
            for k in range(len(piece) // row if row else 0):
                at, rest, stride = 0, k, 1  # row k of the box: its place in the parameter
                for axis in range(len(size) - 1, -1, -1):
                    place = 0
                    if axis < len(size) - 1:
                        place, rest = rest % size[axis], rest // size[axis]
                    at += (box["start"][axis] + place) * stride
                    stride *= shape[axis]
                assert not any(covered[at : at + row]), (name, "covered twice", box)
                covered[at : at + row] = b"\1" * row
                values[at : at + row] = piece[k * row : (k + 1) * row]
        assert all(covered), (name, "not covered")
        parameters[name] = (shape, values)
    return parameters


def read_metrics(path, kind="step"):
    lines = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


class SplitMix64:
    """Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014."""

    def __init__(self, state):
        self.state = state & MASK

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def below(self, bound):
        limit = MASK - MASK % bound
        value = self.next()
        while value >= limit:
            value = self.next()
        return value % bound


def permutation(count, seed, epoch):
    random = SplitMix64(SplitMix64(seed).next() ^ ((epoch * 0xD1342543DE82EF95) & MASK))
    random.next()
    order = list(range(count))
    for i in range(count, 1, -1):
        j = random.below(i)
        order[i - 1], order[j] = order[j], order[i - 1]
    return order


class Batches:
    """The global batches of a plan, step by step: next() gives a list of (ids, targets, rank)."""

    def __init__(self, plan, plan_folder):
        self.plan = plan
        self.length = plan["train"]["sequence_length"]
        root = pathlib.Path(plan_folder) / plan["data"]["root"]
        self.windows = []
        for file in plan["data"]["files"]:
            text = (root / file["path"]).read_bytes()
            assert len(text) == file["bytes"] and hashlib.sha256(text).hexdigest() == file["sha256"], file
            if not file["held_out"]:
                self.windows += [text[at : at + self.length + 1] for at in range(0, len(text) - 1, self.length)]
        self.epoch, self.position, self.order = 0, 0, permutation(len(self.windows), plan["train"]["seed"], 0)

    def next(self):
        mesh = self.plan["mesh"]
        batch = []
        for i in range(self.plan["train"]["global_batch"]):
            if self.position == len(self.windows):
                self.epoch, self.position = self.epoch + 1, 0
                self.order = permutation(len(self.windows), self.plan["train"]["seed"], self.epoch)
            window = self.windows[self.order[self.position]]
            self.position += 1
            missing = self.length - (len(window) - 1)
            rank = i // self.plan["micro_batch"] % (mesh["dp_replicate"] * mesh["dp_shard"])
            batch.append((list(window[:-1]) + [0] * missing, list(window[1:]) + [IGNORED] * missing, rank))
        return batch


def valid_tokens(batch, rank=None):
    return sum(sum(1 for t in targets if t != IGNORED) for _, targets, owner in batch if rank is None or owner == rank)
