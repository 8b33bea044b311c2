"""GPT-2's and LLaMA's shapes: attention in heads, rotary positions, RMSNorm, SwiGLU."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(h.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, words: int, width: int, heads: int, layers: int, length: int = 1024) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class GroupedAttention(nn.Module):
    """Several heads of queries share one of keys and values."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, groups * self.size, bias=False)
        self.v = nn.Linear(width, groups * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, width = x.shape
        q = rotate(self.q(x).view(batch, length, self.heads, self.size).transpose(1, 2), cos, sin)
        k = rotate(self.k(x).view(batch, length, self.groups, self.size).transpose(1, 2), cos, sin)
        v = self.v(x).view(batch, length, self.groups, self.size).transpose(1, 2)
        q = q.reshape(batch, self.groups, self.heads // self.groups, length, self.size)
        h = F.scaled_dot_product_attention(q, k.unsqueeze(2), v.unsqueeze(2), is_causal=True)
        return self.out(h.reshape(batch, self.heads, length, self.size).transpose(1, 2).reshape(batch, length, width))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions: halves of a head turn by an angle that grows with the position."""
    one, two = x.chunk(2, -1)
    return torch.cat((one * cos - two * sin, two * cos + one * sin), -1)


class LlamaBlock(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, inner: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.RMSNorm(width, eps=1e-5), GroupedAttention(width, heads, groups)
        self.norm2 = nn.RMSNorm(width, eps=1e-5)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), cos, sin)
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, words: int, width: int, heads: int, groups: int, inner: int, layers: int) -> None:
        super().__init__()
        self.words, self.size = nn.Embedding(words, width), width // heads
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, groups, inner) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width, eps=1e-5), nn.Linear(width, words, bias=False)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.words(ids)
        rates = 500000.0 ** (-torch.arange(0, self.size, 2, device=x.device) / self.size)
        angles = torch.arange(ids.shape[1], device=x.device)[:, None] * rates
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())
