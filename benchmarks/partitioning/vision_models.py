"""Small models of images, in double precision, with a batch for each."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BATCH = 24


class Pipe(nn.Module):
    """Layers one after the other, and the mean square of what they give."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).square().mean()


class Basic(nn.Module):
    """Two 3 x 3 convolutions with batch normalisation, and a shortcut."""

    def __init__(self, given: int, made: int, stride: int, groups: int = 1) -> None:
        super().__init__()
        self.first = nn.Conv2d(given, made, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(made, made, 3, 1, 1, groups=groups, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(made), nn.BatchNorm2d(made)])
        self.shortcut = nn.Conv2d(given, made, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(h)) + self.shortcut(x))


class Classes(nn.Module):
    def __init__(self, body: nn.Module, width: int) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(width, 24)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.head(F.adaptive_avg_pool2d(self.body(x), 1).flatten(1)), y)


class Dense(nn.Module):
    """Each convolution reads what all before it gave."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(24 + 24 * i, 24, 3, 1, 1) for i in range(3))

    def forward(self, x: Tensor) -> Tensor:
        found = [x]
        for conv in self.convs:
            found.append(F.relu(conv(torch.cat(found, 1))))
        return F.max_pool2d(torch.cat(found, 1), 2)


class UNet(nn.Module):
    """Down and up again with group normalisation and skips; upsampled, or by transposed convolution."""

    def __init__(self, *, is_transposed: bool) -> None:
        super().__init__()
        self.start, self.down = nn.Conv2d(3, 24, 3, 1, 1), nn.Conv2d(24, 48, 3, 2, 1)
        self.middle, self.up = nn.Conv2d(48, 48, 3, 1, 1), nn.ConvTranspose2d(48, 24, 2, 2)
        self.reduce, self.out = nn.Conv2d(48, 24, 1), nn.Conv2d(48, 3, 3, 1, 1)
        self.norms = nn.ModuleList([nn.GroupNorm(8, 24), nn.GroupNorm(8, 48)])
        self.is_transposed = is_transposed

    def forward(self, x: Tensor) -> Tensor:
        first = F.silu(self.norms[0](self.start(x)))
        inner = F.silu(self.norms[1](self.middle(self.down(first))))
        up = self.up(inner) if self.is_transposed else self.reduce(F.interpolate(inner, scale_factor=2.0))
        return (self.out(torch.cat([first, up], 1)) - x).square().mean()


class Mixer(nn.Module):
    """An MLP over patches, then one over channels."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(48), nn.LayerNorm(48)])
        self.tokens = nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Linear(48, 16))
        self.channels = nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 48))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return (x + self.channels(self.norms[1](x))).square().mean()


class ViT(nn.Module):
    """Patches by a strided convolution, a class token, positions, one layer of torch's encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, 48, 4, 4), nn.Parameter(torch.randn(1, 1, 48))
        self.places, self.head = nn.Parameter(torch.randn(1, 17, 48)), nn.Linear(48, 24)
        self.layer = nn.TransformerEncoderLayer(48, 4, 96, 0.0, batch_first=True, norm_first=True)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = self.patches(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.token.expand(len(x), -1, -1), h], 1) + self.places
        return F.cross_entropy(self.head(self.layer(h)[:, 0]), y)


class VAE(nn.Module):
    """Convolutions to a mean and a deviation, noise that is part of the batch, transposed convolutions back."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(3, 24, 4, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(24 * 64, 48))
        self.decode = nn.Linear(24, 24 * 64)
        self.paint = nn.Sequential(nn.ReLU(), nn.ConvTranspose2d(24, 3, 4, 2, 1))

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        mean, log_var = self.encode(x).chunk(2, 1)
        z = mean + noise * (0.5 * log_var).exp()
        made = self.paint(self.decode(z).view(-1, 24, 8, 8))
        divergence = -0.5 * (1 + log_var - mean.square() - log_var.exp()).sum(1).mean()
        return F.mse_loss(made, x) + 0.01 * divergence


class Fourier(nn.Module):
    """A layer of a Fourier neural operator, along one dim."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.local, self.out = nn.Linear(24, 48), nn.Linear(48, 48), nn.Linear(48, 24)
        self.filter = nn.Parameter(torch.randn(9, 48, 48, 2) / 48)

    def forward(self, x: Tensor) -> Tensor:
        h = self.lift(x)
        spectrum = torch.einsum("bkc,kcd->bkd", torch.fft.rfft(h, dim=1), torch.view_as_complex(self.filter))
        return self.out(F.gelu(torch.fft.irfft(spectrum, n=16, dim=1) + self.local(h))).square().mean()


def images(size: int = 16) -> Tensor:
    return torch.randn(BATCH, 3, size, size)


def labels() -> Tensor:
    return torch.randint(0, 24, (BATCH,))
