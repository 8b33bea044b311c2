"""An epoch over sampled blocks, with any library's loader and layer.

What is drawn differs from library to library, so that only the number of seeds is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sides.steps import Step
from sides.workloads import Data


class SAGE(nn.Module):
    """A layer of the library's a block."""

    def __init__(self, layer: Callable[..., nn.Module], sizes: tuple[int, ...]) -> None:
        super().__init__()
        pairs = pairwise(sizes)
        self.layers = nn.ModuleList([layer(rows, columns, "mean") for rows, columns in pairs])

    def forward(self, blocks: Iterable[Any], h: Tensor) -> Tensor:
        for i, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            h = layer(block, F.relu(h) if i else h)
        return h


def epoch(data: Data, loader: Iterable[Any], layer: Callable[..., nn.Module]) -> Step:
    """All minibatches of the loader; with training, GraphSAGE on the features of their inputs."""
    model = SAGE(layer, data.sizes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    trains = data.workload.options["trains"]
    x, y = (data.x, data.y) if trains else (None, None)

    def step() -> list[Tensor]:
        count = 0
        for given, output, blocks in loader:
            count += len(output)
            if x is not None and y is not None:
                loss = F.cross_entropy(model(blocks, x[given]), y[output])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return [torch.tensor(float(count))]

    return step
