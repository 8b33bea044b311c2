"""Models whose layers mix the last dims alone: they are divided along the batch, and hold their share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.partitioning.listed import outcome
from vgraph.api.dense.plan_hints import NEAR


class SpatialTransformer(nn.Module):
    """Images sampled where a network says, and the largest entry of each plane."""

    def __init__(self) -> None:
        super().__init__()
        self.where, self.conv, self.out = nn.Linear(48, 6), nn.Conv2d(3, 12, 3, 1, 1), nn.Linear(12, 8)

    def forward(self, x: Tensor) -> Tensor:
        grid = F.affine_grid(self.where(x[:, :, :4, :4].flatten(1)).view(-1, 2, 3), x.shape, align_corners=False)
        sampled = F.grid_sample(x, grid, align_corners=False)
        return self.out(F.adaptive_max_pool2d(torch.relu(self.conv(sampled)), 1).flatten(1)).square().mean()


class Upscaling(nn.Module):
    """Windows as columns, reflected edges, channels shuffled into pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.out = nn.Linear(27, 24), nn.Conv2d(6, 3, 3, padding=1, padding_mode="reflect")

    def forward(self, x: Tensor) -> Tensor:
        columns = F.unfold(x, 3, padding=1, stride=2)
        made = self.mix(columns.transpose(1, 2)).transpose(1, 2).unflatten(-1, (4, 4))
        return (self.out(F.pixel_shuffle(torch.tanh(made), 2)) - x).abs().mean()


class Volume(nn.Module):
    """Three dims of space, and distances between what two of its halves say."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = nn.Conv3d(2, 8, 3, 1, 1), nn.Linear(64, 8)

    def forward(self, x: Tensor) -> Tensor:
        pooled = F.max_pool3d(torch.tanh(self.conv(x)), 2)
        points = self.out(pooled.flatten(1)).unflatten(1, (4, 2))
        return torch.cdist(points, points + 1).cummax(1)[0].mean() + F.avg_pool3d(pooled, 2).square().mean()


GIVEN: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "spatial transformer": (SpatialTransformer, (32, 3, 8, 8)),
    "upscaling": (Upscaling, (32, 3, 8, 8)),
    "volume": (Volume, (32, 2, 4, 4, 4)),
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_model_of_planes_is_divided(name: str) -> None:
    made, shape = GIVEN[name]
    found = outcome(made().double(), (torch.randn(shape).double(),), 4)
    assert found.error < 1e-10
    assert found.moved <= (1 + 1e-9) * found.best_named
    assert found.shares <= NEAR, found.reason
