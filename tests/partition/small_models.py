"""Small models of the three kinds that the partitioner must run, with a batch for each."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        return (self.second(torch.relu(self.first(x))) ** 2).mean()


class Cast(nn.Module):
    """A model under bf16 autocast."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *batch: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.model(*batch)


class Block(nn.Module):
    """Wide residual: two convolutions, batch normalisation, a strided shortcut, in groups."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 16, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 16, 3, padding=1, groups=2)
        self.shortcut = nn.Conv2d(4, 16, 1, stride=2)
        self.out = nn.Linear(16, 8)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = F.relu(self.norm(self.first(x)))
        h = F.max_pool2d(F.relu(self.second(h) + self.shortcut(x)), 2)
        return F.cross_entropy(self.out(h.mean((2, 3))), y)


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3, 1 x 1 with batch normalisation, and a shortcut of its own."""

    def __init__(self, given: int, inner: int, made: int, stride: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            [
                nn.Conv2d(given, inner, 1, bias=False),
                nn.Conv2d(inner, inner, 3, stride, 1, bias=False),
                nn.Conv2d(inner, made, 1, bias=False),
                nn.Conv2d(given, made, 1, stride, bias=False),
            ]
        )
        self.norms = nn.ModuleList([nn.BatchNorm2d(n) for n in (inner, inner, made, made)])

    def forward(self, x: Tensor) -> Tensor:
        h = x
        for conv, norm in zip(self.convs[:2], self.norms[:2], strict=True):
            h = F.relu(norm(conv(h)), inplace=True)
        return F.relu(self.norms[2](self.convs[2](h)) + self.norms[3](self.convs[3](x)))


class WResNet(nn.Module):
    """The stem, two bottlenecks of doubled width, and the head of a wide residual network."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16)
        self.blocks = nn.Sequential(Bottleneck(16, 16, 32, 1), Bottleneck(32, 32, 64, 2))
        self.out = nn.Linear(64, 8)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = self.blocks(F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1))
        return F.cross_entropy(self.out(F.adaptive_avg_pool2d(h, 1).flatten(1)), y)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.out = nn.LSTM(16, 16, 2), nn.Linear(16, 8)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(self.out(self.lstm(x)[0]), y)


class Attention(nn.Module):
    """One layer: fused projection of [3, heads, d], causal softmax, SwiGLU, tied embedding, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm, self.last = nn.Embedding(32, 16), nn.LayerNorm(16), nn.RMSNorm(16)
        self.project, self.merge = nn.Linear(16, 48), nn.Linear(16, 16, bias=False)
        self.gate, self.up, self.down = nn.Linear(16, 32), nn.Linear(16, 32), nn.Linear(32, 16)
        self.dropout = nn.Dropout(0.2)

    def forward(self, ids: Tensor, y: Tensor) -> Tensor:
        x = self.embed(ids)
        batch, length, width = x.shape
        q, k, v = self.project(self.norm(x)).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.dropout(self.merge(mixed))
        x = x + self.down(F.silu(self.gate(x)) * self.up(x))
        return F.cross_entropy((self.last(x) @ self.embed.weight.t()).flatten(0, 1), y.flatten())


def model_and_batch(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """In double precision, from the seed of now."""
    if name == "mlp":
        return MLP().double(), (torch.randn(16, 16, dtype=torch.float64),)
    if name == "block":
        return Block().double(), (torch.randn(8, 4, 16, 16, dtype=torch.float64), torch.randint(0, 8, (8,)))
    if name == "wresnet":
        return WResNet().double(), (torch.randn(8, 3, 32, 32, dtype=torch.float64), torch.randint(0, 8, (8,)))
    if name == "lstm":
        return Recurrent().double(), (torch.randn(3, 8, 16).double(), torch.randn(3, 8, 8).double())
    return Attention().double(), (torch.randint(0, 32, (8, 8)), torch.randint(0, 32, (8, 8)))
