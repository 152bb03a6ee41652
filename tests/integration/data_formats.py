"""data_formats.py BIN FOLDER TOKENIZER: prepared sets against Megatron-LM's own reader and writer.

What `data export` writes, megatron-core's IndexedDataset reads; what megatron-core's IndexedDatasetBuilder writes, `data prepare` reads,
for every type of ids that it has."""
import json
import random
import struct
import subprocess
import sys
from pathlib import Path

import numpy
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder


def run(arguments):
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, arguments))}: {(done.stdout + done.stderr)[-600:]}")
    return done.stdout


def read_set(folder):
    ids = numpy.fromfile(folder / "training.tokens", dtype=numpy.uint32)
    records = (folder / "training.samples").read_bytes()
    samples = [struct.unpack_from("<QQIIII", records, at) for at in range(0, len(records), 32)]
    return [ids[first:first + count].tolist() for first, _, count, *_ in samples]


def exported(binary, folder, tokenizer):
    chance = random.Random(3)
    lines = [{"text": " ".join(chance.choice(["a plan", "that fits", "Größe", "東京", "345"]) for _ in range(chance.randint(1, 40)))} for _ in range(200)]
    (folder / "texts.jsonl").write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    run([binary, "data", "prepare", folder / "texts.jsonl", "--tokenizer", tokenizer, "--held-out", "0", "--output", folder / "texts"])
    run([binary, "data", "export", folder / "texts", "--output", folder / "exported"])
    ours, theirs = read_set(folder / "texts"), IndexedDataset(str(folder / "exported"))
    assert len(theirs) == len(ours) == 200
    assert all(theirs[i].tolist() == one for i, one in enumerate(ours))
    assert theirs.document_indices.tolist() == list(range(201))
    print(f"megatron-core reads {len(theirs)} exported documents, ids as {theirs.index.dtype}")


def imported(binary, folder, tokenizer):
    chance = random.Random(4)
    for dtype in (numpy.uint8, numpy.int8, numpy.int16, numpy.int32, numpy.int64, numpy.uint16):
        prefix = folder / f"built_{numpy.dtype(dtype).name}"
        builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype)
        documents = []
        for _ in range(50):
            parts = [[chance.randrange(100) for _ in range(chance.randint(1, 30))] for _ in range(chance.randint(1, 3))]
            builder.add_document(numpy.array(sum(parts, []), dtype=dtype), [len(part) for part in parts])
            documents.append(sum(parts, []))
        builder.finalize(f"{prefix}.idx")
        run([binary, "data", "prepare", f"{prefix}.bin", "--tokenizer", tokenizer, "--held-out", "0", "--output", folder / prefix.name])
        kept = [d for d in documents if len(d) > 1]
        assert read_set(folder / prefix.name) == kept, dtype
        print(f"{len(kept)} documents that megatron-core wrote as {numpy.dtype(dtype).name} are read")


def main():
    binary, folder, tokenizer = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    exported(f"{binary}/distsetup", folder, tokenizer)
    imported(f"{binary}/distsetup", folder, tokenizer)


if __name__ == "__main__":
    main()
