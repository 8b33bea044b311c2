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


def prefetched(data: Data, g: Any) -> dict[str, list[str]]:
    """What a sampler of either library is told of the features that its blocks are to have, which the graph gets."""
    if data.workload.options["what"] == "sampling":
        return {}
    g.ndata["x"], g.ndata["y"] = data.x, data.y
    return {"prefetch_node_feats": ["x"], "prefetch_labels": ["y"]}


def epoch(data: Data, loader: Iterable[Any], layer: Callable[..., nn.Module]) -> Step:
    """All minibatches of the loader; with training, GraphSAGE on the features of their blocks."""
    model = SAGE(layer, data.sizes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    trains = data.workload.options["what"] == "training"

    def step() -> list[Tensor]:
        count = 0
        for _, output, blocks in loader:
            count += len(output)
            if trains:
                loss = F.cross_entropy(model(blocks, blocks[0].srcdata["x"]), blocks[-1].dstdata["y"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return [torch.tensor(float(count))]

    return step
