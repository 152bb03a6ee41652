"""A plain PyTorch model of the Llama family (RMSNorm, RoPE, grouped attention, SwiGLU; q/k/v biases, q/k norms and a tied head where the
geometry says so), written from the papers, with the published parameter names. Reads the geometry as plan.json states it.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def rotate(x, cos, sin):
    """The two halves of a head are the coordinates of its planes."""
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


class Attention(nn.Module):
    def __init__(self, g):
        super().__init__()
        h, d, bias = g["hidden"], g["head_size"], g["qkv_bias"]
        self.heads, self.kv_heads, self.size = g["num_heads"], g["num_kv_heads"], d
        self.q_proj = nn.Linear(h, self.heads * d, bias=bias)
        self.k_proj = nn.Linear(h, self.kv_heads * d, bias=bias)
        self.v_proj = nn.Linear(h, self.kv_heads * d, bias=bias)
        self.o_proj = nn.Linear(self.heads * d, h, bias=False)
        self.q_norm = nn.RMSNorm(d, g["norm_epsilon"]) if g["qk_norm"] else nn.Identity()
        self.k_norm = nn.RMSNorm(d, g["norm_epsilon"]) if g["qk_norm"] else nn.Identity()

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        q, k = rotate(self.q_norm(q), cos, sin), rotate(self.k_norm(k), cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, -1))


class MLP(nn.Module):
    def __init__(self, g):
        super().__init__()
        h, f = g["hidden"], g["feed_forward"]
        self.gate_proj, self.up_proj, self.down_proj = nn.Linear(h, f, bias=False), nn.Linear(h, f, bias=False), nn.Linear(f, h, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, g):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = (nn.RMSNorm(g["hidden"], g["norm_epsilon"]) for _ in range(2))
        self.self_attn, self.mlp = Attention(g), MLP(g)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, g):
        super().__init__()
        self.embed_tokens = nn.Embedding(g["vocabulary"], g["hidden"])
        self.layers = nn.ModuleList(Block(g) for _ in range(g["num_layers"]))
        self.norm = nn.RMSNorm(g["hidden"], g["norm_epsilon"])


class Model(nn.Module):
    def __init__(self, geometry):
        super().__init__()
        self.base, self.head_size = geometry["rope_base"], geometry["head_size"]
        self.model = Body(geometry)
        if not geometry["tied_embeddings"]:
            self.lm_head = nn.Linear(geometry["hidden"], geometry["vocabulary"], bias=False)
        self.tied = geometry["tied_embeddings"]
        self.tables = {}

    def rotations(self, length, like):
        key = (length, like.dtype, like.device)
        if key not in self.tables:
            planes = self.base ** (-torch.arange(0, self.head_size, 2, dtype=torch.float64) / self.head_size)
            angles = torch.outer(torch.arange(length, dtype=torch.float64), planes)
            self.tables[key] = angles.cos().to(like), angles.sin().to(like)
        return self.tables[key]

    def forward(self, ids):
        x = self.model.embed_tokens(ids)
        cos, sin = self.rotations(ids.shape[1], x)
        for block in self.model.layers:
            x = block(x, cos, sin)
        x = self.model.norm(x)
        return F.linear(x, self.model.embed_tokens.weight) if self.tied else self.lm_head(x)
