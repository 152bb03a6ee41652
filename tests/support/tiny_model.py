#!/usr/bin/env python3
"""tiny_model.py FOLDER: a Llama of some 30 thousand parameters as Hugging Face publishes models: config, random weights (the same at every
call), a tokenizer of single letters and a chat template. Needs nothing but Python."""
import array
import json
import pathlib
import random
import struct
import sys

HIDDEN, LAYERS, HEADS, KV_HEADS, FEED_FORWARD = 32, 2, 4, 2, 88
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789?.+=[]\n,'-:!()"
TEMPLATE = ("{% for m in messages %}[{{ m.role }}] {% if m.role == 'assistant' %}{% generation %}{{ m.content }}</s>{% endgeneration %}"
            "{% else %}{{ m.content }}{% endif %}\n{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}")


def tokenizer():
    vocabulary = [["<unk>", 0.0], ["</s>", 0.0], [" ", -3.0]] + [[letter, -3.0] for letter in LETTERS]
    return vocabulary, {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": {"type": "Lowercase"}, "pre_tokenizer": None,
        "post_processor": None, "decoder": {"type": "Fuse"},
        "added_tokens": [{"id": 1, "content": "</s>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}],
        "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": False, "vocab": vocabulary}}


def shapes(vocabulary):
    head = HIDDEN // HEADS
    out = {"model.embed_tokens.weight": (vocabulary, HIDDEN), "model.norm.weight": (HIDDEN,), "lm_head.weight": (vocabulary, HIDDEN)}
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        out |= {name + "input_layernorm.weight": (HIDDEN,), name + "post_attention_layernorm.weight": (HIDDEN,),
                name + "self_attn.q_proj.weight": (HEADS * head, HIDDEN), name + "self_attn.k_proj.weight": (KV_HEADS * head, HIDDEN),
                name + "self_attn.v_proj.weight": (KV_HEADS * head, HIDDEN), name + "self_attn.o_proj.weight": (HIDDEN, HEADS * head),
                name + "mlp.gate_proj.weight": (FEED_FORWARD, HIDDEN), name + "mlp.up_proj.weight": (FEED_FORWARD, HIDDEN),
                name + "mlp.down_proj.weight": (HIDDEN, FEED_FORWARD)}
    return out


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary, model = tokenizer()
    size = (len(vocabulary) + 7) // 8 * 8
    (folder / "tokenizer.json").write_text(json.dumps(model))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "chat_template": TEMPLATE, "tokenizer_class": "PreTrainedTokenizerFast"}))
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": LAYERS, "hidden_size": HIDDEN,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "intermediate_size": FEED_FORWARD, "vocab_size": size,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False, "eos_token_id": 1,
        "torch_dtype": "float32"}))
    draw, header, bodies, at = random.Random(7), {"__metadata__": {"format": "pt"}}, [], 0
    for name, shape in sorted(shapes(size).items()):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [1.0] * count if len(shape) == 1 else [draw.gauss(0, 0.05) for _ in range(count)]
        body = array.array("f", values).tobytes()
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + len(body)]}
        at += len(body)
        bodies.append(body)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + b"".join(bodies))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
