"""Small models of sequences, sets and tables, in double precision, with a batch for each."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WORDS, WIDTH, LENGTH = 96, 48, 8


class Encoder(nn.Module):
    """Layers of torch's own encoder."""

    def __init__(self, *, batch_first: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 96, 0.0, batch_first=batch_first)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).square().mean()


class Attention(nn.Module):
    """Heads by hand; causal if asked."""

    def __init__(self, *, is_causal: bool = False) -> None:
        super().__init__()
        self.project, self.merge, self.is_causal = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), is_causal

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.project(x).view(batch, length, 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        return self.merge(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


class Block(nn.Module):
    """Attention and an MLP, or what stands for one, each after a norm."""

    def __init__(self, inner: nn.Module, norm: type[nn.Module], *, is_causal: bool = False) -> None:
        super().__init__()
        self.norms = nn.ModuleList([norm(WIDTH), norm(WIDTH)])
        self.attention, self.inner = Attention(is_causal=is_causal), inner

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.inner(self.norms[1](x))


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 96), nn.GELU(), nn.Linear(96, WIDTH))


class Gated(nn.Module):
    """SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(WIDTH, 96, bias=False), nn.Linear(WIDTH, 96, bias=False)
        self.down = nn.Linear(96, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Language(nn.Module):
    """Words, positions, blocks, and the next word; the head is the table where it is tied."""

    def __init__(self, *blocks: nn.Module, is_tied: bool) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks, self.norm = nn.Sequential(*blocks), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if is_tied:
            self.head.weight = self.words.weight

    def forward(self, ids: Tensor, y: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        return F.cross_entropy(self.head(self.norm(self.blocks(x))).flatten(0, 1), y.flatten())


class Experts(nn.Module):
    """Each token by its best two of four experts, which all see all tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.choose = nn.Linear(WIDTH, 4)
        self.up, self.down = nn.Parameter(torch.randn(4, WIDTH, 96) / 7), nn.Parameter(torch.randn(4, 96, WIDTH) / 9)

    def forward(self, x: Tensor) -> Tensor:
        best, which = self.choose(x).topk(2, -1)
        weights = torch.zeros_like(x[..., :4]).scatter(-1, which, best.softmax(-1))
        made = F.gelu(x.flatten(0, 1) @ self.up) @ self.down
        return (made * weights.flatten(0, 1).t().unsqueeze(-1)).sum(0).view_as(x)


class Adapted(nn.Module):
    """LoRA: a frozen product, and one of low rank beside it that is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.into, self.out = nn.Parameter(torch.randn(WIDTH, 8) / 7), nn.Parameter(torch.randn(8, WIDTH) / 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(x) + x @ self.into @ self.out


class Recurrent(nn.Module):
    """Two layers of an LSTM or of a GRU over time, and a product."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers, self.head = layers, nn.Linear(WIDTH, 24)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x)[0]).square().mean()


class Translation(nn.Module):
    """An LSTM reads, another writes and looks back at all that was read."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(2 * WIDTH, WORDS)
        self.reader, self.writer = (nn.LSTM(WIDTH, WIDTH, batch_first=True) for _ in range(2))

    def forward(self, source: Tensor, target: Tensor, y: Tensor) -> Tensor:
        read, state = self.reader(self.words(source))
        written, _ = self.writer(self.words(target), state)
        seen = (written @ read.transpose(1, 2)).softmax(-1) @ read
        return F.cross_entropy(self.head(torch.cat([written, seen], -1)).flatten(0, 1), y.flatten())


class Ranking(nn.Module):
    """DLRM: a table of bags, a table of words, an MLP over numbers, and all pairs of what they give."""

    def __init__(self) -> None:
        super().__init__()
        self.bag, self.word = nn.EmbeddingBag(960, 24, mode="sum"), nn.Embedding(480, 24)
        self.numbers, self.head = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 24)), nn.Linear(9, 1)

    def forward(self, ids: Tensor, word: Tensor, numbers: Tensor, y: Tensor) -> Tensor:
        found = torch.stack([self.bag(ids), self.word(word), self.numbers(numbers)], 1)
        pairs = (found @ found.transpose(1, 2)).flatten(1)
        return F.binary_cross_entropy_with_logits(self.head(pairs).squeeze(1), y)


class Contrast(nn.Module):
    """CLIP: two towers, whose samples are told apart within the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.scale = perceptron(), perceptron(), nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        a, b = F.normalize(self.one(x), dim=-1), F.normalize(self.two(y), dim=-1)
        logits = self.scale.exp() * a @ b.t()
        own = torch.arange(len(x), device=x.device)
        return (F.cross_entropy(logits, own) + F.cross_entropy(logits.t(), own)) / 2


class Critic(nn.Module):
    """Products whose weights are divided by their largest singular value."""

    def __init__(self) -> None:
        super().__init__()
        normed = nn.utils.parametrizations.spectral_norm
        self.layers = nn.Sequential(normed(nn.Linear(WIDTH, 96)), nn.LeakyReLU(0.1), normed(nn.Linear(96, 24)))

    def forward(self, x: Tensor) -> Tensor:
        return F.softplus(-self.layers(x)).mean()


def words(*shape: int) -> Tensor:
    return torch.randint(0, WORDS, shape)
