"""Every operator of the training steps of known models can be divided; else it would be replicated and listed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.partition.small_models import model_and_batch
from vgraph.capture.step.capture_step import capture_step
from vgraph.ir.step import TrainingStep
from vgraph.ir.tdl.table import is_absent
from vgraph.partition.search.clusters import size
from vgraph.partition.search.strategies import strategies

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": torch.optim.Adam,
    "adagrad": torch.optim.Adagrad,
}


class Branches(nn.Module):
    """A block of Inception (convolutions of several sizes and pooling, side by side) and one of DenseNet."""

    def __init__(self) -> None:
        super().__init__()
        kinds = [(1, 1), (3, 3), (1, 7), (7, 1)]
        self.convs = nn.ModuleList(
            nn.Conv2d(8, 8, kind, padding=(kind[0] // 2, kind[1] // 2), bias=False) for kind in kinds
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in kinds)
        self.dense = nn.ModuleList(nn.Conv2d(40 + 8 * i, 8, 3, padding=1, bias=False) for i in range(3))
        self.out = nn.Linear(64, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        found = [torch.relu(norm(conv(x))) for conv, norm in zip(self.convs, self.norms, strict=True)]
        found.append(nn.functional.avg_pool2d(x, 3, 1, 1))
        for conv in self.dense:
            found.append(conv(torch.relu(torch.cat(found, 1))))
        x = nn.functional.max_pool2d(torch.cat(found, 1), 2)
        return nn.functional.cross_entropy(self.out(nn.functional.dropout(x.mean((2, 3)), 0.2)), y)


def undivided(step: TrainingStep) -> set[str]:
    """Operators that have replication as their only strategy, though there is something to divide."""
    found: set[str] = set()
    for op in step.ops:
        made = max((size(value) for value in op.results if not is_absent(value)), default=0)
        if made > 1 and len(strategies(op, 2)) == 1:
            found.add(str(op.target))
    return found


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ["wresnet", "lstm", "attention", "branches"])
def test_every_operator_can_be_divided(name: str, optimizer: str) -> None:
    if name == "branches":
        model, batch = Branches(), (torch.zeros(4, 8, 16, 16), torch.zeros(4, dtype=torch.long))
    else:
        model, batch = model_and_batch(name)
    left = undivided(capture_step(model, batch, OPTIMIZERS[optimizer]))
    assert left <= {"aten.tril.default"}  # the causal mask, which every worker makes for itself
