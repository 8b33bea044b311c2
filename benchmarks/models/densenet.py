"""DenseNet-121 (Huang et al. 2017): every layer reads what all layers of its block wrote."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class DenseLayer(nn.Module):
    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, parts: list[Tensor]) -> Tensor:
        h = self.conv1(F.relu(self.bn1(torch.cat(parts, 1))))
        return self.conv2(F.relu(self.bn2(h)))


class DenseNet(nn.Module):
    def __init__(self, blocks: tuple[int, ...], growth: int = 32, classes: int = 1000) -> None:
        super().__init__()
        channels = 2 * growth
        self.conv, self.bn = nn.Conv2d(3, channels, 7, 2, padding=3, bias=False), nn.BatchNorm2d(channels)
        self.blocks, self.transitions = nn.ModuleList(), nn.ModuleList()
        for i, count in enumerate(blocks):
            self.blocks.append(nn.ModuleList(DenseLayer(channels + k * growth, growth) for k in range(count)))
            channels += count * growth
            if i + 1 < len(blocks):
                self.transitions.append(_transition(channels))
                channels //= 2
        self.last, self.fc = nn.BatchNorm2d(channels), nn.Linear(channels, classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        h = F.max_pool2d(F.relu(self.bn(self.conv(images))), 3, 2, padding=1)
        for i, block in enumerate(self.blocks):
            parts = [h]
            for layer in block:
                parts.append(layer(parts))
            h = torch.cat(parts, 1)
            if i < len(self.transitions):
                h = self.transitions[i](h)
        return F.cross_entropy(self.fc(F.relu(self.last(h)).mean((2, 3))), labels)


def _transition(channels: int) -> nn.Module:
    conv = nn.Conv2d(channels, channels // 2, 1, bias=False)
    return nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(), conv, nn.AvgPool2d(2))


def densenet121() -> DenseNet:
    return DenseNet((6, 12, 24, 16))
