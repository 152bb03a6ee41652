#!/usr/bin/env bash
# Checkpoints as others read them: the safetensors library of Hugging Face opens every file; one rank's file is a whole model under its
# published names; the boxes of several ranks, put together by index.json alone, are the same model, and PyTorch's distributed checkpoint
# loads the same values from the files alone.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
need_trainer
[[ -n ${DISTSETUP_ORACLE_PYTHON:-} ]] || { echo "not run: DISTSETUP_ORACLE_PYTHON is not set (scripts/oracle_env prints it)"; exit 77; }
make_job one 1
make_job three 3 --global-batch 12
make_job one12 1 --global-batch 12
for job in one three one12; do run "$job" 0 launch "$job" --threads 1 --stop-after 4; done
"$DISTSETUP_ORACLE_PYTHON" - "$work" <<'PYTHON'
import hashlib, json, pathlib, sys
import numpy
import torch
import torch.distributed.checkpoint as dcp
from safetensors import safe_open
from safetensors.numpy import load_file

work = pathlib.Path(sys.argv[1])


def read(job):
    folder = work / job / "checkpoints" / "checkpoint_4"
    commit = json.loads((folder / "COMMIT").read_text())
    for name, entry in commit["files"].items():
        data = (folder / name).read_bytes()
        assert len(data) == entry["bytes"] and hashlib.sha256(data).hexdigest() == entry["sha256"], name
    assert {p.name for p in folder.iterdir()} == set(commit["files"]) | {"COMMIT"}
    index = json.loads((folder / "index.json").read_text())
    files = {p.name: load_file(p) for p in folder.glob("rank_*.safetensors")}
    used, model = 0, {}
    for name, parameter in index["parameters"].items():
        for state in index["states"]:
            whole = numpy.full(parameter["shape"], numpy.nan, dtype=numpy.float32)
            for box in parameter["boxes"]:
                tensor = files[box["file"]][name + state]
                assert list(tensor.shape) == box["size"], (name, tensor.shape, box)
                place = tuple(slice(a, a + n) for a, n in zip(box["start"], box["size"]))
                assert numpy.isnan(whole[place]).all(), f"{name}: boxes overlap"
                whole[place] = tensor
                used += 1
            assert not numpy.isnan(whole).any(), f"{name}{state}: a hole"
            model[name + state] = whole
    assert used == sum(len(f) for f in files.values()), "a tensor that index.json does not name"
    return folder, model


folder, one = read("one")
with safe_open(folder / "rank_0.safetensors", framework="numpy") as file:
    names = set(file.keys())
    assert file.metadata()["format"] == "pt"
assert names == set(one), "one rank: tensors are whole and carry published names"
expected = {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"}
for layer in range(2):
    at = f"model.layers.{layer}."
    expected |= {at + n + ".weight" for n in ("input_layernorm", "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                              "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")}
assert {n for n in names if "exp_avg" not in n} == expected, names
assert one["model.layers.0.self_attn.k_proj.weight"].shape == (16, 32)
assert one["model.layers.1.mlp.down_proj.weight"].shape == (32, 88)

three, alone = read("three")[1], read("one12")[1]
assert set(three) == set(alone)
for name in alone:
    # The distance of whole tensors, not of the worst element: where a gradient is almost zero, AdamW divides it by its own size, so that
    # rounding alone moves that element by up to a learning rate. A box in the wrong place makes a distance of about 1.
    distance = numpy.linalg.norm(three[name] - alone[name]) / max(numpy.linalg.norm(alone[name]), 1e-30)
    assert distance < 1e-3, (name, distance)
assert any((alone[n] != one[n]).any() for n in alone), "another batch, other numbers: the comparison can fail"

def loaded_by_torch(job, model):
    state = {name: torch.full(values.shape, float("nan")) for name, values in model.items()}
    dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(str(work / job / "checkpoints" / "checkpoint_4")))
    for name, values in model.items():
        assert (state[name].numpy() == values).all(), f"{job}: {name}"


loaded_by_torch("one12", alone)
loaded_by_torch("three", three)
assert len(list((work / "three" / "checkpoints" / "checkpoint_4").glob("rank_*.1.safetensors"))) > 0, "no parameter is in two boxes"
print(f"checkpoint_python: {len(one)} tensors of one rank, {len(three)} put together from three")
PYTHON
