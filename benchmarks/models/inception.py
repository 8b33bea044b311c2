"""Inception-v3 with its auxiliary head (Szegedy et al. 2016)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Conv(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int | tuple[int, int], stride: int = 1,
                 padding: int | tuple[int, int] = 0) -> None:  # fmt: skip
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)))


class Branches(nn.Module):
    """Branches side by side, their channels one after the other; a list inside forks once more."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def chain(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


def pooled(inputs: int, outputs: int) -> nn.Module:
    return chain(nn.AvgPool2d(3, 1, 1), Conv(inputs, outputs, 1))


def block_a(inputs: int, pool: int) -> nn.Module:
    return Branches(
        Conv(inputs, 64, 1),
        chain(Conv(inputs, 48, 1), Conv(48, 64, 5, padding=2)),
        chain(Conv(inputs, 64, 1), Conv(64, 96, 3, padding=1), Conv(96, 96, 3, padding=1)),
        pooled(inputs, pool),
    )


def block_b(inputs: int) -> nn.Module:
    return Branches(
        Conv(inputs, 384, 3, 2),
        chain(Conv(inputs, 64, 1), Conv(64, 96, 3, padding=1), Conv(96, 96, 3, 2)),
        nn.MaxPool2d(3, 2),
    )


def block_c(inputs: int, inner: int) -> nn.Module:
    flat, tall = {"kernel": (1, 7), "padding": (0, 3)}, {"kernel": (7, 1), "padding": (3, 0)}
    return Branches(
        Conv(inputs, 192, 1),
        chain(Conv(inputs, inner, 1), Conv(inner, inner, **flat), Conv(inner, 192, **tall)),
        chain(Conv(inputs, inner, 1), Conv(inner, inner, **tall), Conv(inner, inner, **flat),
              Conv(inner, inner, **tall), Conv(inner, 192, **flat)),
        pooled(inputs, 192),
    )  # fmt: skip


def block_d(inputs: int) -> nn.Module:
    return Branches(
        chain(Conv(inputs, 192, 1), Conv(192, 320, 3, 2)),
        chain(Conv(inputs, 192, 1), Conv(192, 192, (1, 7), padding=(0, 3)), Conv(192, 192, (7, 1), padding=(3, 0)),
              Conv(192, 192, 3, 2)),
        nn.MaxPool2d(3, 2),
    )  # fmt: skip


def block_e(inputs: int) -> nn.Module:
    def fork() -> nn.Module:
        return Branches(Conv(384, 384, (1, 3), padding=(0, 1)), Conv(384, 384, (3, 1), padding=(1, 0)))

    return Branches(
        Conv(inputs, 320, 1),
        chain(Conv(inputs, 384, 1), fork()),
        chain(Conv(inputs, 448, 1), Conv(448, 384, 3, padding=1), fork()),
        pooled(inputs, 192),
    )


class InceptionV3(nn.Module):
    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = chain(
            Conv(3, 32, 3, 2), Conv(32, 32, 3), Conv(32, 64, 3, padding=1), nn.MaxPool2d(3, 2),
            Conv(64, 80, 1), Conv(80, 192, 3), nn.MaxPool2d(3, 2),
        )  # fmt: skip
        self.low = chain(block_a(192, 32), block_a(256, 64), block_a(288, 64), block_b(288))
        self.middle = chain(block_c(768, 128), block_c(768, 160), block_c(768, 160), block_c(768, 192))
        self.auxiliary = chain(nn.AvgPool2d(5, 3), Conv(768, 128, 1), Conv(128, 768, 5))
        self.auxiliary_fc = nn.Linear(768, classes)
        self.high = chain(block_d(768), block_e(1280), block_e(2048))
        self.dropout, self.fc = nn.Dropout(), nn.Linear(2048, classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        h = self.middle(self.low(self.stem(images)))
        side = self.auxiliary_fc(self.auxiliary(h).mean((2, 3)))
        out = self.fc(self.dropout(self.high(h).mean((2, 3))))
        return F.cross_entropy(out, labels) + 0.4 * F.cross_entropy(side, labels)


def inception_v3() -> InceptionV3:
    return InceptionV3()
