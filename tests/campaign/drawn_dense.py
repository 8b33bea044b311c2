"""Dense models drawn by a seed: layers of sequences one after the other, as users write them, and a batch for each."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WORDS = 24
_ACTIVATIONS: tuple[Callable[[Tensor], Tensor], ...] = (torch.relu, torch.tanh, F.silu, F.gelu, F.softplus)
_NORMS = ("layer", "rms", "batch", "group", "softmax")
_PADDINGS = ("zeros", "reflect", "replicate", "circular")


class Layer(nn.Module):
    """One layer of ``kind`` on rows [batch, time, width]; ``width`` is that of its result."""

    def __init__(self, rng: random.Random, kind: str, width: int, time: int) -> None:
        super().__init__()
        self.kind, self.width, self.time = kind, width, time
        self.act, self.detail, self.dim = rng.choice(_ACTIVATIONS), rng.randrange(4), rng.choice((1, 2))
        getattr(self, f"_make_{kind}", lambda rng: None)(rng)

    def forward(self, x: Tensor) -> Tensor:
        return getattr(self, f"_{self.kind}")(x)

    def _make_linear(self, rng: random.Random) -> None:
        before, self.width = self.width, rng.choice((8, 12, 16, 20, 32))
        self.linear = nn.Linear(before, self.width, bias=rng.random() < 0.7)

    def _linear(self, x: Tensor) -> Tensor:
        return self.act(self.linear(x))

    def _make_perceptron(self, rng: random.Random) -> None:
        inner = 4 * self.width
        self.up, self.down = nn.Linear(self.width, 2 * inner, bias=False), nn.Linear(inner, self.width)

    def _perceptron(self, x: Tensor) -> Tensor:
        gate, value = self.up(x).chunk(2, -1)
        return x + self.down(self.act(gate) * value)

    def _make_norm(self, rng: random.Random) -> None:
        self.name = rng.choice(_NORMS)
        made = {
            "layer": lambda: nn.LayerNorm(self.width),
            "rms": lambda: nn.RMSNorm(self.width),
            "batch": lambda: nn.BatchNorm1d(self.width),
            "group": lambda: nn.GroupNorm(2, self.width),
            "softmax": lambda: nn.Softmax(self.dim),
        }
        self.norm = made[self.name]()

    def _norm(self, x: Tensor) -> Tensor:
        by_channel = self.name in ("batch", "group")
        return self.norm(x.transpose(1, 2)).transpose(1, 2) if by_channel else self.norm(x)

    def _make_attention(self, rng: random.Random) -> None:
        self.heads = 4 if self.width % 8 == 0 else 2
        self.project, self.out = nn.Linear(self.width, 3 * self.width), nn.Linear(self.width, self.width)

    def _attention(self, x: Tensor) -> Tensor:
        parts = self.project(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts.unbind(0), is_causal=self.detail % 2 == 0)
        return x + self.out(mixed.transpose(1, 2).flatten(2))

    def _make_convolution(self, rng: random.Random) -> None:
        groups, before = rng.choice((1, 2)), self.width
        self.width = rng.choice((8, 16))
        self.conv = nn.Conv1d(before, self.width, 3, 1, 1, groups=groups, padding_mode=rng.choice(_PADDINGS))

    def _convolution(self, x: Tensor) -> Tensor:
        return self.act(self.conv(x.transpose(1, 2)).transpose(1, 2))

    def _make_recurrent(self, rng: random.Random) -> None:
        self.cell = rng.choice((nn.LSTM, nn.GRU))(self.width, self.width, batch_first=True)

    def _recurrent(self, x: Tensor) -> Tensor:
        return self.cell(x)[0]

    def _make_mixing(self, rng: random.Random) -> None:
        self.weight = nn.Parameter(0.3 * torch.randn(self.time, self.time))

    def _mixing(self, x: Tensor) -> Tensor:
        return torch.einsum("btc,ts->bsc", x, self.weight)

    def _make_average(self, rng: random.Random) -> None:
        self.register_buffer("average", torch.zeros(self.width))

    def _average(self, x: Tensor) -> Tensor:
        if self.training:
            self.average.mul_(0.9).add_(0.1 * x.detach().mean((0, 1)))
        return x - self.average

    def _make_frozen(self, rng: random.Random) -> None:
        self.scale = nn.Parameter(torch.rand(self.width), requires_grad=False)
        self.unread, self.shift = nn.Parameter(torch.ones(3)), nn.Parameter(torch.randn(self.width))

    def _frozen(self, x: Tensor) -> Tensor:
        return x * self.scale + self.shift

    def _move(self, x: Tensor) -> Tensor:
        """Something that moves entries along one dim and leaves its size."""
        size = x.shape[self.dim]
        if self.detail == 0:
            return x.roll(3, self.dim)
        if self.detail == 1:
            return x.cumsum(self.dim) / size
        if self.detail == 2:
            every = [x.narrow(self.dim, size // 2, size - size // 2), x.narrow(self.dim, 0, size // 2)]
            return torch.cat([part * (1 + place) for place, part in enumerate(every)], self.dim)
        return x + x.flip(self.dim)

    def _slices(self, x: Tensor) -> Tensor:
        """Every other entry, twice, between zeros."""
        first = x[:, 1::2] if self.dim == 1 else x[..., 1::2]
        size, pairs = x.shape[self.dim], [0, 0, 0, 0]
        at = 2 * (2 - self.dim)
        pairs[at], pairs[at + 1] = 1, size - 1 - first.shape[self.dim]
        return x + F.pad(first, pairs)


class Drawn(nn.Module):
    """Rows, or words, through 3 to 7 layers; a loss in training, in evaluation what it is a loss of."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.batch_size, self.time, width = rng.choice((4, 6, 8, 12)), rng.choice((4, 6, 8)), rng.choice((8, 12, 16))
        self.reads_words, self.tells_words = rng.random() < 0.4, rng.random() < 0.5
        self.first = nn.Embedding(WORDS, width) if self.reads_words else nn.Linear(6, width)
        layers: list[Layer] = []
        kinds = [name.removeprefix("_make_") for name in vars(Layer) if name.startswith("_make_")] + ["move", "slices"]
        for _ in range(rng.randint(3, 7)):
            layers.append(Layer(rng, rng.choice(kinds), width, self.time))
            width = layers[-1].width
        self.layers, self.norm = nn.ModuleList(layers), nn.LayerNorm(width)
        self.head = nn.Linear(width, WORDS)
        if self.reads_words and self.first.weight.shape == self.head.weight.shape and rng.random() < 0.5:
            self.head.weight = self.first.weight

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        rows = self.first(x)
        for layer in self.layers:
            rows = layer(rows)
        told = self.head(self.norm(rows))
        if not self.training:
            return told
        return F.cross_entropy(told.flatten(0, 1), y.flatten()) if self.tells_words else told.square().mean()


def drawn_dense(seed: int) -> tuple[Drawn, tuple[Tensor, ...]]:
    """The model of a seed in double precision, and a batch; rows of the batch are the first dim."""
    rng = random.Random(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Drawn(rng).double()
        size = (model.batch_size, model.time)
        x = torch.randint(WORDS, size) if model.reads_words else torch.randn(*size, 6).double()
        return model, (x, torch.randint(WORDS, size))
