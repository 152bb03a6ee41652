"""families.py FOLDER [FAMILY]: tiny models of each family that the bundled trainer runs, random weights, with the logits, the loss and
the gradients that Transformers' own modules give (fp64, eager attention), one folder each, for family_check. own_errors.txt says how
far Transformers' fp32 gradients are from them."""
import json
import math
import sys
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

# Sizes that are multiples of nothing much; windows shorter than the sequence, so that they show.
COMMON = {"vocab_size": 67, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6,
          "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
MINISTRAL3 = {**YARN, "original_max_position_embeddings": 64, "rope_theta": 10000.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}
LINEAR = {"rope_type": "linear", "factor": 2.0}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0}


def longrope(pairs, **more):
    return {"type": "longrope", "short_factor": [1 + 0.1 * i for i in range(pairs)], "long_factor": [1.5 + i for i in range(pairs)], **more}


GEMMA = {"hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True}
MIXTRAL = {"num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": None}
QWEN_MOE = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40}
GPT_OSS = {"num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 5, "pad_token_id": None}
SIGMOID_MOE = {"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "routed_scaling_factor": 1.7,
               "pad_token_id": None}
GLM_MOE = {**SIGMOID_MOE, "partial_rotary_factor": 0.5}
LATENT = {"num_key_value_heads": 6, "kv_lora_rank": 20, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 12}
DEEPSEEK = {**LATENT, "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "routed_scaling_factor": 1.7,
            "first_k_dense_replace": 1, "n_shared_experts": 2}
DEEPSEEK_YARN = {**YARN, "mscale": 0.707, "mscale_all_dim": 0.9}

FAMILIES = {
    "llama": ("llama", {}),
    "llama_tied": ("llama", {"tie_word_embeddings": True}),
    "llama_biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama3.1": ("llama", {"rope_theta": 500000.0, "rope_scaling": LLAMA3}),
    "llama_linear": ("llama", {"rope_scaling": LINEAR}),
    "llama_dynamic": ("llama", {"max_position_embeddings": 16, "rope_scaling": DYNAMIC}),
    "mistral": ("mistral", {"sliding_window": 5}),
    "qwen2": ("qwen2", {"rope_scaling": YARN}),
    "qwen3": ("qwen3", {}),
    "granite": ("granite", {"embedding_multiplier": 12.0, "attention_multiplier": 0.05, "residual_multiplier": 0.22, "logits_scaling": 8.0}),
    "gemma": ("gemma", {**GEMMA, "hidden_act": "gelu_pytorch_tanh"}),
    "gemma2": ("gemma2", {**GEMMA, "sliding_window": 5, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 5.0,
                          "final_logit_softcapping": 3.0}),
    "gemma3_text": ("gemma3_text", {**GEMMA, "num_hidden_layers": 4, "sliding_window": 5, "query_pre_attn_scalar": 24,
                                    "layer_types": ["sliding_attention", "full_attention"] * 2,
                                    "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                                                        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0}}}),
    "mixtral": ("mixtral", MIXTRAL),
    "mixtral_balanced": ("mixtral", {**MIXTRAL, "output_router_logits": True, "router_aux_loss_coef": 0.3}),
    "mixtral_adversarial": ("mixtral", MIXTRAL),  # see adversarial()
    "mixtral_capacity": ("mixtral", {**MIXTRAL, "expert_capacity": 0.8}),  # see with_capacity()
    "qwen2_moe": ("qwen2_moe", {**QWEN_MOE, "shared_expert_intermediate_size": 56, "decoder_sparse_step": 2}),
    "qwen3_moe": ("qwen3_moe", {**QWEN_MOE, "norm_topk_prob": True, "mlp_only_layers": [0]}),
    "glm4_moe": ("glm4_moe", {**GLM_MOE, "use_qk_norm": True}),
    "glm4_moe_groups": ("glm4_moe", {**GLM_MOE, "attention_bias": True, "n_group": 4, "topk_group": 2, "norm_topk_prob": False}),
    "deepseek_v2": ("deepseek_v2", {**DEEPSEEK, "q_lora_rank": None, "topk_method": "greedy", "rope_scaling": DEEPSEEK_YARN}),
    "deepseek_v2_groups": ("deepseek_v2", {**DEEPSEEK, "q_lora_rank": 28, "topk_method": "group_limited_greedy", "n_group": 4,
                                           "topk_group": 2}),
    "deepseek_v3": ("deepseek_v3", {**DEEPSEEK, "q_lora_rank": 28, "n_group": 4, "topk_group": 2, "rope_scaling": DEEPSEEK_YARN}),
    "deepseek_v3_wide": ("deepseek_v3", {**DEEPSEEK, "q_lora_rank": 28, "n_group": 1, "topk_group": 1, "v_head_dim": 16,
                                         "norm_topk_prob": False}),
    "qwen3_moe_balanced": ("qwen3_moe", {**QWEN_MOE, "output_router_logits": True, "router_aux_loss_coef": 0.1}),
    "gpt_oss": ("gpt_oss", {**GPT_OSS, "rope_parameters": {**YARN, "rope_theta": 10000.0, "truncate": False}}),
    "gpt_oss_balanced": ("gpt_oss", {**GPT_OSS, "num_hidden_layers": 2, "swiglu_limit": 0.3, "swiglu_alpha": 1.1, "attention_bias": False,
                                     "output_router_logits": True, "router_aux_loss_coef": 0.2}),
    "granitemoe": ("granitemoe", {"num_local_experts": 5, "num_experts_per_tok": 2, "embedding_multiplier": 12.0, "attention_multiplier": 0.05,
                                  "residual_multiplier": 0.22, "logits_scaling": 6.0, "pad_token_id": None}),
    "ernie4_5_moe": ("ernie4_5_moe", {"moe_num_experts": 8, "moe_k": 3, "moe_intermediate_size": 40, "moe_num_shared_experts": 2,
                                      "moe_layer_start_index": 1, "pad_token_id": None, "tie_word_embeddings": True}),
    "gptj": ("gptj", {"n_embd": 48, "n_layer": 3, "n_head": 6, "n_positions": 64, "n_inner": 80, "rotary_dim": 4}),
    "granitemoehybrid": ("granitemoehybrid", {"num_local_experts": 0, "shared_intermediate_size": 80, "layer_types": ["full_attention"] * 3,
                                              "position_embedding_type": "rope", "embedding_multiplier": 12.0, "attention_multiplier": 0.05,
                                              "residual_multiplier": 0.22, "logits_scaling": 6.0, "pad_token_id": None, "mamba_n_heads": 12}),
    "olmo2": ("olmo2", {"pad_token_id": None}),  # its row of the embedding would get no gradient
    "phi": ("phi", {"num_key_value_heads": 6, "partial_rotary_factor": 0.5, "hidden_act": "gelu_new"}),
    "phi3": ("phi3", {"sliding_window": 7, "pad_token_id": None}),
    "phi3_long": ("phi3", {"pad_token_id": None, "original_max_position_embeddings": 16, "rope_scaling": longrope(4)}),
    "phi3_not_so_long": ("phi3", {"pad_token_id": None, "original_max_position_embeddings": 19, "partial_rotary_factor": 0.5,
                                  "rope_scaling": longrope(2)}),
    "gpt2": ("gpt2", {"n_embd": 48, "n_layer": 3, "n_head": 6, "n_positions": 64, "n_inner": 80}),
    "opt": ("opt", {"ffn_dim": 80, "word_embed_proj_dim": 48, "pad_token_id": None}),
    "gpt_bigcode": ("gpt_bigcode", {"n_embd": 48, "n_layer": 2, "n_head": 6, "n_positions": 64, "n_inner": 80}),
    "gpt_neox": ("gpt_neox", {"rotary_pct": 0.5}),
    "gpt_neox_serial": ("gpt_neox", {"rotary_pct": 0.25, "hidden_size": 96, "use_parallel_residual": False}),
    "starcoder2": ("starcoder2", {"sliding_window": 5}),
    "nemotron": ("nemotron", {"attention_bias": True, "mlp_bias": True}),
    "stablelm": ("stablelm", {"use_qkv_bias": True, "partial_rotary_factor": 0.5}),
    "seed_oss": ("seed_oss", {"attention_bias": True, "attention_out_bias": True}),
    "olmo3": ("olmo3", {"num_hidden_layers": 4, "sliding_window": 5, "pad_token_id": None, "rope_scaling": YARN}),
    "olmoe": ("olmoe", {"num_experts": 8, "num_experts_per_tok": 3, "pad_token_id": None}),
    "smollm3": ("smollm3", {"num_hidden_layers": 4, "no_rope_layer_interval": 2, "pad_token_id": None, "tie_word_embeddings": True}),
    "arcee": ("arcee", {"mlp_bias": True}),
    "internlm3": ("internlm3", {"attention_bias": True, "mlp_bias": True, "pad_token_id": None}),
    "iquestcoder": ("iquestcoder", {}),
    "jais2": ("jais2", {"pad_token_id": None}),
    "minimax_m2": ("minimax_m2", {"num_local_experts": 5, "num_experts_per_tok": 2, "rotary_dim": 4}),
    "ernie4_5": ("ernie4_5", {"use_bias": True, "pad_token_id": None}),
    "glm": ("glm", {"partial_rotary_factor": 0.5, "pad_token_id": None}),
    "glm4": ("glm4", {"partial_rotary_factor": 0.5, "pad_token_id": None}),
    "cohere": ("cohere", {"logit_scale": 0.25, "attention_bias": True, "pad_token_id": None, "tie_word_embeddings": True}),
    "cohere2": ("cohere2", {"num_hidden_layers": 4, "sliding_window": 5, "logit_scale": 2.0, "pad_token_id": None,
                            "tie_word_embeddings": True}),
    "helium": ("helium", {"attention_bias": True, "mlp_bias": True, "pad_token_id": None}),
    "glm4_moe_lite": ("glm4_moe_lite", {**DEEPSEEK, "q_lora_rank": 28, "mlp_layer_types": ["sparse", "dense", "sparse"], "pad_token_id": None}),
    "youtu": ("youtu", {**LATENT, "q_lora_rank": 28, "tie_word_embeddings": True, "pad_token_id": None}),
    "dots1": ("dots1", {**SIGMOID_MOE, "n_shared_experts": 1, "first_k_dense_replace": 1, "sliding_window": None, "norm_topk_prob": True}),
    "solar_open": ("solar_open", SIGMOID_MOE),
    "exaone4": ("exaone4", {"num_hidden_layers": 4, "sliding_window": 5, "sliding_window_pattern": 2}),
    "exaone4_global": ("exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 3}),
    "hunyuan_v1_dense": ("hunyuan_v1_dense", {"pad_token_id": None, "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 50.0,
                                                                                        "factor": 1.0}}),
    "hunyuan_v1_moe": ("hunyuan_v1_moe", {"num_experts": 8, "moe_topk": 3, "pad_token_id": None}),
    "vaultgemma": ("vaultgemma", {**GEMMA, "num_hidden_layers": 4, "sliding_window": 5, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 5.0,
                                  "final_logit_softcapping": 3.0, "pad_token_id": None}),
    "hyperclovax": ("hyperclovax", {"embedding_multiplier": 10.0, "attention_multiplier": 0.05, "logits_scaling": 0.125, "pad_token_id": None}),
    "exaone_moe": ("exaone_moe", {**QWEN_MOE, "routed_scaling_factor": 1.7, "num_hidden_layers": 4, "sliding_window": 5, "pad_token_id": None}),
    "flex_olmo": ("flex_olmo", {"num_experts": 7, "num_experts_per_tok": 3, "pad_token_id": None}),
    "granitemoeshared": ("granitemoeshared", {"num_local_experts": 5, "num_experts_per_tok": 2, "shared_intermediate_size": 56,
                                              "embedding_multiplier": 12.0, "attention_multiplier": 0.05, "residual_multiplier": 0.22,
                                              "logits_scaling": 6.0, "pad_token_id": None}),
    "biogpt": ("biogpt", {"pad_token_id": None}),
    "ministral": ("ministral", {"num_hidden_layers": 4, "sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"] * 2}),
    "cwm": ("cwm", {"num_hidden_layers": 5, "sliding_window": 5, "rope_parameters": {**LLAMA3, "rope_theta": 1000000.0}}),
    "gpt_neo": ("gpt_neo", {"num_layers": 3, "num_heads": 6, "window_size": 5, "attention_types": [[["global", "local"], 1], [["global"], 1]]}),
    "hy_v3": ("hy_v3", {**QWEN_MOE, "pad_token_id": None}),
    "ministral3": ("ministral3", {"rope_parameters": MINISTRAL3, "pad_token_id": None}),
    "mellum": ("mellum", {**QWEN_MOE, "num_hidden_layers": 4, "sliding_window": 5,
                          "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
                          "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]}),
    "falcon_7b": ("falcon", {"multi_query": True, "alibi": False, "parallel_attn": True, "bias": False, "ffn_hidden_size": 80}),
    "falcon_40b": ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2, "alibi": False, "bias": False, "ffn_hidden_size": 80}),
    "falcon_rw": ("falcon", {"multi_query": False, "alibi": False, "parallel_attn": False, "bias": True, "ffn_hidden_size": 80}),
}


def settings(family, changes):
    """COMMON as this family spells it."""
    common = dict(COMMON)
    if family in ("gpt2", "gpt_bigcode", "gpt_neox", "falcon", "phi", "gptj", "opt", "biogpt", "gpt_neo"):
        for key in ("num_key_value_heads", "head_dim"):
            common.pop(key)
    if family in ("phi3", "granite", "granitemoe", "granitemoeshared", "granitemoehybrid", "hyperclovax", "flex_olmo", "olmo2", "olmo3", "olmoe", "qwen2", "qwen2_moe", "deepseek_v2", "deepseek_v3", "glm4_moe_lite", "youtu", "starcoder2", "stablelm",
                  "smollm3", "cohere", "cohere2", "exaone4"):
        common.pop("head_dim")
    if family in ("gpt2", "gpt_bigcode", "gptj"):
        common = {"vocab_size": common["vocab_size"]}
    if family == "gpt_neo":
        for key in ("num_hidden_layers", "num_attention_heads"):
            common.pop(key)
    if family == "falcon":
        common.pop("intermediate_size")
    return {**common, **changes}


def write(folder, name, family, changes):
    torch.manual_seed(7)
    folder = folder / name
    (folder / "weights").mkdir(parents=True, exist_ok=True)
    (folder / "gradients").mkdir(exist_ok=True)
    config = AutoConfig.for_model(family, **settings(family, changes))
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager").float().eval()
    with torch.no_grad():
        for parameter in model.parameters():  # no norm at one, no bias at zero, nothing small enough to hide
            parameter.copy_(torch.randn_like(parameter) * 0.08 + (parameter if parameter.dim() == 1 else 0))
        for _, correction in corrections(model):
            correction.copy_(torch.randn_like(correction) * 0.05)
    if name == "mixtral_adversarial":
        adversarial(model)
    if "expert_capacity" in changes:
        for layer in model.model.layers:
            with_capacity(layer.mlp.experts, changes["expert_capacity"])
    model.tie_weights()
    saved = json.loads(config.to_json_string(use_diff=False))
    (folder / "config.json").write_text(json.dumps(saved, indent=1))
    sequences, length = 3, 19
    ids = torch.randint(config.vocab_size, (sequences, length + 1))
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    for key, parameter in [*model.named_parameters(), *corrections(model)]:
        for one, value in published(family, key, parameter):
            raw(folder / "weights" / f"{one}.f32", value)
    _, rounded = logits_and_gradients(model, inputs, targets)
    logits, exact = logits_and_gradients(model.double(), inputs, targets)
    raw(folder / "logits.f32", logits)
    with open(folder / "own_errors.txt", "w", encoding="utf-8") as file:
        for key, gradient in exact.items():
            for (one, expected), (_, found) in zip(published(family, key, gradient), published(family, key, rounded[key].double())):
                raw(folder / "gradients" / f"{one}.f32", expected)
                largest = expected.abs().max()  # 0 of an expert that no token chose
                file.write(f"{one} {((found - expected).abs().max() / largest if largest > 0 else 0):.3e}\n")
    numbers = [str(sequences), str(length)] + [str(i) for i in inputs.flatten().tolist() + targets.flatten().tolist()]
    (folder / "tokens.txt").write_text(" ".join(numbers) + "\n")


def corrections(model):
    """Of routers: what takes part in the choice of experts alone, and has no gradient."""
    return [(key, buffer) for key, buffer in model.named_buffers() if key.endswith("e_score_correction_bias")]


def adversarial(model):
    """Every token goes to the first two experts: its first element is large, and the router looks at that alone."""
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 0] = 1
        for layer in model.model.layers:
            layer.mlp.gate.weight *= 0.1
            layer.mlp.gate.weight[:, 0] = torch.tensor([4.0, 4.0, -4.0, -4.0, -4.0])


def with_capacity(experts, capacity):
    """An expert takes the first of its tokens, so many times an equal share: Transformers has no such thing."""
    whole = experts.forward

    def forward(hidden_states, top_k_index, top_k_weights):
        chosen = torch.nn.functional.one_hot(top_k_index, experts.num_experts)  # [tokens, k, experts]
        most = math.ceil(capacity * top_k_index.numel() / experts.num_experts)
        before = (chosen.sum(1).cumsum(0) - chosen.sum(1)).gather(1, top_k_index)
        assert (before >= most).any(), "no row is dropped"
        return whole(hidden_states, top_k_index, top_k_weights * (before < most))

    experts.forward = forward


def published(family, name, value):
    """A parameter's names and values in published files, where Transformers 5 holds it otherwise: experts one by one, gate and up."""
    if family == "gpt_neox" and name == "lm_head.weight":
        return [("embed_out.weight", value)]
    like_mixtral = family in ("mixtral", "minimax_m2")
    if like_mixtral:
        name = name.replace(".mlp.", ".block_sparse_moe.")
    gate, up, down = ("w1", "w3", "w2") if like_mixtral else ("gate_proj", "up_proj", "down_proj")
    prefix, _, which = name.rpartition(".")
    name = name.replace(".gate.moe_statics.", ".moe_statics.")
    if family in ("granitemoe", "granitemoeshared") and ".block_sparse_moe." in name:
        stem = prefix.rpartition(".block_sparse_moe.")[0] + ".block_sparse_moe"
        if which == "weight":
            return [(f"{stem}.router.layer.weight", value)]
        linear = "input_linear" if which == "gate_up_proj" else "output_linear"
        return [(f"{stem}.{linear}.{e}.weight", value[e]) for e in range(value.shape[0])]
    if family == "exaone_moe":
        name = name.replace(".gate.e_score", ".e_score")
    if family == "hy_v3":
        for held, public in ((".mlp.gate.", ".mlp.router.gate."), (".e_score_correction_bias", ".expert_bias"),
                             (".shared_experts.", ".shared_mlp.")):
            name = name.replace(held, public)
    if family == "gpt_oss" and which in ("gate_up_proj", "down_proj"):  # one tensor, of which each expert has a part
        return [(f"{prefix}.{e}.{which}", value[e]) for e in range(value.shape[0])]
    if which == "gate_up_proj" and prefix.endswith(".experts"):
        half = value.shape[1] // 2
        return [(f"{prefix}.{e}.{one}.weight", rows) for e in range(value.shape[0])
                for one, rows in ((gate, value[e, :half]), (up, value[e, half:]))]
    if which == "down_proj" and prefix.endswith(".experts"):
        return [(f"{prefix}.{e}.{down}.weight", value[e]) for e in range(value.shape[0])]
    return [(name, value)]


def logits_and_gradients(model, inputs, targets):
    model.zero_grad()
    outputs = model(input_ids=inputs, use_cache=False)
    logits = outputs.logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))
    if getattr(outputs, "aux_loss", None) is not None:  # as Transformers adds it to a loss that it computes itself
        loss = loss + model.config.router_aux_loss_coef * outputs.aux_loss
    loss.backward()
    return logits, {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.requires_grad}


def raw(path, tensor):
    path.write_bytes(tensor.detach().contiguous().float().numpy().tobytes())


if __name__ == "__main__":
    chosen = sys.argv[2:] or list(FAMILIES)
    for one in chosen:
        write(Path(sys.argv[1]), one, *FAMILIES[one])
