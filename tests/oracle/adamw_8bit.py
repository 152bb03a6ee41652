"""adamw_8bit.py: what bitsandbytes' AdamW in 8 bits makes of a vector, for the unit test of ours: tests/data/adamw_8bit.txt.

Made with bitsandbytes 0.50.2 and torch 2.11.0 on a CPU:  python adamw_8bit.py > tests/data/adamw_8bit.txt
States are rounded by its portable backend, which takes the nearest code as its CUDA kernels do. The library it has for CPUs looks codes
up in a table that is coarse near zero: of second moments 3 % get another code than the nearest, up to 7 codes away.
Lines: the codes' values, signed then unsigned, as the bits of floats; after each step the codes and scales of both moments and the
parameters. Elements are fractions with small denominators, so that every language computes the same."""
import torch
from bitsandbytes import functional
from bitsandbytes.backends.cpu import ops as cpu
from bitsandbytes.backends.default import ops as portable  # noqa: F401, registers its operations

NUMEL, STEPS = 512, 4
RATE, BETAS, EPSILON, DECAY = 0.01, (0.9, 0.95), 1e-8, 0.1


def nearest(values, code, scales, out, block):
    """The portable backend's quantize_blockwise, of whole blocks."""
    blocks = values.view(-1, block)
    largest = blocks.abs().max(dim=-1)[0]
    scaled = torch.clamp(blocks * (1.0 / largest.clamp(min=1e-38).view(-1, 1)), -1, 1).reshape(-1)
    out.copy_(torch.bucketize(scaled, (code[:-1] + code[1:]) / 2, out_int32=True).to(torch.uint8))
    scales.copy_(largest)


def bits(tensor):
    return " ".join(f"{v & 0xFFFFFFFF:08x}" for v in tensor.contiguous().view(torch.int32).tolist())


def main():
    cpu._quant_blockwise_fp32_direct = nearest
    maps = [functional.create_dynamic_map(signed=signed) for signed in (True, False)]
    index = torch.arange(NUMEL, dtype=torch.int64)
    parameters = (((index * 37) % 201) - 100).float() / 1024
    states = [torch.zeros(NUMEL, dtype=torch.uint8) for _ in maps]
    scales = [torch.zeros(NUMEL // 256) for _ in maps]
    for code in maps:
        print(bits(code))
    for step in range(1, STEPS + 1):
        gradient = (((index * 7919 + step * 104729) % 2001) - 1000).float() / 4096
        gradient[: 256 // step] /= 64
        torch.ops.bitsandbytes.optimizer_update_8bit_blockwise(
            "adam", gradient, parameters, states[0], states[1], *BETAS, 0.0, 0.0, EPSILON, step, RATE, maps[0], maps[1], scales[0], scales[1],
            DECAY, 1.0)
        for state, scale in zip(states, scales, strict=True):
            print(bytes(state.tolist()).hex())
            print(bits(scale))
        print(bits(parameters))


main()
